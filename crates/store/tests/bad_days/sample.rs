//! A store for tests to damage, and the checks that must hold after a repair.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gapless_core::ledger::{Tick, Time};
use gapless_store::Store;
use gapless_store::change::Change;
use gapless_store::diagnosis::ENGINE_FOLDER;
use gapless_store::engine::DiskSettings;
use gapless_store::error::StoreError;
use gapless_store::head::{AcknowledgedHead, HeadFile};
use gapless_store::journal;
use gapless_store::repair::{RepairMode, RepairReport, repair};
use gapless_store::table::log::LogKind;
use tempfile::TempDir;

use crate::load::{Load, UPSTREAM, row_hash};
use crate::power::copy_folder;
use crate::truth::{clean, open};
use crate::writer::{Memory, Start, Writer};

pub(crate) const NOW: Time = Time(1_800_000_000_000_000);

/// A store as a killed writer left it, and what the writer was told.
pub(crate) struct Sample {
    pub folder: TempDir,
    pub memory: Memory,
    pub head: AcknowledgedHead,
}

pub(crate) fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let start = Start {
            folder: folder.path(),
            seed: 99,
            in_flight: 16,
            events: None,
            arm: None,
        };
        let mut writer = Writer::spawn(start.command());
        assert!(writer.listen(600));
        let mut memory = Memory::default();
        memory.add(&writer.kill().told);
        // Opened and written once more: nothing is torn, and the head is not behind
        // the engine, as after a kill between the two.
        let store = open(folder.path()).unwrap();
        let last = store.view().counters().unwrap().last_tick;
        let tick = Change {
            tick: Tick(last.0 + 1),
            ..Change::default()
        };
        store.write(tick).unwrap();
        store.close().unwrap();
        drop(store);
        let head = HeadFile::open(folder.path()).unwrap().last().unwrap();
        Sample {
            folder,
            memory,
            head,
        }
    })
}

pub(crate) fn copy_of_sample() -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(sample().folder.path(), copy.path());
    copy
}

pub(crate) fn newest_journal(folder: &Path) -> PathBuf {
    let mut journals = journal::scan(&folder.join(ENGINE_FOLDER)).unwrap();
    journals.pop().unwrap().path
}

/// Bytes of the journal that hold something.
pub(crate) fn data_bytes(journal: &Path) -> u64 {
    let bytes = fs::read(journal).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1
}

pub(crate) fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// It is refused, says what to do, and does not touch anything.
pub(crate) fn refused(folder: &Path) -> String {
    let journal = newest_journal(folder);
    let before = fs::read(&journal).unwrap();
    for _ in 0..2 {
        let Err(error) = open(folder) else {
            panic!("the damage is not noticed");
        };
        let text = error.to_string();
        assert!(matches!(error, StoreError::Lost { .. }), "{text}");
        assert!(text.contains("gapless store repair --data"), "{text}");
        assert_eq!(fs::read(&journal).unwrap(), before, "it is left as it was");
    }
    open(folder).err().unwrap().to_string()
}

pub(crate) fn repaired(folder: &Path) -> RepairReport {
    let done = fix(folder, RepairMode::Repair).expect("it can be repaired");
    let again = fix(folder, RepairMode::Repair).expect("and once more");
    assert!(
        again.found_nothing(),
        "a second time finds nothing: {done:?}, then {again:?}"
    );
    done
}

/// After a repair: nothing is wrong, nothing has two meanings, everything is to be
/// compared, and writing goes on.
pub(crate) fn sound_again(folder: &Path) -> u64 {
    let store = open(folder).expect("it opens again");
    clean(&store);
    let view = store.view();
    let sample = sample();
    assert!(store.durable_head().next_seq >= sample.head.next_seq);
    assert_eq!(
        view.cursor(UPSTREAM).unwrap(),
        None,
        "no cursor is believed"
    );
    if let Some(upstream) = view.upstream(UPSTREAM).unwrap() {
        assert_eq!(upstream.epoch.0, NOW.0, "a new epoch has begun");
    }
    let mut lost_events = 0;
    for told in sample.memory.events.values() {
        let covering = view.log_from(told.first_seq).unwrap().next();
        let (first, row) = covering.expect("every number is covered").unwrap();
        match row.kind {
            LogKind::Lost(_) => lost_events += 1,
            _ => assert_eq!((first, row_hash(&row)), (told.first_seq, told.ops)),
        }
    }
    let before = store.durable_head();
    if view.upstream(UPSTREAM).unwrap().is_some() {
        write_on(&store);
        assert!(store.durable_head().next_seq > before.next_seq);
        clean(&store);
    }
    store.close().unwrap();
    lost_events
}

pub(crate) fn write_on(store: &Store) {
    let mut load = Load::resume(store, 5);
    for _ in 0..50 {
        load.event().write(store, &load.purges);
    }
}

/// One repair.
pub(crate) fn fix(folder: &Path, mode: RepairMode) -> Result<RepairReport, StoreError> {
    repair(folder, &DiskSettings::default(), mode, NOW, &mut |_| {})
}
