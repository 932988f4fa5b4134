//! Tests the store on disks that fail or are full, and with a second process.

use std::fs;

use gapless_store::change::{Change, DeadChange};
use gapless_store::error::StoreError;
use gapless_store::{Settings, Store};

use crate::load::letter;
use crate::power::{Disk, Names};
use crate::truth::{clean, open, verify, with};
use crate::writer::{LETTER_BYTES, Memory, Start, Writer};

/// Lets calls on a file fail while the writer runs; what it said at its end.
fn fail(event: &str, part: &str, count: u64, error: &str) -> String {
    fail_with(0, event, part, count, error)
}

/// Makes calls on a file fail while the writer runs with `letter_bytes` more for each event.
fn fail_with(letter_bytes: usize, event: &str, part: &str, count: u64, error: &str) -> String {
    let disk = Disk::new(Names::Strict);
    let arm = disk.arm_file();
    let start = Start {
        folder: &disk.root,
        seed: 8,
        in_flight: 8,
        events: None,
        arm: Some(&arm),
    };
    let mut command = start.command();
    command.env(LETTER_BYTES, letter_bytes.to_string());
    disk.preload(&mut command);
    disk.fail(&mut command, event, part, count, error);
    let ended = Writer::spawn(command).end();
    assert!(disk.fired(), "it never failed");
    assert!(!ended.success && ended.told.len() >= 10);
    let mut memory = Memory::default();
    memory.add(&ended.told);
    // A new start finds everything that was told, on the disk as it is and on
    // one that forgets what the failed call was to make durable.
    verify(&disk.after_power_cut(None).root, &memory);
    verify(&disk.root, &memory);
    ended.error.expect("it says why")
}

#[test]
fn a_failed_fsync_of_the_journal_ends_writing_and_is_said() {
    let said = fail("sync", ".jnl", 5, "EIO");
    assert!(said.contains("until Gapless is restarted"), "{said}");
    assert!(said.contains("Input/output error"), "{said}");
}

#[test]
fn a_failed_fsync_of_frames_ends_writing_and_is_said() {
    let said = fail("sync", ".seg", 5, "EIO");
    assert!(
        said.contains(".seg") && said.contains("Input/output"),
        "{said}"
    );
}

#[test]
fn a_failed_write_of_the_head_ends_writing_and_is_said() {
    let said = fail("write", "/head", 5, "EIO");
    assert!(
        said.contains("head") && said.contains("Input/output"),
        "{said}"
    );
}

#[test]
fn a_disk_that_is_full_in_mid_write_ends_writing_and_is_said() {
    for part in [".jnl", ".seg"] {
        let said = fail("write", part, 9, "ENOSPC");
        assert!(said.contains("No space left"), "{said}");
    }
}

#[test]
fn an_engine_whose_workers_failed_takes_nothing_more_and_says_so() {
    let said = fail_with(200_000, "write", "/tables/", 3, "ENOSPC");
    assert!(said.contains("until Gapless is restarted"), "{said}");
    assert!(said.contains("the disk may be full or broken"), "{said}");
}

#[test]
fn nothing_is_written_when_the_disk_is_almost_full_and_reading_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let letter = |number| Change {
        dead: Some(DeadChange::New(letter(number, 100))),
        ..Change::default()
    };
    let store = open(folder.path()).unwrap();
    store.write(letter(1)).unwrap();
    let head = store.durable_head();
    drop(store);

    let full = with(|settings| settings.min_free_disk_bytes = u64::MAX);
    let store = Store::open(folder.path(), &full).unwrap();
    for _ in 0..3 {
        let Err(error) = store.write(letter(2)) else {
            panic!("it was written");
        };
        assert!(matches!(error, StoreError::Full(_)), "{error}");
        assert!(!error.is_final(), "it goes on when there is room");
        assert!(error.to_string().contains("min_free_disk"), "{error}");
        assert_eq!(store.durable_head(), head);
        assert_eq!(store.view().dead_letters().count(), 1, "reading goes on");
    }
    drop(store);
    let store = open(folder.path()).unwrap();
    store.write(letter(2)).expect("there is room again");
    assert_eq!(store.view().dead_letters().count(), 2);
    clean(&store);
}

#[test]
fn a_second_process_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let start = Start {
        folder: folder.path(),
        seed: 1,
        in_flight: 4,
        events: None,
        arm: None,
    };
    let mut first = Writer::spawn(start.command());
    assert!(first.listen(5));
    let pid = first.pid();
    let Err(error) = open(folder.path()) else {
        panic!("two processes have it open");
    };
    assert!(matches!(error, StoreError::Lock(_)), "{error}");
    assert!(
        error.to_string().contains(&format!("process {pid}")),
        "{error}"
    );
    let second = Writer::spawn(start.command()).end();
    assert!(!second.success);
    assert!(second.error.unwrap().contains(&format!("process {pid}")));
    // The first was not disturbed.
    assert!(first.listen(50));
    let mut memory = Memory::default();
    memory.add(&first.kill().told);
    verify(folder.path(), &memory);
}

#[test]
fn folders_of_others_and_of_newer_programs_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("format"),
        "gapless store\nversion 999\nwritten by 9.9.9\n",
    )
    .unwrap();
    let error = open(folder.path()).err().expect("a newer format");
    for part in ["format 999", "9.9.9", "at least as new"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!folder.path().join("engine").exists());

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("photo.jpg"), "").unwrap();
    let error = open(folder.path()).err().expect("not our folder");
    assert!(error.to_string().contains("photo.jpg"), "{error}");
    assert!(!folder.path().join("engine").exists());
    assert!(Store::open(folder.path(), &Settings::default()).is_err());
    let left = fs::read_dir(folder.path()).unwrap();
    assert_eq!(left.count(), 1, "not even a lock");
}
