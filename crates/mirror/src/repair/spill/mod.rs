//! Receives a CAR piece by piece: every block is hashed on arrival, a small CAR stays
//! in memory, and a large one spills to a temporary file.
//!
//! Memory per CAR is bounded by [`SpillLimits::memory`] plus [`INDEX_ENTRY_BYTES`] per
//! block, each at most doubled while its buffer grows, plus one block. A [`Lease`]
//! bounds the indexes of all CARs together. The temporary file has no name, so a crash
//! leaves nothing behind. A CAR that ends inside a block is refused here. A CAR that
//! ends between two blocks looks whole here, and the walk over its tree refuses it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gapless_atp::car::{CarError, CarStream};
use gapless_atp::cid::{CID_LEN, Cid};
use gapless_atp::limits;
use gapless_store::space::{DiskFull, free_bytes};

use crate::budget::Lease;

/// Bytes of a CAR that stay in memory by default.
pub(crate) const DEFAULT_MEMORY_BYTES: usize = 32 << 20;
/// Bytes of a CAR by default. The largest repositories known have a few million records
/// of a few hundred bytes each.
pub(crate) const MAX_CAR_BYTES: u64 = 16 << 30;
/// Bytes that the index keeps per block.
pub(crate) const INDEX_ENTRY_BYTES: usize = size_of::<BlockIndexEntry>();
/// Bytes of the index of one CAR: eleven million blocks. The largest repositories known
/// have fewer than half of that.
pub(crate) const MAX_INDEX_BYTES: u64 = 256 << 20;
/// Bytes of the smallest block in a CAR: its length, its CID, and one byte.
const MIN_BLOCK_BYTES: u64 = 2 + CID_LEN as u64;
/// Bytes that the CAR parser receives at once. The parser buffers at most one block and
/// one such piece, however much arrives at once.
const FEED_BYTES: usize = 64 << 10;
/// Bytes that are written to the disk at once.
const WRITE_BYTES: usize = 1 << 20;
/// Leading bits of a key that select the range of the index to search.
const PREFIX_BITS: u32 = 16;

/// Limits on one CAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpillLimits {
    /// Bytes of blocks that stay in memory before they go to the disk.
    pub memory: usize,
    /// Bytes of the whole CAR.
    pub bytes: u64,
    pub blocks: u64,
    /// Bytes that must stay free on the disk.
    pub min_free_bytes: u64,
}

impl SpillLimits {
    /// Returns the limits of a CAR of at most `bytes` bytes. The limit on blocks follows
    /// from the bytes, so tiny blocks do not make a large index.
    pub(crate) fn of_car(memory: usize, bytes: u64, min_free_bytes: u64) -> SpillLimits {
        let indexed = MAX_INDEX_BYTES / INDEX_ENTRY_BYTES as u64;
        SpillLimits {
            memory,
            bytes,
            blocks: indexed.min(bytes / MIN_BLOCK_BYTES),
            min_free_bytes,
        }
    }
}

impl Default for SpillLimits {
    fn default() -> SpillLimits {
        SpillLimits {
            memory: DEFAULT_MEMORY_BYTES,
            bytes: MAX_CAR_BYTES,
            blocks: limits::CAR_BLOCKS as u64,
            min_free_bytes: 0,
        }
    }
}

/// Why a CAR cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    #[error("the CAR cannot be read: {0}")]
    Car(#[from] CarError),
    #[error("the CAR has more than {0} bytes, the limit")]
    Bytes(u64),
    #[error("the CAR has more than {0} blocks, the limit")]
    Blocks(u64),
    #[error("the CAR has no root, and therefore no commit")]
    NoRoot,
    #[error("the root {0} of the CAR is not a DAG-CBOR block, and therefore not a commit")]
    Codec(Cid),
    #[error("the CAR does not contain its root, the commit {0}")]
    NoCommit(Cid),
    #[error("a large CAR cannot be written to {}, the folder in `fetch.temp`: {error}", folder.display())]
    Io { folder: PathBuf, error: io::Error },
    #[error("a large CAR is not written to the disk: {0}")]
    DiskFull(#[from] DiskFull),
    #[error("the indexes of other large CARs use all memory that is reserved for indexes")]
    NoIndexBudget,
}

impl SpillError {
    /// Returns the value of the metric's label `reason`.
    pub fn class(&self) -> &'static str {
        match self {
            SpillError::Car(CarError::Truncated) => "cut",
            SpillError::Car(_) | SpillError::NoRoot | SpillError::Codec(_) => "malformed",
            SpillError::Bytes(_) | SpillError::Blocks(_) => "too_large",
            SpillError::NoCommit(_) => "missing_commit",
            SpillError::Io { .. } | SpillError::DiskFull(_) => "io",
            SpillError::NoIndexBudget => "memory",
        }
    }

    /// Whether the cause is local, and not the host: the disk failed or is full, or too
    /// many CARs arrive at once.
    pub(crate) fn is_ours(&self) -> bool {
        use SpillError::{DiskFull, Io, NoIndexBudget};
        matches!(self, Io { .. } | DiskFull(_) | NoIndexBudget)
    }

    /// Whether the CAR has no commit. A host answers `getRepo?since=` with such a CAR
    /// if nothing is new, or if the host cannot compute the difference.
    pub(crate) fn has_no_commit(&self) -> bool {
        matches!(self, SpillError::NoRoot | SpillError::NoCommit(_))
    }
}

/// The position of a block. An entry takes 24 bytes, the index of a million blocks 24 MB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BlockIndexEntry {
    key: Key,
    /// The position of the block's bytes, shifted left by [`LENGTH_BITS`], and their
    /// length in the low bits. The CID precedes the bytes.
    location: u64,
}

/// Bits of a location that hold the length.
const LENGTH_BITS: u32 = 22;
/// The positions that a location can hold.
const MAX_POSITION: u64 = 1 << (u64::BITS - LENGTH_BITS);
const _: () = assert!(limits::BLOCK_BYTES < 1 << LENGTH_BITS);
const _: () = assert!(MAX_CAR_BYTES < MAX_POSITION);

impl BlockIndexEntry {
    fn position(&self) -> u64 {
        self.location >> LENGTH_BITS
    }

    fn len(&self) -> usize {
        (self.location & ((1 << LENGTH_BITS) - 1)) as usize
    }
}

/// Half of the digest, and the codec. Two blocks with one key cost 2^64 hashes to find;
/// the CID beside the bytes tells them apart all the same.
type Key = [u8; 16];

fn key(cid: &Cid) -> Key {
    let mut key = [0; 16];
    key.copy_from_slice(&cid.as_bytes()[4..20]);
    key[15] ^= cid.codec();
    key
}

/// A CAR that is being received. After an error it must be dropped.
pub struct Spill {
    folder: PathBuf,
    limits: SpillLimits,
    stream: CarStream,
    index: Vec<BlockIndexEntry>,
    /// The index's part of a budget that all indexes share.
    index_lease: Option<Lease>,
    /// Blocks that are not on disk: all blocks, or the last ones.
    recent: Vec<u8>,
    file: Option<File>,
    /// Bytes on disk.
    written: u64,
    /// Bytes received.
    bytes: u64,
}

impl Spill {
    /// Creates an empty spill. A large CAR spills to a file in `folder`, which must exist
    /// by then.
    pub fn new(folder: &Path, limits: SpillLimits) -> Spill {
        Spill {
            folder: folder.to_owned(),
            limits: SpillLimits {
                bytes: limits.bytes.min(MAX_POSITION),
                ..limits
            },
            stream: CarStream::new(),
            index: Vec::new(),
            index_lease: None,
            recent: Vec::new(),
            file: None,
            written: 0,
            bytes: 0,
        }
    }

    /// Counts the index against a shared budget.
    pub(crate) fn with_index_lease(self, lease: Lease) -> Spill {
        Spill {
            index_lease: Some(lease),
            ..self
        }
    }

    /// Receives the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), SpillError> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.limits.bytes {
            return Err(SpillError::Bytes(self.limits.bytes));
        }
        for piece in bytes.chunks(FEED_BYTES) {
            self.stream.feed(piece);
            self.take_blocks()?;
            let in_memory = match self.file {
                None => self.limits.memory,
                Some(_) => WRITE_BYTES,
            };
            if self.recent.len() > in_memory {
                self.write_out()?;
            }
        }
        Ok(())
    }

    fn take_blocks(&mut self) -> Result<(), SpillError> {
        while let Some((cid, data)) = self.stream.next_block()? {
            if self.index.len() as u64 >= self.limits.blocks {
                return Err(SpillError::Blocks(self.limits.blocks));
            }
            let indexed = (self.index.len() as u64 + 1) * INDEX_ENTRY_BYTES as u64;
            if let Some(lease) = &mut self.index_lease
                && !lease.grow_to(indexed)
            {
                return Err(SpillError::NoIndexBudget);
            }
            self.recent.extend_from_slice(cid.as_bytes());
            let position = self.written + self.recent.len() as u64;
            self.recent.extend_from_slice(data);
            self.index.push(BlockIndexEntry {
                key: key(&cid),
                location: position << LENGTH_BITS | data.len() as u64,
            });
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<(), SpillError> {
        self.check_disk_space()?;
        let written = self.try_write_out();
        written.map_err(|error| SpillError::Io {
            folder: self.folder.clone(),
            error,
        })
    }

    /// Keeps `min_free_bytes` free for the store. An error of the file system is ignored
    /// here: the write that follows reports it.
    fn check_disk_space(&self) -> Result<(), DiskFull> {
        let min_free_bytes = self.limits.min_free_bytes;
        let needed = min_free_bytes.saturating_add(self.recent.len() as u64);
        match free_bytes(&self.folder) {
            Ok(free_bytes) if free_bytes < needed => Err(DiskFull {
                folder: self.folder.clone(),
                free_bytes,
                min_free_bytes,
            }),
            _ => Ok(()),
        }
    }

    fn try_write_out(&mut self) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.folder)?,
        };
        file.write_all(&self.recent)?;
        self.written += self.recent.len() as u64;
        // The buffer may be large until here; from now on it stays small.
        self.recent.clear();
        self.recent.shrink_to(WRITE_BYTES);
        self.file = Some(file);
        Ok(())
    }

    /// Ends the CAR, which must contain its root.
    pub fn finish(mut self) -> Result<SpilledCar, SpillError> {
        let root = self.stream.roots().map(|roots| roots.first().copied());
        self.stream.finish()?;
        self.stream = CarStream::new();
        let commit_cid = root.flatten().ok_or(SpillError::NoRoot)?;
        if !commit_cid.is_dag_cbor() {
            return Err(SpillError::Codec(commit_cid));
        }
        if self.file.is_some() {
            self.write_out()?;
        }
        let blocks = self.index.len() as u64;
        self.index.shrink_to_fit();
        self.recent.shrink_to_fit();
        let data = match self.file {
            None => CarBytes::Memory(self.recent),
            Some(file) => CarBytes::File(file),
        };
        let mut car = SpilledCar {
            commit_cid,
            commit_block: Vec::new(),
            bytes: self.bytes,
            blocks,
            index: BlockIndex::new(self.index),
            _index_lease: self.index_lease,
            data,
        };
        let found = car.block(&commit_cid);
        let found = found.map_err(|error| SpillError::Io {
            folder: self.folder,
            error,
        })?;
        let block = found.ok_or(SpillError::NoCommit(commit_cid))?;
        car.commit_block = block.into_owned();
        Ok(car)
    }
}

/// The entries of a CAR, sorted by key.
struct BlockIndex {
    entries: Vec<BlockIndexEntry>,
    /// The first entry of each key prefix, and the number of entries; empty for a small
    /// index.
    prefix_starts: Vec<usize>,
}

impl BlockIndex {
    fn new(mut entries: Vec<BlockIndexEntry>) -> BlockIndex {
        entries.sort_unstable();
        let few = entries.len() < 1 << PREFIX_BITS;
        let mut prefix_starts = Vec::new();
        if !few {
            prefix_starts.reserve_exact((1 << PREFIX_BITS) + 1);
            let mut at = 0;
            for prefix in 0..1usize << PREFIX_BITS {
                while entries
                    .get(at)
                    .is_some_and(|entry| prefix_of(&entry.key) < prefix)
                {
                    at += 1;
                }
                prefix_starts.push(at);
            }
            prefix_starts.push(entries.len());
        }
        BlockIndex {
            entries,
            prefix_starts,
        }
    }

    /// Returns the entries of a key: more than one if the CAR repeats a block.
    fn find(&self, key: &Key) -> impl Iterator<Item = &BlockIndexEntry> {
        let prefix = prefix_of(key);
        let (from, to) = match self.prefix_starts.get(prefix..prefix + 2) {
            Some(&[from, to]) => (from, to),
            _ => (0, self.entries.len()),
        };
        let range = self.entries.get(from..to).unwrap_or_default();
        let first = range.partition_point(|entry| entry.key < *key);
        let key = *key;
        range[first..]
            .iter()
            .take_while(move |entry| entry.key == key)
    }
}

fn prefix_of(key: &Key) -> usize {
    usize::from(u16::from_be_bytes([key[0], key[1]]))
}

enum CarBytes {
    Memory(Vec<u8>),
    File(File),
}

/// A CAR that was received to its end, with its blocks in memory or in a file.
pub struct SpilledCar {
    pub commit_cid: Cid,
    pub commit_block: Vec<u8>,
    /// Bytes of the CAR.
    pub bytes: u64,
    /// Blocks of the CAR; a repeated block counts each time.
    pub blocks: u64,
    index: BlockIndex,
    _index_lease: Option<Lease>,
    data: CarBytes,
}

impl SpilledCar {
    /// Reads a block by its CID.
    pub fn block(&self, cid: &Cid) -> io::Result<Option<Cow<'_, [u8]>>> {
        for entry in self.index.find(&key(cid)) {
            if let Some(block) = self.read(cid, entry)? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Returns the length of a block from the index alone; `None` if the CAR lacks the
    /// block.
    pub fn length(&self, cid: &Cid) -> Option<usize> {
        self.index.find(&key(cid)).next().map(BlockIndexEntry::len)
    }

    /// Whether the blocks are in a file.
    pub fn is_spilled(&self) -> bool {
        matches!(self.data, CarBytes::File(_))
    }

    /// Reads the block of an entry, if the block has this CID.
    fn read(&self, cid: &Cid, entry: &BlockIndexEntry) -> io::Result<Option<Cow<'_, [u8]>>> {
        let from = entry.position() - CID_LEN as u64;
        match &self.data {
            CarBytes::Memory(bytes) => {
                let from = from as usize;
                let block = bytes.get(from..from + CID_LEN + entry.len());
                let block = block.and_then(|block| block.strip_prefix(cid.as_bytes()));
                Ok(block.map(Cow::Borrowed))
            }
            CarBytes::File(file) => {
                let mut block = vec![0; CID_LEN + entry.len()];
                file.read_exact_at(&mut block, from)?;
                if !block.starts_with(cid.as_bytes()) {
                    return Ok(None);
                }
                block.drain(..CID_LEN);
                // The block was hashed on arrival, but has been on a disk since.
                if cid.matches(&block) {
                    Ok(Some(Cow::Owned(block)))
                } else {
                    Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("block {cid} came back from the disk with other bytes"),
                    ))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
