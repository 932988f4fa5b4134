//! A CAR as it arrives: every block hashed, small files kept in memory, large
//! ones put aside on disk.
//!
//! What stays in memory is bounded by [`SpillLimits::memory`] and
//! [`INDEX_BYTES`] per block, each at most twice over while they grow, and one
//! block; the indexes of all files together by [`crate::budget`]. The file on disk
//! has no name, so nothing of it is left behind by a crash. A file that ends inside
//! a block is refused here; one that ends between two blocks looks whole, and is
//! found out by the walk.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gapless_atp::car::{CarError, CarStream};
use gapless_atp::cid::{CID_LEN, Cid};
use gapless_atp::limits;
use gapless_store::space::{DiskFull, free_bytes};

use crate::budget::Share;

/// CARs up to so many bytes stay in memory.
pub const SPILL_AT: usize = 32 << 20;
/// The largest CAR that is taken. The largest repositories known have a few
/// million records of a few hundred bytes each.
pub const CAR_BYTES: u64 = 16 << 30;
/// What the index keeps of each block.
pub const INDEX_BYTES: usize = size_of::<Entry>();
/// What the whole index of one file may take: eleven million blocks, of which the
/// largest repositories known have fewer than half.
pub const INDEX_MEMORY: u64 = 256 << 20;
/// The bytes of the smallest block in a file: its length, its CID, and a byte.
const LEAST_BLOCK: u64 = 2 + CID_LEN as u64;
/// Bytes that are handed to the reader at a time, so that what it holds back is
/// one block and one such piece, however much arrives at once.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes that are written to the disk at a time.
const WRITE_BYTES: usize = 1 << 20;
/// The index is searched between two of its marks: so many leading bits of a key
/// choose them.
const MARK_BITS: u32 = 16;

/// How much is taken from a host, and how much of it stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpillLimits {
    /// Bytes of blocks that stay in memory before they go to the disk.
    pub memory: usize,
    /// Bytes of the whole file.
    pub bytes: u64,
    pub blocks: u64,
    /// Bytes of the disk that are left free.
    pub min_free_bytes: u64,
}

impl SpillLimits {
    /// Limits of a file of at most so many bytes. Tiny blocks must not make its
    /// index larger than the file is worth.
    pub fn of_file(memory: usize, bytes: u64, min_free_bytes: u64) -> SpillLimits {
        let indexed = INDEX_MEMORY / INDEX_BYTES as u64;
        SpillLimits {
            memory,
            bytes,
            blocks: indexed.min(bytes / LEAST_BLOCK),
            min_free_bytes,
        }
    }
}

impl Default for SpillLimits {
    fn default() -> SpillLimits {
        SpillLimits {
            memory: SPILL_AT,
            bytes: CAR_BYTES,
            blocks: limits::CAR_BLOCKS as u64,
            min_free_bytes: 0,
        }
    }
}

/// Why what a host sends is no CAR that can be used.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    #[error("the CAR cannot be read: {0}")]
    Car(#[from] CarError),
    #[error("the CAR has more than {0} bytes, and no more are taken")]
    Bytes(u64),
    #[error("the CAR has more than {0} blocks, and no more are taken")]
    Blocks(u64),
    #[error("the CAR names no root, so it has no commit")]
    NoRoot,
    #[error("the root {0} of the CAR is not named as DAG-CBOR, so it is no commit")]
    Codec(Cid),
    #[error("the CAR lacks its root, the commit {0}")]
    NoCommit(Cid),
    #[error("a large CAR cannot be put aside in {}, which `fetch.temp` names: {error}", folder.display())]
    Io { folder: PathBuf, error: io::Error },
    #[error("a large CAR is not put aside: {0}")]
    NoRoom(#[from] DiskFull),
    #[error("other large CARs have the memory that its index needs")]
    Memory,
}

impl SpillError {
    /// A short name, for counting.
    pub fn class(&self) -> &'static str {
        match self {
            SpillError::Car(CarError::Truncated) => "cut",
            SpillError::Car(_) | SpillError::NoRoot | SpillError::Codec(_) => "malformed",
            SpillError::Bytes(_) | SpillError::Blocks(_) => "too_large",
            SpillError::NoCommit(_) => "missing_commit",
            SpillError::Io { .. } | SpillError::NoRoom(_) => "io",
            SpillError::Memory => "memory",
        }
    }

    /// Whether our own disk failed, or is full, or too much arrives at once: the
    /// host has done nothing wrong.
    pub fn is_ours(&self) -> bool {
        use SpillError::{Io, Memory, NoRoom};
        matches!(self, Io { .. } | NoRoom(_) | Memory)
    }

    /// Whether it is a CAR without a commit. Asked for what is new since a rev,
    /// hosts answer so when there is nothing, or when they cannot tell.
    pub fn brings_nothing(&self) -> bool {
        matches!(self, SpillError::NoRoot | SpillError::NoCommit(_))
    }
}

/// Where a block is: 24 bytes, so the index of a million blocks takes 24 MB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Key,
    /// Where its bytes begin, with their number in the lowest bits. Its CID
    /// stands before them.
    place: u64,
}

/// Bits of a place that tell the number of bytes.
const LENGTH_BITS: u32 = 22;
/// Bytes of blocks that places can tell apart.
const PLACES: u64 = 1 << (u64::BITS - LENGTH_BITS);
const _: () = assert!(limits::BLOCK_BYTES < 1 << LENGTH_BITS);
const _: () = assert!(CAR_BYTES < PLACES);

impl Entry {
    fn at(&self) -> u64 {
        self.place >> LENGTH_BITS
    }

    fn len(&self) -> usize {
        (self.place & ((1 << LENGTH_BITS) - 1)) as usize
    }
}

/// Half of the digest, and the codec. Two blocks of one key would cost 2^64
/// hashes to find, and are told apart by the CID beside the bytes all the same.
type Key = [u8; 16];

fn key(cid: &Cid) -> Key {
    let mut key = [0; 16];
    key.copy_from_slice(&cid.as_bytes()[4..20]);
    key[15] ^= cid.codec();
    key
}

/// Takes a CAR piece by piece. After an error it is of no further use.
pub struct Spill {
    folder: PathBuf,
    limits: SpillLimits,
    stream: CarStream,
    index: Vec<Entry>,
    /// What the index may take of the memory that all share.
    share: Option<Share>,
    /// Blocks that are not on disk: all of them, or the last ones.
    recent: Vec<u8>,
    file: Option<File>,
    /// Bytes on disk.
    written: u64,
    /// Bytes that arrived.
    bytes: u64,
}

impl Spill {
    /// `folder` is where a large file is put aside; it must exist by then.
    pub fn new(folder: &Path, limits: SpillLimits) -> Spill {
        Spill {
            folder: folder.to_owned(),
            limits: SpillLimits {
                bytes: limits.bytes.min(PLACES),
                ..limits
            },
            stream: CarStream::new(),
            index: Vec::new(),
            share: None,
            recent: Vec::new(),
            file: None,
            written: 0,
            bytes: 0,
        }
    }

    /// Its index counts against a memory that others use too.
    pub fn sharing(self, share: Share) -> Spill {
        Spill {
            share: Some(share),
            ..self
        }
    }

    /// Takes what arrived.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), SpillError> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.limits.bytes {
            return Err(SpillError::Bytes(self.limits.bytes));
        }
        for piece in bytes.chunks(PIECE_BYTES) {
            self.stream.feed(piece);
            self.take_blocks()?;
            let room = match self.file {
                None => self.limits.memory,
                Some(_) => WRITE_BYTES,
            };
            if self.recent.len() > room {
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
            let indexed = (self.index.len() as u64 + 1) * INDEX_BYTES as u64;
            if let Some(share) = &mut self.share
                && !share.reaches(indexed)
            {
                return Err(SpillError::Memory);
            }
            self.recent.extend_from_slice(cid.as_bytes());
            let at = self.written + self.recent.len() as u64;
            self.recent.extend_from_slice(data);
            self.index.push(Entry {
                key: key(&cid),
                place: at << LENGTH_BITS | data.len() as u64,
            });
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<(), SpillError> {
        self.has_room()?;
        let written = self.try_write_out();
        written.map_err(|error| SpillError::Io {
            folder: self.folder.clone(),
            error,
        })
    }

    /// What is put aside must not take the room that the store goes on with. A
    /// file system that does not answer stops nothing: the write itself will tell.
    fn has_room(&self) -> Result<(), DiskFull> {
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
        // What was kept in memory until now may be much; what follows is not.
        self.recent.clear();
        self.recent.shrink_to(WRITE_BYTES);
        self.file = Some(file);
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<Fetched, SpillError> {
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
            None => Data::Memory(self.recent),
            Some(file) => Data::File(file),
        };
        let mut fetched = Fetched {
            commit_cid,
            commit_block: Vec::new(),
            bytes: self.bytes,
            blocks,
            index: Index::new(self.index),
            _share: self.share,
            data,
        };
        let found = fetched.block(&commit_cid);
        let found = found.map_err(|error| SpillError::Io {
            folder: self.folder,
            error,
        })?;
        let block = found.ok_or(SpillError::NoCommit(commit_cid))?;
        fetched.commit_block = block.into_owned();
        Ok(fetched)
    }
}

/// Entries in order, and where those of each leading number begin.
struct Index {
    entries: Vec<Entry>,
    marks: Vec<usize>,
}

impl Index {
    fn new(mut entries: Vec<Entry>) -> Index {
        entries.sort_unstable();
        let few = entries.len() < 1 << MARK_BITS;
        let mut marks = Vec::new();
        if !few {
            marks.reserve_exact((1 << MARK_BITS) + 1);
            let mut at = 0;
            for lead in 0..1usize << MARK_BITS {
                while entries
                    .get(at)
                    .is_some_and(|entry| lead_of(&entry.key) < lead)
                {
                    at += 1;
                }
                marks.push(at);
            }
            marks.push(entries.len());
        }
        Index { entries, marks }
    }

    /// The entries of a key: one, unless the file repeats itself.
    fn find(&self, key: &Key) -> impl Iterator<Item = &Entry> {
        let lead = lead_of(key);
        let (from, to) = match self.marks.get(lead..lead + 2) {
            Some(&[from, to]) => (from, to),
            _ => (0, self.entries.len()),
        };
        let near = self.entries.get(from..to).unwrap_or_default();
        let first = near.partition_point(|entry| entry.key < *key);
        let key = *key;
        near[first..]
            .iter()
            .take_while(move |entry| entry.key == key)
    }
}

fn lead_of(key: &Key) -> usize {
    usize::from(u16::from_be_bytes([key[0], key[1]]))
}

enum Data {
    Memory(Vec<u8>),
    File(File),
}

/// The blocks of a CAR that arrived whole.
pub struct Fetched {
    pub commit_cid: Cid,
    pub commit_block: Vec<u8>,
    /// Bytes of the CAR.
    pub bytes: u64,
    /// Blocks of the CAR, repeated ones counted again.
    pub blocks: u64,
    index: Index,
    _share: Option<Share>,
    data: Data,
}

impl Fetched {
    /// A block by its CID.
    pub fn block(&self, cid: &Cid) -> io::Result<Option<Cow<'_, [u8]>>> {
        for entry in self.index.find(&key(cid)) {
            if let Some(block) = self.read(cid, entry)? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// How long a block is, by the index alone; `None` if it is not there.
    pub fn length(&self, cid: &Cid) -> Option<usize> {
        self.index.find(&key(cid)).next().map(Entry::len)
    }

    /// Whether the blocks were put aside on disk.
    pub fn is_spilled(&self) -> bool {
        matches!(self.data, Data::File(_))
    }

    /// The block of an entry, if it is the one of this CID.
    fn read(&self, cid: &Cid, entry: &Entry) -> io::Result<Option<Cow<'_, [u8]>>> {
        let from = entry.at() - CID_LEN as u64;
        match &self.data {
            Data::Memory(bytes) => {
                let from = from as usize;
                let block = bytes.get(from..from + CID_LEN + entry.len());
                let block = block.and_then(|block| block.strip_prefix(cid.as_bytes()));
                Ok(block.map(Cow::Borrowed))
            }
            Data::File(file) => {
                let mut block = vec![0; CID_LEN + entry.len()];
                file.read_exact_at(&mut block, from)?;
                if !block.starts_with(cid.as_bytes()) {
                    return Ok(None);
                }
                block.drain(..CID_LEN);
                // It was hashed when it came, and has been on a disk since.
                match cid.matches(&block) {
                    true => Ok(Some(Cow::Owned(block))),
                    false => Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("block {cid} came back from the disk with other bytes"),
                    )),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
