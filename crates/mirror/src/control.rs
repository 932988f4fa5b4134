//! What an operator does to a running mirror.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{DebtReason, FollowReason, Host, HostId, account, debt, rollback};
use gapless_store::error::StoreError;

use crate::Mirror;
use crate::api::{
    ApiError, DeadPage, DeadResolved, GapsPage, HostsPage, Inspect, NewUpstream, Operate,
    PurgesPage, Readiness, RepoAnswer, ReposPage, Status, TrackedChange, TrackedPage,
    UpstreamAnswer, UpstreamRemoved, VerifyAnswer, VerifyProgress, VerifyReport,
};
use crate::desk::Turn;
use crate::repair::reload;
use crate::store_io::blocking;

/// Repositories that are hidden at a time when a loss is confirmed.
const AT_A_TIME: usize = 256;

impl Mirror {
    /// Hides what a host has lost, then lets it hide again. In this order: what is
    /// hidden is not counted as lost by the next sweep.
    async fn hide_lost(&self, host: HostId) -> Result<(), StoreError> {
        let store = self.services.store.clone();
        let read = move || {
            let mut dids = Vec::new();
            let hosted = reload::hosted(&store, host)?;
            reload::each(&store, &hosted, |repo| dids.push(repo.did))?;
            Ok::<_, StoreError>(dids)
        };
        let work = "reading the repositories of a host";
        let dids = blocking(&self.services.metrics, work, read).await?;
        for some in dids.chunks(AT_A_TIME) {
            let visits = some.iter().map(|did| {
                self.desks.visit(did, |turn: &mut Turn<'_>| {
                    let now = turn.services.clock.now();
                    if let Some(draft) = turn.draft.as_mut() {
                        account::confirm_lost(now, &mut draft.repo, &mut draft.notices);
                    }
                })
            });
            futures_util::future::try_join_all(visits).await?;
        }
        let tick = self.services.clock.now().tick;
        let hides = |row: &mut Host| row.hiding_suspended = false;
        let changed = self.services.hosts.change(tick, host, hides).await;
        changed.map(|_| ())
    }
}

impl Mirror {
    /// What is followed is written down, and most who write that wait for room. An
    /// operator is told at once that there is none.
    fn has_room(&self) -> Result<(), ApiError> {
        let room = self.services.disk.require(self.services.clock.time());
        room.map_err(|full| StoreError::Full(full).into())
    }
}

impl Inspect for Mirror {
    fn status(&self) -> Result<Status, ApiError> {
        self.state()
    }

    fn repo(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError> {
        self.one(did)
    }

    fn repos(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, ApiError> {
        self.page(after, limit)
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
        let mut page = TrackedPage::default();
        for row in self.services.store.view().tracked() {
            let (did, tracked) = row?;
            if after.is_some_and(|after| did <= *after) {
                continue;
            }
            if page.tracked.len() == limit {
                page.cursor = page.tracked.last().cloned();
                return Ok(page);
            }
            if let Some(collection) = tracked.found {
                page.found.insert(did.to_string(), collection);
            }
            page.tracked.push(did.to_string());
        }
        Ok(page)
    }

    fn verify(&self, did: &Did) -> Result<VerifyAnswer, ApiError> {
        let found = self.services.store.view().repo_by_did(did)?;
        match found {
            None => Err(ApiError::NotFound(format!("{did} is not mirrored here"))),
            Some((id, repo)) => self.prove(id, &repo),
        }
    }

    fn verify_all(
        &self,
        progress: &dyn Fn(VerifyProgress) -> bool,
    ) -> Result<VerifyReport, ApiError> {
        self.prove_all(progress)
    }

    fn dead(&self, after: Option<u64>, limit: usize) -> Result<DeadPage, ApiError> {
        self.dead_page(after, limit)
    }

    fn purges(&self, after: Option<u64>, limit: usize) -> Result<PurgesPage, ApiError> {
        self.purges_page(after, limit)
    }

    fn metrics(&self) -> Result<String, ApiError> {
        self.metrics_text()
    }

    fn ready(&self) -> Readiness {
        self.readiness()
    }
}

impl Operate for Mirror {
    fn add_upstream(&self, new: NewUpstream) -> Result<UpstreamAnswer, ApiError> {
        let plain = |host: &String| host.starts_with("http://");
        if new.host.as_ref().is_some_and(plain) && !self.settings.allow_private {
            let why = "`host` is reached by http, which needs allow_private in the configuration";
            return Err(ApiError::Invalid(why.to_owned()));
        }
        self.has_room()?;
        let adding =
            self.following
                .add(new.kind, &new.url, new.host.as_deref(), FollowReason::Added);
        self.handle.block_on(adding)?;
        let all = self.upstream_answers()?;
        let found = all
            .into_iter()
            .find(|one| one.url == new.url && one.kind == new.kind.name());
        found.ok_or_else(|| ApiError::Internal(format!("{} was added and is not there", new.url)))
    }

    fn remove_upstream(&self, url: &str) -> Result<UpstreamRemoved, ApiError> {
        self.has_room()?;
        let removing = self.following.remove(url);
        let host = self.handle.block_on(removing)?;
        if let Some(host) = host.filter(|host| self.services.hosts.get(*host).is_none()) {
            self.sweeps.forget(host);
        }
        let configured = self.settings.upstreams.iter().any(|one| one.url == url);
        Ok(UpstreamRemoved::new(url, configured))
    }

    fn confirm_loss(&self, url: &str) -> Result<(), ApiError> {
        let covers = self.services.upstreams.read();
        let by_upstream = covers
            .iter()
            .find(|(_, source)| source.row.url == url)
            .and_then(|(_, source)| source.row.host);
        drop(covers);
        let host = by_upstream.or_else(|| self.services.hosts.find(url));
        let Some(host) = host else {
            return Err(ApiError::NotFound(format!("no host {url} is known here")));
        };
        let row = self.services.hosts.get(host);
        if !row.is_some_and(|row| row.hiding_suspended) {
            return Err(ApiError::Conflict(format!(
                "nothing is suspended for {url}: there is no loss to confirm"
            )));
        }
        self.handle
            .block_on(self.hide_lost(host))
            .map_err(ApiError::from)
    }

    fn track(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        let changed = self.handle.block_on(self.tracking.track_all(dids))?;
        Ok(TrackedChange {
            changed,
            unchanged: dids.len() as u64 - changed,
        })
    }

    fn untrack(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        let changed = self.handle.block_on(self.tracking.untrack_all(dids))?;
        Ok(TrackedChange {
            changed,
            unchanged: dids.len() as u64 - changed,
        })
    }

    fn resync(&self, did: &Did, accept_rollback: bool) -> Result<RepoAnswer, ApiError> {
        let name = did.clone();
        let resync = self.desks.visit(did, move |turn: &mut Turn<'_>| {
            let now = turn.services.clock.now();
            let Some(draft) = turn.draft.as_mut() else {
                return Err(ApiError::NotFound(format!(
                    "{name} is not mirrored here; `gapless track add {name}` makes it be followed"
                )));
            };
            match accept_rollback {
                false => debt::owe_fetch(now, &mut draft.repo, DebtReason::Operator),
                true if draft.repo.behind.is_none() => {
                    return Err(ApiError::Conflict(
                        "its host is not behind us: there is no rollback to accept".to_owned(),
                    ));
                }
                true => rollback::accept_rollback(now, &mut draft.repo),
            }
            debt::retry_soon(now, &mut draft.repo);
            Ok(())
        });
        self.handle.block_on(resync).map_err(ApiError::from)??;
        let answer = self.one(did)?;
        answer.ok_or_else(|| ApiError::NotFound(format!("{did} is not mirrored here")))
    }

    fn resolve_dead(&self, number: Option<u64>) -> Result<DeadResolved, ApiError> {
        self.settle_dead(number)
    }
}
