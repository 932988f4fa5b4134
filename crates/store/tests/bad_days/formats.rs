//! Files that every earlier format left open, with everything in them.
//!
//! `tests/formats/vN/` holds a small store as format N wrote it. A new format adds
//! its folder and keeps all the others. To write the folder of the present one:
//!
//! ```text
//! GAPLESS_WRITE_FORMAT=1 cargo test -p gapless-store --test bad_days formats::
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use gapless_core::ledger::Lived;
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_store::change::{Change, ConsumerChange, LogId, StoreIds, Upkeep};
use gapless_store::format::{CURRENT, check_or_write};
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::{PageLimits, Walk};
use gapless_store::read_view::ReadView;
use gapless_store::repair::RepairMode;

use crate::load::{Load, UPSTREAM};
use crate::power::copy_folder;
use crate::sample::fix;
use crate::truth::{clean, open};

/// Events in a kept store.
const EVENTS: u64 = 10;

fn folder_of(version: u32) -> PathBuf {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    formats.join(format!("v{version}"))
}

/// Writes the folder of the present format anew, with a purge, a snapshot and a claim that are
/// under way.
fn write_present(to: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let mut load = Load::resume(&store, 77);
    for _ in 0..EVENTS {
        load.event().write(&store, &load.purges);
    }
    let upkeep = |upkeep| {
        let upkeep = Some(upkeep);
        let change = Change {
            upkeep,
            ..Change::default()
        };
        store.write(change).unwrap()
    };
    let ids = StoreIds {
        log: LogId([7; 16]),
        store: [8; 16],
    };
    upkeep(Upkeep::Identify(ids));
    upkeep(Upkeep::Live(Lived(5_000_000)));
    let consumer = |change| Change {
        consumer: Some(change),
        ..Change::default()
    };
    let (log, at) = (Some(ids.log), When::default());
    let register = ConsumerChange::Register {
        key: INDEX,
        consumer: index(),
        log,
    };
    store.write(consumer(register)).unwrap();
    let mut rows = store.view().log_from(1).unwrap();
    let (third, _) = rows.nth(2).unwrap().unwrap();
    let seek = ConsumerChange::Seek {
        key: INDEX,
        to: third,
        by: "ops".to_owned(),
        at,
    };
    store.write(consumer(seek)).unwrap();
    for change in load.under_way(&store) {
        store.write(change).unwrap();
    }
    // The index holds everything from its position on.
    let below = u64::MAX;
    upkeep(Upkeep::Trim { below, at });
    store.close().unwrap();
    drop(store);
    // A second start cuts the room that the journal was given beforehand.
    drop(open(folder.path()).unwrap());
    let _ = fs::remove_dir_all(to);
    copy_folder(folder.path(), to);
    for lock in ["lock", "engine/lock"] {
        let _ = fs::remove_file(to.join(lock));
    }
}

const INDEX: ConsumerKey = ConsumerKey {
    class: ConsumerClass::Index,
    id: 0,
    lane: 0,
};

fn index() -> Consumer {
    Consumer {
        name: "index".to_owned(),
        next: 5,
        holds_from: 5,
        registered: When::default(),
        moved: When::default(),
        hold: Hold::Always,
        needs: ConsumerNeeds::LogAndVersions,
        overrun: false,
    }
}

/// A consumer that begins now: it walks, and then follows the log to its end.
fn walked(view: &ReadView) -> LogModel {
    let mut walk = Walk::begin(view).unwrap();
    let mut model = LogModel::begin_walk(&walk);
    while let Some(part) = walk.next_part_of(view, 7).unwrap() {
        model.take_part(&part);
    }
    follow(view, &mut model);
    model
}

fn follow(view: &ReadView, model: &mut LogModel) {
    while model.follow(view, PageLimits::default()).unwrap() {}
    assert_eq!(model.difference(view).unwrap(), None);
}

/// What only the present format has.
fn check_present(view: &ReadView) {
    let ids = view.ids().unwrap().unwrap();
    assert_eq!((ids.log, ids.store), (LogId([7; 16]), [8; 16]));
    assert_eq!(view.lived().unwrap(), Lived(5_000_000));
    let index = view.consumers().unwrap()[&INDEX].clone();
    assert_eq!(index.name, "index");
    assert_eq!(view.audit(0).count(), 1);
    assert_eq!(view.first_log_number().unwrap(), index.next);
    assert!(index.next > 2, "rows were trimmed");
    let (_, purge) = view.purges(0).next().unwrap().unwrap();
    assert!(purge.deleting.is_some(), "it is half done");
    assert!(view.repo(purge.repo).unwrap().unwrap().purging);
    assert_eq!(view.claim_sizes().count(), 1);
}

/// Locks are not kept, and empty folders cannot be; the engine wants both.
pub(crate) fn complete(folder: &Path) {
    let engine = folder.join("engine");
    fs::write(engine.join("lock"), "").unwrap();
    for keyspace in fs::read_dir(engine.join("keyspaces")).unwrap() {
        fs::create_dir_all(keyspace.unwrap().path().join("tables")).unwrap();
    }
}

#[test]
fn stores_of_every_format_open_whole() {
    if std::env::var_os("GAPLESS_WRITE_FORMAT").is_some() {
        write_present(&folder_of(CURRENT));
    }
    for version in 1..=CURRENT {
        let kept = folder_of(version);
        assert!(kept.exists(), "{} is to be kept", kept.display());
        let folder = tempfile::tempdir().unwrap();
        copy_folder(&kept, folder.path());
        complete(folder.path());
        assert_eq!(check_or_write(folder.path()).unwrap().version, version);
        let store = open(folder.path()).expect("it opens");
        let report = clean(&store);
        assert!(report.proven > 3 && report.records > 50, "{report:?}");
        assert!(report.frames > EVENTS / 2 && report.log_rows >= EVENTS);
        let cursor = store.view().cursor(UPSTREAM).unwrap();
        assert_eq!(cursor.map(|cursor| cursor.seq), Some(EVENTS));
        if version == CURRENT {
            check_present(&store.view());
        }
        let mut model = walked(&store.view());
        store.close().unwrap();
        drop(store);
        assert_eq!(check_or_write(folder.path()).unwrap().version, CURRENT);
        let repaired = fix(folder.path(), RepairMode::Repair).unwrap();
        assert!(repaired.found_nothing(), "{repaired:?}");
        // And it is written on.
        let store = open(folder.path()).unwrap();
        let mut load = Load::resume(&store, 3);
        let event = load.event();
        assert_eq!(event.number, EVENTS + 1);
        event.write(&store, &load.purges);
        clean(&store);
        for _ in 0..20 {
            load.event().write(&store, &load.purges);
            follow(&store.view(), &mut model);
        }
        let (below, at) = (store.durable_head().next_seq - 2, When::default());
        let trim = Some(Upkeep::Trim { below, at });
        store
            .write(Change {
                upkeep: trim,
                ..Change::default()
            })
            .unwrap();
        let first = store.view().first_log_number().unwrap();
        let index = store.view().consumers().unwrap().get(&INDEX).cloned();
        match index {
            Some(index) => assert_eq!(first, index.next, "the index holds the rest"),
            None => assert!(first > below / 2, "{first} of {below}"),
        }
        follow(&store.view(), &mut model);
        walked(&store.view());
        clean(&store);
    }
}
