//! The answers about the whole mirror and about each upstream.

use gapless_core::ledger::UpstreamKind;
use serde::{Deserialize, Serialize};

use crate::api::consumers::ConsumerAnswer;
use crate::api::hosts::DiscoverStatus;
use crate::api::reach::Reach;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    pub repos: RepoCounts,
    pub log: LogStatus,
    pub upstreams: Vec<UpstreamAnswer>,
    pub debt: DebtStatus,
    /// Frames that are parked until the events before them arrive.
    pub parked: u64,
    /// Paths with a claim from an unproven source that is not proven yet.
    #[serde(default)]
    pub claims: u64,
    /// Dead letters that are not resolved (`gapless dead list`).
    pub dead_letters: u64,
    /// Hosts from which so many repositories vanished at once that hiding is suspended until
    /// an operator confirms the loss.
    #[serde(default)]
    pub hiding_suspended: Vec<String>,
    #[serde(default)]
    pub store: StoreStatus,
    /// When the repositories were counted.
    #[serde(default)]
    pub counted_at: Option<String>,
    /// The scope of discovery and its progress.
    #[serde(default)]
    pub discover: DiscoverStatus,
    /// How far the answer reaches.
    #[serde(default)]
    pub reach: Reach,
    /// The consumers of the log.
    #[serde(default)]
    pub consumers: Vec<ConsumerAnswer>,
}

/// Whether the store writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    pub writes: bool,
    /// Since when nothing is written; null while the store writes.
    #[serde(default)]
    pub since: Option<String>,
    #[serde(default)]
    pub error: Option<String>,
}

impl Default for StoreStatus {
    fn default() -> StoreStatus {
        StoreStatus {
            writes: true,
            since: None,
            error: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RepoCounts {
    pub total: u64,
    pub complete: u64,
    pub proven: u64,
    pub incomplete: u64,
    pub hidden: u64,
    /// Repositories that are not hidden and whose root cannot be recomputed because not all
    /// keys are held (`keep_keys = "wanted"`).
    #[serde(default)]
    pub not_recomputable: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogStatus {
    /// The newest number of the log; null while the log is empty.
    pub head: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DebtStatus {
    pub repos: u64,
    pub oldest_seconds: Option<u64>,
}

/// The answer about one upstream.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct UpstreamAnswer {
    pub url: String,
    pub kind: String,
    /// The host that the upstream speaks for.
    #[serde(default)]
    pub host: Option<String>,
    /// Why the upstream is followed: configured, added, for_tracked (the host of tracked
    /// repositories, read only for them), discovered or narrowed.
    #[serde(default)]
    pub followed: String,
    pub connected: bool,
    /// Whether the epoch of the stream is open.
    pub open: bool,
    pub cursor: Option<u64>,
    pub epoch: u64,
    pub first_cursor_since_reset: Option<u64>,
    /// The age of the last applied commit of the upstream when the commit was durable, by
    /// its rev.
    pub lag_seconds: Option<f64>,
    pub last_frame: Option<String>,
    pub sweep: SweepAnswer,
    /// Why the last dial or the connection failed.
    #[serde(default)]
    pub error: Option<String>,
    #[serde(default)]
    pub next_dial: Option<String>,
    /// The last snapshot of its host that was refused since the start.
    #[serde(default)]
    pub refused: Option<RefusedAnswer>,
    /// Repositories of other hosts that the upstream has brought since the start although it
    /// is followed as a host; null unless there are so many that it may be a relay.
    #[serde(default)]
    pub strays: Option<u64>,
    /// The comparison with other upstreams; null while there is no other to compare with.
    #[serde(default)]
    pub source: Option<SourceAnswer>,
}

/// How many commits an upstream brought first, late or not at all, since the start or since
/// it was added.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceAnswer {
    /// Commits brought before all other upstreams.
    pub first: u64,
    /// Commits brought after another upstream.
    pub late: u64,
    /// Commits that another upstream brought and this one did not bring within a minute,
    /// although it was connected and follows that host.
    pub missed: u64,
    /// When the first missed commit was counted; `last_missed` is the time of the last one.
    pub lossy_since: Option<String>,
    pub last_missed: Option<String>,
    pub late_mean_seconds: Option<f64>,
    /// The 99th percentile of the delay of late commits.
    pub late_p99_seconds: Option<f64>,
    pub late_max_seconds: Option<f64>,
}

/// A snapshot of a repository that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RefusedAnswer {
    pub at: Option<String>,
    pub did: String,
    /// The failed check, as `gapless_snapshots_refused_by_reason_total` names it.
    pub reason: String,
    pub error: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SweepAnswer {
    pub every_seconds: u64,
    /// When the last completed sweep began.
    pub last: Option<String>,
    pub suspects: u64,
    /// Consecutive failed sweeps since the start.
    #[serde(default)]
    pub failures: u32,
    /// Why the last sweep failed; null if it completed.
    #[serde(default)]
    pub error: Option<String>,
    #[serde(default)]
    pub failing_since: Option<String>,
}

/// An upstream that an operator adds. It is validated, and its URL has the form of the
/// configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUpstream {
    pub kind: UpstreamKind,
    pub url: String,
    pub host: Option<String>,
}

/// Whether programs can rely on the mirror now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Readiness {
    pub ready: bool,
    pub reasons: Vec<String>,
}
