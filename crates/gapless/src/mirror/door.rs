//! The mirror as the HTTP interface sees it from the first moment on: whoever asks
//! before the store is open is told that it is being opened.

use std::sync::{Arc, OnceLock};

use gapless_atp::syntax::Did;

use super::Mirror;
use crate::api::{
    self, ApiError, DeadPage, DeadResolved, GapsPage, HostsPage, NewUpstream, PurgesPage,
    Readiness, RepoAnswer, ReposPage, Status, TrackedChange, TrackedPage, UpstreamAnswer,
    UpstreamRemoved, VerifyAnswer, VerifyProgress, VerifyReport,
};
use crate::serve::Serving;

const STARTING: &str = "starting: the store is being opened";

/// Closed until the store is open.
#[derive(Default)]
pub struct Door {
    mirror: OnceLock<Arc<Mirror>>,
}

impl Door {
    /// From now on the mirror answers itself.
    pub fn open(&self, mirror: Arc<Mirror>) {
        // It is opened once.
        let _ = self.mirror.set(mirror);
    }

    fn inside(&self) -> Result<&Mirror, ApiError> {
        let mirror = self.mirror.get().map(Arc::as_ref);
        mirror.ok_or_else(|| ApiError::Unavailable(STARTING.to_owned()))
    }
}

impl api::Mirror for Door {
    fn status(&self) -> Result<Status, ApiError> {
        self.inside()?.status()
    }

    fn repo(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError> {
        self.inside()?.repo(did)
    }

    fn repos(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, ApiError> {
        self.inside()?.repos(after, limit)
    }

    fn gaps(&self, after: Option<u64>, limit: usize) -> Result<GapsPage, ApiError> {
        self.inside()?.gaps(after, limit)
    }

    fn hosts(
        &self,
        after: Option<u64>,
        limit: usize,
        failing: bool,
    ) -> Result<HostsPage, ApiError> {
        self.inside()?.hosts(after, limit, failing)
    }

    fn upstreams(&self) -> Result<Vec<UpstreamAnswer>, ApiError> {
        self.inside()?.upstreams()
    }

    fn add_upstream(&self, new: NewUpstream) -> Result<UpstreamAnswer, ApiError> {
        self.inside()?.add_upstream(new)
    }

    fn remove_upstream(&self, url: &str) -> Result<UpstreamRemoved, ApiError> {
        self.inside()?.remove_upstream(url)
    }

    fn confirm_loss(&self, url: &str) -> Result<(), ApiError> {
        self.inside()?.confirm_loss(url)
    }

    fn tracked(&self, after: Option<&Did>, limit: usize) -> Result<TrackedPage, ApiError> {
        self.inside()?.tracked(after, limit)
    }

    fn track(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        self.inside()?.track(dids)
    }

    fn untrack(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        self.inside()?.untrack(dids)
    }

    fn resync(&self, did: &Did, accept_rollback: bool) -> Result<RepoAnswer, ApiError> {
        self.inside()?.resync(did, accept_rollback)
    }

    fn verify(&self, did: &Did) -> Result<VerifyAnswer, ApiError> {
        self.inside()?.verify(did)
    }

    fn verify_all(
        &self,
        progress: &dyn Fn(VerifyProgress) -> bool,
    ) -> Result<VerifyReport, ApiError> {
        self.inside()?.verify_all(progress)
    }

    fn dead(&self, after: Option<u64>, limit: usize) -> Result<DeadPage, ApiError> {
        self.inside()?.dead(after, limit)
    }

    fn purges(&self, after: Option<u64>, limit: usize) -> Result<PurgesPage, ApiError> {
        self.inside()?.purges(after, limit)
    }

    fn resolve_dead(&self, number: Option<u64>) -> Result<DeadResolved, ApiError> {
        self.inside()?.resolve_dead(number)
    }

    fn metrics(&self) -> Result<String, ApiError> {
        self.inside()?.metrics()
    }

    fn serving(&self) -> Result<Arc<Serving>, ApiError> {
        self.inside()?.serving()
    }

    fn ready(&self) -> Readiness {
        match self.inside() {
            Ok(mirror) => mirror.ready(),
            Err(error) => Readiness {
                ready: false,
                reasons: vec![error.to_string()],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Mirror as _;

    #[test]
    fn before_the_store_is_open_nothing_is_ready_and_nothing_is_answered() {
        let door = Door::default();
        let ready = door.ready();
        assert!(!ready.ready);
        assert!(ready.reasons[0].contains("starting"), "{ready:?}");
        assert!(matches!(door.status(), Err(ApiError::Unavailable(_))));
    }
}
