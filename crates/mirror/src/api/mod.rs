//! The questions and orders that a running mirror accepts, and the types of its answers.
//!
//! The types are the contract of the HTTP interface (docs/api.md): fields may be added, but
//! none is renamed or removed. Times are RFC 3339 in UTC with microseconds, or null. Both
//! sides of the interface use these types: the server writes them, and the commands read
//! them.

mod consumers;
mod dead;
mod gaps;
mod hosts;
mod names;
mod purges;
mod reach;
mod repo;
mod status;
mod time;

use std::collections::BTreeMap;

use gapless_atp::syntax::Did;
use gapless_store::error::StoreError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use consumers::{
    AuditAnswer, ConsumerAnswer, ConsumerRemoved, ConsumerSelector, ConsumersAnswer, HeldAlone,
    HeldNumbers,
};
pub use dead::{DeadAnswer, DeadPage, DeadResolved};
pub use gaps::{Advice, Circumstances, Gap, GapsPage, advice, sentences};
pub use hosts::{
    DiscoverStatus, HostAnswer, HostGap, HostReason, HostsPage, ListingAnswer, NamerAnswer,
};
pub(crate) use names::followed_name;
pub use names::{owed_name, why_name};
pub use purges::{PurgeAnswer, PurgesPage};
pub use reach::{ListedHost, Reach};
pub use repo::{
    ClaimsAnswer, DebtAnswer, EvidenceAnswer, LastErrorAnswer, OwedAnswer, RepoAnswer, ReposPage,
};
pub use status::{
    DebtStatus, LogStatus, NewUpstream, Readiness, RefusedAnswer, RepoCounts, SourceAnswer, Status,
    StoreStatus, SweepAnswer, UpstreamAnswer,
};
pub(crate) use time::seconds_between;
pub use time::timestamp;

/// Answers questions about a running mirror. The methods may block briefly, so callers use threads
/// that may block.
pub trait Inspect: Send + Sync + 'static {
    fn status(&self) -> Result<Status, ApiError>;
    /// The answer about a repository; `None` if it is not known here.
    fn repo(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError>;
    /// Repositories whose number is above `after`, at most `limit` of them.
    fn repos(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, ApiError>;
    /// Repositories that are not complete, with numbers above `after`.
    fn gaps(&self, after: Option<u64>, limit: usize) -> Result<GapsPage, ApiError>;
    /// Hosts whose number is above `after`; with `failing`, only those whose last sweep
    /// failed.
    fn hosts(&self, after: Option<u64>, limit: usize, failing: bool)
    -> Result<HostsPage, ApiError>;
    fn upstreams(&self) -> Result<Vec<UpstreamAnswer>, ApiError>;
    fn tracked(&self, after: Option<&Did>, limit: usize) -> Result<TrackedPage, ApiError>;
    /// Recomputes the root of a repository from the stored keys, now.
    fn verify(&self, did: &Did) -> Result<VerifyAnswer, ApiError>;
    /// Recomputes the root of every repository. `progress` returns whether to go on.
    fn verify_all(
        &self,
        progress: &dyn Fn(VerifyProgress) -> bool,
    ) -> Result<VerifyReport, ApiError>;
    /// Dead letters that are not resolved, with numbers above `after`.
    fn dead(&self, after: Option<u64>, limit: usize) -> Result<DeadPage, ApiError>;
    /// Purges whose number is above `after`, at most `limit` of them.
    fn purges(&self, after: Option<u64>, limit: usize) -> Result<PurgesPage, ApiError>;
    /// The consumers of the log.
    fn consumers(&self) -> Result<ConsumersAnswer, ApiError>;
    /// The metrics in the text format of Prometheus.
    fn metrics(&self) -> Result<String, ApiError>;
    fn ready(&self) -> Readiness;
}

/// Carries out an operator's orders to a running mirror. The methods may block briefly, so callers
/// use threads that may block.
pub trait Operate: Send + Sync + 'static {
    fn add_upstream(&self, new: NewUpstream) -> Result<UpstreamAnswer, ApiError>;
    fn remove_upstream(&self, url: &str) -> Result<UpstreamRemoved, ApiError>;
    /// Confirms that the repositories that vanished from a host are really gone.
    fn confirm_loss(&self, url: &str) -> Result<(), ApiError>;
    fn track(&self, dids: &[Did]) -> Result<TrackedChange, ApiError>;
    fn untrack(&self, dids: &[Did]) -> Result<TrackedChange, ApiError>;
    /// Orders a full fetch. The answer describes the repository before that fetch.
    fn resync(&self, did: &Did, accept_rollback: bool) -> Result<RepoAnswer, ApiError>;
    /// Resolves one dead letter, or all that are open now.
    fn resolve_dead(&self, number: Option<u64>) -> Result<DeadResolved, ApiError>;
    /// Removes a consumer of the log: what no other consumer holds back may go.
    fn remove_consumer(&self, which: &ConsumerSelector) -> Result<ConsumerRemoved, ApiError>;
}

/// Why a question or an order failed. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApiError {
    /// The repository, upstream or page does not exist here.
    #[error("{0}")]
    NotFound(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The request conflicts with the present state.
    #[error("{0}")]
    Conflict(String),
    /// The mirror is starting or stopping, or the store has failed.
    #[error("{0}")]
    Unavailable(String),
    /// An internal error.
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// The name of the error in the API.
    pub fn name(&self) -> &'static str {
        match self {
            ApiError::NotFound(_) => "NotFound",
            ApiError::Invalid(_) => "InvalidRequest",
            ApiError::Conflict(_) => "Conflict",
            ApiError::Unavailable(_) => "Unavailable",
            ApiError::Internal(_) => "InternalError",
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error {
            // Writes succeed again once there is room on the disk.
            StoreError::Full(full) => ApiError::Unavailable(full.to_string()),
            // The position changed meanwhile, or the consumer is gone.
            StoreError::Consumer(error) => ApiError::Conflict(error.to_string()),
            error if error.is_final() => ApiError::Unavailable(error.to_string()),
            error => ApiError::Internal(error.to_string()),
        }
    }
}

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: String,
    pub message: String,
}

/// The answer about an upstream that is no longer followed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UpstreamRemoved {
    pub removed: String,
    /// Whether the configuration of the running mirror names the upstream.
    #[serde(default)]
    pub configured: bool,
    /// The consequence, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl UpstreamRemoved {
    pub fn new(url: &str, configured: bool) -> UpstreamRemoved {
        let note = "the configuration names the upstream, so Gapless follows the upstream again after the next \
                    start unless the configuration is changed";
        UpstreamRemoved {
            removed: url.to_owned(),
            configured,
            note: configured.then(|| note.to_owned()),
        }
    }
}

/// Repositories that are followed by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrackedPage {
    pub tracked: Vec<String>,
    /// The tracked repositories on this page that a collection found, each with that
    /// collection.
    #[serde(default)]
    pub found: BTreeMap<String, String>,
    /// The cursor of the next page: the last DID of this page; null on the last page.
    pub cursor: Option<String>,
}

/// The result of tracking or untracking a list of DIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrackedChange {
    pub changed: u64,
    /// DIDs that had the wanted state already.
    pub unchanged: u64,
}

/// The body of `track` and `untrack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dids {
    pub dids: Vec<String>,
}

/// A repository that was imported from a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImportAnswer {
    pub did: String,
    pub rev: String,
    pub commit: String,
    /// The root that the owner signed.
    pub data: String,
    /// Records of the repository, including those that the filter does not want.
    pub records: u64,
}

/// The result of recomputing a root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyAnswer {
    pub did: String,
    /// Whether the stored keys hash to the root that the owner signed.
    pub verified: bool,
    pub rev: Option<String>,
    /// The root that the owner signed.
    pub expected: Option<String>,
    /// The root of the stored keys.
    pub computed: Option<String>,
    pub records: u64,
    /// Why the repository could not be verified, and what Gapless does next.
    pub problem: Option<String>,
    /// The result, for programs.
    #[serde(default)]
    pub verdict: Verdict,
}

/// The result of recomputing a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The stored keys hash to the signed root.
    Proven,
    /// The stored keys do not hash to the signed root, or form no tree.
    Mismatch,
    /// Only some keys are held, so the root cannot be recomputed.
    NotRecomputable,
    /// No exact state is held.
    #[default]
    Nothing,
    /// The repository changed meanwhile.
    Moved,
}

/// The progress of verifying all repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyProgress {
    pub done: u64,
    pub of: u64,
    pub mismatches: u64,
}

/// The result of verifying all repositories.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyReport {
    pub repos: u64,
    pub proven: u64,
    /// Repositories without an exact state, so without a root to recompute.
    pub skipped: u64,
    pub mismatches: u64,
    /// Repositories with an exact state but not all keys, so the root cannot be recomputed
    /// (`keep_keys = "wanted"`).
    #[serde(default)]
    pub not_recomputable: u64,
    /// The first mismatches.
    pub found: Vec<VerifyAnswer>,
    /// Whether the verification was stopped before the end.
    pub stopped: bool,
}

/// One line of the response to `POST /v1/verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyLine {
    Progress(VerifyProgress),
    Report(VerifyReport),
    Failed(ErrorBody),
}
