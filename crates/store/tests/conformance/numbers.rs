//! Tests cursors, lost numbers and ticks.

use gapless_core::ledger::{Tick, Time};
use gapless_core::retain::When;
use gapless_store::apply::log_lost_numbers;
use gapless_store::change::{Change, Upkeep, UpstreamChange};
use gapless_store::engine::RawBatch;
use gapless_store::error::Contradiction;
use gapless_store::table::log::LogKind;
use gapless_store::table::{Table, key};
use gapless_store::tx::Tx;

use crate::access::{cursor, log, refusal};
use crate::owner::{Owner, done, new_upstream, relay, upkeep};
use crate::world::World;

pub(crate) fn the_cursor_is_never_ahead(world: &dyn World) {
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let only_done = |seq| Change {
        done: done(upstream, 0, seq),
        ..Change::default()
    };
    for seq in [10, 11, 12, 15] {
        book.begin(upstream, 0, seq);
    }
    book.write(only_done(12)).unwrap();
    assert_eq!(cursor(&book, upstream), None);
    book.write(only_done(10)).unwrap();
    assert_eq!(cursor(&book, upstream), Some(10));
    // A refused change is not done.
    let mut alice = Owner::new(1);
    let mut bad = alice.live(&[("a/1", None)]);
    bad.done = done(upstream, 0, 11);
    refusal(&mut book, bad);
    book.write(only_done(15)).unwrap();
    assert_eq!(cursor(&book, upstream), Some(10));
    drop(book);
    let mut book = world.book();
    assert_eq!(cursor(&book, upstream), Some(10));
    // What was begun before the start is not known any more.
    book.write(only_done(11)).unwrap();
    assert_eq!(cursor(&book, upstream), Some(10));
    for seq in [10, 11, 12, 15] {
        book.begin(upstream, 0, seq);
    }
    let group = [15, 11, 10, 12].map(only_done).to_vec();
    book.write_group(group).unwrap();
    let found = book.view().cursor(upstream).unwrap().unwrap();
    assert_eq!((found.seq, found.event), (15, [15; 16]));
    let unknown = gapless_core::ledger::UpstreamId(99);
    let unknown = Change {
        done: done(unknown, 0, 1),
        ..Change::default()
    };
    assert_eq!(
        refusal(&mut book, unknown),
        Contradiction::NoSuchUpstream(99)
    );
}

pub(crate) fn a_cleared_cursor_stays_cleared(world: &dyn World) {
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let only_done = |numbering, seq| Change {
        done: done(upstream, numbering, seq),
        ..Change::default()
    };
    let row = |numbering| Change {
        upstream: Some(UpstreamChange::Row(upstream, relay(numbering))),
        ..Change::default()
    };
    book.begin(upstream, 0, 500);
    book.begin(upstream, 0, 501);
    book.write(only_done(0, 500)).unwrap();
    assert_eq!(cursor(&book, upstream), Some(500));
    // In one group: done, cleared, and an old event done after it.
    let group = vec![only_done(0, 501), row(1), only_done(0, 501)];
    assert!(book.write_group(group).unwrap().iter().all(Result::is_ok));
    assert_eq!(cursor(&book, upstream), None);
    // A restart does not bring it back either.
    drop(book);
    let mut book = world.book();
    let resumed = book.cursors().lock().get(upstream).cloned().unwrap();
    assert_eq!((resumed.numbering(), resumed.cursor()), (1, None));
    book.begin(upstream, 0, 502);
    book.write(only_done(0, 502)).unwrap();
    assert_eq!(cursor(&book, upstream), None);
    book.begin(upstream, 1, 3);
    book.write(only_done(1, 3)).unwrap();
    assert_eq!(cursor(&book, upstream), Some(3));
    assert_eq!(refusal(&mut book, row(0)), Contradiction::NumberingBack);
    let mut back = relay(1);
    back.epoch.0 -= 1;
    let back = Change {
        upstream: Some(UpstreamChange::Row(upstream, back)),
        ..Change::default()
    };
    assert_eq!(refusal(&mut book, back), Contradiction::EpochBack);
    drop(book);
    let book = world.book();
    assert_eq!(cursor(&book, upstream), Some(3));
    let view = book.view();
    assert_eq!(view.upstreams().unwrap().len(), 1);
    assert_eq!(view.upstream(upstream).unwrap(), Some(relay(1)));
}

pub(crate) fn lost_numbers_are_covered_once(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    book.write(alice.live(&[("a/1", Some("x"))])).unwrap();
    drop(book);
    let mut engine = world.engine();
    let mut tx = Tx::new(engine.snapshot()).unwrap();
    log_lost_numbers(&mut tx, 40, 100, Time(5));
    log_lost_numbers(&mut tx, 40, 100, Time(5));
    engine.commit(&tx.finish().0).unwrap();
    drop(engine);
    let mut book = world.book();
    assert_eq!((book.head().batch, book.head().next_seq), (41, 100));
    let ack = book.write(alice.live(&[("a/2", Some("y"))])).unwrap();
    assert_eq!(ack.numbers, Some(100..101));
    let rows = log(&book);
    let firsts: Vec<u64> = rows.iter().map(|(first, _)| *first).collect();
    assert_eq!(firsts, [1, 2, 100]);
    assert_eq!(rows[1].1.kind, LogKind::Lost(98));
    let inside = book.view().log_from(57).unwrap().next().unwrap().unwrap();
    assert_eq!(inside.0, 2);
}

pub(crate) fn ticks_are_remembered(world: &dyn World) {
    let mut book = world.book();
    for tick in [5, 900, 7] {
        let mut change = Owner::new(tick as u32).row_change();
        change.tick = Tick(tick);
        book.write(change).unwrap();
    }
    drop(book);
    let mut book = world.book();
    assert_eq!(book.view().counters().unwrap().last_tick, Tick(900));
    let alone = Change {
        tick: Tick(901),
        ..Change::default()
    };
    book.write(alone).unwrap();
    drop(book);
    let counters = world.book().view().counters().unwrap();
    assert_eq!(counters.last_tick, Tick(901), "also with nothing else");
}

pub(crate) fn a_trim_covers_no_hole(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    for text in ["x", "y", "z"] {
        book.write(alice.live(&[("a/1", Some(text))])).unwrap();
    }
    drop(book);
    let mut batch = RawBatch::default();
    batch.delete(Table::Log, key::seq(2));
    world.engine().commit(&batch).unwrap();
    let mut book = world.book();
    for _ in 0..2 {
        let (below, at) = (u64::MAX, When::default());
        book.write(upkeep(Upkeep::Trim { below, at })).unwrap();
        let rows = log(&book).into_iter();
        let kinds: Vec<_> = rows.map(|(first, row)| (first, row.kind)).collect();
        assert_eq!(kinds, [(1, LogKind::Trimmed(1)), (3, LogKind::Live)]);
    }
}
