//! Tests what a repair tells the consumers of the log: which repositories to compare, and that the
//! store may have gone back.

use std::path::Path;

use gapless_core::ledger::{Held, Lived, RepoId, Time};
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_store::Store;
use gapless_store::change::{Change, ConsumerChange, LogId, StoreIds, Upkeep};
use gapless_store::diagnosis::ENGINE_FOLDER;
use gapless_store::engine::{DiskEngine, DiskSettings, Engine, RawBatch};
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::PageLimits;
use gapless_store::repair::RepairMode;
use gapless_store::table::log::{LogKind, LogRow};
use gapless_store::table::{Table, consumer, key, purge};
use tempfile::TempDir;

use crate::load::Load;
use crate::sample::{fix, repaired};
use crate::truth::{clean, open};

/// A small store with some events in it, and a consumer that has read them all.
fn small() -> (TempDir, LogModel) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let mut load = Load::resume(&store, 5);
    for _ in 0..60 {
        load.event().write(&store, &load.purges);
    }
    let mut model = LogModel::from_the_beginning();
    follow(&store, &mut model);
    store.close().unwrap();
    (folder, model)
}

fn follow(store: &Store, model: &mut LogModel) {
    while model.follow(&store.view(), PageLimits::default()).unwrap() {}
    assert_eq!(model.difference(&store.view()).unwrap(), None);
}

fn rows(store: &Store) -> Vec<(u64, LogRow)> {
    let rows = store.view().log_from(1).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

/// Changes rows behind the store's back.
fn damage(folder: &Path, change: impl FnOnce(&mut RawBatch)) {
    let engine = folder.join(ENGINE_FOLDER);
    let mut engine = DiskEngine::open(&engine, &DiskSettings::default()).unwrap();
    let mut batch = RawBatch::default();
    change(&mut batch);
    engine.commit(&batch).unwrap();
}

/// The repositories that are restated from a number on.
fn restated(store: &Store, from: u64) -> Vec<RepoId> {
    let rows = rows(store).into_iter();
    let restated = rows.filter(|(first, row)| *first >= from && row.kind == LogKind::Restated);
    restated.map(|(_, row)| row.repo.unwrap()).collect()
}

#[test]
fn what_a_lost_row_may_have_written_is_restated_by_the_repair() {
    let (folder, mut model) = small();
    let store = open(folder.path()).unwrap();
    let (view, head) = (store.view(), store.durable_head().next_seq);
    // A record that is held, the row of the log that put it there, and all that it may have put.
    let exact = |id| matches!(view.repo(id).unwrap().unwrap().held, Held::Exactly(_));
    let mut log = rows(&store).into_iter();
    let (first, row) = log
        .find(|(first, row)| {
            let puts = row.repo.is_some_and(|id| {
                let numbers = *first..first + row.numbers();
                let mut records = view.records(id).map(Result::unwrap);
                exact(id) && records.any(|record| numbers.contains(&record.seq))
            });
            puts && *first > 1
        })
        .unwrap();
    drop(view);
    store.close().unwrap();
    drop(store);
    damage(folder.path(), |batch| {
        batch.delete(Table::Log, key::seq(first))
    });
    let done = repaired(folder.path());
    assert_eq!(done.lost_numbers[0], (first, first + row.numbers() - 1));
    let store = open(folder.path()).unwrap();
    clean(&store);
    assert_eq!(restated(&store, head), [row.repo.unwrap()], "and no other");
    let after = rows(&store);
    let tail = after.iter().find(|(first, _)| *first == head).unwrap();
    assert_eq!(
        tail.1.kind,
        LogKind::Lost(1),
        "also for those that had read everything"
    );
    follow(&store, &mut model);
    let mut late = LogModel::from_the_beginning();
    follow(&store, &mut late);
    // Whatever is fetched later is not restated again.
    let mut load = Load::resume(&store, 6);
    for _ in 0..30 {
        load.event().write(&store, &load.purges);
        follow(&store, &mut model);
    }
}

/// Records of earlier formats have no number: any lost row of their time may have put them there.
#[test]
fn records_without_numbers_are_restated_if_their_part_of_the_log_is_lost() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/v3");
    let folder = tempfile::tempdir().unwrap();
    crate::power::copy_folder(&kept, folder.path());
    crate::formats::complete(folder.path());
    let store = open(folder.path()).unwrap();
    let view = store.view();
    let head = store.durable_head().next_seq;
    let mut holding: Vec<RepoId> = view.repos(RepoId(0)).map(|row| row.unwrap().0).collect();
    holding.retain(|id| {
        let exact = matches!(view.repo(*id).unwrap().unwrap().held, Held::Exactly(_));
        exact && view.records(*id).next().is_some()
    });
    let first = rows(&store)[1].0;
    drop(view);
    store.close().unwrap();
    drop(store);
    damage(folder.path(), |batch| {
        batch.delete(Table::Log, key::seq(first))
    });
    repaired(folder.path());
    let store = open(folder.path()).unwrap();
    clean(&store);
    assert!(!holding.is_empty());
    assert_eq!(restated(&store, head), holding);
    // Times ascend across the lost row, which has no stamp, as its neighbours.
    let times = rows(&store)
        .into_iter()
        .map(|(_, row)| row.at.max(row.stamp));
    assert!(times.collect::<Vec<Time>>().is_sorted());
}

const KEY: ConsumerKey = ConsumerKey {
    class: ConsumerClass::Index,
    id: 0,
    lane: 0,
};

fn register(store: &Store, id: u32, next: u64, lived: u64) {
    let at = When {
        time: Time(1),
        lived: Lived(lived),
    };
    let consumer = Consumer {
        name: format!("consumer {id}"),
        next,
        holds_from: next,
        registered: at,
        moved: at,
        hold: Hold::Always,
        needs: ConsumerNeeds::Log,
        overrun: false,
    };
    let change = ConsumerChange::Register {
        key: ConsumerKey { id, ..KEY },
        consumer,
        log: None,
    };
    store
        .write(Change {
            consumer: Some(change),
            ..Change::default()
        })
        .unwrap();
}

#[test]
fn damaged_rows_about_consumers_are_removed_or_restored() {
    let (folder, _) = small();
    let store = open(folder.path()).unwrap();
    for id in 0..3 {
        register(&store, id, 1, 7_000 + u64::from(id));
    }
    for upkeep in [
        Upkeep::Live(Lived(7_000)),
        Upkeep::Identify(StoreIds {
            log: LogId([1; 16]),
            store: [2; 16],
        }),
    ] {
        let upkeep = Some(upkeep);
        store
            .write(Change {
                upkeep,
                ..Change::default()
            })
            .unwrap();
    }
    let mut beyond = store.view().consumers().unwrap()[&KEY].clone();
    (beyond.next, beyond.holds_from) = (1 << 40, 1 << 40);
    store.close().unwrap();
    drop(store);
    damage(folder.path(), |batch| {
        let of = |id| consumer::key(ConsumerKey { id, ..KEY });
        batch.put(Table::Consumer, of(0), vec![99]);
        batch.put(Table::Consumer, of(1), consumer::encode(&beyond));
        batch.put(Table::Audit, key::seq(4), vec![99]);
        batch.put(Table::Meta, &b"ids"[..], vec![99]);
        batch.put(Table::Meta, &b"lived"[..], vec![99]);
    });
    let done = repaired(folder.path());
    assert_eq!((done.lost, done.removed_rows), (None, 4));
    let store = open(folder.path()).unwrap();
    clean(&store);
    let view = store.view();
    let left: Vec<u32> = view.consumers().unwrap().keys().map(|key| key.id).collect();
    assert_eq!(left, [2]);
    assert_eq!(view.ids().unwrap(), None, "the next start gives new ones");
    assert_eq!(
        view.lived().unwrap(),
        Lived(7_002),
        "what the consumers had seen"
    );
}

#[test]
fn a_purge_whose_row_is_lost_begins_again_and_is_finished() {
    let (folder, mut model) = small();
    let store = open(folder.path()).unwrap();
    let mut load = Load::resume(&store, 9);
    let number = store.durable_head().next_seq;
    for change in load.under_way(&store) {
        store.write(change).unwrap();
    }
    let (found, before) = store.view().purges(number).next().unwrap().unwrap();
    assert_eq!(found, number);
    store.close().unwrap();
    drop(store);
    damage(folder.path(), |batch| {
        batch.delete(Table::Meta, purge::key(number))
    });
    let dry = fix(folder.path(), RepairMode::DryRun).unwrap();
    assert_eq!(
        (dry.mended_rows, dry.damaged_repos),
        (1, 0),
        "it is not fetched"
    );
    repaired(folder.path());
    let store = open(folder.path()).unwrap();
    clean(&store);
    let (again, row) = store.view().purges(0).next_back().unwrap().unwrap();
    assert_eq!((row.repo, &row.did), (before.repo, &before.did));
    assert!(again > number && row.deleting.is_some());
    while model.follow(&store.view(), PageLimits::default()).unwrap() {}
    for _ in 0..3 {
        let at = When {
            time: Time(77),
            ..When::default()
        };
        let upkeep = Some(Upkeep::DeletePurged { purge: again, at });
        store
            .write(Change {
                upkeep,
                ..Change::default()
            })
            .unwrap();
    }
    assert_eq!(
        store
            .view()
            .purges(again)
            .next()
            .unwrap()
            .unwrap()
            .1
            .deleting,
        None
    );
    follow(&store, &mut model);
    clean(&store);
}
