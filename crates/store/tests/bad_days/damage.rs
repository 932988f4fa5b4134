//! Tests damage to journals, the head file and tables: opening the store reports it clearly, a
//! repair fixes it, and the whole check then finds nothing.

use std::fs::{self, OpenOptions};

use gapless_store::diagnosis::ENGINE_FOLDER;
use gapless_store::error::StoreError;
use gapless_store::head::{AcknowledgedHead, HEAD_FILE, HeadFile};
use gapless_store::journal;

use crate::power::{Dice, copy_folder};
use crate::rounds;
use crate::sample::{
    copy_of_sample, data_bytes, newest_journal, overwrite, refused, repaired, sample, sound_again,
    write_on,
};
use crate::truth::{clean, lost_numbers, open};
use crate::writer::{LETTER_BYTES, Start, Writer};

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
        assert_eq!(done.journals, std::slice::from_ref(&journal));
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
    // And one number that was never assigned, which every consumer reads.
    assert_eq!(last, sample().head.next_seq);
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
    assert_eq!(done.journals, std::slice::from_ref(first));
    let store = open(folder.path()).unwrap();
    clean(&store);
    assert!(store.durable_head().next_seq >= store_head.next_seq);
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
    assert_eq!(done.lost_numbers, [(1, sample().head.next_seq)]);
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
    let head = AcknowledgedHead {
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
    assert_eq!(done.lost_numbers, [(sample().head.next_seq, head.next_seq)]);
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

/// It is made before the engine, in its full length: an empty one beside an engine
/// is damage, and the loss of what it would have shown is not passed over.
#[test]
fn a_head_that_was_emptied_is_not_taken_for_a_new_one() {
    let folder = copy_of_sample();
    let head = folder.path().join(HEAD_FILE);
    fs::write(&head, b"").unwrap();
    let refused = open(folder.path()).err().unwrap().to_string();
    assert!(refused.contains("'head' is damaged"), "{refused}");
    assert_eq!(fs::metadata(&head).unwrap().len(), 0, "left as it was");
    repaired(folder.path());
    clean(&open(folder.path()).unwrap());
}

#[test]
fn a_head_that_cannot_be_read_or_is_missing_is_noticed_and_repaired() {
    for missing in [false, true] {
        let folder = copy_of_sample();
        let head = folder.path().join(HEAD_FILE);
        if missing {
            fs::remove_file(&head).unwrap()
        } else {
            fs::write(&head, vec![0xa5; 8192]).unwrap()
        }
        let said = refused(folder.path());
        assert!(said.contains("'head'"), "{said}");
        let done = repaired(folder.path());
        assert_eq!(done.damaged_repos, 0, "nothing was lost but the head");
        assert_eq!(sound_again(folder.path()), 0);
    }
}
