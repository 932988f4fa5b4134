//! A repository as its host serves it, checked whole.
//!
//! The commit names the DID that was asked for; every node of its tree is there
//! and canonical; every record is there and no larger than records are. Nothing
//! is compared or written before all of that is known. A difference (R11) is
//! checked in the same way, on the ground of what is held. Whether the owner
//! signed it is [`Snapshot::verify`]'s to say.

use std::collections::HashMap;
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use gapless_atp::cid::Cid;
use gapless_atp::crypto::PublicKey;
use gapless_atp::limits;
use gapless_atp::mst::{TreeError, Visit, WalkStats, walk};
use gapless_atp::repo::{Commit, CommitError};
use gapless_atp::syntax::Did;
use gapless_core::ledger::Head;
use gapless_store::error::StoreError;
use gapless_store::table::record::Record;

use crate::repair::block_source::Source;
use crate::repair::held_tree::{HeldTree, sound};
use crate::repair::spill::Fetched;

pub use crate::repair::compare::{CHUNK_BYTES, Chunk, Keep, Totals};

/// Records of a difference that are not in it and are held under other paths.
/// Above so many the whole is fetched: no host makes such differences.
pub const MOVED_RECORDS: usize = 100_000;
/// Bytes that the records of a tree may take beyond those that came: paths may
/// share a record, and a small file could otherwise fill a disk with one large
/// record under a million paths.
pub const REPEATED_BYTES: u64 = 1 << 30;
/// Bytes of a path that an error tells.
const TOLD_BYTES: usize = 120;

/// Why a repository cannot be used as it was served.
#[derive(Debug, thiserror::Error)]
#[error("the repository of {did}, as its host serves it, is refused and stays owed: {flaw}")]
pub struct SnapshotError {
    pub did: Did,
    pub flaw: Flaw,
}

/// What is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    #[error("its root is no commit: {0}")]
    Commit(CommitError),
    #[error("its commit is that of another repository, {0}")]
    OtherDid(String),
    #[error("node {0} of its tree is missing")]
    MissingNode(Cid),
    #[error("its tree is not canonical: {0}")]
    Tree(TreeError),
    #[error("the record {cid} at '{path}' is missing")]
    MissingRecord { path: String, cid: Cid },
    #[error(
        "more than {MOVED_RECORDS} records are missing that may be held under other paths; only the whole repository can tell"
    )]
    MovedRecords,
    #[error("the record at '{path}' has {bytes} bytes, more than {limit}", limit = limits::RECORD_BYTES)]
    RecordBytes { path: String, bytes: usize },
    #[error(
        "its paths repeat records until they take {REPEATED_BYTES} bytes more than all that came; no honest repository does"
    )]
    Repeated,
    #[error("what was fetched cannot be read back from the disk: {0}")]
    Io(String),
    #[error("what is held cannot be read: {0}")]
    Store(#[from] StoreError),
}

impl SnapshotError {
    /// A short name, for counting.
    pub fn class(&self) -> &'static str {
        match &self.flaw {
            Flaw::Commit(_) | Flaw::Tree(_) => "malformed",
            Flaw::OtherDid(_) => "other_did",
            Flaw::MissingNode(_) => "missing_node",
            Flaw::MissingRecord { .. } | Flaw::MovedRecords => "missing_record",
            Flaw::RecordBytes { .. } | Flaw::Repeated => "too_large",
            Flaw::Io(_) => "io",
            Flaw::Store(_) => "store",
        }
    }

    /// Whether our own disk failed: the host has done nothing wrong.
    pub fn is_ours(&self) -> bool {
        matches!(self.flaw, Flaw::Io(_) | Flaw::Store(_))
    }
}

impl From<TreeError> for Flaw {
    fn from(error: TreeError) -> Flaw {
        match error {
            TreeError::Missing(cid) => Flaw::MissingNode(cid),
            TreeError::Source(error) => Flaw::Io(error.0),
            error => Flaw::Tree(error),
        }
    }
}

impl Flaw {
    pub(crate) fn missing(path: &[u8], cid: Cid) -> Flaw {
        let path = told(path);
        Flaw::MissingRecord { path, cid }
    }
}

fn told(path: &[u8]) -> String {
    String::from_utf8_lossy(&path[..path.len().min(TOLD_BYTES)]).into_owned()
}

/// A repository whose commit was read. What follows needs the walk first, and
/// does it if nobody did.
pub struct Snapshot {
    pub(crate) did: Did,
    pub(crate) fetched: Fetched,
    pub(crate) held: Option<HeldTree>,
    head: Head,
    walked: OnceLock<Walked>,
}

/// What the walk found out.
pub(crate) struct Walked {
    stats: WalkStats,
    /// Records that did not come, and the path under which each is held.
    pub(crate) moved: Moved,
}

type Moved = HashMap<Cid, Vec<u8>, RandomState>;

/// Records that did not come: the first path that needs each, and how many do.
type Wanted = HashMap<Cid, (Vec<u8>, u64), RandomState>;

/// What all records take, each counted once for every path.
struct Taken {
    bytes: u64,
    limit: u64,
}

impl Taken {
    fn add(&mut self, bytes: u64) -> Result<(), Flaw> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > self.limit {
            true => Err(Flaw::Repeated),
            false => Ok(()),
        }
    }
}

impl Snapshot {
    /// Reads the commit, which must be one of this DID.
    pub fn check(fetched: Fetched, did: &Did) -> Result<Snapshot, SnapshotError> {
        let flawed = |flaw| SnapshotError {
            did: did.clone(),
            flaw,
        };
        let commit = Commit::decode(&fetched.commit_block);
        let commit = commit.map_err(|error| flawed(Flaw::Commit(error)))?;
        if commit.did != did.as_str() {
            return Err(flawed(Flaw::OtherDid(told(commit.did.as_bytes()))));
        }
        let head = Head {
            rev: commit.rev,
            data: commit.data,
            commit: fetched.commit_cid,
        };
        Ok(Snapshot {
            did: did.clone(),
            fetched,
            held: None,
            head,
            walked: OnceLock::new(),
        })
    }

    /// Takes it as a difference: what it lacks may be held.
    pub fn with_held(self, tree: HeldTree) -> Snapshot {
        Snapshot {
            held: Some(tree),
            walked: OnceLock::new(),
            ..self
        }
    }

    pub fn head(&self) -> Head {
        self.head
    }

    pub fn commit_block(&self) -> &[u8] {
        &self.fetched.commit_block
    }

    /// The CAR that it came in.
    pub fn fetched(&self) -> &Fetched {
        &self.fetched
    }

    /// Whether the commit is signed with this key.
    pub fn verify(&self, key: &PublicKey) -> bool {
        let commit = Commit::decode(&self.fetched.commit_block);
        commit.is_ok_and(|commit| commit.verify(key).is_ok())
    }

    /// Goes through the whole tree: after it, every record of the signed root is
    /// known to be at hand.
    pub fn walk_whole(&self) -> Result<WalkStats, SnapshotError> {
        let walked = self.walked().map_err(|flaw| self.flawed(flaw))?;
        Ok(walked.stats)
    }

    pub(crate) fn flawed(&self, flaw: Flaw) -> SnapshotError {
        let did = self.did.clone();
        SnapshotError { did, flaw }
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source::new(&self.fetched, self.held.as_ref())
    }

    pub(crate) fn walked(&self) -> Result<&Walked, Flaw> {
        if let Some(walked) = self.walked.get() {
            return Ok(walked);
        }
        let walked = match &self.held {
            None => self.walk_served()?,
            Some(held) => self.walk_difference(held)?,
        };
        Ok(self.walked.get_or_init(|| walked))
    }

    /// Everything must have come.
    fn walk_served(&self) -> Result<Walked, Flaw> {
        let mut taken = self.nothing_taken();
        let stats = walk(self.head.data, &self.source(), |met| match met {
            Visit::Key { key, value, .. } => match self.served_bytes(key, &value)? {
                Some(bytes) => taken.add(bytes),
                None => Err(Flaw::missing(key, value)),
            },
            Visit::Node { .. } => Ok(()),
        })?;
        let moved = Moved::default();
        Ok(Walked { stats, moved })
    }

    /// What did not come must be held: in its place, or under another path.
    fn walk_difference(&self, held: &HeldTree) -> Result<Walked, Flaw> {
        let mut taken = self.nothing_taken();
        let mut records = held.records().peekable();
        let mut wanted = Wanted::default();
        let stats = walk(self.head.data, &self.source(), |met| {
            let Visit::Key { key, value, .. } = met else {
                return Ok(());
            };
            let before = |record: &Row| is_before(record, key);
            while let Some(passed) = records.next_if(before) {
                passed?;
            }
            if let Some(bytes) = self.served_bytes(key, &value)? {
                return taken.add(bytes);
            }
            let here = |record: &Row| is_at(record, key, &value);
            if records.peek().is_some_and(here) {
                return Ok(());
            }
            let (_, times) = wanted.entry(value).or_insert_with(|| (key.to_vec(), 0));
            *times += 1;
            match wanted.len() > MOVED_RECORDS {
                true => Err(Flaw::MovedRecords),
                false => Ok(()),
            }
        })?;
        let moved = find_moved(held, wanted, &mut taken)?;
        Ok(Walked { stats, moved })
    }

    fn nothing_taken(&self) -> Taken {
        Taken {
            bytes: 0,
            limit: self.fetched.bytes.saturating_add(REPEATED_BYTES),
        }
    }

    /// The size of a record that came, by the index alone.
    fn served_bytes(&self, path: &[u8], cid: &Cid) -> Result<Option<u64>, Flaw> {
        match self.fetched.length(cid) {
            Some(bytes) if bytes > limits::RECORD_BYTES => {
                let path = told(path);
                Err(Flaw::RecordBytes { path, bytes })
            }
            bytes => Ok(bytes.map(|bytes| bytes as u64)),
        }
    }
}

/// Finds, in one pass over what is held, records by their CIDs alone: a host does
/// not send again what it knows us to have.
fn find_moved(held: &HeldTree, mut wanted: Wanted, taken: &mut Taken) -> Result<Moved, Flaw> {
    let mut found = Moved::default();
    if wanted.is_empty() {
        return Ok(found);
    }
    for record in held.records() {
        let record = record?;
        let Some((_, times)) = wanted.get(&record.cid) else {
            continue;
        };
        if let Some(bytes) = sound(&record, &record.cid) {
            taken.add(times.saturating_mul(bytes.len() as u64))?;
            wanted.remove(&record.cid);
            found.insert(record.cid, record.path().to_vec());
        }
        if wanted.is_empty() {
            return Ok(found);
        }
    }
    // The first by path, so that the same snapshot is told of in the same words.
    match wanted.into_iter().min_by(|(_, a), (_, b)| a.cmp(b)) {
        Some((cid, (path, _))) => Err(Flaw::missing(&path, cid)),
        None => Ok(found),
    }
}

type Row = Result<Record, StoreError>;

/// Errors count as before everything, so that they are met.
fn is_before(row: &Row, key: &[u8]) -> bool {
    row.as_ref().map_or(true, |record| record.path() < key)
}

fn is_at(row: &Row, key: &[u8], cid: &Cid) -> bool {
    let record = row.as_ref();
    record.is_ok_and(|record| record.path() == key && record.cid == *cid)
}
