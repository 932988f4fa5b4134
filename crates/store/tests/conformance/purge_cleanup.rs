//! Tests the cleanup after a purge: the remaining data goes step by step, the numbers stay, and
//! a row records the purge for ever.

use gapless_core::ledger::{Account, Time};
use gapless_core::retain::When;
use gapless_store::change::{Change, DeadChange, Redaction, Upkeep};
use gapless_store::engine::RawBatch;
use gapless_store::error::Contradiction;
use gapless_store::sync_writer::SyncWriter;
use gapless_store::table::Table;
use gapless_store::table::dead::{DeadClass, DeadLetter, Resolution};
use gapless_store::table::log::LogKind;
use gapless_store::table::purge as purge_table;

use crate::access::{check_clean, log, refusal};
use crate::owner::{Owner, purge_whole, upkeep};
use crate::world::World;

/// Purges a repository; the first number of that.
fn purge(book: &mut SyncWriter, owner: &mut Owner) -> u64 {
    owner.row.account = Account::Deleted;
    owner.row.deleted_at = Some(Time(5));
    purge_whole(book, owner)
}

pub(crate) fn what_a_purge_left_behind_goes_bit_by_bit(world: &dyn World) {
    let mut book = world.book();
    let (mut alice, mut bob) = (Owner::new(1), Owner::new(2));
    book.write(alice.live(&[("app.a/1", Some("x")), ("app.a/2", Some("y"))]))
        .unwrap();
    book.write(bob.live(&[("app.a/1", Some("z"))])).unwrap();
    let ack = book.write(alice.live(&[("app.a/1", Some("w"))])).unwrap();
    let id = ack.repo.unwrap();
    let letter = DeadLetter {
        class: DeadClass::Invalid,
        source: None,
        repo: Some(id),
        error: "app.a/1 is wrong".to_owned(),
        payload: b"bytes".to_vec(),
        attempts: 1,
        first_seen: Time(3),
        resolution: Resolution::Open,
    };
    let dead = Change {
        dead: Some(DeadChange::New(letter)),
        ..Change::default()
    };
    let letter = book.write(dead).unwrap().dead.unwrap();
    let number = purge(&mut book, &mut alice);
    let (at, row) = book.view().purges(0).next().unwrap().unwrap();
    assert_eq!(
        (at, row.repo, row.did.clone()),
        (number, id, alice.did.clone())
    );
    assert_eq!((row.records, row.others), (2, 1), "one was superseded");
    assert_eq!((row.deleted_at, row.finished_at), (Some(Time(5)), None));
    assert!(row.bytes > 0);
    let before = log(&book);
    let numbers: Vec<u64> = before.iter().map(|(first, _)| *first).collect();
    let of_alice: Vec<u64> = before
        .iter()
        .filter(|(first, row)| row.repo == Some(id) && *first < number)
        .map(|(first, _)| *first)
        .collect();
    assert_eq!(of_alice.len(), 2);
    for rows in &of_alice {
        book.write(upkeep(Upkeep::Redact(Redaction {
            purge: number,
            rows: vec![*rows],
            frames: vec![*rows],
            upto: *rows + 1,
            ..Redaction::default()
        })))
        .unwrap();
    }
    book.write(upkeep(Upkeep::Redact(Redaction {
        purge: number,
        letters: vec![letter],
        ..Redaction::default()
    })))
    .unwrap();
    let after = log(&book);
    let still: Vec<u64> = after.iter().map(|(first, _)| *first).collect();
    assert_eq!(numbers, still, "every number is where it was");
    for ((first, was), (_, is)) in before.iter().zip(&after) {
        assert_eq!(was.numbers(), is.numbers(), "{first}");
        if of_alice.contains(first) {
            assert_eq!(is.kind, LogKind::Redacted(was.numbers()));
            assert!(is.ops.is_empty() && is.commit.is_none());
        } else {
            assert_eq!(was, is, "{first}: not hers, or the purge itself")
        }
    }
    let (_, dead) = book.view().dead_letters().next().unwrap().unwrap();
    assert!(dead.payload.is_empty() && !dead.error.contains("app.a"));
    assert_eq!(dead.resolution, Resolution::Superseded);
    book.write(upkeep(Upkeep::Finish {
        purge: number,
        at: Time(9),
        compacted: true,
    }))
    .unwrap();
    drop(book);
    let book = world.book();
    let (_, row) = book.view().purges(0).next().unwrap().unwrap();
    assert_eq!(
        (row.rows_redacted, row.frames_redacted, row.letters_redacted),
        (2, 2, 1)
    );
    assert_eq!((row.finished_at, row.compacted), (Some(Time(9)), true));
    assert_eq!(row.upto, of_alice[1] + 1);
}

pub(crate) fn nothing_of_others_is_ever_redacted(world: &dyn World) {
    let mut book = world.book();
    let (mut alice, mut bob) = (Owner::new(1), Owner::new(2));
    book.write(alice.live(&[("app.a/1", Some("x"))])).unwrap();
    let bobs = book.write(bob.live(&[("app.a/1", Some("z"))])).unwrap();
    let bobs = bobs.numbers.unwrap().start;
    let number = purge(&mut book, &mut alice);
    let redact = |purge, rows| {
        upkeep(Upkeep::Redact(Redaction {
            purge,
            rows,
            ..Redaction::default()
        }))
    };
    let before = log(&book);
    let refused = refusal(&mut book, redact(number, vec![1, bobs]));
    assert_eq!(refused, Contradiction::OtherRepo);
    // The purge itself says what went: that stays.
    let refused = refusal(&mut book, redact(number, vec![number]));
    assert_eq!(refused, Contradiction::OtherRepo);
    let refused = refusal(&mut book, redact(number + 1, vec![1]));
    assert_eq!(refused, Contradiction::NoSuchPurge(number + 1));
    assert_eq!(
        log(&book),
        before,
        "a change that is refused changes nothing"
    );
}

pub(crate) fn superseded_records_expire_by_their_keys(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    for text in ["a", "b", "c"] {
        book.write(alice.live(&[("app.a/1", Some(text))])).unwrap();
    }
    let superseded: Vec<(Vec<u8>, u64)> = book
        .view()
        .superseded_keys(b"")
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(
        superseded.iter().map(|(_, by)| *by).collect::<Vec<_>>(),
        [2, 3]
    );
    let first = superseded[0].0.clone();
    book.write(upkeep(Upkeep::Expire {
        keys: vec![first],
        below: u64::MAX,
        at: When::default(),
    }))
    .unwrap();
    let left: Vec<_> = book
        .view()
        .superseded_keys(b"")
        .map(|row| row.unwrap().1)
        .collect();
    assert_eq!(left, [3]);
    let view = book.view();
    assert_eq!(
        view.log_number_after(Time(0)).unwrap(),
        1,
        "all are younger"
    );
    assert_eq!(view.log_number_after(Time(u64::MAX)).unwrap(), 4, "none is");
}

/// A purge that format 3 began deleted everything at once, and its row says nothing of parts.
pub(crate) fn a_purge_of_an_earlier_format_is_finished(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    for text in ["x", "y"] {
        book.write(alice.live(&[("app.a/1", Some(text))])).unwrap();
    }
    let number = purge(&mut book, &mut alice);
    let (_, row) = book.view().purges(number).next().unwrap().unwrap();
    drop(book);
    let did = row.did.as_str().as_bytes();
    // Version 1 of the row: the first row of the log is redacted already.
    let beginning = [1, row.repo.0 as u8, did.len() as u8];
    let rest = [0, 0, 77, 1, 2, 3, 2, 0, 1, 0, 0, 0];
    let old = [&beginning[..], did, &rest].concat();
    let mut batch = RawBatch::default();
    batch.put(Table::Meta, purge_table::key(number), old);
    world.engine().commit(&batch).unwrap();
    let mut book = world.book();
    check_clean(&book);
    let (_, row) = book.view().purges(number).next().unwrap().unwrap();
    assert_eq!((row.deleting, row.upto), (None, 2));
    book.write(upkeep(Upkeep::Redact(Redaction {
        purge: number,
        rows: vec![2],
        upto: number,
        ..Redaction::default()
    })))
    .unwrap();
    assert_eq!(log(&book)[1].1.kind, LogKind::Redacted(1));
    let (_, row) = book.view().purges(number).next().unwrap().unwrap();
    assert!(row.is_redacted(number));
    book.write(alice.live(&[("app.b/1", Some("back"))]))
        .unwrap();
    check_clean(&book);
}
