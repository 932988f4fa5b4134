//! Tests changes that the store refuses: a refusal leaves nothing behind.

use gapless_atp::syntax::Rev;
use gapless_core::ledger::{
    DebtItem, DebtReason, Epoch, Head, Held, HostId, RepoId, Tick, Upstream, UpstreamId,
};
use gapless_store::change::{
    Change, EntryContent, HostChange, IdentityParts, RecordOp, RecordsKind, RepoChange, Subject,
    UpstreamChange,
};
use gapless_store::engine::{Engine, MemoryEngine, RawBatch};
use gapless_store::error::{Contradiction, StoreError};
use gapless_store::sync_writer::{NoSidecar, SyncWriter};
use gapless_store::table::{Table, key};

use crate::access::{log, refusal, set_entry, set_records};
use crate::owner::{Owner, done, entry, new_upstream, op, relay};
use crate::world::World;

pub(crate) fn contradictions_are_refused(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    book.write(alice.live(&[("a/1", Some("x"))])).unwrap();
    let head = *alice.row.head().unwrap();
    let as_was = |alice: &mut Owner| alice.row.held = Held::Exactly(head);

    let again = alice.change(RecordsKind::Live, Held::Exactly(head), vec![]);
    assert_eq!(refusal(&mut book, again), Contradiction::NotAbove);

    let mut other_state = alice.live(&[("a/2", Some("y"))]);
    set_records(&mut other_state, |records| records.before = Held::Nothing);
    assert_eq!(refusal(&mut book, other_state), Contradiction::OtherState);
    as_was(&mut alice);

    let next = alice.sign();
    alice.row.held = Held::Exactly(next);
    assert_eq!(
        refusal(&mut book, alice.row_change()),
        Contradiction::Unfounded
    );
    as_was(&mut alice);

    let mut other_commit = alice.live(&[]);
    set_records(&mut other_commit, |records| records.commit.push(0));
    assert_eq!(refusal(&mut book, other_commit), Contradiction::OtherCommit);
    as_was(&mut alice);

    let half = Held::Applying {
        target: next,
        from: None,
    };
    let mut half = alice.change(RecordsKind::Live, half, vec![]);
    set_records(&mut half, |records| records.commit.clear());
    assert_eq!(refusal(&mut book, half), Contradiction::NotExact);
    as_was(&mut alice);

    for (ops, why) in [
        (
            vec![op(b"a/1", None), op(b"a/1", Some(b"z"))],
            Contradiction::PathTwice,
        ),
        (vec![op(b"", Some(b"z"))], Contradiction::PathLength),
        (
            vec![op(&[b'a'; 1025], Some(b"z"))],
            Contradiction::PathLength,
        ),
        (vec![op(b"a/9", None)], Contradiction::NothingToDelete),
        #[cfg(debug_assertions)]
        (
            vec![RecordOp {
                fresh: true,
                ..op(b"a/1", Some(b"z"))
            }],
            Contradiction::NotFresh,
        ),
        (
            (0..1001u32)
                .map(|n| op(&n.to_be_bytes(), Some(b"z")))
                .collect(),
            Contradiction::TooLarge,
        ),
        (
            (0..17u32)
                .map(|n| op(&n.to_be_bytes(), Some(&vec![0; 1 << 20])))
                .collect(),
            Contradiction::TooLarge,
        ),
    ] {
        let held = Held::Exactly(alice.sign());
        let change = alice.change(RecordsKind::Repair, held, ops);
        assert_eq!(refusal(&mut book, change), why);
        as_was(&mut alice);
    }

    alice.row.host = Some(HostId(99));
    assert_eq!(
        refusal(&mut book, alice.row_change()),
        Contradiction::NoSuchHost(99)
    );
    alice.row.host = None;
    let unknown = RepoChange::row(Subject::Id(RepoId(99)), alice.row.clone());
    let unknown = Change {
        repo: Some(unknown),
        ..Change::default()
    };
    assert_eq!(refusal(&mut book, unknown), Contradiction::NoSuchRepo(99));
    let swapped = RepoChange::row(Owner::new(2).subject(), alice.row.clone());
    let swapped = Change {
        repo: Some(swapped),
        ..Change::default()
    };
    assert_eq!(refusal(&mut book, swapped), Contradiction::OtherRepo);
    let purge = Change {
        repo: Some(RepoChange {
            entry: Some(entry(EntryContent::Purge)),
            ..RepoChange::row(alice.subject(), alice.row.clone())
        }),
        ..Change::default()
    };
    assert_eq!(refusal(&mut book, purge), Contradiction::PurgeHolds);
    let frame = Change {
        repo: Some(RepoChange {
            entry: Some(gapless_store::change::LogEntry {
                frame: Some(vec![0; gapless_atp::limits::FRAME_BYTES + 1]),
                ..entry(EntryContent::Identity(IdentityParts::default()))
            }),
            ..RepoChange::row(alice.subject(), alice.row.clone())
        }),
        ..Change::default()
    };
    assert_eq!(refusal(&mut book, frame), Contradiction::FrameTooLarge);

    // A new lineage may go back; nothing else may.
    alice.row.lineage = 1;
    let older = Head {
        rev: Rev::from_bits(0),
        ..head
    };
    let adopted = alice.change(
        RecordsKind::Repair,
        Held::Exactly(older),
        vec![op(b"a/1", Some(b"w"))],
    );
    let mut adopted_row = adopted.clone();
    set_records(&mut adopted_row, |records| records.commit.clear());
    book.write(adopted_row).unwrap();
    assert!(log(&book).last().unwrap().1.lineage > 0);
    alice.row.lineage = 0;
    assert_eq!(
        refusal(&mut book, alice.row_change()),
        Contradiction::LineageBack
    );
    let view = book.view();
    assert_eq!(
        view.counters().unwrap().next_seq,
        3,
        "refusals take no numbers"
    );
    assert_eq!(view.counts().unwrap().repos, 1);
}

pub(crate) fn a_refused_change_fails_alone(world: &dyn World) {
    let mut book = world.book();
    let (mut alice, mut bob) = (Owner::new(1), Owner::new(2));
    let good = alice.live(&[("a/1", Some("x"))]);
    // It writes much before it is refused.
    let mut bad = bob.live(&[("a/1", Some("x")), ("a/2", None)]);
    bad.tick = Tick(1000);
    bad.host = Some(HostChange::Named("pds.example.org".to_owned()));
    let after = alice.live(&[("a/2", Some("y"))]);
    let answers = book.write_group(vec![good, bad, after]).unwrap();
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert!(matches!(
        answers[1],
        Err(StoreError::Refused(Contradiction::NothingToDelete))
    ));
    assert_eq!(
        answers[2].as_ref().unwrap().numbers,
        Some(2..3),
        "numbers stay dense"
    );
    let view = book.view();
    assert_eq!(view.repo_id(&bob.did).unwrap(), None);
    assert_eq!(view.host_id("pds.example.org").unwrap(), None);
    assert_eq!(view.counters().unwrap().last_tick, Tick(0));
    assert_eq!(view.counts().unwrap().records, 2);
}

pub(crate) fn what_was_refused_is_not_read_back(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    book.write(alice.live(&[("a/1", Some("x"))])).unwrap();
    let stored = alice.row.clone();
    // Its row is good; what comes after the row is not.
    let mut bad = alice.live(&[("a/2", Some("y"))]);
    bad.done = done(UpstreamId(77), 0, 1);
    let mut later = Owner::new(1).row_change();
    set_entry(&mut later, |change| {
        change.row = None;
        change.entry = Some(entry(EntryContent::Identity(IdentityParts::default())));
    });
    let answers = book.write_group(vec![bad, later]).unwrap();
    assert!(matches!(
        answers[0],
        Err(StoreError::Refused(Contradiction::NoSuchUpstream(77)))
    ));
    let id = answers[1].as_ref().unwrap().repo.unwrap();
    let view = book.view();
    assert_eq!(view.repo(id).unwrap(), Some(stored));
    assert_eq!(view.counts().unwrap().records, 1);
}

pub(crate) fn a_name_without_a_row_is_refused_and_leaves_nothing(world: &dyn World) {
    let mut book = world.book();
    let (alice, bob) = (Owner::new(1), Owner::new(2));
    let mut named = alice.row_change();
    set_entry(&mut named, |change| change.row = None);
    assert_eq!(refusal(&mut book, named), Contradiction::NameWithoutRow);
    // The number that it would have had goes to another repository.
    let id = book.write(bob.row_change()).unwrap().repo.unwrap();
    assert_eq!(id, RepoId(1));
    assert_eq!(book.view().repo(id).unwrap(), Some(bob.row));
    assert_eq!(book.view().repo_id(&alice.did).unwrap(), None);
}

pub(crate) fn a_live_commit_on_half_a_snapshot_is_refused(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    alice.records.insert(b"a/1".to_vec(), b"x".to_vec());
    let target = alice.sign();
    let half = Held::Applying { target, from: None };
    let chunk = alice.change(RecordsKind::Backfill, half, vec![op(b"a/1", Some(b"x"))]);
    book.write(chunk).unwrap();
    let live = alice.live(&[("a/2", Some("y"))]);
    assert_eq!(refusal(&mut book, live), Contradiction::NotExact);
}

pub(crate) fn an_upstream_never_goes_back(world: &dyn World) {
    let mut book = world.book();
    let id = new_upstream(&mut book);
    let row = |numbering: u32, epoch: u64| Change {
        upstream: Some(UpstreamChange::Row(
            id,
            Upstream {
                epoch: Epoch(epoch),
                ..relay(numbering)
            },
        )),
        ..Change::default()
    };
    book.write(row(5, 50)).unwrap();
    book.write(row(5, 50)).unwrap();
    assert_eq!(refusal(&mut book, row(4, 51)), Contradiction::NumberingBack);
    assert_eq!(refusal(&mut book, row(6, 49)), Contradiction::EpochBack);
    book.write(row(6, 51)).unwrap();
}

/// A write does not replace a damaged row, so that a repair finds the damage.
#[test]
fn a_debt_that_is_lost_is_said_and_not_written_over() {
    let mut engine = MemoryEngine::new();
    let mut alice = Owner::new(1);
    alice.row.debt.fetch = Some(DebtItem {
        at: Tick(1),
        why: DebtReason::BrokenChain,
    });
    let open = |engine: &MemoryEngine| {
        let engine = Box::new(engine.clone());
        SyncWriter::open(engine, Box::new(NoSidecar)).unwrap()
    };
    let id = open(&engine).write(alice.row_change()).unwrap().repo;
    let id = id.unwrap();
    let mut damage = RawBatch::default();
    damage.delete(Table::Debt, key::repo(id));
    engine.commit(&damage).unwrap();
    let mut book = open(&engine);
    assert!(book.view().repo(id).is_err(), "readers are told");
    let mut identity = alice.row_change();
    set_entry(&mut identity, |change| {
        change.row = None;
        change.entry = Some(entry(EntryContent::Identity(IdentityParts::default())));
    });
    assert!(matches!(book.write(identity), Err(StoreError::Row { .. })));
    assert!(book.view().repo(id).is_err(), "and still are");
}

/// On the double; broken disks have tests of their own.
#[test]
fn a_failed_engine_latches() {
    let engine = MemoryEngine::new();
    let mut book = SyncWriter::open(Box::new(engine.clone()), Box::new(NoSidecar)).unwrap();
    let mut alice = Owner::new(1);
    book.write(alice.live(&[("a/1", Some("x"))])).unwrap();
    let head = book.head();
    engine.fail("no more disk");
    let group = vec![
        alice.live(&[("a/2", Some("y"))]),
        Owner::new(2).row_change(),
    ];
    let failed = book.write_group(group).unwrap_err();
    assert!(failed.is_final(), "{failed}");
    assert!(failed.to_string().contains("no more disk"));
    engine.crash(0);
    assert!(
        book.write(Owner::new(3).row_change()).is_err(),
        "nothing is tried again, not even when it would work"
    );
    assert_eq!(book.head(), head, "nothing is called durable that is not");
    assert!(book.latched().is_some());
    assert!(book.close().is_err());
    let book = SyncWriter::open(Box::new(engine), Box::new(NoSidecar)).unwrap();
    assert_eq!(book.head(), head);
}
