//! The steps of a transaction, in order, as the store takes them: the row, the log entry, and the
//! frames to park or unpark. Each step is written whole or not at all.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};

use crate::ledger::{Epoch, Held, Parked, Repo, RepoId, Time, UpstreamId};

/// The repository that a change is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Id(RepoId),
    /// By its DID. The store assigns a number if the repository has none.
    Did(Did),
}

/// A change of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoChange {
    pub subject: Subject,
    /// The new row; `None` leaves the stored row as it is.
    pub row: Option<Repo>,
    pub entry: Option<LogEntry>,
    pub park: Vec<ParkedFrame>,
    /// The revs of parked frames that were applied or dropped.
    pub unpark: Vec<Rev>,
}

impl RepoChange {
    /// A change of the row alone.
    pub fn row(subject: Subject, row: Repo) -> RepoChange {
        RepoChange {
            subject,
            row: Some(row),
            entry: None,
            park: Vec::new(),
            unpark: Vec::new(),
        }
    }
}

/// An entry for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub at: Time,
    pub source: Option<SourceEvent>,
    pub what: EntryContent,
    /// The frame to serve to consumers: the one that arrived, or a `#sync` frame of our own.
    pub frame: Option<Vec<u8>>,
}

/// The content of a log entry, with what the store writes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryContent {
    Records(Records),
    /// A claim of an unproven source about a path.
    Claim(ClaimEntry),
    /// The account's state changed.
    Account,
    /// The account's state changed, and the repository is shown again. In the same batch, a second
    /// log row after this one names the repository's head; the frame belongs to that second row.
    Shown,
    /// The host, the signing key or the handle changed.
    Identity(IdentityParts),
    /// A purge begins: the row says so, and holds nothing any more. The store deletes the records
    /// afterwards, in parts.
    Purge,
}

/// Which parts of an account's identity changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentityParts {
    pub host: bool,
    pub key: bool,
    pub handle: bool,
}

/// Operations that lead from the held state to the state of the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    pub kind: RecordsKind,
    /// The held state that the operations start from.
    pub before: Held,
    pub ops: Vec<RecordOp>,
    /// The signed commit of the row's state, as a block; empty if it is not at hand.
    pub commit: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsKind {
    Live,
    Backfill,
    Repair,
}

/// The operation at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOp {
    pub path: Vec<u8>,
    /// The record to put; `None` deletes the record.
    pub put: Option<RecordValue>,
    /// The proof shows that nothing was held at this path, so the store need not look the path up.
    /// `false` is always safe.
    pub fresh: bool,
}

/// The record to hold at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordValue {
    pub cid: Cid,
    /// `None` if only the key of the record is kept.
    pub bytes: Option<Vec<u8>>,
}

/// The event of an upstream that a log row came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceEvent {
    pub upstream: UpstreamId,
    pub seq: u64,
}

/// A parked frame with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedFrame {
    pub parked: Parked,
    pub upstream: UpstreamId,
    /// The epoch under which the frame was read, if the frame may raise a marker to that epoch.
    pub epoch: Option<Epoch>,
    pub frame: Vec<u8>,
}

/// A claim of an unproven source about one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub upstream: UpstreamId,
    pub rev: Rev,
    /// The claimed record; `None` if the source reports that the record was deleted.
    pub record: Option<(Cid, Vec<u8>)>,
}

/// A claim to keep, and older claims of the repository that give way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimEntry {
    pub path: Vec<u8>,
    pub claim: Claim,
    /// The paths of claims to drop, because the repository has too many. The store keeps those
    /// that a consumer of the log has not read yet.
    pub give_way: Vec<Vec<u8>>,
}

impl RepoChange {
    /// The approximate size of the rows that this change writes, without the repository's own row.
    pub fn bytes(&self) -> usize {
        let parked: usize = self.park.iter().map(|frame| frame.frame.len() + 128).sum();
        parked + self.entry.as_ref().map_or(0, LogEntry::bytes)
    }
}

impl LogEntry {
    /// The approximate size of the rows that this entry writes.
    pub fn bytes(&self) -> usize {
        const OP: usize = 128;
        let ops = match &self.what {
            EntryContent::Records(records) => records
                .ops
                .iter()
                .map(|op| {
                    let bytes = op.put.as_ref().and_then(|put| put.bytes.as_ref());
                    OP + 2 * op.path.len() + bytes.map_or(0, Vec::len)
                })
                .sum(),
            EntryContent::Claim(entry) => {
                let record = entry.claim.record.as_ref();
                OP + 2 * entry.path.len() + record.map_or(0, |(_, bytes)| bytes.len())
            }
            EntryContent::Account
            | EntryContent::Shown
            | EntryContent::Identity(_)
            | EntryContent::Purge => 0,
        };
        ops + self.frame.as_ref().map_or(0, Vec::len)
    }
}
