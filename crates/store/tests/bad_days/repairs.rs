//! Tests repairs of a store: with arbitrary damaged rows, killed at any moment, and on sound
//! stores.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use gapless_core::ledger::Held;
use gapless_store::diagnosis::ENGINE_FOLDER;
use gapless_store::engine::{DiskEngine, DiskSettings, Engine, KeyRange, RawBatch};
use gapless_store::head::{AcknowledgedHead, HeadFile};
use gapless_store::repair::RepairMode;
use gapless_store::table::Table;
use gapless_store::table::meta;

use crate::load::{Load, UPSTREAM};
use crate::power::{Dice, Disk, Names, copy_folder};
use crate::rounds;
use crate::sample::{
    copy_of_sample, data_bytes, fix, newest_journal, overwrite, refused, repaired, sample,
    sound_again, write_on,
};
use crate::truth::{clean, open, verify_open};

#[test]
fn a_repair_that_is_killed_anywhere_is_finished_by_the_next() {
    let mut dice = Dice(41);
    let mut fired = 0;
    for round in 0..rounds(10) {
        let disk = Disk::new(Names::Strict);
        copy_folder(sample().folder.path(), &disk.root);
        let journal = newest_journal(&disk.root);
        overwrite(&journal, data_bytes(&journal) / 3, &[0xee; 40]);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "repairs::repairing_process", "--nocapture", "-q"])
            .env(REPAIR, &disk.root)
            .stdout(Stdio::null());
        disk.preload(&mut command);
        let (event, most) = [("sync", 9), ("synced", 9), ("write", 30)][dice.below(3) as usize];
        disk.crash(&mut command, event, "/", 1 + dice.below(most));
        let status = command.status().unwrap();
        assert_eq!(status.success(), !disk.fired(), "round {round}");
        fired += u64::from(disk.fired());
        let after = disk.after_power_cut((round % 2 == 0).then_some(Dice(round)));
        if disk.fired() {
            assert!(open(&after.root).is_err(), "half repaired, and opened");
        }
        repaired(&after.root);
        sound_again(&after.root);
    }
    assert!(fired * 2 > rounds(10), "{fired} were killed");
}

const REPAIR: &str = "GAPLESS_TEST_REPAIR";

/// Not a test: a repair, when the environment asks for it.
#[test]
fn repairing_process() {
    if let Ok(folder) = std::env::var(REPAIR) {
        fix(Path::new(&folder), RepairMode::Repair).unwrap();
    }
}

/// Which chunks of a snapshot are there is not known after a loss: going on with
/// it could end in a root that is not.
#[test]
fn a_snapshot_that_was_being_written_is_begun_anew_after_a_loss() {
    for lost in [false, true] {
        let folder = copy_of_sample();
        let store = open(folder.path()).unwrap();
        let mut load = Load::resume(&store, 21);
        let mut snapshot = load.event();
        while snapshot.changes.len() == 1 {
            store.write(snapshot.changes.remove(0)).unwrap();
            snapshot = load.event();
        }
        let first_chunk = store.write(snapshot.changes.remove(0)).unwrap();
        let id = first_chunk.repo.unwrap();
        let head = store.durable_head();
        store.close().unwrap();
        drop(store);
        if lost {
            let head = AcknowledgedHead {
                batch: head.batch + 1,
                next_seq: head.next_seq + 1,
            };
            HeadFile::replace(folder.path(), head).unwrap();
        }
        let fix = || fix(folder.path(), RepairMode::Repair);
        assert_eq!(fix().unwrap().found_nothing(), !lost);
        let store = open(folder.path()).unwrap();
        let repo = store.view().repo(id).unwrap().unwrap();
        if lost {
            assert!(matches!(repo.held, Held::Damaged { .. }));
            assert!(repo.debt.fetch.is_some(), "it must be fetched in full");
        } else {
            assert!(matches!(repo.held, Held::Applying { .. }))
        }
        clean(&store);
    }
}

#[test]
fn numbers_go_on_above_those_that_are_in_use_and_those_that_may_be_lost() {
    let folder = copy_of_sample();
    let engine = folder.path().join(ENGINE_FOLDER);
    let mut engine = DiskEngine::open(&engine, &DiskSettings::default()).unwrap();
    let before = meta::decode(&engine.get(Table::Meta, meta::KEY).unwrap().unwrap()).unwrap();
    let mut batch = RawBatch::default();
    batch.delete(Table::Meta, meta::KEY);
    engine.commit(&batch).unwrap();
    drop(engine);
    assert!(open(folder.path()).is_err());
    repaired(folder.path());
    let store = open(folder.path()).unwrap();
    clean(&store);
    let after = store.view().counters().unwrap();
    assert!(after.next_seq >= before.next_seq);
    assert!(after.next_repo >= before.next_repo + 1_000_000, "{after:?}");
    assert!(after.next_host >= before.next_host + 1_000, "{after:?}");
    assert!(
        after.next_upstream > before.next_upstream + 100,
        "{after:?}"
    );
    assert!(after.next_dead >= before.next_dead + 1_000_000, "{after:?}");
}

/// Damages rows at random, in any table, behind the store's back.
fn damage_rows(folder: &Path, dice: &mut Dice) -> Vec<String> {
    let engine = folder.join(ENGINE_FOLDER);
    let mut engine = DiskEngine::open(&engine, &DiskSettings::default()).unwrap();
    let mut said = Vec::new();
    for _ in 0..=dice.below(4) {
        let table = Table::ALL[dice.below(Table::ALL.len() as u64) as usize];
        let view = engine.snapshot();
        let rows: Vec<_> = view
            .range(table, KeyRange::all())
            .map(Result::unwrap)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let (key, row) = &rows[dice.below(rows.len() as u64) as usize];
        let mut row = row.to_vec();
        let kind = dice.below(4);
        match kind {
            0 => {}
            1 => row.truncate(dice.below(row.len() as u64) as usize),
            _ => {
                let at = dice.below(row.len() as u64) as usize;
                row[at] ^= 1 << dice.below(8);
            }
        }
        said.push(format!("{kind} {} {key:?} to {row:?}", table.name()));
        let mut batch = RawBatch::default();
        match kind {
            0 => batch.delete(table, key.to_vec()),
            _ => batch.put(table, key.to_vec(), row),
        }
        engine.commit(&batch).unwrap();
    }
    said
}

#[test]
fn whatever_rows_are_damaged_a_repair_leaves_nothing_that_is_wrong() {
    let mut dice = Dice(11);
    for round in 0..rounds(10) {
        let folder = copy_of_sample();
        let said = damage_rows(folder.path(), &mut dice);
        let fix = || fix(folder.path(), RepairMode::Repair);
        let done = fix().unwrap_or_else(|error| panic!("round {round}, {said:?}: {error}"));
        let again = fix().unwrap();
        assert!(
            again.found_nothing(),
            "round {round}, {said:?}: {done:?}, then {again:?}"
        );
        let store = open(folder.path()).unwrap_or_else(|error| panic!("{said:?}: {error}"));
        clean(&store);
        if store.view().upstream(UPSTREAM).unwrap().is_some() {
            write_on(&store);
            clean(&store);
        }
    }
}

#[test]
fn a_sound_store_is_not_changed_by_a_repair() {
    let folder = copy_of_sample();
    let done = fix(folder.path(), RepairMode::Repair).unwrap();
    assert!(done.found_nothing(), "{done:?}");
    assert!(done.repos > 0);
    let store = open(folder.path()).unwrap();
    assert_eq!(store.durable_head().batch, sample().head.batch);
    verify_open(&store, &sample().memory);
}

#[test]
fn a_dry_run_says_what_is_wrong_and_changes_nothing() {
    let folder = copy_of_sample();
    let journal = newest_journal(folder.path());
    overwrite(&journal, data_bytes(&journal) / 2, &[0xee; 40]);
    let before = fs::read(&journal).unwrap();
    let dry = |folder: &Path| fix(folder, RepairMode::DryRun).unwrap();
    let done = dry(folder.path());
    assert!(done.lost.is_some() && !done.looked);
    assert_eq!(fs::read(&journal).unwrap(), before);
    refused(folder.path());

    let folder = copy_of_sample();
    let engine = folder.path().join(ENGINE_FOLDER);
    let mut engine = DiskEngine::open(&engine, &DiskSettings::default()).unwrap();
    let record = engine
        .snapshot()
        .range(Table::Record, KeyRange::all())
        .next();
    let mut batch = RawBatch::default();
    batch.delete(Table::Record, record.unwrap().unwrap().0.to_vec());
    engine.commit(&batch).unwrap();
    drop(engine);
    let first = dry(folder.path());
    assert_eq!((first.looked, first.damaged_repos), (true, 1));
    assert_eq!(
        dry(folder.path()),
        first,
        "nothing was changed by the first"
    );
}

/// Segments of the frames, and where each frame begins in them.
fn segments(folder: &Path) -> Vec<std::path::PathBuf> {
    let folder = folder.join(gapless_store::frames::FRAMES_FOLDER);
    let files = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn frames_that_are_damaged_or_stand_for_nothing_go_and_all_others_stay() {
    let copy = copy_of_sample();
    let store = open(copy.path()).unwrap();
    let before = clean(&store).frames;
    drop(store);
    let all = segments(copy.path());
    let first = &all[0];
    let middle = fs::metadata(first).unwrap().len() / 2;
    overwrite(first, middle, &[0x5a; 70]);
    let store = open(copy.path()).unwrap();
    let report = gapless_store::check::check_with_frames(
        &store.view(),
        store.frames().unwrap(),
        &mut |_| {},
    );
    let report = report.unwrap();
    assert!(!report.is_clean() && report.frames < before, "{report:?}");
    let left = report.frames;
    store.close().unwrap();
    drop(store);
    let bytes = fs::read(first).unwrap();
    let dry = fix(copy.path(), RepairMode::DryRun).unwrap();
    assert!(dry.damaged_frames > 0 && !dry.found_nothing(), "{dry:?}");
    assert_eq!(fs::read(first).unwrap(), bytes, "only said");
    let done = repaired(copy.path());
    assert_eq!(done.damaged_frames, dry.damaged_frames);
    assert_eq!((done.resets, done.mended_rows, done.lost), (0, 0, None));
    let store = open(copy.path()).unwrap();
    assert_eq!(clean(&store).frames, left, "whatever was whole is there");
    write_on(&store);
    clean(&store);
    store.close().unwrap();
    assert_eq!(segments(copy.path())[0], *first, "and nothing beside it");
}
