//! Repositories that are followed by name: starts and ends tracking them, and follows
//! their hosts for as long as one of them lives there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::{DebtReason, HostId, Time, cover};
use gapless_store::change::{Change, WishChange};
use gapless_store::error::StoreError;

use crate::desk::{Desks, RepoTurn};
use crate::following::Following;
use crate::last_errors::LastErrors;
use crate::repair::worker::Addresses;
use crate::services::Services;
use crate::store_io::write;

/// Repositories that are written to the store at the same time: they share one fsync.
const CONCURRENT_WRITES: usize = 1024;
/// How often the progress of a long list is logged.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Who wants a repository tracked.
#[derive(Debug, Clone)]
pub(crate) enum TrackedBy {
    /// The reason stays as it is; used at the start.
    Unchanged,
    Operator,
    /// The repository was found by this collection.
    Found(Arc<str>),
}

/// Starts and ends tracking repositories.
pub(crate) struct Tracking {
    services: Arc<Services>,
    desks: Arc<Desks>,
    following: Arc<Following>,
    last_errors: Arc<LastErrors>,
    /// Serializes changes of what is tracked. If a row and the list of tracked repositories
    /// differed, a stream would cover a repository without being read for it.
    changing: tokio::sync::Mutex<()>,
}

impl Tracking {
    pub(crate) fn new(
        services: Arc<Services>,
        desks: Arc<Desks>,
        following: Arc<Following>,
        last_errors: Arc<LastErrors>,
    ) -> Tracking {
        Tracking {
            services,
            desks,
            following,
            last_errors,
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// The number of tracked repositories.
    pub(crate) fn tracked_count(&self) -> usize {
        let tracked = &self.services.admission.tracked;
        tracked.read().len()
    }

    fn tracked_dids(&self) -> Vec<Did> {
        let tracked = &self.services.admission.tracked;
        let tracked = tracked.read();
        tracked.iter().cloned().collect()
    }

    /// At the start: tracks what was tracked before, and what the configuration names.
    pub(crate) async fn resume(&self, configured: &[Did]) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        // Track these again, too: the last run may have ended before it wrote their rows.
        self.track_each(&self.tracked_dids(), &TrackedBy::Unchanged)
            .await?;
        self.track_each(configured, &TrackedBy::Operator).await?;
        Ok(())
    }

    /// Tracks repositories for an operator. Returns how many were not tracked before.
    pub(crate) async fn track_all(&self, dids: &[Did]) -> Result<u64, StoreError> {
        let _one = self.changing.lock().await;
        self.track_each(dids, &TrackedBy::Operator).await
    }

    /// Tracks a repository that a collection found. Returns whether it was not tracked
    /// before.
    pub(crate) async fn track_found(&self, did: &Did, by: TrackedBy) -> Result<bool, StoreError> {
        let _one = self.changing.lock().await;
        let (new, host) = self.track_one(did, &by).await?;
        if let Some(host) = host.filter(|_| self.services.wants_stream(did)) {
            self.following.follow_for_tracked(host);
        }
        Ok(new)
    }

    /// Stops tracking a repository that a collection found, unless an operator tracks the
    /// repository by now or `still` finds at its desk that it is not empty any more. Returns
    /// whether tracking has stopped. Events may reach the desk before the repository is skipped,
    /// and the cursor may be past them. Therefore `has` checks once more before the repository is
    /// removed from the list in the store.
    pub(crate) async fn untrack_found(
        &self,
        did: &Did,
        still: impl FnOnce(&RepoTurn<'_>) -> Result<bool, StoreError> + Send + 'static,
        has: impl FnOnce(&RepoTurn<'_>) -> Result<bool, StoreError> + Send + 'static,
    ) -> Result<bool, StoreError> {
        let _one = self.changing.lock().await;
        let Some(found) = self.services.admission.found_by(did) else {
            return Ok(false);
        };
        let last_errors = self.last_errors.clone();
        let stopped = self.desks.with_repo(did, move |turn| {
            let stops = still(turn)?;
            if stops {
                stop_tracking(turn, &last_errors);
            }
            Ok::<_, StoreError>(stops)
        });
        if !stopped.await?? {
            return Ok(false);
        }
        self.forget(did);
        let has = self.desks.with_repo(did, move |turn| has(turn)).await;
        let gone = match has.and_then(|has| has) {
            Ok(false) => self.write_untracked(did).await.map(|()| true),
            Ok(true) => Ok(false),
            Err(error) => Err(error),
        };
        if !matches!(gone, Ok(true)) {
            self.remember(did, found);
            self.desks.with_repo(did, start_tracking).await?;
            return gone;
        }
        let row = self.services.store.view().repo_by_did(did)?;
        if let Some(host) = row.and_then(|(_, repo)| repo.host) {
            self.following.leave_unless_wanted(host).await?;
        }
        Ok(true)
    }

    async fn track_each(&self, dids: &[Did], by: &TrackedBy) -> Result<u64, StoreError> {
        let mut changed = 0;
        let mut hosts: BTreeSet<HostId> = BTreeSet::new();
        let mut said = Instant::now();
        let mut each = stream::iter(dids)
            .map(async |did| {
                let (new, host) = self.track_one(did, by).await?;
                let host = host.filter(|_| self.services.wants_stream(did));
                Ok::<_, StoreError>((new, host))
            })
            .buffer_unordered(CONCURRENT_WRITES)
            .enumerate();
        while let Some((done, tracked)) = each.next().await {
            let (new, host) = tracked?;
            changed += u64::from(new);
            // Follow each host once, and not once for each of its repositories.
            if let Some(host) = host
                && hosts.insert(host)
            {
                self.following.follow_for_tracked(host);
            }
            if said.elapsed() >= LOG_EVERY {
                said = Instant::now();
                tracing::info!(done = done + 1, of = dids.len(), "tracking repositories");
            }
        }
        Ok(changed)
    }

    /// Tracks one repository. Returns whether it was not tracked before, and its host, if
    /// that is known.
    async fn track_one(
        &self,
        did: &Did,
        by: &TrackedBy,
    ) -> Result<(bool, Option<HostId>), StoreError> {
        let before = self.services.admission.found_by(did);
        let new = {
            let tracked = &self.services.admission.tracked;
            // Add it first, so that its events are read before the row says that the repository is
            // tracked.
            tracked.write().insert(did.clone())
        };
        // Then write the list in the store: streams for tracked repositories cover a row that is
        // tracked, so the next start must find the repository in the list.
        let taken_over = before.is_some() && matches!(by, TrackedBy::Operator);
        if (new || taken_over)
            && let Err(error) = self.write_tracked(did, by).await
        {
            if new {
                self.forget(did);
            }
            return Err(error);
        }
        let host = self.desks.with_repo(did, start_tracking).await?;
        Ok((new, host))
    }

    async fn write_tracked(&self, did: &Did, by: &TrackedBy) -> Result<(), StoreError> {
        let since = self.services.clock.time();
        let wish = match by {
            TrackedBy::Found(collection) => {
                WishChange::Found(did.clone(), since, collection.to_string())
            }
            TrackedBy::Operator | TrackedBy::Unchanged => WishChange::Track(did.clone(), since),
        };
        let change = Change {
            wish: Some(wish),
            ..Change::default()
        };
        write(&self.services.store, change).await?;
        let found = &self.services.admission.found;
        let mut found = found.write();
        match by {
            TrackedBy::Found(collection) => found.insert(did.clone(), (collection.clone(), since)),
            TrackedBy::Operator | TrackedBy::Unchanged => found.remove(did),
        };
        Ok(())
    }

    fn forget(&self, did: &Did) {
        let tracked = &self.services.admission.tracked;
        tracked.write().remove(did);
        let found = &self.services.admission.found;
        found.write().remove(did);
    }

    /// Undoes `forget` for a repository that was found.
    fn remember(&self, did: &Did, found: (Arc<str>, Time)) {
        let tracked = &self.services.admission.tracked;
        let by = &self.services.admission.found;
        by.write().insert(did.clone(), found);
        tracked.write().insert(did.clone());
    }

    /// Stops tracking repositories for an operator. Returns how many were tracked before.
    pub(crate) async fn untrack_all(&self, dids: &[Did]) -> Result<u64, StoreError> {
        let _one = self.changing.lock().await;
        let mut changed = 0;
        for did in dids {
            changed += u64::from(self.untrack_one(did).await?);
        }
        self.leave_hosts().await?;
        Ok(changed)
    }

    /// Stops tracking one repository. Returns whether it was tracked before.
    async fn untrack_one(&self, did: &Did) -> Result<bool, StoreError> {
        // Change the row first: no stream may cover a repository that the stream is not read for.
        let last_errors = self.last_errors.clone();
        let stop = move |turn: &mut RepoTurn<'_>| stop_tracking(turn, &last_errors);
        self.desks.with_repo(did, stop).await?;
        if !self.services.admission.is_tracked(did) {
            return Ok(false);
        }
        self.write_untracked(did).await?;
        // Forget the repository last: if the removal from the store fails, the operator can try
        // again.
        self.forget(did);
        Ok(true)
    }

    async fn write_untracked(&self, did: &Did) -> Result<(), StoreError> {
        let change = Change {
            wish: Some(WishChange::Untrack(did.clone())),
            ..Change::default()
        };
        write(&self.services.store, change).await.map(|_| ())
    }

    /// Leaves the hosts on which no tracked repository lives any more.
    async fn leave_hosts(&self) -> Result<(), StoreError> {
        for host in self.following.for_tracked() {
            self.following.leave_unless_wanted(host).await?;
        }
        Ok(())
    }
}

fn start_tracking(turn: &mut RepoTurn<'_>) -> Option<HostId> {
    let now = turn.services.clock.now();
    let covers = turn.services.upstreams.read();
    let tx = turn.get_or_create();
    let repo = &mut tx.repo;
    if repo.tracked {
        return repo.host;
    }
    cover::set_tracked(now.tick, repo, &covers, true);
    match repo.host {
        None => debt::owe(now, repo, DebtKind::Resolve, DebtReason::FirstSighting),
        Some(_) => debt::owe(now, repo, DebtKind::Compare, DebtReason::Operator),
    }
    repo.host
}

fn stop_tracking(turn: &mut RepoTurn<'_>, last_errors: &LastErrors) {
    let now = turn.services.clock.now();
    let covers = turn.services.upstreams.read();
    if let Some(tx) = turn.tx.as_mut()
        && tx.repo.tracked
    {
        let nothing_parked = tx.parked().is_empty();
        let repo = &mut tx.repo;
        let changed = cover::set_tracked(now.tick, repo, &covers, false);
        // The new cover has not been compared yet.
        if changed && repo.cover.is_some() {
            debt::owe(now, repo, DebtKind::Compare, DebtReason::Operator);
        }
        // A mistyped DID must not be resolved for ever.
        if nothing_parked && cover::forget_unwanted(now.tick, repo, &covers) {
            last_errors.clear(turn.did);
        }
    }
}
