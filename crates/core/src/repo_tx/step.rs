//! The steps that a transaction comes to, in order, as the store takes them: the row,
//! what the log says, and the frames that are parked or not parked any more. Each step
//! is written whole or not at all.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};

use crate::ledger::{Epoch, Held, Parked, Repo, RepoId, Time, UpstreamId};

/// Which repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Id(RepoId),
    /// By its name; it gets a number if it has none.
    Did(Did),
}

/// What becomes of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoChange {
    pub subject: Subject,
    /// What the ledger now knows; none leaves it as it is.
    pub row: Option<Repo>,
    pub entry: Option<LogEntry>,
    pub park: Vec<ParkedFrame>,
    /// Parked frames that are applied or dropped.
    pub unpark: Vec<Rev>,
}

impl RepoChange {
    /// Nothing but a new row.
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
    /// The verified frame as it came, to be served again.
    pub frame: Option<Vec<u8>>,
}

/// What a log entry is about, with what the store writes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryContent {
    Records(Records),
    /// What an unproven source says.
    Claims(Vec<(Vec<u8>, Claim)>),
    /// The row's account state is new.
    Account,
    /// The row's account state is new, and the repository is shown again: in the same batch the
    /// log also says, in a row after that, where the repository is. The frame is that row's.
    Shown,
    /// The host or the keys are new.
    Identity,
    /// Everything that is held of the repository goes.
    Purge,
}

/// Records that lead from the held state to the row's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    pub kind: RecordsKind,
    /// The state on which this was decided.
    pub before: Held,
    pub ops: Vec<RecordOp>,
    /// The signed commit of the row's state, as a block; empty if it is not at
    /// hand.
    pub commit: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsKind {
    Live,
    Backfill,
    Repair,
}

/// One path and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOp {
    pub path: Vec<u8>,
    /// None deletes.
    pub put: Option<RecordValue>,
    /// The proof says that nothing was held here, so nobody has to look. False
    /// is always right.
    pub fresh: bool,
}

/// The record to hold at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordValue {
    pub cid: Cid,
    /// None when only its key is kept.
    pub bytes: Option<Vec<u8>>,
}

/// The upstream's event that a row came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceEvent {
    pub upstream: UpstreamId,
    pub seq: u64,
}

/// A parked frame, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedFrame {
    pub parked: Parked,
    pub upstream: UpstreamId,
    /// The epoch under which it was read, if that may raise a marker.
    pub epoch: Option<Epoch>,
    pub frame: Vec<u8>,
}

/// What an unproven source says of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub upstream: UpstreamId,
    pub rev: Rev,
    /// What is said to be there now; none when it is said to be deleted.
    pub record: Option<(Cid, Vec<u8>)>,
}

impl RepoChange {
    /// Roughly what the rows that it makes weigh, its own row not counted.
    pub fn bytes(&self) -> usize {
        let parked: usize = self.park.iter().map(|frame| frame.frame.len() + 128).sum();
        parked + self.entry.as_ref().map_or(0, LogEntry::bytes)
    }
}

impl LogEntry {
    /// Roughly what the rows that it makes weigh.
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
            EntryContent::Claims(claims) => claims
                .iter()
                .map(|(path, claim)| {
                    let bytes = claim.record.as_ref().map_or(0, |(_, bytes)| bytes.len());
                    OP + 2 * path.len() + bytes
                })
                .sum(),
            EntryContent::Account
            | EntryContent::Shown
            | EntryContent::Identity
            | EntryContent::Purge => 0,
        };
        ops + self.frame.as_ref().map_or(0, Vec::len)
    }
}
