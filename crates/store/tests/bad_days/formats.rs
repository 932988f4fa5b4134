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

use gapless_store::format::{CURRENT, check_or_write};

use crate::load::{Load, UPSTREAM};
use crate::power::copy_folder;
use crate::truth::{clean, open};

/// Events in a kept store.
const EVENTS: u64 = 10;

fn folder_of(version: u32) -> PathBuf {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    formats.join(format!("v{version}"))
}

/// Writes the folder of the present format anew.
fn write_present(to: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let mut load = Load::resume(&store, 77);
    for _ in 0..EVENTS {
        let event = load.event();
        store.begin(UPSTREAM, 0, event.number);
        for change in event.changes {
            store.write(change).unwrap();
        }
    }
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

/// Locks are not kept, and empty folders cannot be; the engine wants both.
fn complete(folder: &Path) {
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
        store.close().unwrap();
        drop(store);
        assert_eq!(check_or_write(folder.path()).unwrap().version, CURRENT);
        // And it is written on.
        let store = open(folder.path()).unwrap();
        let mut load = Load::resume(&store, 3);
        let event = load.event();
        assert_eq!(event.number, EVENTS + 1);
        store.begin(UPSTREAM, 0, event.number);
        for change in event.changes {
            store.write(change).unwrap();
        }
        clean(&store);
    }
}
