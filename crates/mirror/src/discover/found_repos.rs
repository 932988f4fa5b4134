//! Resolves candidates that a collection named, tracks them, and stops tracking those that hold no
//! record in a wanted collection.
//!
//! A candidate that the directory does not know costs one request and leaves no row. A
//! candidate that the directory knows is tracked, fetched whole and then checked: if it has
//! no record in a wanted collection, the listing was outdated, and tracking ends.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use gapless_atp::syntax::{Did, DidMethod};
use gapless_core::ledger::{Repo, RepoId, Time};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;

use crate::admission::candidates::Candidate;
use crate::desk::RepoTurn;
use crate::discover::{CHECK_EVERY, Discovery};
use crate::services::Services;
use crate::tracking::TrackedBy;
use gapless_core::filter::Pattern;
use gapless_net::{KnownIdentity, ResolveError};
use gapless_store::sync::Mutex;

/// Candidates that are resolved at the same time.
const CONCURRENT_LOOKUPS: usize = 8;
/// Found repositories that one check reads, and how often a check runs.
const FOUND_PER_CHECK: usize = 1000;
const FOUND_CHECK_EVERY: Duration = Duration::from_secs(1);
/// The longest time for which the cursor of a stream waits for the directory.
const MAX_STREAM_WAIT: Duration = Duration::from_secs(20);
/// The pause before a write that failed is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a found repository may have no known host before tracking ends.
const UNRESOLVED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Repositories remembered as empty. The memory is cleared when it is full.
const MAX_EMPTY: usize = 100_000;

/// Found repositories that are not checked yet, and those that turned out empty.
#[derive(Default)]
pub(crate) struct FoundRepos {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    unchecked: VecDeque<Did>,
    /// Repositories without a wanted record, each with the collection, as configured, that named
    /// it.
    empty: HashSet<(Did, Arc<str>)>,
}

impl FoundRepos {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// What is known about a found repository.
enum FoundState {
    /// The repository is not fetched yet, or has a debt.
    Pending,
    HasRecords,
    Empty,
}

/// Resolves candidates and checks found repositories until the program shuts down.
pub(crate) async fn run(discovery: Arc<Discovery>) {
    // Enqueue candidates again that were being resolved when this task last failed.
    discovery.services.admission.candidates.ask_again();
    discovery
        .found
        .lock()
        .unchecked
        .extend(discovery.services.admission.found_dids());
    let services = discovery.services.clone();
    let mut asking = FuturesUnordered::new();
    let mut looked = Instant::now();
    while !services.shutdown.has_begun() {
        while asking.len() < CONCURRENT_LOOKUPS
            && let Some(candidate) = services.admission.candidates.take()
        {
            asking.push(admit(discovery.clone(), candidate));
        }
        tokio::select! {
            Some(settled) = asking.next() => {
                if settled.is_err() {
                    // The store cannot be written; the task that saw it has reported it.
                    return;
                }
            }
            () = services.admission.candidates.arrived.notified(), if asking.len() < CONCURRENT_LOOKUPS => {}
            () = tokio::time::sleep(CHECK_EVERY) => {}
            () = services.shutdown.begun() => return,
        }
        if looked.elapsed() >= FOUND_CHECK_EVERY {
            looked = Instant::now();
            if let Err(error) = discovery.check_found().await
                && error.is_final()
            {
                return;
            }
        }
    }
}

/// Resolves a candidate, tracks it, and releases its positions. If the program shuts down first, no
/// cursor has passed the positions, and the next start reads the events again.
async fn admit(discovery: Arc<Discovery>, mut candidate: Candidate) -> Result<(), StoreError> {
    let services = &discovery.services;
    let did = candidate.did.clone();
    let held = loop {
        let settled = match discovery.resolve_candidate(&candidate).await {
            Ok(settled) => settled,
            Err(error) if error.is_final() => return Err(error),
            // The disk may be full.
            Err(error) => {
                tracing::warn!(%did, %error, "a repository that a collection named could not be tracked; Gapless tries again");
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
        };
        let counted = match settled {
            CandidateOutcome::ShuttingDown => return Ok(()),
            CandidateOutcome::Tracked => break services.admission.candidates.mark_tracked(&did),
            CandidateOutcome::Unknown => &services.metrics.found_unknown,
            // A later listing names it again.
            CandidateOutcome::Unanswered => &services.metrics.found_dropped,
        };
        match services.admission.candidates.reject(&candidate) {
            Ok(held) => {
                counted.inc();
                break held;
            }
            // A stream has brought the repository meanwhile: resolve it for the stream.
            Err(stronger) => candidate = stronger,
        }
    };
    for position in held {
        discovery.desks.skip(&did, position);
    }
    Ok(())
}

/// The result of resolving a candidate.
enum CandidateOutcome {
    Tracked,
    Unknown,
    /// The directory gave no answer, and no stream waits.
    Unanswered,
    /// The program shuts down.
    ShuttingDown,
}

/// Whether an error means that the repository does not exist. A did:web domain without a
/// document today may have one tomorrow, so a repository that a stream brought is kept.
fn is_final(did: &Did, live: bool, error: &ResolveError) -> bool {
    match error {
        ResolveError::NotFound => !live || did.method() != DidMethod::Web,
        ResolveError::Document(_) => true,
        ResolveError::Unsettled | ResolveError::Stale | ResolveError::Ask(_) => false,
    }
}

impl Discovery {
    async fn resolve_candidate(
        &self,
        candidate: &Candidate,
    ) -> Result<CandidateOutcome, StoreError> {
        let (services, did) = (&self.services, &candidate.did);
        if services.admission.is_tracked(did) {
            return Ok(CandidateOutcome::Tracked);
        }
        let known = tokio::select! {
            known = self.directory_knows(candidate) => known,
            () = services.shutdown.begun() => return Ok(CandidateOutcome::ShuttingDown),
        };
        match known {
            Some(true) => {}
            Some(false) => return Ok(CandidateOutcome::Unknown),
            None => return Ok(CandidateOutcome::Unanswered),
        }
        let by = TrackedBy::Found(candidate.collection.clone());
        if self.tracking.track_found(did, by).await? {
            services.metrics.repos_found.inc();
            self.found.lock().unchecked.push_back(did.clone());
        }
        Ok(CandidateOutcome::Tracked)
    }

    /// Whether the directory knows a candidate; `None` if there is no answer and no stream
    /// waits. A stream waits at most [`MAX_STREAM_WAIT`]; after that the candidate counts as
    /// known, and its resolution becomes a durable debt.
    async fn directory_knows(&self, candidate: &Candidate) -> Option<bool> {
        let live = candidate.position.is_some();
        let left = MAX_STREAM_WAIT.saturating_sub(candidate.since.elapsed());
        if live && left.is_zero() {
            return Some(true);
        }
        self.services.metrics.resolutions.inc();
        let asked = self
            .fetcher
            .net
            .resolve(&candidate.did, KnownIdentity::default());
        let patience = if live { left } else { MAX_STREAM_WAIT };
        let error = match tokio::time::timeout(patience, asked).await {
            Ok(Ok(document)) => return Some(!document.tombstoned && document.host.is_some()),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        if let Some(error) = &error
            && is_final(&candidate.did, live, error)
        {
            return Some(false);
        }
        self.services.metrics.resolution_failures.inc();
        live.then_some(true)
    }

    /// Whether a repository was fetched before and held no record in a wanted collection.
    pub(crate) fn found_nothing_in(&self, did: &Did, collection: &Arc<str>) -> bool {
        let asked = (did.clone(), collection.clone());
        self.found.lock().empty.contains(&asked)
    }

    /// Checks some of the found repositories that were not checked yet.
    async fn check_found(&self) -> Result<(), StoreError> {
        let some: Vec<Did> = {
            let mut inner = self.found.lock();
            let many = inner.unchecked.len().min(FOUND_PER_CHECK);
            inner.unchecked.drain(..many).collect()
        };
        let mut some = some.into_iter();
        while let Some(did) = some.next() {
            let Some((pattern, since)) = self.services.admission.found_by(&did) else {
                // An operator tracks the repository by now, or tracking has ended.
                continue;
            };
            let view = self.services.store.view();
            let looked = match view.repo_by_did(&did)? {
                None => FoundState::Pending,
                Some((id, repo)) => found_state(&self.services, &view, id, &repo, &pattern, since)?,
            };
            drop(view);
            match looked {
                FoundState::HasRecords => {}
                FoundState::Pending => self.found.lock().unchecked.push_back(did),
                FoundState::Empty => {
                    let left = self.untrack_empty(did, pattern, since).await;
                    if left.is_err() {
                        self.found.lock().unchecked.extend(some);
                        return left;
                    }
                }
            }
        }
        Ok(())
    }

    /// Stops tracking a repository without a record in a wanted collection, unless it has
    /// one by now.
    async fn untrack_empty(
        &self,
        did: Did,
        pattern: Arc<str>,
        since: Time,
    ) -> Result<(), StoreError> {
        let named = pattern.clone();
        let still = move |turn: &RepoTurn<'_>| match repo_of(turn) {
            None => Ok(false),
            Some((id, repo)) => {
                let looked = found_state(turn.services, turn.view, id, repo, &named, since)?;
                Ok(matches!(looked, FoundState::Empty))
            }
        };
        let named = pattern.clone();
        let has = move |turn: &RepoTurn<'_>| match repo_of(turn) {
            None => Ok(false),
            Some((id, _)) => has_wanted_record(turn.services, turn.view, id, &named),
        };
        // Remember the repository as empty first, or a listing that is being read finds it again.
        let asked = (did.clone(), pattern.clone());
        {
            let mut inner = self.found.lock();
            if inner.empty.len() >= MAX_EMPTY {
                inner.empty.clear();
            }
            inner.empty.insert(asked.clone());
        }
        let untracked = self.tracking.untrack_found(&did, still, has).await;
        if !matches!(untracked, Ok(true)) {
            // A record arrived meanwhile, or the store cannot be written: check it again.
            let mut inner = self.found.lock();
            inner.empty.remove(&asked);
            inner.unchecked.push_back(did);
            return untracked.map(|_| ());
        }
        self.services.metrics.found_without.inc();
        tracing::debug!(%did, %pattern, "tracking ends: the repository has no record in the collection that named it");
        Ok(())
    }
}

/// The repository that a turn is about, once it has a row.
fn repo_of<'a>(turn: &'a RepoTurn<'_>) -> Option<(RepoId, &'a Repo)> {
    let tx = turn.tx.as_ref()?;
    Some((tx.id?, &tx.repo))
}

/// Checks whether a repository is fetched and has a record in a wanted collection.
fn found_state(
    services: &Services,
    view: &ReadView,
    id: RepoId,
    repo: &Repo,
    found_by: &str,
    since: Time,
) -> Result<FoundState, StoreError> {
    if repo.head().is_none() || !repo.debt.is_empty() {
        let unresolved = repo.host.is_none() && repo.head().is_none();
        let over = services.clock.time().passed(since, UNRESOLVED_FOR);
        return Ok(if unresolved && over {
            FoundState::Empty
        } else {
            FoundState::Pending
        });
    }
    if has_wanted_record(services, view, id, found_by)? {
        return Ok(FoundState::HasRecords);
    }
    Ok(FoundState::Empty)
}

/// Whether a repository has, or may have, a record in any wanted collection or in the
/// collection that named it.
fn has_wanted_record(
    services: &Services,
    view: &ReadView,
    id: RepoId,
    found_by: &str,
) -> Result<bool, StoreError> {
    let Some(found_by) = Pattern::parse(found_by) else {
        return Ok(true);
    };
    for pattern in services
        .admission
        .scope
        .collections
        .iter()
        .chain([&found_by])
    {
        let prefix = match pattern {
            Pattern::Exactly(name) => format!("{name}/"),
            Pattern::Below(prefix) => prefix.clone(),
        };
        // The keys of this collection are not held, so the answer is unknown.
        let collection = prefix.trim_end_matches(['/', '.']);
        let wanted = &services.rules.filter.wanted;
        let drops = services.rules.settings.wanted_keys_only && !wanted.is_empty();
        if drops && !wanted.iter().any(|one| one.matches(collection)) {
            return Ok(true);
        }
        if let Some(record) = view.records_with_prefix(id, prefix.as_bytes()).next() {
            record?;
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_server_that_knows_no_document_is_not_believed_against_a_stream() {
        let web = Did::parse("did:web:host.example.com").expect("a DID");
        let plc = Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").expect("a DID");
        let none = ResolveError::NotFound;
        assert!(!is_final(&web, true, &none), "it is owed");
        assert!(is_final(&web, false, &none), "a listing comes again");
        assert!(is_final(&plc, true, &none), "the directory knows all");
        assert!(!is_final(&plc, true, &ResolveError::Unsettled));
    }
}
