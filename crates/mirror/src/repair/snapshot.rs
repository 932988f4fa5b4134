//! A repository as its host serves it, and the checks that it must pass.
//!
//! The commit must name the requested DID. Every node of its tree must be present and
//! canonical, and every record must be present and within the size limit. Nothing is
//! compared or written before all checks have passed. A difference (R11) passes the same
//! checks on top of the held records. [`Snapshot::verify`] checks the signature.

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

use crate::repair::block_source::BlockSource;
use crate::repair::held_tree::{HeldTree, verified_bytes};
use crate::repair::spill::SpilledCar;

/// Records that a difference lacks and that are looked for under other held paths. With
/// more, the whole repository is fetched: no host sends such differences.
pub(crate) const MAX_MOVED_RECORDS: usize = 100_000;
/// Bytes of records beyond the bytes of the CAR. Paths may share a record, so a small CAR
/// could otherwise fill a disk with one large record under a million paths.
pub(crate) const MAX_REPEATED_BYTES: u64 = 1 << 30;
/// Bytes of a path that an error shows.
const SHOWN_PATH_BYTES: usize = 120;

/// Why a snapshot is refused.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot of {did} is refused, and the repository is fetched again later: {flaw}")]
pub struct SnapshotError {
    pub did: Did,
    pub flaw: Flaw,
}

/// What is wrong with a snapshot, or with the disk that it is read from.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    #[error("the root is not a commit: {0}")]
    Commit(CommitError),
    #[error("the commit belongs to another repository, {0}")]
    OtherDid(String),
    #[error("node {0} of the tree is missing")]
    MissingNode(Cid),
    #[error("the tree is not canonical: {0}")]
    Tree(TreeError),
    #[error("the record {cid} at '{path}' is missing")]
    MissingRecord { path: String, cid: Cid },
    #[error(
        "the difference lacks more than {MAX_MOVED_RECORDS} records; only the whole repository can show whether they are held"
    )]
    MovedRecords,
    #[error("the record at '{path}' has {bytes} bytes, more than {limit}", limit = limits::RECORD_BYTES)]
    RecordBytes { path: String, bytes: usize },
    #[error(
        "paths share records so often that the records take {MAX_REPEATED_BYTES} bytes more than the CAR, the limit"
    )]
    Repeated,
    #[error("the CAR cannot be read back from the disk: {0}")]
    Io(String),
    #[error("the held records cannot be read: {0}")]
    Store(#[from] StoreError),
}

impl SnapshotError {
    /// Returns the value of the metric's label `reason`.
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

    /// Whether the local disk failed, and not the host.
    pub(crate) fn is_ours(&self) -> bool {
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
        let path = shortened_path(path);
        Flaw::MissingRecord { path, cid }
    }
}

fn shortened_path(path: &[u8]) -> String {
    String::from_utf8_lossy(&path[..path.len().min(SHOWN_PATH_BYTES)]).into_owned()
}

/// A repository whose commit was read. Methods that need the walk over its tree do the
/// walk on first use.
pub struct Snapshot {
    pub(crate) did: Did,
    pub(crate) car: SpilledCar,
    pub(crate) held: Option<HeldTree>,
    head: Head,
    walked: OnceLock<WalkResult>,
}

/// What the walk over the tree found.
pub(crate) struct WalkResult {
    stats: WalkStats,
    pub(crate) moved: MovedRecords,
}

/// Records that the CAR lacks, with the path under which each is held.
type MovedRecords = HashMap<Cid, Vec<u8>, RandomState>;

/// Records that the CAR lacks, with the first path that needs each and the number of such
/// paths.
type MissingRecords = HashMap<Cid, (Vec<u8>, u64), RandomState>;

/// Bytes of all records, each counted once per path.
struct ByteTotal {
    bytes: u64,
    limit: u64,
}

impl ByteTotal {
    fn add(&mut self, bytes: u64) -> Result<(), Flaw> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit {
            Err(Flaw::Repeated)
        } else {
            Ok(())
        }
    }
}

impl Snapshot {
    /// Reads the commit, which must name `did`.
    pub fn check(car: SpilledCar, did: &Did) -> Result<Snapshot, SnapshotError> {
        let refusal = |flaw| SnapshotError {
            did: did.clone(),
            flaw,
        };
        let commit = Commit::decode(&car.commit_block);
        let commit = commit.map_err(|error| refusal(Flaw::Commit(error)))?;
        if commit.did != did.as_str() {
            return Err(refusal(Flaw::OtherDid(shortened_path(
                commit.did.as_bytes(),
            ))));
        }
        let head = Head {
            rev: commit.rev,
            data: commit.data,
            commit: car.commit_cid,
        };
        Ok(Snapshot {
            did: did.clone(),
            car,
            held: None,
            head,
            walked: OnceLock::new(),
        })
    }

    /// Turns the snapshot into a difference: nodes and records that the CAR lacks may be
    /// held.
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
        &self.car.commit_block
    }

    /// The CAR of this snapshot.
    pub fn car(&self) -> &SpilledCar {
        &self.car
    }

    /// Whether the commit carries a signature by this key.
    pub fn verify(&self, key: &PublicKey) -> bool {
        let commit = Commit::decode(&self.car.commit_block);
        commit.is_ok_and(|commit| commit.verify(key).is_ok())
    }

    /// Walks the whole tree. Success means that every record under the signed root is in
    /// the CAR or held.
    pub fn walk_whole(&self) -> Result<WalkStats, SnapshotError> {
        let walked = self.ensure_walked().map_err(|flaw| self.refusal(flaw))?;
        Ok(walked.stats)
    }

    pub(crate) fn refusal(&self, flaw: Flaw) -> SnapshotError {
        let did = self.did.clone();
        SnapshotError { did, flaw }
    }

    pub(crate) fn block_source(&self) -> BlockSource<'_> {
        BlockSource::new(&self.car, self.held.as_ref())
    }

    pub(crate) fn ensure_walked(&self) -> Result<&WalkResult, Flaw> {
        if let Some(walked) = self.walked.get() {
            return Ok(walked);
        }
        let walked = match &self.held {
            None => self.walk_served()?,
            Some(held) => self.walk_difference(held)?,
        };
        Ok(self.walked.get_or_init(|| walked))
    }

    /// Walks a whole repository: every record must be in the CAR.
    fn walk_served(&self) -> Result<WalkResult, Flaw> {
        let mut total = self.new_total();
        let stats = walk(self.head.data, &self.block_source(), |met| match met {
            Visit::Key { key, value, .. } => match self.served_bytes(key, &value)? {
                Some(bytes) => total.add(bytes),
                None => Err(Flaw::missing(key, value)),
            },
            Visit::Node { .. } => Ok(()),
        })?;
        let moved = MovedRecords::default();
        Ok(WalkResult { stats, moved })
    }

    /// Walks a difference: a record that the CAR lacks must be held, under the same path
    /// or another one.
    fn walk_difference(&self, held: &HeldTree) -> Result<WalkResult, Flaw> {
        let mut total = self.new_total();
        let mut records = held.records().peekable();
        let mut missing = MissingRecords::default();
        let stats = walk(self.head.data, &self.block_source(), |met| {
            let Visit::Key { key, value, .. } = met else {
                return Ok(());
            };
            let before = |record: &RecordResult| is_before(record, key);
            while let Some(earlier) = records.next_if(before) {
                earlier?;
            }
            if let Some(bytes) = self.served_bytes(key, &value)? {
                return total.add(bytes);
            }
            let here = |record: &RecordResult| is_at(record, key, &value);
            if records.peek().is_some_and(here) {
                return Ok(());
            }
            let (_, times) = missing.entry(value).or_insert_with(|| (key.to_vec(), 0));
            *times += 1;
            if missing.len() > MAX_MOVED_RECORDS {
                Err(Flaw::MovedRecords)
            } else {
                Ok(())
            }
        })?;
        let moved = find_moved(held, missing, &mut total)?;
        Ok(WalkResult { stats, moved })
    }

    fn new_total(&self) -> ByteTotal {
        ByteTotal {
            bytes: 0,
            limit: self.car.bytes.saturating_add(MAX_REPEATED_BYTES),
        }
    }

    /// Returns the size of a record in the CAR, from the index alone.
    fn served_bytes(&self, path: &[u8], cid: &Cid) -> Result<Option<u64>, Flaw> {
        match self.car.length(cid) {
            Some(bytes) if bytes > limits::RECORD_BYTES => {
                let path = shortened_path(path);
                Err(Flaw::RecordBytes { path, bytes })
            }
            bytes => Ok(bytes.map(|bytes| bytes as u64)),
        }
    }
}

/// Finds missing records by their CIDs, in one pass over the held records: a host does
/// not send again a record that was in the older state.
fn find_moved(
    held: &HeldTree,
    mut missing: MissingRecords,
    total: &mut ByteTotal,
) -> Result<MovedRecords, Flaw> {
    let mut found = MovedRecords::default();
    if missing.is_empty() {
        return Ok(found);
    }
    for record in held.records() {
        let record = record?;
        let Some((_, times)) = missing.get(&record.cid) else {
            continue;
        };
        if let Some(bytes) = verified_bytes(&record, &record.cid) {
            total.add(times.saturating_mul(bytes.len() as u64))?;
            missing.remove(&record.cid);
            found.insert(record.cid, record.path().to_vec());
        }
        if missing.is_empty() {
            return Ok(found);
        }
    }
    // Choose the first by path, so that the same snapshot always gives the same error.
    match missing.into_iter().min_by(|(_, a), (_, b)| a.cmp(b)) {
        Some((cid, (path, _))) => Err(Flaw::missing(&path, cid)),
        None => Ok(found),
    }
}

type RecordResult = Result<Record, StoreError>;

/// Whether a held record precedes `key`. An error precedes every key, so that the caller finds the
/// error.
fn is_before(row: &RecordResult, key: &[u8]) -> bool {
    row.as_ref().map_or(true, |record| record.path() < key)
}

fn is_at(row: &RecordResult, key: &[u8], cid: &Cid) -> bool {
    let record = row.as_ref();
    record.is_ok_and(|record| record.path() == key && record.cid == *cid)
}
