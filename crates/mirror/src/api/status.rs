//! The answer about the whole mirror, and about each upstream.

use gapless_core::ledger::UpstreamKind;
use serde::{Deserialize, Serialize};

use crate::api::hosts::DiscoverStatus;
use crate::api::reach::Reach;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    pub repos: RepoCounts,
    pub log: LogStatus,
    pub upstreams: Vec<UpstreamAnswer>,
    pub debt: DebtStatus,
    /// Frames that wait for what comes before them.
    pub parked: u64,
    /// Paths of which unproven sources say something that is not proven yet.
    #[serde(default)]
    pub claims: u64,
    /// Input that could not be used and waits for a person (`gapless dead list`).
    pub dead_letters: u64,
    /// Hosts from which so much vanished at once that nothing is hidden until an
    /// operator confirms it.
    #[serde(default)]
    pub hiding_suspended: Vec<String>,
    #[serde(default)]
    pub store: StoreStatus,
    /// When the repositories were counted.
    #[serde(default)]
    pub counted_at: Option<String>,
    /// What is in scope, and how far it is found.
    #[serde(default)]
    pub discover: DiscoverStatus,
    /// Whom all this is about.
    #[serde(default)]
    pub reach: Reach,
}

/// Whether what comes is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    pub writes: bool,
    /// Since when nothing is, and why.
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
    /// Neither hidden nor provable: not all keys are held (`keep_keys = "wanted"`).
    #[serde(default)]
    pub not_recomputable: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogStatus {
    /// The newest number of the log; null before the first.
    pub head: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DebtStatus {
    pub repos: u64,
    pub oldest_seconds: Option<u64>,
}

/// One upstream.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct UpstreamAnswer {
    pub url: String,
    pub kind: String,
    /// The host that it speaks for.
    #[serde(default)]
    pub host: Option<String>,
    /// Who wanted that: configured, added, for_tracked (the host of repositories
    /// that are tracked by name, and only these are wanted of it).
    #[serde(default)]
    pub followed: String,
    pub connected: bool,
    /// Whether its subscription is surely in force.
    pub open: bool,
    pub cursor: Option<u64>,
    pub epoch: u64,
    pub first_cursor_since_reset: Option<u64>,
    /// How old the last commit that was applied from it was when it was durable, by
    /// the commit's rev.
    pub lag_seconds: Option<f64>,
    pub last_frame: Option<String>,
    pub sweep: SweepAnswer,
    /// Why the last dial, or the connection, failed.
    #[serde(default)]
    pub error: Option<String>,
    #[serde(default)]
    pub next_dial: Option<String>,
    /// What its host served last that had to be refused, since we run.
    #[serde(default)]
    pub refused: Option<RefusedAnswer>,
    /// Repositories of other hosts that it brings although it is followed as a host,
    /// since we run; null unless they are so many that it may be a relay.
    #[serde(default)]
    pub strays: Option<u64>,
    /// How it compares with the others; null while it has none to compare with.
    #[serde(default)]
    pub source: Option<SourceAnswer>,
}

/// Which commits an upstream brought first, late or not at all, since we run and it
/// is followed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceAnswer {
    /// Brought before all others.
    pub first: u64,
    /// Brought after another one.
    pub late: u64,
    /// Brought by another one and, within a minute, not by this one, although it was
    /// connected and brings what lives on that host.
    pub missed: u64,
    /// When the first and the last of them counted as missed: it loses events since.
    pub lossy_since: Option<String>,
    pub last_missed: Option<String>,
    pub late_mean_seconds: Option<f64>,
    /// Of a hundred late ones ninety-nine were not later than this.
    pub late_p99_seconds: Option<f64>,
    pub late_max_seconds: Option<f64>,
}

/// A repository that its host serves in a state that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RefusedAnswer {
    pub at: Option<String>,
    pub did: String,
    /// A short name, as `gapless_snapshots_refused_by_reason_total` has it.
    pub reason: String,
    pub error: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SweepAnswer {
    pub every_seconds: u64,
    /// When the last one that went through began.
    pub last: Option<String>,
    pub suspects: u64,
    /// Sweeps in a row that failed, since we run.
    #[serde(default)]
    pub failures: u32,
    /// Why the last one failed; null when it went through.
    #[serde(default)]
    pub error: Option<String>,
    #[serde(default)]
    pub failing_since: Option<String>,
}

/// An upstream that an operator adds: checked, the URL as the configuration would
/// have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUpstream {
    pub kind: UpstreamKind,
    pub url: String,
    pub host: Option<String>,
}

/// Whether the mirror can be relied on now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Readiness {
    pub ready: bool,
    pub reasons: Vec<String>,
}
