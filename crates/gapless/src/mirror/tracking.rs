//! Repositories that are followed by name: begun, ended, and the hosts that are
//! followed for their sake.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, What};
use gapless_core::ledger::{HostId, Time, Why, cover};
use gapless_store::change::{Change, WishChange};
use gapless_store::error::StoreError;

use super::Mirror;
use crate::fetch::work::Addresses;
use crate::ingest::desk::Turn;
use crate::store_io::write;

/// Repositories that are on their way to the store at a time: one write to the
/// disk serves them all.
const AT_A_TIME: usize = 1024;
/// How often it is said how far a long list is.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Who wants a repository tracked.
#[derive(Debug, Clone)]
pub(super) enum By {
    /// Whoever it was before.
    Before,
    Operator,
    /// It was found by this collection.
    Found(Arc<str>),
}

impl Mirror {
    pub(super) fn tracked_count(&self) -> usize {
        let tracked = &self.shared.tracked;
        tracked.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn tracked_dids(&self) -> Vec<Did> {
        let tracked = &self.shared.tracked;
        let tracked = tracked.read().unwrap_or_else(PoisonError::into_inner);
        tracked.iter().cloned().collect()
    }

    /// At the start: what is wished for, and what the configuration names.
    pub(super) async fn track_wanted(&self) -> Result<(), StoreError> {
        let _one = self.tracking.lock().await;
        // Those of the list too: their rows may not have been written any more.
        self.track_each(&self.tracked_dids(), &By::Before).await?;
        self.track_each(&self.config.dids, &By::Operator).await?;
        Ok(())
    }

    /// Tracks repositories by name. Returns how many were not before.
    pub(super) async fn track_all(&self, dids: &[Did]) -> Result<u64, StoreError> {
        let _one = self.tracking.lock().await;
        self.track_each(dids, &By::Operator).await
    }

    /// Tracks one that was found. Returns whether it was not tracked before.
    pub(super) async fn track_found(&self, did: &Did, by: By) -> Result<bool, StoreError> {
        let _one = self.tracking.lock().await;
        let (new, host) = self.track_one(did, &by).await?;
        if let Some(host) = host.filter(|_| self.shared.wants_stream(did)) {
            self.following.follow_for_tracked(host);
        }
        Ok(new)
    }

    /// Tracks one that was found no more, unless an operator wants it by now, or there
    /// is not `still` nothing in it, as its desk says. Returns whether it is tracked no
    /// more. What reaches the desk before its events are passed over is looked for once
    /// more, with `has`: the cursor may be past that, so the wish goes last.
    pub(super) async fn untrack_found(
        &self,
        did: &Did,
        still: impl FnOnce(&Turn<'_>) -> Result<bool, StoreError> + Send + 'static,
        has: impl FnOnce(&Turn<'_>) -> Result<bool, StoreError> + Send + 'static,
    ) -> Result<bool, StoreError> {
        let _one = self.tracking.lock().await;
        let Some(found) = self.shared.found_by(did) else {
            return Ok(false);
        };
        let stopped = self.desks.visit(did, move |turn| {
            let stops = still(turn)?;
            if stops {
                stop_tracking(turn);
            }
            Ok::<_, StoreError>(stops)
        });
        if !stopped.await?? {
            return Ok(false);
        }
        self.forget(did);
        let has = self.desks.visit(did, move |turn| has(turn)).await;
        let gone = match has.and_then(|has| has) {
            Ok(false) => self.unwish(did).await.map(|()| true),
            Ok(true) => Ok(false),
            Err(error) => Err(error),
        };
        if !matches!(gone, Ok(true)) {
            self.remember(did, found);
            self.desks.visit(did, start_tracking).await?;
            return gone;
        }
        let row = self.shared.store.view().repo_by_did(did)?;
        if let Some(host) = row.and_then(|(_, repo)| repo.host) {
            self.following.leave_unless_wanted(host).await?;
        }
        Ok(true)
    }

    async fn track_each(&self, dids: &[Did], by: &By) -> Result<u64, StoreError> {
        let mut changed = 0;
        let mut hosts: BTreeSet<HostId> = BTreeSet::new();
        let mut said = Instant::now();
        let mut each = stream::iter(dids)
            .map(async |did| {
                let (new, host) = self.track_one(did, by).await?;
                let host = host.filter(|_| self.shared.wants_stream(did));
                Ok::<_, StoreError>((new, host))
            })
            .buffer_unordered(AT_A_TIME)
            .enumerate();
        while let Some((done, tracked)) = each.next().await {
            let (new, host) = tracked?;
            changed += u64::from(new);
            // Once for each host, not once for each of its repositories.
            if let Some(host) = host
                && hosts.insert(host)
            {
                self.following.follow_for_tracked(host);
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                tracing::info!(done = done + 1, of = dids.len(), "tracking repositories");
            }
        }
        Ok(changed)
    }

    /// Whether it was not tracked before, and where it lives, if that is known.
    async fn track_one(&self, did: &Did, by: &By) -> Result<(bool, Option<HostId>), StoreError> {
        let before = self.shared.found_by(did);
        let new = {
            let tracked = &self.shared.tracked;
            // First this, so that its events are read before it is said that they
            // are.
            tracked
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(did.clone())
        };
        // Then the wish: a row that calls itself tracked is covered by streams that
        // are read for tracked ones alone, so a start must find the wish.
        let taken_over = before.is_some() && matches!(by, By::Operator);
        if (new || taken_over)
            && let Err(error) = self.wish_for(did, by).await
        {
            if new {
                self.forget(did);
            }
            return Err(error);
        }
        let host = self.desks.visit(did, start_tracking).await?;
        Ok((new, host))
    }

    async fn wish_for(&self, did: &Did, by: &By) -> Result<(), StoreError> {
        let since = self.shared.clock.time();
        let wish = match by {
            By::Found(collection) => WishChange::Found(did.clone(), since, collection.to_string()),
            By::Operator | By::Before => WishChange::Track(did.clone(), since),
        };
        let change = Change {
            wish: Some(wish),
            ..Change::default()
        };
        write(&self.shared.store, change).await?;
        let found = &self.shared.found;
        let mut found = found.write().unwrap_or_else(PoisonError::into_inner);
        match by {
            By::Found(collection) => found.insert(did.clone(), (collection.clone(), since)),
            By::Operator | By::Before => found.remove(did),
        };
        Ok(())
    }

    fn forget(&self, did: &Did) {
        let tracked = &self.shared.tracked;
        tracked
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(did);
        let found = &self.shared.found;
        found
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(did);
    }

    /// One that was found is tracked still.
    fn remember(&self, did: &Did, found: (Arc<str>, Time)) {
        let tracked = &self.shared.tracked;
        let by = &self.shared.found;
        by.write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(did.clone(), found);
        tracked
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(did.clone());
    }

    pub(super) async fn untrack_all(&self, dids: &[Did]) -> Result<u64, StoreError> {
        let _one = self.tracking.lock().await;
        let mut changed = 0;
        for did in dids {
            changed += u64::from(self.untrack_one(did).await?);
        }
        self.leave_hosts().await?;
        Ok(changed)
    }

    /// Returns whether it was tracked before.
    async fn untrack_one(&self, did: &Did) -> Result<bool, StoreError> {
        // Nothing may be called complete by a stream that is not read for it.
        self.desks.visit(did, stop_tracking).await?;
        if !self.shared.is_tracked(did) {
            return Ok(false);
        }
        self.unwish(did).await?;
        // Last: were the wish not gone, it could be asked for again.
        self.forget(did);
        Ok(true)
    }

    async fn unwish(&self, did: &Did) -> Result<(), StoreError> {
        let change = Change {
            wish: Some(WishChange::Untrack(did.clone())),
            ..Change::default()
        };
        write(&self.shared.store, change).await.map(|_| ())
    }

    /// Hosts of which nothing is tracked any more are not followed any more.
    async fn leave_hosts(&self) -> Result<(), StoreError> {
        for host in self.following.for_tracked() {
            self.following.leave_unless_wanted(host).await?;
        }
        Ok(())
    }
}

fn start_tracking(turn: &mut Turn<'_>) -> Option<HostId> {
    let now = turn.shared.clock.now();
    let covers = turn.shared.upstreams.read();
    let draft = turn.make();
    let repo = &mut draft.repo;
    if repo.tracked {
        return repo.host;
    }
    cover::track(now.tick, repo, &covers, true);
    match repo.host {
        None => debt::owe(now, repo, What::Resolve, Why::FirstSighting),
        Some(_) => debt::owe(now, repo, What::Compare, Why::Operator),
    }
    repo.host
}

fn stop_tracking(turn: &mut Turn<'_>) {
    let now = turn.shared.clock.now();
    let covers = turn.shared.upstreams.read();
    if let Some(draft) = turn.draft.as_mut()
        && draft.repo.tracked
    {
        let repo = &mut draft.repo;
        let changed = cover::track(now.tick, repo, &covers, false);
        // Whoever speaks for it now has not said that nothing is missing.
        if changed && repo.cover.is_some() {
            debt::owe(now, repo, What::Compare, Why::Operator);
        }
        // A name that somebody has mistyped is not asked about for ever.
        if draft.parked.is_empty() && cover::let_go(now.tick, repo, &covers) {
            turn.shared.troubles.over(turn.did);
        }
    }
}
