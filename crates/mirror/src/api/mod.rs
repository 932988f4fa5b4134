//! What outsiders ask of a running mirror, and what they are told.
//!
//! The shapes are the contract of the HTTP interface (docs/api.md): fields may be
//! added, none is renamed or removed. Times are RFC 3339 in UTC with microseconds,
//! or null. Both sides of the wire use these types: the server writes them, the
//! commands read them.

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

pub use dead::{DeadAnswer, DeadPage, DeadResolved};
pub use gaps::{Advice, Circumstances, Gap, GapsPage, REASONS, advice, sentences};
pub use hosts::{
    DiscoverStatus, HostAnswer, HostGap, HostReason, HostsPage, ListingAnswer, NamerAnswer,
};
pub use names::{account_name, followed_name, owed_name, why_name};
pub use purges::{PurgeAnswer, PurgesPage};
pub use reach::{ListedHost, Reach};
pub use repo::{
    ClaimsAnswer, DebtAnswer, EvidenceAnswer, LastErrorAnswer, OwedAnswer, RepoAnswer, ReposPage,
};
pub use status::{
    DebtStatus, LogStatus, NewUpstream, Readiness, RefusedAnswer, RepoCounts, SourceAnswer, Status,
    StoreStatus, SweepAnswer, UpstreamAnswer,
};
pub use time::{seconds_between, timestamp};

/// Answers questions about a running mirror. Methods may block for a moment; they are
/// called from threads that may.
pub trait Inspect: Send + Sync + 'static {
    fn status(&self) -> Result<Status, ApiError>;
    /// None: a repository that is not known here.
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
    /// Dead letters that are not settled, with numbers above `after`.
    fn dead(&self, after: Option<u64>, limit: usize) -> Result<DeadPage, ApiError>;
    /// Purges whose number is above `after`, at most `limit` of them.
    fn purges(&self, after: Option<u64>, limit: usize) -> Result<PurgesPage, ApiError>;
    /// The metrics in the text format of Prometheus.
    fn metrics(&self) -> Result<String, ApiError>;
    fn ready(&self) -> Readiness;
}

/// Carries out an operator's orders to a running mirror. Methods may block for a
/// moment; they are called from threads that may.
pub trait Operate: Send + Sync + 'static {
    fn add_upstream(&self, new: NewUpstream) -> Result<UpstreamAnswer, ApiError>;
    fn remove_upstream(&self, url: &str) -> Result<UpstreamRemoved, ApiError>;
    /// The operator says that what vanished from this host has really gone.
    fn confirm_loss(&self, url: &str) -> Result<(), ApiError>;
    fn track(&self, dids: &[Did]) -> Result<TrackedChange, ApiError>;
    fn untrack(&self, dids: &[Did]) -> Result<TrackedChange, ApiError>;
    /// Owes a full fetch. The answer describes the repository before that fetch.
    fn resync(&self, did: &Did, accept_rollback: bool) -> Result<RepoAnswer, ApiError>;
    /// Settles one dead letter, or all that are open now.
    fn resolve_dead(&self, number: Option<u64>) -> Result<DeadResolved, ApiError>;
}

/// Why there is no answer. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApiError {
    /// The repository, upstream or page does not exist here.
    #[error("{0}")]
    NotFound(String),
    /// The question makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be done in the present state.
    #[error("{0}")]
    Conflict(String),
    /// Not now: starting, stopping, or the store has failed.
    #[error("{0}")]
    Unavailable(String),
    /// Something is broken here.
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// The name that programs branch on.
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
            error if error.is_final() => ApiError::Unavailable(error.to_string()),
            error => ApiError::Internal(error.to_string()),
        }
    }
}

/// The body of every answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: String,
    pub message: String,
}

/// An upstream that is not followed any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UpstreamRemoved {
    pub removed: String,
    /// The configuration of the running mirror names it.
    #[serde(default)]
    pub configured: bool,
    /// What that means, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl UpstreamRemoved {
    pub fn new(url: &str, configured: bool) -> UpstreamRemoved {
        let note = "it is in the configuration, and comes back at the next start unless it is \
                    taken out there";
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
    /// Of these: those that nobody has named, with the collection by which they were
    /// found.
    #[serde(default)]
    pub found: BTreeMap<String, String>,
    /// The last DID of this page, when there may be more.
    pub cursor: Option<String>,
}

/// What became of a list of DIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrackedChange {
    pub changed: u64,
    /// They were as wanted before.
    pub unchanged: u64,
}

/// The body of `track` and `untrack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dids {
    pub dids: Vec<String>,
}

/// A repository that was brought as a file, and taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImportAnswer {
    pub did: String,
    pub rev: String,
    pub commit: String,
    /// The root that the owner signed.
    pub data: String,
    /// Records of the repository; those that the filter does not want among them.
    pub records: u64,
}

/// A root that was recomputed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyAnswer {
    pub did: String,
    /// The stored keys hash to the root that the owner signed.
    pub verified: bool,
    pub rev: Option<String>,
    /// The root that the owner signed.
    pub expected: Option<String>,
    /// The root of what is stored.
    pub computed: Option<String>,
    pub records: u64,
    /// Why it could not be verified, and what happens next.
    pub problem: Option<String>,
    /// The same for programs.
    #[serde(default)]
    pub verdict: Verdict,
}

/// What the recomputation of a root came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The stored keys hash to the signed root.
    Proven,
    /// They do not, or make no tree at all.
    Mismatch,
    /// Only some keys are held: nothing can be said.
    NotRecomputable,
    /// Nothing exact is held.
    #[default]
    Nothing,
    /// It changed meanwhile.
    Moved,
}

/// How far the verification of everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyProgress {
    pub done: u64,
    pub of: u64,
    pub mismatches: u64,
}

/// The verification of everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyReport {
    pub repos: u64,
    pub proven: u64,
    /// Nothing exact is held of them, so there is nothing to recompute.
    pub skipped: u64,
    pub mismatches: u64,
    /// Something exact is held of them, and not all keys, so nothing can be
    /// recomputed (`keep_keys = "wanted"`).
    #[serde(default)]
    pub not_recomputable: u64,
    /// The first of them, with what was found.
    pub found: Vec<VerifyAnswer>,
    /// It was stopped before the end.
    pub stopped: bool,
}

/// One line of the stream that `POST /v1/verify` answers with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyLine {
    Progress(VerifyProgress),
    Report(VerifyReport),
    Failed(ErrorBody),
}
