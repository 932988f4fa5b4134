//! Answers what is held and what is missing. Rows of repositories come from the store, so an answer
//! shows only durable ones. Each file answers one question.

pub(crate) mod consumers;
pub(crate) mod counts;
mod dead_letters;
mod hosts;
mod incomplete_since;
mod prometheus;
pub(crate) mod proof;
mod reach;
mod ready;
mod repo;
mod source_report;
mod status;
mod tracked;
mod upstreams;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gapless_atp::syntax::Did;

use crate::api::{
    ApiError, ConsumersAnswer, DeadPage, GapsPage, HostsPage, Inspect, PurgesPage, Readiness,
    RepoAnswer, ReposPage, Status, TrackedPage, UpstreamAnswer, VerifyAnswer, VerifyProgress,
    VerifyReport,
};
use crate::desk::Desks;
use crate::discover::Listings;
use crate::following::Following;
use crate::last_errors::LastErrors;
use crate::services::Services;
use crate::settings::MirrorSettings;
use crate::sweep::queue::Sweeps;
use counts::RepoCounter;
use proof::Prover;

/// Answers questions about a running mirror. Only verification changes rows: it records the time of
/// a proof, or damage.
pub struct Inspector {
    pub(crate) services: Arc<Services>,
    pub(crate) desks: Arc<Desks>,
    pub(crate) following: Arc<Following>,
    pub(crate) sweeps: Arc<Sweeps>,
    pub(crate) last_errors: Arc<LastErrors>,
    pub(crate) listings: Arc<Listings>,
    pub(crate) settings: Arc<MirrorSettings>,
    /// Whether the start is complete: upstreams and tracked repositories are loaded, and all
    /// tasks run.
    pub(crate) begun: Arc<AtomicBool>,
    pub(crate) counter: Arc<RepoCounter>,
    pub(crate) prover: Prover,
}

impl Inspect for Inspector {
    fn status(&self) -> Result<Status, ApiError> {
        self.status_now()
    }

    fn repo(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError> {
        self.repo_by_did(did)
    }

    fn repos(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, ApiError> {
        self.repos_page(after, limit)
    }

    fn gaps(&self, after: Option<u64>, limit: usize) -> Result<GapsPage, ApiError> {
        self.gaps_page(after, limit)
    }

    fn hosts(
        &self,
        after: Option<u64>,
        limit: usize,
        failing: bool,
    ) -> Result<HostsPage, ApiError> {
        Ok(self.hosts_page(after, limit, failing))
    }

    fn upstreams(&self) -> Result<Vec<UpstreamAnswer>, ApiError> {
        self.upstream_answers()
    }

    fn tracked(&self, after: Option<&Did>, limit: usize) -> Result<TrackedPage, ApiError> {
        tracked::tracked_page(&self.services, after, limit)
    }

    fn verify(&self, did: &Did) -> Result<VerifyAnswer, ApiError> {
        let found = self.services.store.view().repo_by_did(did)?;
        match found {
            None => Err(ApiError::NotFound(format!("{did} is not mirrored here"))),
            Some((id, repo)) => self.prover.prove(id, &repo),
        }
    }

    fn verify_all(
        &self,
        progress: &dyn Fn(VerifyProgress) -> bool,
    ) -> Result<VerifyReport, ApiError> {
        self.prover
            .prove_all(self.counter.count()?.total(), progress)
    }

    fn dead(&self, after: Option<u64>, limit: usize) -> Result<DeadPage, ApiError> {
        dead_letters::dead_page(&self.services, after, limit)
    }

    fn purges(&self, after: Option<u64>, limit: usize) -> Result<PurgesPage, ApiError> {
        dead_letters::purges_page(&self.services, after, limit)
    }

    fn consumers(&self) -> Result<ConsumersAnswer, ApiError> {
        consumers::consumers_answer(&self.services)
    }

    fn metrics(&self) -> Result<String, ApiError> {
        self.metrics_text()
    }

    fn ready(&self) -> Readiness {
        self.readiness()
    }
}
