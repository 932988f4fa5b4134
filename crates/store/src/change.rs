//! A change: everything that one event, one answer or one chunk of a snapshot means
//! for the store, decided by the caller.
//!
//! A change is written whole or not at all. It describes the new state, not how to
//! write it: [`apply`](crate::apply) decides which rows to write, which numbers to
//! assign and which old bytes to keep.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Host, HostId, Lived, RepoId, Tick, Time, Upstream, UpstreamId};
pub use gapless_core::repo_tx::step::{
    ClaimEntry, EntryContent, IdentityParts, LogEntry, RecordOp, RecordValue, Records, RecordsKind,
    RepoChange, Subject,
};

use gapless_core::retain::{Consumer, ConsumerKey, When};

use crate::cursor::EventPosition;
use crate::table::dead::DeadLetter;
pub use crate::table::meta::{LogId, StoreIds};
use crate::table::wish::FilterRow;

/// The most rows that one change trims from the log.
pub const TRIMMED_ROWS: usize = 1_000;
/// The bytes that one change deletes of a purged repository, about: the last row may exceed them.
pub const DELETED_BYTES: usize = 4 << 20;

/// One decision. A part that is `None` does not change.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The tick of the decision; the store keeps the highest.
    pub tick: Tick,
    pub repo: Option<RepoChange>,
    pub upstream: Option<UpstreamChange>,
    pub host: Option<HostChange>,
    pub dead: Option<DeadChange>,
    pub wish: Option<WishChange>,
    pub upkeep: Option<Upkeep>,
    pub consumer: Option<ConsumerChange>,
    /// An event of an upstream whose effects are all in this change.
    pub done: Option<EventPosition>,
    /// For a change that builds on changes which may not be durable yet: the number of refusals for
    /// lack of disk space when the first of those changes was submitted. If there was another
    /// refusal since, one of those changes may be missing, and the store refuses this change too.
    pub refusals_seen: Option<u64>,
}

/// A change to an upstream.
#[derive(Clone, Debug)]
pub enum UpstreamChange {
    New(Upstream),
    Row(UpstreamId, Upstream),
}

/// A change to a host.
#[derive(Clone, Debug)]
pub enum HostChange {
    /// Adds a host by its name, unless it exists.
    Named(String),
    /// Adds a host with this row, unless its name exists.
    New(Host),
    Row(HostId, Host),
    /// Deletes a host without repositories for which no upstream speaks any more. The upstream's
    /// last change may be part of the same [`Change`].
    Gone(HostId),
}

/// A change to a dead letter.
#[derive(Clone, Debug)]
pub enum DeadChange {
    New(DeadLetter),
    Row(u64, DeadLetter),
}

/// A change to what the operator wants.
#[derive(Clone, Debug)]
pub enum WishChange {
    Track(Did, Time),
    /// Tracks a repository that was found by a collection.
    Found(Did, Time, String),
    Untrack(Did),
    Filter(FilterRow),
}

/// A change to a consumer of the log. The effects of a consumer that are in this store belong into
/// the same [`Change`].
#[derive(Clone, Debug)]
pub enum ConsumerChange {
    /// Registers a consumer that is not registered yet. With `log`, the store must have that log.
    Register {
        key: ConsumerKey,
        consumer: Consumer,
        log: Option<LogId>,
    },
    /// Moves a position forward. With `log`, the store must have that log.
    Move {
        key: ConsumerKey,
        next: u64,
        holds_from: u64,
        log: Option<LogId>,
        at: When,
    },
    /// Sets a position, forward or back. The order is recorded.
    Seek {
        key: ConsumerKey,
        to: u64,
        by: String,
        at: When,
    },
    /// Removes a consumer: what it held back may go. The order is recorded.
    Remove {
        key: ConsumerKey,
        by: String,
        at: When,
    },
    /// Marks a consumer as overrun: it holds nothing until it moves again.
    Overrun { key: ConsumerKey, at: When },
}

/// Maintenance: redaction after a purge, and deletion of superseded records and old rows of the log.
#[derive(Clone, Debug)]
pub enum Upkeep {
    /// Deletes the next part of what is held of a repository that is being purged. Does nothing once
    /// everything is deleted. `purge`: the purge, by its first log number.
    DeletePurged { purge: u64, at: When },
    /// Redacts part of what a purge left behind.
    Redact(Redaction),
    /// Records that nothing of a purge is left to redact.
    Finish {
        purge: u64,
        at: Time,
        compacted: bool,
    },
    /// Deletes superseded records, by their keys, that an operation below `below` superseded, unless a
    /// consumer holds them.
    Expire {
        keys: Vec<Vec<u8>>,
        below: u64,
        at: When,
    },
    /// Trims rows from the front of the log: whole rows whose numbers are all below `below`, unless a
    /// consumer holds them, and not more than fit into one change.
    Trim { below: u64, at: When },
    /// Notes which consumers of the log have nothing to read, and overruns those that have not moved
    /// for longer than their hold.
    ReviewConsumers { at: When },
    /// Writes the identities of a store that has none.
    Identify(StoreIds),
    /// Raises the time that the store has lived through.
    Live(Lived),
    /// Writes filler bytes, so that the engine begins a new journal; an empty vector
    /// deletes them again.
    Fill(Vec<u8>),
}

/// Part of what a purged repository left behind, to be redacted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    /// The purge, by its first log number.
    pub purge: u64,
    /// Rows of the log, by their first numbers: their contents are deleted, their numbers stay.
    /// Rows that list what the purge deleted stay as they are, with all later rows, while a consumer
    /// has not read them.
    pub rows: Vec<u64>,
    /// Whether rows that list what the purge deleted are redacted although a consumer has not read
    /// them.
    pub overdue: bool,
    /// The present moment.
    pub at: When,
    /// The numbers of the rows' frames, which are overwritten before the change is
    /// durable.
    pub frames: Vec<u64>,
    /// The numbers of dead letters.
    pub letters: Vec<u64>,
    /// Every row of the log below this number has been processed.
    pub upto: u64,
}

/// The result of a change that is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    pub repo: Option<RepoId>,
    pub upstream: Option<UpstreamId>,
    pub host: Option<HostId>,
    pub dead: Option<u64>,
    /// The log numbers that the change took, if any.
    pub numbers: Option<std::ops::Range<u64>>,
    /// The batch with the change.
    pub batch: u64,
}

impl Change {
    /// The approximate size of the change in memory and on disk.
    pub fn bytes(&self) -> usize {
        const ROWS: usize = 256;
        let repo = self.repo.as_ref().map_or(0, RepoChange::bytes);
        let dead = match &self.dead {
            Some(DeadChange::New(letter) | DeadChange::Row(_, letter)) => {
                letter.payload.len() + letter.error.len()
            }
            None => 0,
        };
        let upkeep = match &self.upkeep {
            None | Some(Upkeep::Finish { .. }) => 0,
            Some(Upkeep::Redact(part)) => ROWS * (part.rows.len() + part.letters.len()),
            Some(Upkeep::Expire { keys, .. }) => keys.iter().map(Vec::len).sum(),
            Some(Upkeep::Trim { .. }) => ROWS * TRIMMED_ROWS,
            Some(Upkeep::DeletePurged { .. }) => DELETED_BYTES,
            Some(Upkeep::Identify(_) | Upkeep::Live(_) | Upkeep::ReviewConsumers { .. }) => ROWS,
            Some(Upkeep::Fill(bytes)) => bytes.len(),
        };
        ROWS + repo + dead + upkeep
    }
}
