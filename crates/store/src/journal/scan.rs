//! Scans whole journals: finds the whole batches and the damage between and after
//! them.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::batch::{self, BatchRead, JournalBatch, START_BYTES};

const READ_BYTES: usize = 1 << 20;
/// The engine's numbers of two neighbouring batches differ by less than this. Flushes and
/// compactions use up numbers too, but never so many.
const NUMBER_JUMP: u64 = 1 << 20;
const EXTENSION: &str = "jnl";

/// One journal file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub path: PathBuf,
    /// The number of the file. The engine counts up by one and removes the lowest first.
    pub id: u64,
    pub batches: u64,
    /// The engine's number of the last whole batch, here or before.
    pub number: Option<u64>,
    /// The store's number of the last whole batch.
    pub newest: Option<u64>,
    pub gap: Option<JournalGap>,
    pub tail: Tail,
}

/// Damage that is followed by whole batches. Several damaged ranges count as one, from the
/// beginning of the first to the end of the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalGap {
    pub at: u64,
    pub until: u64,
    /// The store's numbers of the whole batches before and after the damage.
    pub before: Option<u64>,
    pub after: Option<u64>,
}

/// What follows the last whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing, or the zeros with which the engine preallocates the file.
    Clean,
    /// Bytes that are not a whole batch.
    Broken { at: u64, until: u64 },
}

/// Scans all journals of an engine's folder, in the order in which they were written. A
/// missing folder has none.
pub fn scan(engine: &Path) -> io::Result<Vec<Journal>> {
    let mut journals = Vec::new();
    let entries = match fs::read_dir(engine) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(journals),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if let Some(id) = id_in_name(&path) {
            files.push((id, path));
        }
    }
    files.sort();
    let mut number = None;
    for (id, path) in files {
        let journal = scan_file(path, id, number)?;
        number = journal.number;
        journals.push(journal);
    }
    Ok(journals)
}

fn id_in_name(path: &Path) -> Option<u64> {
    if path.extension()?.to_str()? != EXTENSION {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok()
}

/// Scans one journal; `number` is the engine's number of the last batch before it.
fn scan_file(path: PathBuf, id: u64, number: Option<u64>) -> io::Result<Journal> {
    let file = File::open(&path)?;
    let length = file.metadata()?.len();
    let mut journal = Journal {
        path,
        id,
        batches: 0,
        number,
        newest: None,
        gap: None,
        tail: Tail::Clean,
    };
    let mut source = BufReader::with_capacity(READ_BYTES, file);
    let at = journal.read_batches(&mut source, 0, length)?;
    if at == length {
        return Ok(journal);
    }
    let until = at + data_bytes(&mut source, at)?;
    if until == at {
        return Ok(journal);
    }
    // Damage is rare, so the rest may be read into memory.
    let mut rest = Vec::new();
    source.seek(SeekFrom::Start(at))?;
    source.take(until - at).read_to_end(&mut rest)?;
    match find_resumption(&rest, journal.number, journal.newest) {
        Some((skipped, first)) => {
            let resumed = at + skipped as u64;
            journal.gap = Some(JournalGap {
                at,
                until: resumed,
                before: journal.newest,
                after: first.counters.map(|counters| counters.batch),
            });
            let mut source = rest.get(skipped..).unwrap_or_default();
            journal.read_batches(&mut source, resumed, until)?;
        }
        None => journal.tail = Tail::Broken { at, until },
    }
    Ok(journal)
}

impl Journal {
    /// Counts whole batches from `at` on. Returns the offset of the first one that is
    /// not whole.
    fn read_batches(&mut self, source: &mut impl Read, mut at: u64, end: u64) -> io::Result<u64> {
        while at < end {
            let BatchRead::Batch(batch) = batch::read(source, end - at)? else {
                break;
            };
            if !follows(self.number, &batch) {
                break;
            }
            at += batch.bytes;
            self.batches += 1;
            self.number = Some(batch.number);
            if let Some(counters) = batch.counters {
                self.newest = Some(counters.batch);
            }
        }
        Ok(at)
    }
}

/// Whether a batch may follow another, by the engine's numbers. The checksum does not
/// cover that number, which grows by a little from batch to batch: any other number is
/// damaged and would put the batch out of order.
fn follows(before: Option<u64>, batch: &JournalBatch) -> bool {
    before.is_none_or(|before| batch.number > before && batch.number - before < NUMBER_JUMP)
}

/// The length from `at` to the last byte that is not zero. A batch never ends in a zero,
/// so this cuts none.
fn data_bytes(source: &mut BufReader<File>, at: u64) -> io::Result<u64> {
    source.seek(SeekFrom::Start(at))?;
    let (mut length, mut read_so_far) = (0, 0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            return Ok(length);
        }
        let piece = buffer.get(..count).unwrap_or_default();
        if let Some(last) = piece.iter().rposition(|byte| *byte != 0) {
            length = read_so_far + last as u64 + 1;
        }
        read_so_far += count as u64;
    }
}

/// Finds the offset after damage from which whole batches of the store continue to the
/// very end, and the first of them. Nothing less is accepted: records are untrusted
/// bytes, and a record that contains a batch must not be taken for one; a record cannot
/// contain what follows it.
fn find_resumption(
    rest: &[u8],
    number: Option<u64>,
    newest: Option<u64>,
) -> Option<(usize, JournalBatch)> {
    let mut at = 1;
    while at + START_BYTES < rest.len() {
        let (first, length) = whole_run(rest.get(at..)?, number, newest);
        match first {
            Some(first) if at + length == rest.len() => return Some((at, first)),
            // The bytes that end this run also end every run that begins within it.
            _ => at += length.max(1),
        }
    }
    None
}

/// The first of the whole batches at the beginning of `bytes`, and the length of all of
/// them.
fn whole_run(
    bytes: &[u8],
    mut number: Option<u64>,
    mut newest: Option<u64>,
) -> (Option<JournalBatch>, usize) {
    let (mut first, mut length) = (None, 0);
    while let Some(mut source) = bytes.get(length..)
        && let Ok(BatchRead::Batch(batch)) = batch::read(&mut source, (bytes.len() - length) as u64)
        && let Some(counters) = batch.counters
        && newest.is_none_or(|newest| counters.batch > newest)
        && follows(number, &batch)
    {
        number = Some(batch.number);
        newest = Some(counters.batch);
        length += batch.bytes as usize;
        first = first.or(Some(batch));
    }
    (first, length)
}
