//! Tests the rows of the log that follow from the state alone: `restated`, when the rows before no
//! longer lead to the state, and `unclaimed`, when claims are withdrawn and no other row says so.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Debt, DebtItem, DebtReason, Held, RepoId, Tick, Time, UpstreamId};
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_store::change::{Change, ClaimEntry, ConsumerChange, EntryContent, RecordsKind};
use gapless_store::engine::RawBatch;
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::PageLimits;
use gapless_store::sync_writer::SyncWriter;
use gapless_store::table::claimed::Claim;
use gapless_store::table::log::{self as log_table, LogKind};
use gapless_store::table::meta;
use gapless_store::table::{Table, key};

use crate::access::{check_clean, log};
use crate::owner::{Owner, op};
use crate::world::World;

fn kinds(book: &SyncWriter) -> Vec<LogKind> {
    log(book).iter().map(|(_, row)| row.kind).collect()
}

/// A snapshot of one record, whole or only its beginning.
fn snapshot(owner: &mut Owner, path: &str, whole: bool) -> Change {
    let bytes = path.as_bytes();
    owner.records.insert(bytes.to_vec(), bytes.to_vec());
    let target = owner.sign();
    let held = if whole {
        Held::Exactly(target)
    } else {
        Held::Applying { target, from: None }
    };
    owner.change(RecordsKind::Repair, held, vec![op(bytes, Some(bytes))])
}

pub(crate) fn a_repository_is_restated_when_it_is_exact_again_after_damage(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let id = book.write(alice.live(&[("a/1", Some("x"))])).unwrap().repo;
    alice.row.held = Held::Damaged { from: None };
    book.write(alice.row_change()).unwrap();
    let weight = book.view().weight(id.unwrap()).unwrap();
    assert_eq!(weight, None, "nothing tells how much is left");
    book.write(snapshot(&mut alice, "a/2", false)).unwrap();
    drop(book);
    let mut book = world.book();
    assert_eq!(kinds(&book), [LogKind::Live, LogKind::Repair], "not yet");
    let Held::Applying { target, .. } = alice.row.held else {
        panic!("half a snapshot");
    };
    let rest = vec![op(b"a/3", Some(b"y"))];
    let change = alice.change(RecordsKind::Repair, Held::Exactly(target), rest);
    let ack = book.write(change).unwrap();
    assert_eq!(ack.numbers, Some(3..5), "in the same batch");
    let (_, row) = log(&book).pop().unwrap();
    assert_eq!((row.kind, row.repo), (LogKind::Restated, id));
    assert_eq!(row.commit, Some((target.rev, target.commit)));
    book.write(alice.row_change()).unwrap();
    book.write(snapshot(&mut alice, "a/4", true)).unwrap();
    let restated = kinds(&book);
    let restated = restated.iter().filter(|kind| **kind == LogKind::Restated);
    assert_eq!(restated.count(), 1, "once");
}

pub(crate) fn a_snapshot_on_another_target_than_the_interrupted_one_is_restated(world: &dyn World) {
    let mut book = world.book();
    let (mut alice, mut bob) = (Owner::new(1), Owner::new(2));
    book.write(snapshot(&mut alice, "a/1", false)).unwrap();
    book.write(snapshot(&mut alice, "a/2", false)).unwrap();
    book.write(snapshot(&mut alice, "a/3", true)).unwrap();
    let repair = LogKind::Repair;
    assert_eq!(kinds(&book), [repair, repair, repair, LogKind::Restated]);
    // The same target, in two chunks.
    book.write(snapshot(&mut bob, "a/1", false)).unwrap();
    let Held::Applying { target, .. } = bob.row.held else {
        panic!("half a snapshot");
    };
    let rest = vec![op(b"a/2", Some(b"y"))];
    let change = bob.change(RecordsKind::Repair, Held::Exactly(target), rest);
    book.write(change).unwrap();
    assert_eq!(kinds(&book)[4..], [repair, repair], "the log leads to it");
}

fn claim(owner: &mut Owner, path: &str, rev: u64, give_way: &[&str]) -> Change {
    owner.row.debt.compare = Some(DebtItem {
        at: Tick(3),
        why: DebtReason::Claimed,
    });
    let bytes = path.as_bytes().to_vec();
    owner.entry_change(EntryContent::Claim(ClaimEntry {
        path: path.as_bytes().to_vec(),
        claim: Claim {
            upstream: UpstreamId(1),
            rev: Rev::from_bits(rev),
            record: Some((Cid::dag_cbor(&bytes), bytes)),
        },
        give_way: give_way
            .iter()
            .map(|path| path.as_bytes().to_vec())
            .collect(),
    }))
}

fn settled(owner: &mut Owner) -> Change {
    owner.row.debt = Debt::default();
    owner.row_change()
}

fn claims(book: &SyncWriter) -> Vec<Vec<u8>> {
    let claims = book.view().claims(RepoId(1));
    claims.map(|claim| claim.unwrap().0).collect()
}

fn follow(book: &SyncWriter, model: &mut LogModel) {
    model.follow(&book.view(), PageLimits::default()).unwrap();
    assert_eq!(model.difference(&book.view()).unwrap(), None);
}

pub(crate) fn claims_that_are_withdrawn_are_told_once(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let mut model = LogModel::from_the_beginning();
    book.write(alice.live(&[("a/1", Some("x"))])).unwrap();
    // A signed state decides what is claimed up to its rev: that needs no row.
    book.write(claim(&mut alice, "a/2", 2, &[])).unwrap();
    book.write(alice.live(&[("a/1", Some("y"))])).unwrap();
    book.write(settled(&mut alice)).unwrap();
    follow(&book, &mut model);
    assert!(!kinds(&book).contains(&LogKind::Unclaimed));
    // Above it, the host's answer decides.
    book.write(claim(&mut alice, "a/2", 9, &[])).unwrap();
    follow(&book, &mut model);
    book.write(settled(&mut alice)).unwrap();
    assert_eq!(claims(&book), Vec::<Vec<u8>>::new());
    let (_, row) = log(&book).pop().unwrap();
    assert_eq!((row.kind, row.repo), (LogKind::Unclaimed, Some(RepoId(1))));
    follow(&book, &mut model);
    let before = log(&book).len();
    book.write(alice.row_change()).unwrap();
    assert_eq!(log(&book).len(), before, "once");
}

pub(crate) fn a_claim_gives_way_only_when_everyone_who_holds_has_passed(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let mut model = LogModel::from_the_beginning();
    book.write(alice.live(&[("a/1", Some("x"))])).unwrap();
    book.write(claim(&mut alice, "a/2", 9, &[])).unwrap();
    let key = ConsumerKey {
        class: ConsumerClass::Index,
        id: 0,
        lane: 0,
    };
    let consumer = Consumer {
        name: "index".to_owned(),
        next: 2,
        holds_from: 2,
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
    let register = ConsumerChange::Register {
        key,
        consumer,
        log: None,
    };
    book.write(order(register)).unwrap();
    book.write(claim(&mut alice, "a/3", 8, &["a/2"])).unwrap();
    assert_eq!(claims(&book), [b"a/2", b"a/3"], "it was not read yet");
    follow(&book, &mut model);
    let moved = ConsumerChange::Move {
        key,
        next: 3,
        holds_from: 3,
        log: None,
        at: When::default(),
    };
    book.write(order(moved)).unwrap();
    let before = log(&book).len();
    book.write(claim(&mut alice, "a/4", 3, &["a/2", "a/3"]))
        .unwrap();
    assert_eq!(claims(&book), [b"a/3", b"a/4"]);
    assert_eq!(
        log(&book).len(),
        before + 1,
        "a claim that gave way is not withdrawn"
    );
    follow(&book, &mut model);
    // A state settles what is left in the store, and not what gave way: consumers are told later.
    alice.rev = 8;
    book.write(alice.live(&[("a/5", Some("x"))])).unwrap();
    follow(&book, &mut model);
    alice.rev = 7;
    drop(book);
    let mut book = world.book();
    book.write(settled(&mut alice)).unwrap();
    assert_eq!(kinds(&book).last(), Some(&LogKind::Unclaimed));
    follow(&book, &mut model);
    assert!(model.claims_nothing());
}

/// Rows of earlier formats have no stamp: stamps go on above their times.
pub(crate) fn stamps_begin_above_the_times_of_earlier_formats(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    book.write(alice.live(&[("a/1", Some("x"))])).unwrap();
    alice.row.held = Held::Damaged { from: None };
    book.write(alice.row_change()).unwrap();
    drop(book);
    let mut engine = world.engine();
    let mut batch = RawBatch::default();
    let row = engine.get(Table::Log, &key::seq(1)).unwrap().unwrap();
    let mut row = log_table::decode(&row).unwrap();
    (row.at, row.stamp) = (Time(5_000), Time(0));
    batch.put(Table::Log, key::seq(1), log_table::encode(&row));
    let counters = engine.get(Table::Meta, meta::KEY).unwrap().unwrap();
    let mut counters = meta::decode(&counters).unwrap();
    counters.last_stamp = Time(0);
    batch.put(Table::Meta, meta::KEY, meta::encode(&counters));
    engine.commit(&batch).unwrap();
    drop(engine);
    let mut book = world.book();
    book.write(snapshot(&mut alice, "a/2", true)).unwrap();
    let stamps: Vec<u64> = log(&book).iter().map(|(_, row)| row.stamp.0).collect();
    assert_eq!(stamps, [0, 5_001, 5_002]);
    assert_eq!(book.view().log_number_after(Time(4_999)).unwrap(), 1);
    assert_eq!(book.view().log_number_after(Time(5_000)).unwrap(), 2);
    check_clean(&book);
}
