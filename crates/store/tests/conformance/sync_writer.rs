//! Tests the sync writer of the store: records, their log entries and their groups.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Held, RepoId, Tick};
use gapless_store::change::{RecordOp, RecordsKind};
use gapless_store::table::log::{LogKind, SourceEvent};

use crate::access::{cursor, log, set_entry};
use crate::owner::{Owner, done, new_upstream, op};
use crate::world::World;

pub(crate) fn a_live_commit_in_full(world: &dyn World) {
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let mut alice = Owner::new(1);
    let mut change = alice.live(&[("app.a/1", Some("one")), ("app.a/2", Some("two"))]);
    book.begin(upstream, 0, 40);
    change.done = done(upstream, 0, 40);
    change.tick = Tick(9);
    set_entry(&mut change, |repo| {
        repo.entry.as_mut().unwrap().source = Some(SourceEvent { upstream, seq: 40 });
    });
    let ack = book.write(change).unwrap();
    assert_eq!(ack.numbers, Some(1..3));
    assert_eq!(ack.batch, 2);
    let id = ack.repo.unwrap();
    let mut open = Some(book);
    for _ in 0..2 {
        let book = open.take().unwrap_or_else(|| world.book());
        let view = book.view();
        assert_eq!(
            view.repo_by_did(&alice.did).unwrap(),
            Some((id, alice.row.clone()))
        );
        assert_eq!(view.root(id).unwrap(), alice.root());
        assert_eq!(view.signed_commit(id).unwrap(), Some(alice.commit.clone()));
        let record = view.record(id, b"app.a/2").unwrap().unwrap();
        assert_eq!(record.bytes(), Some(&b"two"[..]));
        assert_eq!(record.rev, Rev::from_bits(1));
        assert_eq!(cursor(&book, upstream), Some(40));
        let rows = log(&book);
        assert_eq!(rows.len(), 1);
        let (first, row) = &rows[0];
        assert_eq!((*first, row.kind, row.last), (1, LogKind::Live, true));
        assert_eq!(row.source, Some(SourceEvent { upstream, seq: 40 }));
        assert_eq!(row.commit.unwrap().1, alice.row.head().unwrap().commit);
        assert_eq!(row.ops[1].path, b"app.a/2");
        assert_eq!(row.ops[1].cid, Some(Cid::dag_cbor(b"two")));
        assert_eq!(row.ops[1].previous, None);
        assert_eq!(view.counters().unwrap().last_tick, Tick(9));
    }
}

pub(crate) fn updates_and_deletes_keep_what_they_replace(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let id = book.write(alice.live(&[("a/1", Some("x")), ("a/2", Some("y"))]));
    let id = id.unwrap().repo.unwrap();
    let update = book.write(alice.live(&[("a/1", Some("z"))])).unwrap();
    assert_eq!(update.numbers, Some(3..4));
    book.write(alice.live(&[("a/2", None)])).unwrap();
    let empty = book.write(alice.live(&[])).unwrap();
    assert_eq!(
        empty.numbers,
        Some(5..6),
        "an empty commit takes one number"
    );
    let view = book.view();
    assert_eq!(view.root(id).unwrap(), alice.root());
    let rows = log(&book);
    let replaced = rows[1].1.ops[0].previous.unwrap();
    assert_eq!(
        (replaced.cid, replaced.rev),
        (Cid::dag_cbor(b"x"), Rev::from_bits(1))
    );
    let old = view
        .version(id, b"a/1", replaced.rev, &replaced.cid)
        .unwrap()
        .unwrap();
    assert_eq!((old.bytes.as_deref(), old.by_seq), (Some(&b"x"[..]), 3));
    let deleted = &rows[2].1.ops[0];
    assert_eq!(
        (deleted.cid, deleted.previous.unwrap().cid),
        (None, Cid::dag_cbor(b"y"))
    );
    assert_eq!(view.versions(id, b"a/2").unwrap().len(), 1);
    assert_eq!(view.counts().unwrap().versions, 2);
    // From the middle of a row on, and from beyond the end.
    let from = |seq| {
        view.log_from(seq)
            .unwrap()
            .map(|row| row.unwrap().0)
            .collect::<Vec<_>>()
    };
    assert_eq!(from(2), [1, 3, 4, 5]);
    assert_eq!(from(3), [3, 4, 5]);
    assert_eq!(from(6), [0; 0]);
}

pub(crate) fn a_snapshot_in_chunks(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    for number in 0..25 {
        let path = format!("app.bsky.feed.post/{number:03}");
        alice.records.insert(path.into_bytes(), vec![number; 40]);
    }
    let head = alice.sign();
    let ops: Vec<RecordOp> = alice
        .records
        .iter()
        .map(|(path, bytes)| op(path, Some(bytes)))
        .collect();
    let applying = Held::Applying {
        target: head,
        from: None,
    };
    let mut id = RepoId(0);
    for chunk in [&ops[..10], &ops[10..20]] {
        let change = alice.change(RecordsKind::Backfill, applying, chunk.to_vec());
        id = book.write(change).unwrap().repo.unwrap();
    }
    drop(book);
    // Cut off here, and fetched again from the start.
    let mut book = world.book();
    assert_eq!(book.view().repo(id).unwrap().unwrap().held, applying);
    assert_eq!(book.view().signed_commit(id).unwrap(), None);
    let again = alice.change(RecordsKind::Backfill, applying, ops[..20].to_vec());
    let again = book.write(again).unwrap();
    assert_eq!(again.numbers, Some(21..41));
    let last = alice.change(
        RecordsKind::Backfill,
        Held::Exactly(head),
        ops[20..].to_vec(),
    );
    book.write(last).unwrap();
    let view = book.view();
    assert_eq!(view.root(id).unwrap(), head.data);
    assert_eq!(view.counts().unwrap().records, 25);
    assert_eq!(view.signed_commit(id).unwrap(), Some(alice.commit.clone()));
    let lasts: Vec<bool> = log(&book).iter().map(|(_, row)| row.last).collect();
    assert_eq!(lasts, [false, false, false, true]);
    let paths: Vec<Vec<u8>> = view
        .records(id)
        .map(|row| row.unwrap().path().to_vec())
        .collect();
    assert_eq!(paths, alice.records.keys().cloned().collect::<Vec<_>>());
    // The same snapshot once more is written all the same.
    let equal = alice.change(RecordsKind::Repair, Held::Exactly(head), ops[..1].to_vec());
    book.write(equal).unwrap();
}

pub(crate) fn changes_of_one_group_see_each_other(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let group = vec![
        alice.live(&[("a/1", Some("x"))]),
        alice.live(&[("a/1", Some("y")), ("a/2", Some("z"))]),
        alice.live(&[("a/2", None)]),
    ];
    let before = book.head();
    let answers = book.write_group(group).unwrap();
    let acks: Vec<_> = answers.into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(acks[1].numbers, Some(2..4));
    assert!(
        acks.iter().all(|ack| ack.batch == before.batch + 1),
        "one batch"
    );
    let id = acks[0].repo.unwrap();
    assert_eq!(acks[2].repo, Some(id));
    let view = book.view();
    assert_eq!(view.root(id).unwrap(), alice.root());
    assert_eq!(view.versions(id, b"a/1").unwrap().len(), 1);
    assert_eq!(book.head().next_seq, 5);
}
