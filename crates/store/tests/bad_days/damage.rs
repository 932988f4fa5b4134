//! Damage: journals, the head, rows. It is noticed when the store is opened, said
//! clearly, repaired, and afterwards the whole check finds nothing.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use gapless_core::ledger::Time;
use gapless_store::condition::ENGINE_FOLDER;
use gapless_store::engine::{DiskEngine, DiskSettings, Engine, KeyRange, RawBatch};
use gapless_store::error::StoreError;
use gapless_store::head::{Acknowledged, HEAD_FILE, HeadFile};
use gapless_store::journal;
use gapless_store::repair::{Mode, Repaired, repair};
use gapless_store::table::Table;
use gapless_store::table::log::LogKind;
use tempfile::TempDir;

use crate::load::{Load, UPSTREAM, row_hash};
use crate::power::{Dice, Disk, Names, copy_folder};
use crate::rounds;
use crate::truth::{clean, lost_numbers, open};
use crate::writer::{LETTER_BYTES, Memory, Start, Writer};

const NOW: Time = Time(1_800_000_000_000_000);

/// A store as a killed writer left it, and what the writer was told.
struct Sample {
    folder: TempDir,
    memory: Memory,
    head: Acknowledged,
}

fn sample() -> &'static Sample {
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
        // Opened once more: nothing is torn, and all is told.
        drop(open(folder.path()).unwrap());
        let head = HeadFile::open(folder.path()).unwrap().last().unwrap();
        Sample {
            folder,
            memory,
            head,
        }
    })
}

fn copy_of_sample() -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(sample().folder.path(), copy.path());
    copy
}

fn newest_journal(folder: &Path) -> PathBuf {
    let mut journals = journal::scan(&folder.join(ENGINE_FOLDER)).unwrap();
    journals.pop().unwrap().path
}

/// Bytes of the journal that hold something.
fn data_bytes(journal: &Path) -> u64 {
    let bytes = fs::read(journal).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1
}

fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// It is refused, says what to do, and does not touch anything.
fn refused(folder: &Path) -> String {
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

fn repaired(folder: &Path) -> Repaired {
    let done = repair(
        folder,
        &DiskSettings::default(),
        Mode::Repair,
        NOW,
        &mut |_| {},
    );
    let done = done.expect("it can be repaired");
    let again = repair(
        folder,
        &DiskSettings::default(),
        Mode::Repair,
        NOW,
        &mut |_| {},
    );
    let again = again.expect("and once more");
    assert!(again.nothing(), "a second time finds nothing: {done:?}, then {again:?}");
    done
}

/// After a repair: nothing is wrong, nothing has two meanings, everything is to be
/// compared, and writing goes on.
fn sound_again(folder: &Path) -> u64 {
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

fn write_on(store: &gapless_store::Store) {
    let mut load = Load::resume(store, 5);
    for _ in 0..50 {
        let event = load.event();
        store.begin(UPSTREAM, 0, event.number);
        for change in event.changes {
            store.write(change).expect("writing goes on");
        }
    }
}

#[test]
fn a_damaged_batch_in_the_middle_of_the_journal_is_noticed_and_repaired() {
    let mut dice = Dice(3);
    for round in 0..rounds(6) {
        let folder = copy_of_sample();
        let journal = newest_journal(folder.path());
        let length = data_bytes(&journal);
        let at = length / 4 + dice.below(length / 2);
        let garbage = [dice.roll().to_le_bytes(); 4].concat();
        overwrite(&journal, at, &garbage[..1 + dice.below(32) as usize]);
        let said = refused(folder.path());
        assert!(said.contains("is damaged from byte"), "{said}");
        let done = repaired(folder.path());
        assert_eq!(done.journals, [journal.clone()]);
        let lost = sound_again(folder.path());
        let all = sample().memory.events.len() as u64;
        assert!(lost < all / 4, "round {round}: {lost} of {all} events lost");
        let kept = folder
            .path()
            .join("damaged")
            .join(journal.file_name().unwrap());
        assert!(kept.exists(), "what was damaged can be looked at");
    }
}

#[test]
fn a_journal_that_was_cut_is_noticed_and_the_lost_numbers_are_covered() {
    let folder = copy_of_sample();
    let journal = newest_journal(folder.path());
    let half = data_bytes(&journal) / 2;
    let file = OpenOptions::new().write(true).open(&journal).unwrap();
    file.set_len(half).unwrap();
    let said = refused(folder.path());
    assert!(said.contains("batches"), "{said}");
    let done = repaired(folder.path());
    assert_eq!(done.lost_numbers.len(), 1, "one row covers them: {done:?}");
    assert!(sound_again(folder.path()) > 0);
    let store = open(folder.path()).unwrap();
    let (first, last) = done.lost_numbers[0];
    assert_eq!(lost_numbers(&store), last - first + 1);
    assert_eq!(last + 1, sample().head.next_seq);
}

/// The engine's own idea of its head comes from its last journal: damage in an
/// earlier one does not show in it.
#[test]
fn damage_in_a_journal_that_is_not_the_last_is_noticed_though_the_head_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let start = Start {
        folder: folder.path(),
        seed: 31,
        in_flight: 32,
        events: Some(700),
        arm: None,
    };
    let mut command = start.command();
    command.env(LETTER_BYTES, "150000");
    let ended = Writer::spawn(command).end();
    assert!(ended.success, "{:?}", ended.error);
    let journals = journal::scan(&folder.path().join(ENGINE_FOLDER)).unwrap();
    assert!(journals.len() > 1, "the engine began another journal");
    let first = &journals[0].path;
    overwrite(first, data_bytes(first) / 2, &[0xee; 8]);
    let store_head = HeadFile::open(folder.path()).unwrap().last().unwrap();
    let newest = journals.last().unwrap().newest.unwrap();
    assert_eq!(
        newest, store_head.batch,
        "by the heads alone, nothing is missing"
    );
    let said = refused(folder.path());
    assert!(said.contains("is damaged from byte"), "{said}");
    let done = repaired(folder.path());
    assert_eq!(done.journals, [first.clone()]);
    let store = open(folder.path()).unwrap();
    clean(&store);
    assert!(store.durable_head().next_seq >= store_head.next_seq);
}

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
            .args(["--exact", "damage::repairing_process", "--nocapture", "-q"])
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
        let folder = Path::new(&folder);
        let settings = DiskSettings::default();
        repair(folder, &settings, Mode::Repair, NOW, &mut |_| {}).unwrap();
    }
}

#[test]
fn an_engine_that_is_gone_is_not_taken_for_a_new_one() {
    let folder = copy_of_sample();
    fs::remove_dir_all(folder.path().join(ENGINE_FOLDER)).unwrap();
    let Err(error) = open(folder.path()) else {
        panic!("an empty store was opened in its place");
    };
    assert!(error.to_string().contains("missing"), "{error}");
    let done = repaired(folder.path());
    assert_eq!(done.lost_numbers, [(1, sample().head.next_seq - 1)]);
    sound_again(folder.path());
}

#[test]
fn a_table_that_is_gone_is_not_taken_for_an_empty_one() {
    let tables = sample().folder.path().join(ENGINE_FOLDER).join("keyspaces");
    let count = fs::read_dir(tables).unwrap().count();
    for number in 1..count {
        let folder = copy_of_sample();
        let table = folder.path().join(ENGINE_FOLDER).join("keyspaces");
        fs::remove_dir_all(table.join(number.to_string())).unwrap();
        let said = refused(folder.path());
        assert!(said.contains("tables are in"), "{said}");
        repaired(folder.path());
        let store = open(folder.path()).unwrap();
        clean(&store);
        assert!(store.durable_head().next_seq >= sample().head.next_seq);
    }
}

/// The journals are whole as far as they go; what the engine says is compared too.
#[test]
fn an_engine_that_is_behind_the_head_is_noticed() {
    let folder = copy_of_sample();
    let head = Acknowledged {
        batch: sample().head.batch,
        next_seq: sample().head.next_seq + 5,
    };
    HeadFile::replace(folder.path(), head).unwrap();
    let said = refused(folder.path());
    assert!(
        said.contains(&format!("numbers below {}", head.next_seq)),
        "{said}"
    );
    let done = repaired(folder.path());
    assert_eq!(
        done.lost_numbers,
        [(sample().head.next_seq, head.next_seq - 1)]
    );
    assert_eq!(sound_again(folder.path()), 0);
}

#[test]
fn files_put_back_from_an_older_copy_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    write_on(&store);
    store.close().unwrap();
    drop(store);
    let older = tempfile::tempdir().unwrap();
    copy_folder(&folder.path().join(ENGINE_FOLDER), older.path());
    let store = open(folder.path()).unwrap();
    write_on(&store);
    drop(store);
    fs::remove_dir_all(folder.path().join(ENGINE_FOLDER)).unwrap();
    copy_folder(older.path(), &folder.path().join(ENGINE_FOLDER));
    let Err(StoreError::Lost { what }) = open(folder.path()).map(drop) else {
        panic!("not noticed");
    };
    assert!(what.contains("missing"), "{what}");
}

#[test]
fn a_head_that_cannot_be_read_or_is_missing_is_noticed_and_repaired() {
    for missing in [false, true] {
        let folder = copy_of_sample();
        let head = folder.path().join(HEAD_FILE);
        match missing {
            true => fs::remove_file(&head).unwrap(),
            false => fs::write(&head, vec![0xa5; 8192]).unwrap(),
        }
        let said = refused(folder.path());
        assert!(said.contains("'head'"), "{said}");
        let done = repaired(folder.path());
        assert_eq!(done.damaged_repos, 0, "nothing was lost but the head");
        assert_eq!(sound_again(folder.path()), 0);
    }
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
        engine.commit(batch).unwrap();
    }
    said
}

#[test]
fn whatever_rows_are_damaged_a_repair_leaves_nothing_that_is_wrong() {
    let mut dice = Dice(11);
    for round in 0..rounds(10) {
        let folder = copy_of_sample();
        let said = damage_rows(folder.path(), &mut dice);
        let fix = || {
            repair(
                folder.path(),
                &DiskSettings::default(),
                Mode::Repair,
                NOW,
                &mut |_| {},
            )
        };
        let done = fix().unwrap_or_else(|error| panic!("round {round}, {said:?}: {error}"));
        let again = fix().unwrap();
        assert!(
            again.nothing(),
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
    let done = repair(
        folder.path(),
        &DiskSettings::default(),
        Mode::Repair,
        NOW,
        &mut |_| {},
    )
    .unwrap();
    assert!(done.nothing(), "{done:?}");
    assert!(done.repos > 0);
    let store = open(folder.path()).unwrap();
    assert_eq!(store.durable_head().batch, sample().head.batch);
    crate::truth::verify_open(&store, &sample().memory);
}

#[test]
fn a_dry_run_says_what_is_wrong_and_changes_nothing() {
    let folder = copy_of_sample();
    let journal = newest_journal(folder.path());
    overwrite(&journal, data_bytes(&journal) / 2, &[0xee; 40]);
    let before = fs::read(&journal).unwrap();
    let dry = |folder: &Path| {
        repair(
            folder,
            &DiskSettings::default(),
            Mode::DryRun,
            NOW,
            &mut |_| {},
        )
        .unwrap()
    };
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
    engine.commit(batch).unwrap();
    drop(engine);
    let first = dry(folder.path());
    assert_eq!((first.looked, first.damaged_repos), (true, 1));
    assert_eq!(
        dry(folder.path()),
        first,
        "nothing was changed by the first"
    );
}
