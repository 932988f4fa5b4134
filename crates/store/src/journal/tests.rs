//! Tests the check of journals that the real engine wrote: whole, torn and damaged ones.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;
use crate::engine::{DiskEngine, DiskSettings, Engine, RawBatch};
use crate::table::Table;
use crate::table::meta::{self, Counters};

/// A journal of `batches`, copied while the engine was running, so that its end
/// is as a crash leaves it.
struct WrittenJournal {
    folder: tempfile::TempDir,
    /// Where each batch ends.
    ends: Vec<u64>,
}

impl WrittenJournal {
    fn journal(&self) -> PathBuf {
        self.folder.path().join("0.jnl")
    }

    fn scan(&self) -> Journal {
        let mut journals = scan(self.folder.path()).unwrap();
        assert_eq!(journals.len(), 1);
        journals.remove(0)
    }

    fn verdict(&self, acknowledged: u64) -> JournalVerdict {
        inspect(self.folder.path(), Some(head(acknowledged))).unwrap()
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.journal());
        file.unwrap().write_all_at(bytes, at).unwrap();
    }

    fn flip(&self, at: u64) {
        let byte = fs::read(self.journal()).unwrap()[at as usize];
        self.overwrite(at, &[byte ^ 0x55]);
    }
}

fn head(batch: u64) -> AcknowledgedHead {
    AcknowledgedHead {
        batch,
        next_seq: batch * 3,
    }
}

fn batch(number: u64, payload: &[u8]) -> RawBatch {
    let mut batch = RawBatch::default();
    for row in 0..number % 4 {
        batch.put(Table::Record, [number as u8, row as u8], payload);
    }
    batch.delete(Table::Debt, "nothing");
    let counters = Counters {
        batch: number,
        next_seq: number * 3,
        ..Counters::default()
    };
    batch.put(Table::Meta, meta::KEY, meta::encode(&counters));
    batch.put(Table::Log, number.to_be_bytes(), "a row after it");
    batch
}

fn written(batches: u64, payload: &[u8]) -> WrittenJournal {
    let source = tempfile::tempdir().unwrap();
    let mut engine = DiskEngine::open(source.path(), &DiskSettings::default()).unwrap();
    let journal = fs::File::open(source.path().join("0.jnl")).unwrap();
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for number in 1..=batches {
        engine.commit(&batch(number, payload)).unwrap();
        let mut written = vec![0; 1 << 20];
        journal
            .read_exact_at(&mut written, bytes.len() as u64)
            .unwrap();
        let last = written.iter().rposition(|byte| *byte != 0).unwrap();
        bytes.extend_from_slice(&written[..=last]);
        ends.push(bytes.len() as u64);
    }
    // The engine lays out zeros beforehand.
    bytes.resize(bytes.len() + 3000, 0);
    WrittenJournal {
        ends,
        ..written_from(&bytes)
    }
}

fn written_from(bytes: &[u8]) -> WrittenJournal {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("0.jnl"), bytes).unwrap();
    WrittenJournal {
        folder,
        ends: Vec::new(),
    }
}

#[test]
fn what_the_engine_wrote_is_read_batch_by_batch() {
    // Long enough for the engine to compress it, if it does.
    for payload in [&b"short"[..], &[7; 10_000]] {
        let written = written(9, payload);
        let journal = written.scan();
        assert_eq!((journal.batches, journal.newest), (9, Some(9)));
        assert_eq!((journal.gap, journal.tail), (None, Tail::Clean));
        assert_eq!(written.verdict(9), JournalVerdict::Whole);
    }
}

#[test]
fn an_unacknowledged_last_batch_is_torn_wherever_it_was_cut() {
    let whole = written(5, b"short");
    let bytes = fs::read(whole.journal()).unwrap();
    let (from, until) = (whole.ends[3], whole.ends[4]);
    for torn in from..until {
        let written = written_from(&bytes[..torn as usize]);
        let verdict = written.verdict(4);
        if torn == from {
            assert_eq!(verdict, JournalVerdict::Whole)
        } else {
            let JournalVerdict::Torn(torn) = verdict else {
                panic!("torn at {torn}: {verdict:?}");
            };
            assert_eq!(torn.at, from);
            cut_torn_end(&torn).unwrap();
            assert_eq!(written.verdict(4), JournalVerdict::Whole);
        }
    }
    // Some pages of the last batch came to the disk and others did not.
    for lost in from..until {
        let written = written_from(&bytes[..until as usize]);
        written.overwrite(lost, &vec![0; (until - lost - 1).min(20) as usize]);
        let verdict = written.verdict(4);
        assert!(!matches!(verdict, JournalVerdict::Lost(_)), "{verdict:?}");
    }
}

#[test]
fn a_damaged_last_batch_is_a_loss_if_it_was_acknowledged() {
    let written = written(5, b"short");
    written.flip(written.ends[3] + 20);
    let JournalVerdict::Lost(lost) = written.verdict(5) else {
        panic!("not noticed");
    };
    assert_eq!(lost.batches, Some((5, 5)));
    assert_eq!(lost.holes.len(), 1);
    assert!(lost.to_string().starts_with("batch 5 is missing; "));
}

#[test]
fn every_damaged_byte_in_the_middle_is_noticed_and_placed() {
    let whole = written(6, b"short");
    let bytes = fs::read(whole.journal()).unwrap();
    let (from, until) = (whole.ends[1], whole.ends[2]);
    for at in from..until {
        // The engine's own number stands outside of its checksum. What shows is
        // that it no longer fits its neighbours'; the lowest bits may.
        if (from + 5..from + 8).contains(&at) {
            continue;
        }
        let written = written_from(&bytes);
        written.flip(at);
        // Even if nothing was acknowledged.
        let verdict = inspect(written.folder.path(), None).unwrap();
        let JournalVerdict::Lost(lost) = verdict else {
            panic!("byte {at} is not noticed: {verdict:?}");
        };
        assert_eq!(lost.batches, Some((3, 3)), "byte {at}");
        let hole = &lost.holes[0];
        assert_eq!((hole.at, hole.until), (from, until), "byte {at}");
    }
}

#[test]
fn damage_is_cut_out_and_the_rest_kept() {
    let written = written(6, b"short");
    written.flip(written.ends[1] + 20);
    written.flip(written.ends[3] + 20);
    let before = fs::read(written.journal()).unwrap();
    let keep = written.folder.path().join("kept");
    let journal = written.scan();
    assert_eq!(
        journal.gap,
        Some(JournalGap {
            at: written.ends[1],
            until: written.ends[4],
            before: Some(2),
            after: Some(6),
        })
    );
    assert!(excise(&journal, &keep).unwrap());
    let journal = written.scan();
    assert_eq!((journal.batches, journal.newest), (3, Some(6)));
    assert_eq!((journal.gap, journal.tail), (None, Tail::Clean));
    assert!(!excise(&journal, &keep).unwrap(), "nothing left to do");
    assert_eq!(fs::read(keep.join("0.jnl")).unwrap(), before);
}

#[test]
fn a_journal_within_a_record_is_not_taken_for_batches() {
    // What a stranger could put into a record: a batch of ours, whole.
    let forged = fs::read(written(200, b"forged").journal()).unwrap();
    let end = forged.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let written = written(6, &forged[..end]);
    written.flip(written.ends[3] + 14);
    let gap = written.scan().gap.unwrap();
    assert_eq!((gap.at, gap.until), (written.ends[3], written.ends[4]));
    assert_eq!((gap.before, gap.after), (Some(4), Some(6)));
}

#[test]
fn damage_in_a_journal_that_is_not_the_last_is_not_hidden_by_the_last() {
    let first = written(4, b"short");
    let second = {
        let later = written(9, b"short");
        let bytes = fs::read(later.journal()).unwrap();
        bytes[later.ends[3] as usize..later.ends[8] as usize].to_vec()
    };
    fs::write(first.folder.path().join("1.jnl"), &second).unwrap();
    let verdict = inspect(first.folder.path(), Some(head(9))).unwrap();
    assert_eq!(verdict, JournalVerdict::Whole);
    // Its end, which in the last journal would be torn.
    first.flip(first.ends[2] + 3);
    let verdict = inspect(first.folder.path(), Some(head(9))).unwrap();
    assert!(matches!(verdict, JournalVerdict::Lost(_)), "{verdict:?}");
}

#[test]
fn a_journal_that_is_missing_is_noticed() {
    let written = written(4, b"short");
    fs::write(written.folder.path().join("2.jnl"), "").unwrap();
    let JournalVerdict::Lost(lost) = written.verdict(4) else {
        panic!("not noticed");
    };
    assert_eq!(lost.files, Some((1, 1)));
    let empty = tempfile::tempdir().unwrap();
    let verdict = inspect(empty.path(), Some(head(1))).unwrap();
    assert!(matches!(verdict, JournalVerdict::Lost(_)), "{verdict:?}");
    assert_eq!(inspect(empty.path(), None).unwrap(), JournalVerdict::Whole);
}
