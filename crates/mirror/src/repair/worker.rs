//! Settles debts: takes the next task from the schedule, resolves the DID, or asks the
//! host for the head and fetches what is missing. The ledger decides what each answer
//! means.
//!
//! No lock is held meanwhile. Each decision is taken at the repository's desk, on the
//! row as it is then, and is durable before the next step begins.

use std::sync::Arc;
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, Work};
use gapless_core::ledger::fetch::{self, Next, Note};
use gapless_core::ledger::identity::Document;
use gapless_core::ledger::{HostId, Now, Repo, Tick, Time};
use gapless_core::repo_tx::answer::AskReason;
use gapless_net::{HostAddress, KnownIdentity, Net, ResolveError};
use gapless_store::error::StoreError;
use tokio::sync::{Notify, Semaphore};

use crate::budget::{self, Budget};
use crate::desk::{Desks, RepoTurn, may_have_left};
use crate::last_errors::LastErrors;
use crate::repair::named_by::{named_by, warn_of_strays};
use crate::repair::reload;
use crate::repair::since_revs::SinceRevs;
use crate::schedule::{self, Payee, SlotLimits, Task};
use crate::services::Services;
use crate::settings::FetchSettings;
use crate::store_io::blocking;

/// How often the schedule is read when nothing wakes the fetcher.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Concurrent requests to the PLC directory.
const CONCURRENT_PLC_LOOKUPS: usize = 16;
/// Concurrent requests for did:web documents.
const CONCURRENT_WEB_LOOKUPS: usize = 16;

/// Where hosts are reached, and which hosts are followed for tracked repositories.
pub trait Addresses: Send + Sync {
    /// Returns the address of a host, by its name in DID documents.
    fn of(&self, name: &str) -> HostAddress;

    /// Follows a host, because a tracked repository lives there now.
    fn follow_for_tracked(&self, host: HostId);

    /// Notes that a tracked repository has left a host. It may have been the last one there.
    fn tracked_left(&self, host: HostId);
}

/// Settles debts and answers the questions of sweeps.
pub struct Fetcher {
    pub services: Arc<Services>,
    pub(crate) desks: Arc<Desks>,
    /// Why the last attempt for a repository failed.
    pub last_errors: Arc<LastErrors>,
    pub net: Net,
    pub settings: FetchSettings,
    pub addresses: Arc<dyn Addresses>,
    pub(super) since_revs: SinceRevs,
    /// Admits one large repository at a time to the checks: its index takes memory.
    pub(super) large: Semaphore,
    slots: SlotLimits,
    /// Memory for the indexes of all CARs that arrive.
    pub(super) index_budget: Arc<Budget>,
    /// Notified when a sweep may be due.
    pub(crate) sweep_wake: Notify,
}

/// The next step for a repository, as decided at its desk.
enum RepairStep {
    Nothing,
    Resolve { asked: Tick, known: KnownIdentity },
    AskHead { note: Note },
}

impl RepairStep {
    fn resolve(services: &Services, now: Now, repo: &Repo) -> RepairStep {
        RepairStep::Resolve {
            asked: now.tick,
            known: known_identity(services, repo),
        }
    }
}

/// Why a piece of work failed. The debt stays.
#[derive(Debug)]
pub(crate) enum RepairError {
    /// The failure is recorded, and counts against the host.
    Failed,
    /// The failure is recorded, but is not the host's fault: a local disk error, or a
    /// repository over `max_repo_bytes`.
    Local,
    Store(StoreError),
}

impl From<StoreError> for RepairError {
    fn from(error: StoreError) -> RepairError {
        RepairError::Store(error)
    }
}

impl Fetcher {
    /// Keeps the error of a failed attempt, for an operator.
    pub(crate) fn note_error(&self, did: &Did, error: impl std::fmt::Display) {
        let now = self.services.clock.time();
        self.last_errors.note(now, did, error, false);
    }

    /// Keeps an error that the host did not cause, for example one of the local disk.
    pub(crate) fn note_local_error(&self, did: &Did, error: impl std::fmt::Display) {
        let now = self.services.clock.time();
        self.last_errors.note(now, did, error, true);
    }

    pub(crate) fn new(
        services: Arc<Services>,
        desks: Arc<Desks>,
        net: Net,
        settings: FetchSettings,
        addresses: Arc<dyn Addresses>,
    ) -> Fetcher {
        let slots = SlotLimits {
            directory: CONCURRENT_PLC_LOOKUPS,
            web: CONCURRENT_WEB_LOOKUPS,
            asks: settings.concurrency.max(1),
            fetches: settings.concurrency.max(1),
            per_host: settings.per_host.max(1),
        };
        Fetcher {
            last_errors: Arc::default(),
            slots,
            services,
            desks,
            net,
            settings,
            addresses,
            since_revs: SinceRevs::default(),
            index_budget: Budget::new(budget::CAR_INDEXES_BYTES),
            large: Semaphore::new(1),
            sweep_wake: Notify::new(),
        }
    }

    /// Settles debts as they become due, until the shutdown.
    pub(crate) async fn run(self: Arc<Self>) {
        let retried = self.retry_oversized().await;
        self.handle_result(None, retried.map_err(RepairError::from));
        while !self.services.shutdown.has_begun() {
            self.reload_debts().await;
            let now = self.services.clock.time();
            let Some(task) = self.services.schedule.take(now, &self.slots) else {
                let wait = self.until_due(now);
                tokio::select! {
                    () = self.services.schedule.wake.notified() => {}
                    () = tokio::time::sleep(wait) => {}
                    () = self.services.shutdown.begun() => return,
                }
                continue;
            };
            let fetcher = self.clone();
            tokio::spawn(async move {
                // Releases the task even if the work panics.
                let _guard = WorkGuard(&fetcher.services, &task.did, task.payee);
                let result = fetcher.work_off(&task).await;
                if let Payee::Host(host) = task.payee
                    && let Some(success) = host_success(&result)
                {
                    fetcher.services.schedule.record_result(host, success);
                }
                fetcher.handle_result(Some(&task.did), result);
            });
        }
    }

    fn until_due(&self, now: Time) -> Duration {
        match self.services.schedule.next_due() {
            Some(at) if at > now => at.since(now).min(POLL_INTERVAL),
            // Due, but no slot is free: the end of a task notifies `wake`.
            _ => POLL_INTERVAL,
        }
    }

    /// Ends the program if the store has failed for good. Every other failure is recorded
    /// already, or its debt is still in the store. `did` is the repository of the repair, if
    /// there is only one.
    pub(crate) fn handle_result(&self, did: Option<&Did>, result: Result<(), RepairError>) {
        if let Err(RepairError::Store(error)) = result {
            if error.is_final() {
                self.services.shutdown.fail(error);
            } else {
                let did = did.map(tracing::field::display);
                tracing::warn!(did, %error, "the result of a repair could not be written; Gapless tries the repair again");
            }
        }
    }

    /// Makes repositories due that were over a lower `max_repo_bytes`. The change is
    /// durable, so a start that is interrupted does it again.
    async fn retry_oversized(&self) -> Result<(), StoreError> {
        let (store, limit) = (self.services.store.clone(), self.settings.max_repo_bytes);
        let find = move || reload::oversized_repos(&store, limit);
        let work = "looking for oversized repositories";
        for did in blocking(&self.services.metrics, work, find).await? {
            let change = self.desks.with_repo(&did, move |turn: &mut RepoTurn<'_>| {
                let now = turn.services.clock.now();
                let tx = turn.tx.as_mut();
                tx.is_some_and(|tx| debt::retry_if_limit_raised(now, &mut tx.repo, limit))
            });
            change.await?;
        }
        Ok(())
    }

    /// Reads debts from the store, if the schedule has evicted some.
    async fn reload_debts(&self) {
        let now = self.services.clock.time();
        if !self.services.schedule.should_reload(now) {
            return;
        }
        let services = self.services.clone();
        match tokio::task::spawn_blocking(move || reload::read_debts(&services)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.services.shutdown.fail(error),
            // The read panicked; evicted debts must be read later.
            Err(_) => self.services.schedule.request_reload(),
        }
    }

    /// Does the next step for a repository.
    async fn work_off(&self, task: &Task) -> Result<(), RepairError> {
        let (did, begun) = (&task.did, task.clone());
        let change = self
            .desks
            .with_repo(did, move |turn| next_step(turn, &begun));
        match change.await? {
            RepairStep::Nothing => Ok(()),
            RepairStep::Resolve { asked, known } => self.resolve(did, asked, known).await,
            RepairStep::AskHead { note } => self.ask_and_fetch(did, note).await,
        }
    }

    /// Resolves a DID and records its document.
    pub(super) async fn resolve(
        &self,
        did: &Did,
        asked: Tick,
        known: KnownIdentity,
    ) -> Result<(), RepairError> {
        self.services.metrics.resolutions.inc();
        let answer = self.net.resolve(did, known).await;
        let resolved = match answer {
            Ok(resolved) => resolved,
            Err(error) => {
                self.services.metrics.resolution_failures.inc();
                if matches!(error, ResolveError::Stale) {
                    self.services.metrics.old_documents.inc();
                }
                self.note_error(did, &error);
                tracing::debug!(%did, %error, "DID not resolved; tried again later");
                self.failed(did, error.retry_after()).await?;
                return Err(RepairError::Failed);
            }
        };
        let host = match &resolved.host {
            None => None,
            Some(name) => {
                let by = named_by(&self.services, did)?;
                match self.services.hosts.register_named(name, by).await? {
                    Ok(host) => Some(host),
                    Err(over) => {
                        over.count(&self.services.metrics);
                        let error = "the DID document names a new host, and the limit on known hosts is reached; see gapless hosts";
                        self.note_error(did, error);
                        self.failed(did, None).await?;
                        return Err(RepairError::Failed);
                    }
                }
            }
        };
        let document = Document {
            host,
            key: resolved.key,
            handle: resolved.handle,
            version: resolved.version,
            tombstoned: resolved.tombstoned,
        };
        let moved = self.desks.with_repo(did, move |turn| {
            let (services, env) = (turn.services, turn.env());
            let Some(tx) = turn.tx.as_mut() else {
                return Ok((false, None));
            };
            let before = tx.repo.host;
            tx.resolved(&env, &services.rules, asked, &document)?;
            let signing = tx.repo.signing;
            let fresh =
                document.tombstoned || signing.is_some_and(|signing| signing.asked >= asked);
            let tracked = services.wants_stream(&tx.repo.did);
            let moved = tracked.then_some((before, tx.repo.host));
            Ok::<_, StoreError>((fresh, moved))
        });
        let (fresh, moved) = moved.await??;
        self.services.admission.newcomers.resolved(did);
        if let Some((brought_by, count)) = self.services.admission.strays.resolved(did, host) {
            warn_of_strays(&self.services, brought_by, count)?;
        }
        if fresh {
            // The document is durable now.
            self.services.schedule.refreshed(did);
        }
        if let Some((before, host)) = moved {
            if let Some(host) = host {
                self.addresses.follow_for_tracked(host);
            }
            if let Some(left) = before.filter(|_| before != host) {
                self.addresses.tracked_left(left);
            }
        }
        Ok(())
    }

    /// Asks the host for its head, and fetches what the answer calls for.
    async fn ask_and_fetch(&self, did: &Did, note: Note) -> Result<(), RepairError> {
        let next = self.question(did, note, AskReason::Debt).await?;
        let schedule = &self.services.schedule;
        if let Next::Fetch(named) = next
            && self.settle_filter_debt(did, note, named).await?
        {
            return Ok(());
        }
        match next {
            Next::Done => Ok(()),
            // The fetch is owed, and is taken from the schedule when a slot is free.
            _ if !schedule.try_start_fetch(did, &self.slots) => Ok(()),
            Next::Fetch(named) => self.fetch(did, note, named, false).await,
            Next::Adopt(named) => self.fetch(did, note, named, true).await,
        }
    }

    pub(crate) fn address(&self, host: HostId) -> Option<HostAddress> {
        let row = self.services.hosts.get(host)?;
        Some(self.addresses.of(&row.name))
    }
}

/// Whether the host did its part; `None` if the failure says nothing about the host.
fn host_success(result: &Result<(), RepairError>) -> Option<bool> {
    match result {
        Ok(()) => Some(true),
        Err(RepairError::Failed) => Some(false),
        Err(RepairError::Local | RepairError::Store(_)) => None,
    }
}

/// Releases a repository in the schedule when dropped.
pub(super) struct WorkGuard<'a>(pub &'a Services, pub &'a Did, pub Payee);

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        self.0.schedule.release(self.1, self.2);
    }
}

/// Returns what is known of an owner before a DID is resolved again.
pub(super) fn known_identity(services: &Services, repo: &Repo) -> KnownIdentity {
    let host = repo.host.and_then(|host| services.hosts.get(host));
    KnownIdentity {
        version: repo.document,
        host: host.map(|host| host.name),
        key: repo.signing.and_then(|signing| signing.key),
    }
}

/// Decides at the desk which step is next, and begins the attempt.
fn next_step(turn: &mut RepoTurn<'_>, task: &Task) -> RepairStep {
    let services = turn.services;
    let now = services.clock.now();
    let Some(tx) = turn.tx.as_mut() else {
        // The repository never reached the store, so it has no debt.
        services
            .schedule
            .note(now.time, &Repo::new(turn.did.clone()));
        services.schedule.refreshed(&task.did);
        return RepairStep::Nothing;
    };
    let work = debt::plan_work(now.time, &tx.repo);
    if work.is_none() || schedule::payee(&tx.repo) != task.payee {
        // The row has changed: the schedule keeps a debt that is not due yet or has
        // another payee, and drops a debt that is settled.
        services.schedule.note(now.time, &tx.repo);
        if task.refresh && tx.repo.debt.resolve.is_none() {
            return RepairStep::resolve(services, now, &tx.repo);
        }
        // A stale document with a debt is refreshed when the debt is due.
        services.schedule.refreshed(&task.did);
        return RepairStep::Nothing;
    }
    debt::begin_attempt(now, &mut tx.repo);
    if work == Some(Work::Resolve) {
        return RepairStep::resolve(services, now, &tx.repo);
    }
    match take_note_at(turn, now) {
        None => RepairStep::Nothing,
        Some(note) => RepairStep::AskHead { note },
    }
}

/// Takes the note of a question: what is known before it is asked.
pub(super) fn take_note(turn: &mut RepoTurn<'_>) -> Option<Note> {
    let now = turn.services.clock.now();
    take_note_at(turn, now)
}

fn take_note_at(turn: &mut RepoTurn<'_>, now: Now) -> Option<Note> {
    let tx = turn.tx.as_mut()?;
    let repo = &mut tx.repo;
    if may_have_left(repo, now.time) {
        turn.services.schedule.refresh(&repo.did);
    }
    turn.services
        .decide(now, |context| fetch::take_note(context, repo))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_not_blamed_for_what_went_wrong_here() {
        assert_eq!(host_success(&Ok(())), Some(true));
        assert_eq!(host_success(&Err(RepairError::Failed)), Some(false));
        assert_eq!(host_success(&Err(RepairError::Local)), None);
        let store = RepairError::Store(StoreError::CommitterGone);
        assert_eq!(host_success(&Err(store)), None);
    }
}
