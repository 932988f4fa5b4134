//! Tests the consumers of the log: their positions, and what they hold back.

use std::time::Duration;

use gapless_atp::syntax::Handle;
use gapless_core::ledger::{DocumentKeys, KeyBytes, Lived, Tick, Time};
use gapless_core::retain::{
    Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, PositionError, When,
};
use gapless_store::change::{
    Change, ConsumerChange, EntryContent, HostChange, IdentityParts, LogId, Redaction, StoreIds,
    Upkeep,
};
use gapless_store::check::{self, Finding};
use gapless_store::engine::RawBatch;
use gapless_store::error::{ConsumerError, StoreError};
use gapless_store::sync_writer::SyncWriter;
use gapless_store::table::Table;
use gapless_store::table::audit::{AuditAct, AuditRow};
use gapless_store::table::log::{FIRST_SEQ, Identity, LogKind};

use crate::access::{check_clean, log};
use crate::owner::{Owner, entry, purge_whole, upkeep};
use crate::world::World;

const HOUR: Duration = Duration::from_secs(3600);
const LOG: LogId = LogId([7; 16]);

fn key(id: u32) -> ConsumerKey {
    ConsumerKey {
        class: ConsumerClass::Recipient,
        id,
        lane: 0,
    }
}

fn hours(hours: u64) -> Lived {
    Lived(hours * 3_600_000_000)
}

fn when(lived: u64) -> When {
    When {
        time: Time(lived),
        lived: hours(lived),
    }
}

/// A consumer that begins at a number and holds for an hour.
fn from(next: u64, needs: ConsumerNeeds) -> Consumer {
    Consumer {
        name: format!("reader from {next}"),
        next,
        holds_from: next,
        registered: when(0),
        moved: when(0),
        hold: Hold::For(HOUR),
        needs,
        overrun: false,
    }
}

fn order(change: ConsumerChange) -> Change {
    Change {
        consumer: Some(change),
        ..Change::default()
    }
}

fn register(id: u32, consumer: Consumer) -> Change {
    order(ConsumerChange::Register {
        key: key(id),
        consumer,
        log: None,
    })
}

fn move_to(id: u32, next: u64, lived: u64) -> Change {
    order(ConsumerChange::Move {
        key: key(id),
        next,
        holds_from: next,
        log: None,
        at: when(lived),
    })
}

fn refused(book: &mut SyncWriter, change: Change) -> ConsumerError {
    match book.write(change) {
        Err(StoreError::Consumer(why)) => why,
        other => panic!("should be refused: {other:?}"),
    }
}

fn consumer(book: &SyncWriter, id: u32) -> Consumer {
    book.view().consumers().unwrap()[&key(id)].clone()
}

/// A store whose log has one commit of one operation for each number from 1 on: the record of one
/// path, again and again.
fn with_commits(world: &dyn World, commits: u64) -> SyncWriter {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    for number in 0..commits {
        let text = number.to_string();
        book.write(alice.live(&[("app.a/1", Some(&text))])).unwrap();
    }
    book
}

/// The numbers that superseded the records that are still kept.
fn superseded(book: &SyncWriter) -> Vec<u64> {
    let rows = book.view().superseded_keys(b"");
    rows.map(|row| row.unwrap().1).collect()
}

fn expire_all(book: &mut SyncWriter, lived: u64) {
    let keys: Vec<Vec<u8>> = book
        .view()
        .superseded_keys(b"")
        .map(|row| row.unwrap().0)
        .collect();
    book.write(upkeep(Upkeep::Expire {
        keys,
        below: u64::MAX,
        at: when(lived),
    }))
    .unwrap();
}

fn trim(book: &mut SyncWriter, below: u64, lived: u64) {
    let at = when(lived);
    book.write(upkeep(Upkeep::Trim { below, at })).unwrap();
}

pub(crate) fn a_position_moves_forward_and_survives(world: &dyn World) {
    let mut book = with_commits(world, 5);
    book.write(register(1, from(2, ConsumerNeeds::Log)))
        .unwrap();
    book.write(move_to(1, 4, 1)).unwrap();
    drop(book);
    let mut book = world.book();
    let one = consumer(&book, 1);
    assert_eq!((one.next, one.holds_from, one.moved), (4, 4, when(1)));
    let back = PositionError::Back { next: 3, from: 4 };
    for (next, error) in [(3, back), (7, PositionError::Ahead { next: 7, head: 6 })] {
        let why = refused(&mut book, move_to(1, next, 2));
        let name = one.name.as_str().into();
        assert_eq!(why, ConsumerError::Position { name, error });
    }
    assert_eq!(
        consumer(&book, 1),
        one,
        "a refused position changes nothing"
    );
    book.write(move_to(1, 6, 2)).unwrap();
    assert_eq!(consumer(&book, 1).next, 6);
    assert_eq!(
        refused(&mut book, move_to(2, 1, 2)),
        ConsumerError::Unknown { key: key(2) }
    );
    let again = register(1, from(1, ConsumerNeeds::Log));
    let name = "reader from 1".into();
    assert_eq!(
        refused(&mut book, again),
        ConsumerError::Registered { name }
    );
    let ahead = register(2, from(7, ConsumerNeeds::Log));
    assert!(matches!(
        refused(&mut book, ahead),
        ConsumerError::Position { .. }
    ));
}

pub(crate) fn orders_about_consumers_are_recorded(world: &dyn World) {
    let mut book = with_commits(world, 5);
    book.write(register(1, from(4, ConsumerNeeds::Log)))
        .unwrap();
    let name = consumer(&book, 1).name;
    let by = || "ops".to_owned();
    for change in [
        ConsumerChange::Seek {
            key: key(1),
            to: 2,
            by: by(),
            at: when(1),
        },
        ConsumerChange::Overrun {
            key: key(1),
            at: when(2),
        },
        // A consumer that is overrun already is not recorded again.
        ConsumerChange::Overrun {
            key: key(1),
            at: when(3),
        },
        ConsumerChange::Remove {
            key: key(1),
            by: by(),
            at: when(4),
        },
    ] {
        book.write(order(change)).unwrap();
    }
    assert!(book.view().consumers().unwrap().is_empty());
    drop(book);
    let book = world.book();
    let rows: Vec<(u64, AuditRow)> = book.view().audit(0).map(|row| row.unwrap()).collect();
    let row = |lived, by: &str, act| AuditRow {
        at: Time(lived),
        by: by.to_owned(),
        consumer: name.clone(),
        act,
    };
    let expected = [
        (1, row(1, "ops", AuditAct::Sought { from: 4, to: 2 })),
        (2, row(2, "gapless", AuditAct::Overrun { next: 2, head: 6 })),
        (3, row(4, "ops", AuditAct::Removed { next: 2 })),
    ];
    assert_eq!(rows, expected);
}

pub(crate) fn a_consumer_of_another_log_is_refused_with_both_names(world: &dyn World) {
    let mut book = with_commits(world, 2);
    let other = LogId([9; 16]);
    let ids = StoreIds {
        log: LOG,
        store: [8; 16],
    };
    let with_log = |log| {
        order(ConsumerChange::Register {
            key: key(1),
            consumer: from(1, ConsumerNeeds::Log),
            log: Some(log),
        })
    };
    let no_log_yet = refused(&mut book, with_log(LOG)).to_string();
    assert!(no_log_yet.contains("no log yet"), "{no_log_yet}");
    book.write(upkeep(Upkeep::Identify(ids))).unwrap();
    let again = StoreIds { log: other, ..ids };
    book.write(upkeep(Upkeep::Identify(again))).unwrap();
    assert_eq!(book.view().ids().unwrap(), Some(ids), "given once");
    let words = refused(&mut book, with_log(other)).to_string();
    for id in [LOG, other] {
        assert!(words.contains(&id.to_string()), "{words}");
    }
    book.write(with_log(LOG)).unwrap();
    let moved = |log| {
        order(ConsumerChange::Move {
            key: key(1),
            next: 2,
            holds_from: 2,
            log: Some(log),
            at: when(1),
        })
    };
    assert!(matches!(
        refused(&mut book, moved(other)),
        ConsumerError::OtherLog { .. }
    ));
    book.write(moved(LOG)).unwrap();
    drop(book);
    assert_eq!(world.book().view().ids().unwrap(), Some(ids));
}

pub(crate) fn superseded_records_stay_for_a_consumer_that_needs_them(world: &dyn World) {
    let mut book = with_commits(world, 6);
    assert_eq!(superseded(&book), [2, 3, 4, 5, 6]);
    book.write(register(1, from(4, ConsumerNeeds::LogAndVersions)))
        .unwrap();
    book.write(register(2, from(2, ConsumerNeeds::Log)))
        .unwrap();
    expire_all(&mut book, 1);
    assert_eq!(superseded(&book), [4, 5, 6], "its hold has not passed");
    book.write(move_to(1, 6, 1)).unwrap();
    expire_all(&mut book, 2);
    assert_eq!(superseded(&book), [6]);
    expire_all(&mut book, 3);
    assert_eq!(superseded(&book), [0; 0], "longer than its hold");
}

pub(crate) fn the_log_is_trimmed_below_everyone_who_holds(world: &dyn World) {
    let mut book = with_commits(world, 9);
    let rows = log(&book);
    book.write(register(1, from(4, ConsumerNeeds::Log)))
        .unwrap();
    trim(&mut book, 3, 0);
    let (first, trimmed) = log(&book)[0].clone();
    assert_eq!((first, trimmed.kind), (FIRST_SEQ, LogKind::Trimmed(2)));
    assert_eq!(
        log(&book)[1..],
        rows[2..],
        "the rows that stay are the same"
    );
    trim(&mut book, 100, 0);
    assert_eq!(
        log(&book)[0].1.kind,
        LogKind::Trimmed(3),
        "the consumer's row stays"
    );
    trim(&mut book, 100, 1);
    assert_eq!(
        log(&book)[0].1.kind,
        LogKind::Trimmed(3),
        "nothing more goes"
    );
    check_clean(&book);
    trim(&mut book, 100, 2);
    assert_eq!(log(&book)[0].1.kind, LogKind::Trimmed(9), "it is overrun");
    assert_eq!(log(&book).len(), 1);
    check_clean(&book);
    drop(book);
    // The numbers go on, and nothing of the state went with the rows.
    let mut book = world.book();
    let mut bob = Owner::new(2);
    let numbers = book.write(bob.live(&[("app.a/1", Some("x"))])).unwrap();
    assert_eq!(numbers.numbers, Some(10..11));
    check_clean(&book);
    assert_eq!(log(&book).len(), 2);
}

pub(crate) fn a_trim_takes_whole_rows_and_its_time_ascends(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let many: Vec<String> = (0..5).map(|number| format!("app.a/{number}")).collect();
    let writes: Vec<(&str, Option<&str>)> =
        many.iter().map(|path| (path.as_str(), Some("x"))).collect();
    book.write(alice.live(&writes)).unwrap();
    book.write(alice.live(&[("app.b/1", Some("y"))])).unwrap();
    trim(&mut book, 5, 0);
    assert_eq!(log(&book)[0].1.kind, LogKind::Live, "it ends above");
    let last = log(&book)[0].1.last_stamp();
    trim(&mut book, 6, 0);
    let rows = log(&book);
    assert_eq!(
        (rows[0].1.kind, rows[0].1.stamp),
        (LogKind::Trimmed(5), last)
    );
    assert_eq!(rows[1].0, 6);
    assert_eq!(book.view().log_number_after(Time(0)).unwrap(), 1);
    check_clean(&book);
}

pub(crate) fn stamps_ascend_whatever_the_clock_does(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let two = [("app.a/1", Some("a")), ("app.a/2", Some("b"))];
    let at = |time: u64, change: Change| {
        let mut change = change;
        let repo = change.repo.as_mut().unwrap();
        repo.entry.as_mut().unwrap().at = Time(time);
        change
    };
    book.write(at(100, alice.live(&two))).unwrap();
    book.write(at(50, alice.live(&[("app.a/1", None)])))
        .unwrap();
    drop(book);
    let mut book = world.book();
    book.write(at(102, alice.live(&[("app.a/3", Some("c"))])))
        .unwrap();
    book.write(at(900, alice.live(&[("app.a/4", Some("d"))])))
        .unwrap();
    let rows = log(&book);
    let stamps: Vec<(u64, u64)> = rows
        .iter()
        .map(|(_, row)| (row.at.0, row.stamp.0))
        .collect();
    assert_eq!(stamps, [(100, 100), (50, 102), (102, 103), (900, 900)]);
    check_clean(&book);
}

pub(crate) fn records_know_the_number_that_put_them_there(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let two = [("app.a/1", Some("one")), ("app.a/2", Some("three"))];
    let id = book.write(alice.live(&two)).unwrap().repo.unwrap();
    book.write(alice.live(&[("app.a/2", Some("two!!!"))]))
        .unwrap();
    let view = book.view();
    let seqs: Vec<u64> = view.records(id).map(|row| row.unwrap().seq).collect();
    assert_eq!(seqs, [1, 3]);
    let old = view.versions(id, b"app.a/2").unwrap();
    assert_eq!((old[0].seq, old[0].by_seq), (2, 3));
    let sizes: Vec<Option<u32>> = log(&book)
        .iter()
        .flat_map(|(_, row)| row.ops.iter().map(|op| op.bytes))
        .collect();
    assert_eq!(sizes, [Some(3), Some(5), Some(6)]);
    let weight = view.weight(id).unwrap().unwrap();
    assert_eq!((weight.records, weight.bytes), (2, 9));
    book.write(alice.live(&[("app.a/1", None)])).unwrap();
    let weight = book.view().weight(id).unwrap().unwrap();
    assert_eq!((weight.records, weight.bytes), (1, 6));
    assert_eq!(log(&book)[2].1.ops[0].bytes, None, "a delete has no size");
    check_clean(&book);
}

pub(crate) fn an_identity_row_has_the_new_values_until_the_repository_is_purged(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    book.write(alice.live(&[("app.a/1", Some("one"))])).unwrap();
    let host = Change {
        host: Some(HostChange::Named("pds.example.org".to_owned())),
        ..Change::default()
    };
    alice.row.host = book.write(host).unwrap().host;
    alice.row.handle = Some(Handle::parse("alice.example.org").unwrap());
    let point = [2; 33];
    let key = KeyBytes { curve: 1, point };
    alice.row.signing = Some(DocumentKeys {
        key: Some(key),
        former: None,
        asked: Tick(1),
        at: Time(1),
    });
    let changed = IdentityParts {
        host: true,
        key: true,
        handle: false,
    };
    let mut change = alice.row_change();
    let identity = entry(EntryContent::Identity(changed));
    change.repo.as_mut().unwrap().entry = Some(identity);
    book.write(change).unwrap();
    let row = log(&book)[1].1.clone();
    let expected = Identity {
        host: Some("pds.example.org".to_owned()),
        key: Some(key),
        handle: Some("alice.example.org".to_owned()),
        changed,
    };
    assert_eq!(row.identity.as_deref(), Some(&expected));
    alice.row.handle = None;
    let part = Redaction {
        purge: purge_whole(&mut book, &mut alice),
        rows: vec![1, 2],
        upto: 3,
        ..Redaction::default()
    };
    book.write(upkeep(Upkeep::Redact(part))).unwrap();
    let rows = log(&book);
    assert_eq!(rows[0].1.kind, LogKind::Redacted(1));
    assert_eq!(
        (rows[1].1.kind, &rows[1].1.identity),
        (LogKind::Identity, &None)
    );
    assert_eq!(rows[1].1.stamp, row.stamp, "its place in time stays");
}

pub(crate) fn damaged_rows_about_consumers_are_found(world: &dyn World) {
    let mut book = with_commits(world, 2);
    book.write(register(1, from(2, ConsumerNeeds::Log)))
        .unwrap();
    let by = "ops".to_owned();
    book.write(order(ConsumerChange::Seek {
        key: key(1),
        to: 1,
        by,
        at: when(1),
    }))
    .unwrap();
    let ids = StoreIds {
        log: LOG,
        store: [8; 16],
    };
    book.write(upkeep(Upkeep::Identify(ids))).unwrap();
    book.write(upkeep(Upkeep::Live(Lived(5)))).unwrap();
    drop(book);
    let mut damaged = 0;
    for (table, prefix) in [
        (Table::Consumer, &b""[..]),
        (Table::Audit, b""),
        (Table::Meta, b"ids"),
        (Table::Meta, b"lived"),
    ] {
        let mut engine = world.engine();
        let rows = engine.snapshot().prefix(table, prefix);
        let keys: Vec<_> = rows.map(|row| row.unwrap()).collect();
        assert_eq!(keys.len(), 1, "{prefix:?}");
        let mut batch = RawBatch::default();
        batch.put(table, keys[0].0.clone(), vec![99]);
        engine.commit(&batch).unwrap();
        drop(engine);
        damaged += 1;
        let report = check::check(&world.book().view(), &mut |_| {}).unwrap();
        let rows = report.findings.iter();
        let rows = rows.filter(|finding| matches!(finding, Finding::Row { .. }));
        assert_eq!(rows.count(), damaged, "{report:?}");
    }
}

pub(crate) fn lived_time_never_goes_back(world: &dyn World) {
    let mut book = world.book();
    assert_eq!(book.view().lived().unwrap(), Lived(0));
    for (lived, expected) in [(5, 5), (3, 5), (9, 9)] {
        book.write(upkeep(Upkeep::Live(Lived(lived)))).unwrap();
        assert_eq!(book.view().lived().unwrap(), Lived(expected));
    }
    drop(book);
    assert_eq!(world.book().view().lived().unwrap(), Lived(9));
}

pub(crate) fn a_hold_passes_by_the_time_lived_through_and_not_while_idle(world: &dyn World) {
    let mut book = with_commits(world, 5);
    book.write(register(1, from(2, ConsumerNeeds::Log)))
        .unwrap();
    book.write(register(2, from(6, ConsumerNeeds::Log)))
        .unwrap();
    let review = |book: &mut SyncWriter, time: u64, lived: u64| {
        let at = When {
            time: Time(time),
            lived: hours(lived),
        };
        book.write(upkeep(Upkeep::ReviewConsumers { at })).unwrap();
        [1, 2].map(|id| consumer(book, id).overrun)
    };
    let year = 365 * 24 * 3_600_000_000;
    assert_eq!(
        review(&mut book, year, 1),
        [false, false],
        "only the clock was set"
    );
    assert_eq!(
        review(&mut book, 0, 2),
        [true, false],
        "longer than its hold"
    );
    assert_eq!(review(&mut book, 0, 3), [true, false]);
    let audit: Vec<AuditRow> = book.view().audit(0).map(|row| row.unwrap().1).collect();
    let act = AuditAct::Overrun { next: 2, head: 6 };
    assert_eq!((audit.len(), &audit[0].act), (1, &act), "once");
    // The idle one gets something to read: its hold begins with the last review.
    let mut bob = Owner::new(2);
    book.write(bob.live(&[("app.a/1", Some("x"))])).unwrap();
    assert_eq!(review(&mut book, 0, 4), [true, false]);
    book.write(move_to(1, 6, 4)).unwrap();
    assert_eq!(review(&mut book, 0, 5), [false, true]);
    // The time lived through was lost: the hold begins anew, and does not last for ever.
    assert_eq!(review(&mut book, 0, 0), [false, true]);
    assert_eq!(review(&mut book, 0, 2), [true, true]);
}

pub(crate) fn a_position_and_its_effects_are_one_change(world: &dyn World) {
    let mut book = with_commits(world, 5);
    book.write(register(1, from(2, ConsumerNeeds::Log)))
        .unwrap();
    let mut bob = Owner::new(2);
    let mut effect = bob.live(&[("app.a/1", Some("x"))]);
    effect.consumer = move_to(1, 9, 1).consumer;
    let before = book.head().next_seq;
    refused(&mut book, effect.clone());
    assert_eq!(
        book.head().next_seq,
        before,
        "no effect without the position"
    );
    assert_eq!(book.view().repo_id(&bob.did).unwrap(), None);
    let mut nonsense = Owner::new(3).live(&[("app.a/1", None)]);
    nonsense.consumer = move_to(1, 4, 1).consumer;
    assert!(matches!(book.write(nonsense), Err(StoreError::Refused(_))));
    assert_eq!(consumer(&book, 1).next, 2, "no position without the effect");
    effect.consumer = move_to(1, 6, 1).consumer;
    book.write(effect).unwrap();
    drop(book);
    let book = world.book();
    assert_eq!((consumer(&book, 1).next, book.head().next_seq), (6, 7));
}

pub(crate) fn what_a_removed_consumer_held_may_go(world: &dyn World) {
    let mut book = with_commits(world, 5);
    let needs = ConsumerNeeds::LogAndVersions;
    book.write(register(1, from(3, needs))).unwrap();
    expire_all(&mut book, 0);
    trim(&mut book, 100, 0);
    assert_eq!(superseded(&book), [3, 4, 5]);
    assert_eq!(log(&book)[0].1.kind, LogKind::Trimmed(2));
    let by = "ops".to_owned();
    book.write(order(ConsumerChange::Remove {
        key: key(1),
        by,
        at: when(0),
    }))
    .unwrap();
    expire_all(&mut book, 0);
    trim(&mut book, 100, 0);
    assert_eq!(superseded(&book), [0; 0]);
    assert_eq!(log(&book)[0].1.kind, LogKind::Trimmed(5));
}
