//! Reads one batch of the engine's journal, as fjall 3 writes it:
//!
//! ```text
//! start = 1 · items u32 · number u64
//! item  = 2 · kind · compression · keyspace u64 · key length u16 · length u32 · length on disk u32 · key · value
//! clear = 4 · keyspace u64
//! end   = 3 · xxh3 of all items u64 · "FJL" 3
//! ```
//!
//! Integers are little-endian. Gapless reads this format and never writes it. If a
//! newer engine writes another format, the journal tests fail, which compare what
//! this module reads with what the engine wrote.

use std::io::{self, Read};

use xxhash_rust::xxh3::Xxh3;

use crate::table::meta::{self, Counters};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";

pub(super) const START_BYTES: usize = 13;
const ITEM_HEADER_BYTES: usize = 21;
const CLEAR_BYTES: usize = 9;
const END_BYTES: usize = 13;

/// A whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JournalBatch {
    /// The engine's number of the batch; grows from batch to batch, with holes.
    pub number: u64,
    /// The store's counters, from the row in `meta` that every batch of the store writes.
    pub counters: Option<Counters>,
    pub bytes: u64,
}

/// The result of reading where a batch could begin.
#[derive(Debug)]
pub(super) enum BatchRead {
    Batch(JournalBatch),
    /// Not a whole batch: zeros, a torn end or damage.
    Broken,
}

/// Reads the batch that begins here, from a source that has `left` bytes more.
pub(super) fn read(source: &mut impl Read, left: u64) -> io::Result<BatchRead> {
    let mut reader = BatchReader {
        source,
        left,
        bytes: 0,
        checksum: Xxh3::new(),
        scratch: Vec::new(),
    };
    match reader.batch() {
        Ok(batch) => Ok(BatchRead::Batch(batch)),
        Err(ReadError::Broken) => Ok(BatchRead::Broken),
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(BatchRead::Broken)
        }
        Err(ReadError::Io(error)) => Err(error),
    }
}

/// Why no whole batch was read.
enum ReadError {
    Broken,
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

/// Reads one batch, and hashes it on the way.
struct BatchReader<'s, R> {
    source: &'s mut R,
    left: u64,
    bytes: u64,
    checksum: Xxh3,
    scratch: Vec<u8>,
}

impl<R: Read> BatchReader<'_, R> {
    fn batch(&mut self) -> Result<JournalBatch, ReadError> {
        let start: [u8; START_BYTES] = self.array()?;
        let [START, a, b, c, d, number @ ..] = start else {
            return Err(ReadError::Broken);
        };
        let items = u32::from_le_bytes([a, b, c, d]);
        let mut counters = None;
        for _ in 0..items {
            if let Some(found) = self.item()? {
                counters = Some(found);
            }
        }
        let end: [u8; END_BYTES] = self.array()?;
        let Some((&[END], rest)) = end.split_first_chunk::<1>() else {
            return Err(ReadError::Broken);
        };
        let (checksum, trailer) = rest.split_at(8);
        if checksum != self.checksum.digest().to_le_bytes() || trailer != TRAILER {
            return Err(ReadError::Broken);
        }
        Ok(JournalBatch {
            number: u64::from_le_bytes(number),
            counters,
            bytes: self.bytes,
        })
    }

    /// Reads one item. Returns the counters if it is the store's row in `meta`.
    fn item(&mut self) -> Result<Option<Counters>, ReadError> {
        let [tag] = self.array()?;
        self.checksum.update(&[tag]);
        match tag {
            ITEM => {}
            CLEAR => {
                let keyspace: [u8; CLEAR_BYTES - 1] = self.array()?;
                self.checksum.update(&keyspace);
                return Ok(None);
            }
            _ => return Err(ReadError::Broken),
        }
        let header: [u8; ITEM_HEADER_BYTES - 1] = self.array()?;
        self.checksum.update(&header);
        let [_, _, _, _, _, _, _, _, _, _, k0, k1, rest @ ..] = header;
        let [_, _, _, _, d0, d1, d2, d3] = rest;
        let key_bytes = u16::from_le_bytes([k0, k1]) as usize;
        let value_bytes = u32::from_le_bytes([d0, d1, d2, d3]) as usize;
        self.body(key_bytes + value_bytes)?;
        self.checksum.update(&self.scratch);
        let (key, value) = self.scratch.split_at(key_bytes);
        Ok(if key == meta::KEY {
            meta::decode(value).ok()
        } else {
            None
        })
    }

    /// Fills the scratch buffer. A damaged length cannot allocate more than the source has.
    fn body(&mut self, length: usize) -> Result<(), ReadError> {
        self.take(length)?;
        self.scratch.resize(length, 0);
        Ok(self.source.read_exact(&mut self.scratch)?)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        self.take(N)?;
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn take(&mut self, length: usize) -> Result<(), ReadError> {
        let length = length as u64;
        self.left = self.left.checked_sub(length).ok_or(ReadError::Broken)?;
        self.bytes += length;
        Ok(())
    }
}
