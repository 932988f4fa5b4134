//! What is owed is paid here: ask the directory; or note, ask the host for its
//! head, hear, fetch, check, write. The ledger says what each answer means.
//!
//! Nothing is locked meanwhile. Each step is taken at the repository's desk, on
//! the state that it has by then, and is durable before the next one begins.

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
use crate::desk::env::DeskEnv;
use crate::desk::{Desks, Turn, may_have_left};
use crate::last_errors::LastErrors;
use crate::repair::reload;
use crate::repair::since_revs::SinceRevs;
use crate::schedule::{self, Payee, Slots, Task};
use crate::services::Services;
use crate::settings::FetchSettings;
use crate::store_io::blocking;

/// How often the schedule is looked at when nothing wakes it.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Questions to the directory at a time.
const DIRECTORY_AT_A_TIME: usize = 16;
/// Documents of did:web that are asked for at a time.
const WEB_AT_A_TIME: usize = 16;

/// How a host is reached.
pub trait Addresses: Send + Sync {
    /// The address of a host, by its name in DID documents.
    fn of(&self, name: &str) -> HostAddress;

    /// A tracked repository lives there: it is to be followed.
    fn follow_for_tracked(&self, host: HostId);

    /// A tracked repository does not live there any more: perhaps none does.
    fn tracked_left(&self, host: HostId);
}

pub struct Fetcher {
    pub services: Arc<Services>,
    pub desks: Arc<Desks>,
    /// Why the last attempt for a repository failed.
    pub last_errors: Arc<LastErrors>,
    pub net: Net,
    pub settings: FetchSettings,
    pub addresses: Arc<dyn Addresses>,
    pub(crate) since_revs: SinceRevs,
    /// Large repositories are checked one at a time: their index takes memory.
    pub(crate) large: Semaphore,
    /// How many are at work at a time.
    slots: Slots,
    /// Memory for the indexes of all CARs that arrive.
    pub(crate) index_budget: Arc<Budget>,
    /// A sweep may be due.
    pub sweep_wake: Notify,
}

/// What is to be done for a repository, as of the moment when it was begun.
pub enum Plan {
    Nothing,
    Resolve { asked: Tick, known: KnownIdentity },
    Ask { note: Note },
}

impl Plan {
    pub(crate) fn resolve(services: &Services, now: Now, repo: &Repo) -> Plan {
        Plan::Resolve {
            asked: now.tick,
            known: known(services, repo),
        }
    }
}

/// What one piece of work came to.
#[derive(Debug)]
pub enum Trouble {
    /// Written down as a failure; the debt stays.
    Failed,
    /// Likewise, and it is none of the host's: our disk failed, or it is more than is
    /// taken.
    Ours,
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Store(error)
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

    pub fn new(
        services: Arc<Services>,
        desks: Arc<Desks>,
        net: Net,
        settings: FetchSettings,
        addresses: Arc<dyn Addresses>,
    ) -> Fetcher {
        let slots = Slots {
            directory: DIRECTORY_AT_A_TIME,
            web: WEB_AT_A_TIME,
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

    /// Pays what is due, for ever.
    pub async fn run(self: Arc<Self>) {
        let more = self.take_more().await;
        self.see_to(more.map_err(Trouble::from));
        while !self.services.shutdown.has_begun() {
            self.read_more().await;
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
                // Also when the work panics: nobody is at work any more.
                let _released = Released(&fetcher.services, &task.did, task.payee);
                let worked = fetcher.pay(&task).await;
                if let Payee::Host(host) = task.payee
                    && let Some(well) = went(&worked)
                {
                    fetcher.services.schedule.went(host, well);
                }
                fetcher.see_to(worked);
            });
        }
    }

    pub(crate) fn until_due(&self, now: Time) -> Duration {
        match self.services.schedule.next_due() {
            Some(at) if at > now => at.since(now).min(LOOK_EVERY),
            // Due, but there is no place for it: whoever ends wakes us.
            _ => LOOK_EVERY,
        }
    }

    /// A store that cannot be written ends the program; all else is written down.
    pub(crate) fn see_to(&self, worked: Result<(), Trouble>) {
        if let Err(Trouble::Store(error)) = worked {
            match error.is_final() {
                true => self.services.shutdown.fail(error),
                false => {
                    tracing::warn!(%error, "what was learned could not be written; it is asked again")
                }
            }
        }
    }

    /// What was too large when less was taken than now is tried at once. That is written
    /// down, so a start that is cut short does it again.
    pub(crate) async fn take_more(&self) -> Result<(), StoreError> {
        let (store, limit) = (self.services.store.clone(), self.settings.max_repo_bytes);
        let find = move || reload::too_large(&store, limit);
        let work = "looking for repositories that were too large";
        for did in blocking(&self.services.metrics, work, find).await? {
            let visit = self.desks.visit(&did, move |turn: &mut Turn<'_>| {
                let now = turn.services.clock.now();
                let tx = turn.tx.as_mut();
                tx.is_some_and(|tx| debt::retry_if_limit_raised(now, &mut tx.repo, limit))
            });
            visit.await?;
        }
        Ok(())
    }

    /// Reads debts from the store, if not all fitted into the memory.
    pub(crate) async fn read_more(&self) {
        if !self
            .services
            .schedule
            .wants_more(self.services.clock.time())
        {
            return;
        }
        let services = self.services.clone();
        match tokio::task::spawn_blocking(move || reload::read_debts(&services)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.services.shutdown.fail(error),
            // A fault of ours: what is not in memory must not be forgotten.
            Err(_) => self.services.schedule.want_more(),
        }
    }

    /// Does the next thing that is owed for a repository.
    pub(crate) async fn pay(&self, task: &Task) -> Result<(), Trouble> {
        let (did, begun) = (&task.did, task.clone());
        let visit = self.desks.visit(did, move |turn| begin(turn, &begun));
        match visit.await? {
            Plan::Nothing => Ok(()),
            Plan::Resolve { asked, known } => self.resolve(did, asked, known).await,
            Plan::Ask { note } => self.compare(did, note).await,
        }
    }

    /// Asks the directory, and takes its answer in.
    pub(crate) async fn resolve(
        &self,
        did: &Did,
        asked: Tick,
        known: KnownIdentity,
    ) -> Result<(), Trouble> {
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
                tracing::debug!(%did, %error, "not resolved; tried again later");
                self.failed(did, error.retry_after()).await?;
                return Err(Trouble::Failed);
            }
        };
        let host = match &resolved.host {
            None => None,
            Some(name) => {
                let by = self.namer(did)?;
                match self.services.hosts.register_named(name, by).await? {
                    Ok(host) => Some(host),
                    Err(over) => {
                        over.count(&self.services.metrics);
                        let what = "its document names a host that is new, and too many are known; gapless hosts says more";
                        self.note_error(did, what);
                        self.failed(did, None).await?;
                        return Err(Trouble::Failed);
                    }
                }
            }
        };
        let document = Document {
            host,
            key: resolved.key,
            version: resolved.version,
            tombstoned: resolved.tombstoned,
        };
        let moved = self.desks.visit(did, move |turn| {
            let (services, view) = (turn.services, turn.view);
            let Some(tx) = turn.tx.as_mut() else {
                return Ok((false, None));
            };
            let before = tx.repo.host;
            let env = DeskEnv::over(services, view);
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
            self.look_at_strays(brought_by, count)?;
        }
        if fresh {
            // Only now: what is not written is asked for again.
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

    /// Asks the host for its head, and goes on from there.
    pub(crate) async fn compare(&self, did: &Did, note: Note) -> Result<(), Trouble> {
        let next = self.question(did, note, AskReason::Debt).await?;
        self.go_on(did, note, next).await
    }

    pub(crate) async fn go_on(&self, did: &Did, note: Note, next: Next) -> Result<(), Trouble> {
        let schedule = &self.services.schedule;
        if let Next::Fetch(named) = next
            && self.walk(did, note, named).await?
        {
            return Ok(());
        }
        match next {
            Next::Done => Ok(()),
            // It is owed, and comes when there is a place for it.
            _ if !schedule.goes_on_to_fetch(did, &self.slots) => Ok(()),
            Next::Fetch(named) => self.fetch(did, note, named, false).await,
            Next::Adopt(named) => self.fetch(did, note, named, true).await,
        }
    }

    pub(crate) fn address(&self, host: HostId) -> Option<HostAddress> {
        let row = self.services.hosts.get(host)?;
        Some(self.addresses.of(&row.name))
    }
}

/// How work at a host went, as far as the host is concerned: it is not blamed for what
/// went wrong here.
fn went(worked: &Result<(), Trouble>) -> Option<bool> {
    match worked {
        Ok(()) => Some(true),
        Err(Trouble::Failed) => Some(false),
        Err(Trouble::Ours | Trouble::Store(_)) => None,
    }
}

/// Whatever happens, somebody else may work for it afterwards.
pub(crate) struct Released<'a>(pub &'a Services, pub &'a Did, pub Payee);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.schedule.release(self.1, self.2);
    }
}

/// What is known of an owner already.
pub fn known(services: &Services, repo: &Repo) -> KnownIdentity {
    let host = repo.host.and_then(|host| services.hosts.get(host));
    KnownIdentity {
        version: repo.document,
        host: host.map(|host| host.name),
        key: repo.signing.and_then(|signing| signing.key),
    }
}

/// Begins the work that is due, at the desk.
fn begin(turn: &mut Turn<'_>, task: &Task) -> Plan {
    let services = turn.services;
    let now = services.clock.now();
    let Some(tx) = turn.tx.as_mut() else {
        // The store never took it: nothing is owed.
        services
            .schedule
            .note(now.time, &Repo::new(turn.did.clone()));
        services.schedule.refreshed(&task.did);
        return Plan::Nothing;
    };
    let work = debt::plan_work(now.time, &tx.repo);
    if work.is_none() || schedule::payee(&tx.repo) != task.payee {
        // Noted again: what is not due yet, or is owed elsewhere by now, is not
        // forgotten, and what is not owed any more is.
        services.schedule.note(now.time, &tx.repo);
        if task.refresh && tx.repo.debt.resolve.is_none() {
            return Plan::resolve(services, now, &tx.repo);
        }
        // An old document that is owed by now is asked for when that is due.
        services.schedule.refreshed(&task.did);
        return Plan::Nothing;
    }
    debt::begin_attempt(now, &mut tx.repo);
    if work == Some(Work::Resolve) {
        return Plan::resolve(services, now, &tx.repo);
    }
    match note_at(turn, now) {
        None => Plan::Nothing,
        Some(note) => Plan::Ask { note },
    }
}

pub(crate) fn note(turn: &mut Turn<'_>) -> Option<Note> {
    let now = turn.services.clock.now();
    note_at(turn, now)
}

fn note_at(turn: &mut Turn<'_>, now: Now) -> Option<Note> {
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
    pub(crate) fn a_host_is_not_blamed_for_what_went_wrong_here() {
        assert_eq!(went(&Ok(())), Some(true));
        assert_eq!(went(&Err(Trouble::Failed)), Some(false));
        assert_eq!(went(&Err(Trouble::Ours)), None);
        let store = Trouble::Store(StoreError::CommitterGone);
        assert_eq!(went(&Err(store)), None);
    }
}
