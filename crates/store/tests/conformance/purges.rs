//! Tests purges in parts: what each part deletes and logs, what readers see between two parts, and
//! that a purge goes on after a restart at any moment.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Account, Debt, DebtItem, DebtReason, Held, RepoId, Tick};
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_store::change::{
    Change, ClaimEntry, ConsumerChange, DELETED_BYTES, EntryContent, RecordsKind, Redaction, Upkeep,
};
use gapless_store::error::Contradiction;
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::{OpBytes, PageLimits, Walk, read_bytes, read_page};
use gapless_store::sync_writer::SyncWriter;
use gapless_store::table::claimed::Claim;
use gapless_store::table::log::{LogKind, LogRow};

use crate::access::{check_clean, log, refusal};
use crate::owner::{Owner, delete_purged, is_deleting, new_upstream, op, purge_whole, upkeep};
use crate::world::World;

/// Alice with so many records, the first of which was replaced once; a purge deletes them in more
/// than one part.
fn with_records(book: &mut SyncWriter, alice: &mut Owner, records: usize) -> RepoId {
    let paths: Vec<String> = (0..records)
        .map(|number| format!("app.a/{number:05}"))
        .collect();
    for chunk in paths.chunks(1000) {
        let writes: Vec<_> = chunk
            .iter()
            .map(|path| (path.as_str(), Some("x")))
            .collect();
        book.write(alice.live(&writes)).unwrap();
    }
    let ack = book.write(alice.live(&[("app.a/00000", Some("y"))]));
    ack.unwrap().repo.unwrap()
}

/// A reader sees nothing of a repository, in any way.
fn sees_nothing(book: &SyncWriter, id: RepoId) {
    let view = book.view();
    let repo = view.repo(id).unwrap().unwrap();
    assert_eq!(repo.held, Held::Nothing);
    assert_eq!(view.signed_commit(id).unwrap(), None);
    let mut walk = Walk::of_repo(&view, id).unwrap();
    let part = walk.next_part(&view).unwrap().unwrap();
    assert!(part.records.is_empty() && part.claims.is_empty() && part.ends);
    let page = read_page(&view, 1, PageLimits::default()).unwrap();
    for (_, row) in page.rows.iter().filter(|(_, row)| row.repo == Some(id)) {
        for op in row.ops.iter().filter(|op| op.cid.is_some()) {
            let bytes = read_bytes(&view, row, op).unwrap();
            assert_eq!(bytes, Some(OpBytes::Redacted));
        }
    }
}

pub(crate) fn a_purge_deletes_everything_part_by_part_and_outlives_every_restart(
    world: &dyn World,
) {
    let mut book = world.book();
    let (mut alice, mut bob) = (Owner::new(1), Owner::new(2));
    let id = with_records(&mut book, &mut alice, 2500);
    book.write(bob.live(&[("app.a/1", Some("z"))])).unwrap();
    let head = book.head();
    alice.row.account = Account::Deleted;
    let number = book.write(alice.purge()).unwrap().numbers.unwrap();
    assert_eq!(
        number,
        head.next_seq..head.next_seq + 1,
        "the account first"
    );
    let number = number.start;
    let mut parts = Vec::new();
    loop {
        drop(book);
        book = world.book();
        let view = book.view();
        assert_eq!(
            view.repo(id).unwrap().unwrap(),
            alice.row,
            "still under way"
        );
        sees_nothing(&book, id);
        check_clean(&book);
        if !is_deleting(&book, number) {
            break;
        }
        let before = book.head();
        let ack = book.write(delete_purged(number)).unwrap();
        assert_eq!(book.head().batch, before.batch + 1, "a batch of its own");
        parts.push(ack.numbers.map(|numbers| numbers.end - numbers.start));
    }
    // The last part deletes the superseded record.
    assert_eq!(parts, [Some(1000), Some(1000), Some(500), None]);
    book.write(alice.end_purge()).unwrap();
    let view = book.view();
    let counts = view.counts().unwrap();
    assert_eq!(
        (counts.records, counts.versions),
        (1, 0),
        "bob's is still there"
    );
    assert_eq!(view.repo(id).unwrap().unwrap(), alice.row);
    let rows: Vec<LogRow> = log(&book)
        .into_iter()
        .filter(|(first, _)| *first >= number)
        .map(|(_, row)| row)
        .collect();
    let kinds: Vec<LogKind> = rows.iter().map(|row| row.kind).collect();
    let account = LogKind::Account(Account::Deleted);
    let purged = LogKind::Purged;
    assert_eq!(kinds, [account, purged(1000), purged(1000), purged(500)]);
    let last: Vec<bool> = rows[1..].iter().map(|row| row.last).collect();
    assert_eq!(last, [false, false, true]);
    let mut ops = rows.iter().flat_map(|row| &row.ops);
    assert!(ops.all(|op| op.cid.is_none() && op.previous.is_some()));
    let (_, purge) = view.purges(number).next().unwrap().unwrap();
    assert_eq!((purge.records, purge.others), (2500, 1));
    // Nothing more is done by a further part, and the repository may come back.
    assert_eq!(book.write(delete_purged(number)).unwrap().numbers, None);
    book.write(alice.live(&[("app.b/1", Some("back"))]))
        .unwrap();
    assert_eq!(book.view().records(id).count(), 1);
    check_clean(&book);
}

pub(crate) fn nothing_is_written_to_a_repository_that_is_being_purged(world: &dyn World) {
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let mut alice = Owner::new(1);
    with_records(&mut book, &mut alice, 3);
    let number = book.write(alice.purge()).unwrap().numbers.unwrap().start;
    let before = log(&book);
    let row = alice.row.clone();
    let claim = Claim {
        upstream,
        rev: Rev::from_bits(9),
        record: None,
    };
    let claim = EntryContent::Claim(ClaimEntry {
        path: b"app.a/1".to_vec(),
        claim,
        give_way: Vec::new(),
    });
    let head = Held::Exactly(alice.sign());
    let ops = vec![op(b"app.a/00000", Some(b"z"))];
    let snapshot = alice.change(RecordsKind::Backfill, head, ops);
    alice.row = row.clone();
    let live = alice.live(&[("app.a/9", Some("z"))]);
    alice.row = row.clone();
    let mut damaged = alice.row_change();
    let held = Held::Damaged { from: None };
    damaged.repo.as_mut().unwrap().row.as_mut().unwrap().held = held;
    let claimed = alice.entry_change(claim);
    let ended = alice.end_purge();
    alice.row = row;
    alice.records.clear();
    for change in [snapshot, live, claimed, damaged, ended, alice.purge()] {
        assert_eq!(refusal(&mut book, change), Contradiction::Purging);
    }
    assert_eq!(log(&book), before);
    // What is no record may be written: the account may come back meanwhile.
    alice.row.lineage -= 1;
    alice.row.account = Account::Active;
    book.write(alice.entry_change(EntryContent::Account))
        .unwrap();
    while is_deleting(&book, number) {
        book.write(delete_purged(number)).unwrap();
    }
    book.write(alice.end_purge()).unwrap();
    let why = refusal(&mut book, delete_purged(number + 1));
    assert_eq!(why, Contradiction::NoSuchPurge(number + 1));
    check_clean(&book);
}

pub(crate) fn a_part_of_a_purge_has_few_bytes(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let large = "x".repeat(1 << 20);
    for number in 0..9 {
        let path = format!("app.a/{number}");
        book.write(alice.live(&[(&path, Some(&large))])).unwrap();
    }
    let number = book.write(alice.purge()).unwrap().numbers.unwrap().start;
    let mut parts = Vec::new();
    while is_deleting(&book, number) {
        let numbers = book.write(delete_purged(number)).unwrap().numbers;
        parts.extend(numbers.map(|numbers| numbers.end - numbers.start));
    }
    let most = DELETED_BYTES as u64 >> 20;
    assert_eq!(parts, [most, most, 1], "about four MiB each");
}

pub(crate) fn a_purge_without_records_is_told_too(world: &dyn World) {
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let mut alice = Owner::new(1);
    alice.row.debt = Debt {
        compare: Some(DebtItem {
            at: Tick(3),
            why: DebtReason::Claimed,
        }),
        ..Debt::default()
    };
    let claim = Claim {
        upstream,
        rev: Rev::from_bits(9),
        record: Some((Cid::dag_cbor(b"said"), b"said".to_vec())),
    };
    let claim = EntryContent::Claim(ClaimEntry {
        path: b"app.a/1".to_vec(),
        claim,
        give_way: Vec::new(),
    });
    book.write(alice.entry_change(claim)).unwrap();
    let mut model = LogModel::from_the_beginning();
    model.follow(&book.view(), PageLimits::default()).unwrap();
    assert_eq!(model.difference(&book.view()).unwrap(), None);
    purge_whole(&mut book, &mut alice);
    let rows = log(&book);
    assert_eq!(rows.last().unwrap().1.kind, LogKind::Purged(1));
    model.follow(&book.view(), PageLimits::default()).unwrap();
    assert_eq!(model.difference(&book.view()).unwrap(), None);
    assert!(model.is_empty(), "the claim is gone");
    check_clean(&book);
}

pub(crate) fn rows_of_a_purge_keep_their_paths_until_everyone_who_holds_has_passed(
    world: &dyn World,
) {
    let mut book = world.book();
    for overdue in [false, true] {
        let id = u32::from(overdue);
        let mut alice = Owner::new(id);
        with_records(&mut book, &mut alice, 1500);
        let number = purge_whole(&mut book, &mut alice);
        let rows: Vec<u64> = log(&book)
            .iter()
            .filter(|(first, row)| *first > number && matches!(row.kind, LogKind::Purged(_)))
            .map(|(first, _)| *first)
            .collect();
        assert_eq!(rows, [number + 1, number + 1001]);
        let key = ConsumerKey {
            class: ConsumerClass::Recipient,
            id,
            lane: 0,
        };
        // Inside of the first row: it still has to read that row.
        let next = rows[0] + 7;
        let consumer = Consumer {
            name: "index".to_owned(),
            next,
            holds_from: next,
            registered: When::default(),
            moved: When::default(),
            hold: Hold::Always,
            needs: ConsumerNeeds::Log,
            overrun: false,
        };
        let order = |change| Change {
            consumer: Some(change),
            ..Change::default()
        };
        let log_id = None;
        book.write(order(ConsumerChange::Register {
            key,
            consumer,
            log: log_id,
        }))
        .unwrap();
        let redact = |overdue| {
            upkeep(Upkeep::Redact(Redaction {
                purge: number,
                rows: rows.clone(),
                upto: number + 1501,
                overdue,
                ..Redaction::default()
            }))
        };
        let ops = |book: &SyncWriter| -> Vec<usize> {
            let all = log(book);
            let purged = all.iter().filter(|(first, _)| rows.contains(first));
            purged.map(|(_, row)| row.ops.len()).collect()
        };
        let upto = |book: &SyncWriter| book.view().purges(number).next().unwrap().unwrap().1.upto;
        book.write(redact(overdue)).unwrap();
        if !overdue {
            assert_eq!((ops(&book), upto(&book)), (vec![1000, 500], rows[0]));
            let move_to = |next| {
                order(ConsumerChange::Move {
                    key,
                    next,
                    holds_from: next,
                    log: None,
                    at: When::default(),
                })
            };
            book.write(move_to(rows[1])).unwrap();
            book.write(redact(false)).unwrap();
            assert_eq!((ops(&book), upto(&book)), (vec![0, 500], rows[1]));
            book.write(move_to(rows[1] + 500)).unwrap();
            book.write(redact(false)).unwrap();
        }
        assert_eq!((ops(&book), upto(&book)), (vec![0, 0], number + 1501));
        let counts: Vec<LogKind> = log(&book)
            .iter()
            .filter(|(first, _)| rows.contains(first))
            .map(|(_, row)| row.kind)
            .collect();
        assert_eq!(counts, [LogKind::Purged(1000), LogKind::Purged(500)]);
        check_clean(&book);
    }
}
