//! Reads a journal from end to end: which batches are whole, and what else is
//! there.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::batch::{self, BatchRead, JournalBatch, START_BYTES};

const READ_BYTES: usize = 1 << 20;
/// Flushes and compactions take numbers of the engine too; never so many between
/// two batches.
const NUMBER_JUMP: u64 = 1 << 20;
const EXTENSION: &str = "jnl";

/// One journal file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub path: PathBuf,
    /// The engine counts them up by one, and removes the lowest first.
    pub id: u64,
    pub batches: u64,
    /// The engine's number of the last whole batch, here or before.
    pub number: Option<u64>,
    /// Our own number of the last whole batch.
    pub newest: Option<u64>,
    pub gap: Option<JournalGap>,
    pub tail: Tail,
}

/// Damage that whole batches follow. Where there are several pieces, from the
/// beginning of the first to the end of the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalGap {
    pub at: u64,
    pub until: u64,
    /// Our numbers of the whole batches before and after it.
    pub before: Option<u64>,
    pub after: Option<u64>,
}

/// What follows the last whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing, or the zeros that the engine lays out beforehand.
    Clean,
    /// Something that is no batch.
    Broken { at: u64, until: u64 },
}

/// All journals of an engine's folder in the order of their writing. A folder
/// that does not exist has none.
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

/// Reads one; `number` is the engine's for the last batch before it.
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
    // From here on it is rare, and the rest may be in memory.
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
    /// Counts whole batches from `at` on, up to the first that is not; where
    /// that is.
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

/// The engine's own number is outside of its checksum. It grows from batch to
/// batch, a little; one that does not is damaged, and would put the batch out of
/// its order.
fn follows(before: Option<u64>, batch: &JournalBatch) -> bool {
    before.is_none_or(|before| batch.number > before && batch.number - before < NUMBER_JUMP)
}

/// Bytes from `at` to the last that is not zero. A batch ends in a byte that is
/// not, so none is cut by this.
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

/// Where whole batches of ours go on after damage, to the very end, and the
/// first of them. Nothing less will do: records are strangers' bytes, and one
/// that contains a batch must not be taken for one. It cannot contain what
/// follows it.
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
            // What breaks this run breaks every run that begins within it.
            _ => at += length.max(1),
        }
    }
    None
}

/// The first of the whole batches that `bytes` begins with, and the length of
/// all of them.
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
