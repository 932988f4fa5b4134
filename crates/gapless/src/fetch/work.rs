//! What is owed is paid here: ask the directory; or note, ask the host for its
//! head, hear, fetch, check, write. The ledger says what each answer means.
//!
//! Nothing is locked meanwhile. Each step is taken at the repository's desk, on
//! the state that it has by then, and is durable before the next one begins.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::debt::{self, Work};
use gapless_core::ledger::fetch::{self, Next, Note, Told};
use gapless_core::ledger::identity::Document;
use gapless_core::ledger::rollback::Census;
use gapless_core::ledger::sweep::{self, Suspect};
use gapless_core::ledger::{HostId, Repo, Tick, Time};
use gapless_store::contents::Contents;
use gapless_store::error::StoreError;
use tokio::sync::{Notify, Semaphore};

use crate::ingest::desk::{Desks, Turn};
use crate::net::{AskError, HostAddress, Known, Latest, Net, ResolveError};
use crate::schedule::Payee;
use crate::shared::Shared;

/// How often the schedule is looked at when nothing wakes it.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Questions to the directory at a time.
const DIRECTORY_AT_A_TIME: usize = 16;
/// How long a count of a host's repositories is good for.
const CENSUS_FOR: Duration = Duration::from_secs(60);
/// Revs that differences were asked from, remembered.
pub(super) const TRIED: usize = 20_000;

/// Settings of fetching.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// Repositories that are worked for at a time.
    pub at_a_time: usize,
    /// Of these: of one host.
    pub per_host: usize,
    /// Bytes of one repository at most.
    pub repo_bytes: u64,
    /// Where large ones are spilled.
    pub temp: PathBuf,
}

/// How a host is reached.
pub trait Addresses: Send + Sync {
    /// The address of a host, by its name in DID documents.
    fn of(&self, name: &str) -> HostAddress;

    /// A tracked repository lives there: it is to be followed.
    fn follow_for_tracked(&self, host: HostId);
}

pub struct Fetcher {
    pub shared: Arc<Shared>,
    pub desks: Arc<Desks>,
    pub net: Net,
    pub settings: FetchSettings,
    pub addresses: Arc<dyn Addresses>,
    pub(super) tried: Mutex<HashMap<Did, Rev>>,
    pub(super) censuses: Mutex<HashMap<HostId, (Time, Census)>>,
    /// Large repositories are checked one at a time: their index takes memory.
    pub(super) large: Semaphore,
    /// A sweep may be due.
    pub sweep_wake: Notify,
}

/// What is to be done for a repository, as of the moment when it was begun.
pub enum Plan {
    Nothing,
    Resolve { asked: Tick, known: Known },
    Ask { note: Note },
}

/// What one piece of work came to.
#[derive(Debug)]
pub enum Trouble {
    /// Written down as a failure; the debt stays.
    Failed,
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Store(error)
    }
}

impl Fetcher {
    pub fn new(
        shared: Arc<Shared>,
        desks: Arc<Desks>,
        net: Net,
        settings: FetchSettings,
        addresses: Arc<dyn Addresses>,
    ) -> Fetcher {
        Fetcher {
            shared,
            desks,
            net,
            settings,
            addresses,
            tried: Mutex::default(),
            censuses: Mutex::default(),
            large: Semaphore::new(1),
            sweep_wake: Notify::new(),
        }
    }

    /// Pays what is due, for ever.
    pub async fn run(self: Arc<Self>) {
        let slots = Arc::new(Semaphore::new(self.settings.at_a_time.max(1)));
        let per_host = self.settings.per_host.max(1);
        while !self.shared.end.is_ending() {
            self.read_more().await;
            let Ok(slot) = slots.clone().acquire_owned().await else {
                return;
            };
            let now = self.shared.clock.time();
            let next = self.shared.schedule.take(now, |payee| match payee {
                Payee::Directory => DIRECTORY_AT_A_TIME,
                Payee::Host(_) => per_host,
            });
            let Some((did, _)) = next else {
                drop(slot);
                let wait = self.until_due(now);
                tokio::select! {
                    () = self.shared.schedule.wake.notified() => {}
                    () = tokio::time::sleep(wait) => {}
                    () = self.shared.end.ended() => return,
                }
                continue;
            };
            let fetcher = self.clone();
            tokio::spawn(async move {
                // Also when the work panics: nobody is at work any more.
                let _released = Released(&fetcher.shared, &did);
                let worked = fetcher.pay(&did).await;
                fetcher.see_to(worked);
                drop(slot);
            });
        }
    }

    fn until_due(&self, now: Time) -> Duration {
        match self.shared.schedule.next_due() {
            Some(at) if at > now => at.since(now).min(LOOK_EVERY),
            // Due, but its host has enough at work: whoever ends wakes us.
            _ => LOOK_EVERY,
        }
    }

    /// A store that cannot be written ends the program; all else is written down.
    pub(super) fn see_to(&self, worked: Result<(), Trouble>) {
        if let Err(Trouble::Store(error)) = worked {
            match error.is_final() {
                true => self.shared.end.fail(error),
                false => {
                    tracing::warn!(%error, "what was learned could not be written; it is asked again")
                }
            }
        }
    }

    /// Reads debts from the store, if not all fitted into the memory.
    async fn read_more(&self) {
        if !self.shared.schedule.wants_more() {
            return;
        }
        let shared = self.shared.clone();
        match tokio::task::spawn_blocking(move || read_debts(&shared)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.shared.end.fail(error),
            // A fault of ours: what is not in memory must not be forgotten.
            Err(_) => self.shared.schedule.want_more(),
        }
    }

    /// Does the next thing that is owed for a repository.
    async fn pay(&self, did: &Did) -> Result<(), Trouble> {
        match self.desks.visit(did, begin).await? {
            Plan::Nothing => Ok(()),
            Plan::Resolve { asked, known } => self.resolve(did, asked, known).await,
            Plan::Ask { note } => self.compare(did, note, None).await,
        }
    }

    /// Asks the directory, and takes its answer in.
    pub(super) async fn resolve(
        &self,
        did: &Did,
        asked: Tick,
        known: Known,
    ) -> Result<(), Trouble> {
        self.shared.metrics.resolutions.inc();
        let answer = self.net.resolve(did, known).await;
        let resolved = match answer {
            Ok(resolved) => resolved,
            Err(error) => {
                self.shared.metrics.resolution_failures.inc();
                if matches!(error, ResolveError::Stale) {
                    self.shared.metrics.old_documents.inc();
                }
                tracing::debug!(%did, %error, "not resolved; tried again later");
                self.failed(did, None, error.retry_after()).await?;
                return Err(Trouble::Failed);
            }
        };
        let host = match &resolved.host {
            None => None,
            Some(name) => Some(self.shared.hosts.name(name).await?),
        };
        let document = Document {
            host,
            key: resolved.key,
            version: resolved.version,
            tombstoned: resolved.tombstoned,
        };
        let tracked = self.desks.visit(did, move |turn| {
            let (shared, view) = (turn.shared, turn.view);
            let Some(draft) = turn.draft.as_mut() else {
                return Ok(false);
            };
            draft.resolved(shared, view, asked, &document)?;
            Ok::<bool, StoreError>(shared.is_tracked(&draft.repo.did))
        });
        if tracked.await??
            && let Some(host) = host
        {
            self.addresses.follow_for_tracked(host);
        }
        Ok(())
    }

    /// Asks the host for its head, and goes on from there.
    pub(super) async fn compare(
        &self,
        did: &Did,
        note: Note,
        suspect: Option<Suspect>,
    ) -> Result<(), Trouble> {
        let Some(address) = self.address(note.host) else {
            self.failed(did, suspect, None).await?;
            return Err(Trouble::Failed);
        };
        self.shared.metrics.heads_asked.inc();
        let told = match self.net.latest_commit(&address, did).await {
            Ok(Latest::Head(named)) => Told::Head(named),
            Ok(Latest::State(state)) => Told::State(state),
            Err(error) => {
                self.refused(did, &error);
                self.failed(did, suspect, error.retry_after).await?;
                return Err(Trouble::Failed);
            }
        };
        match self.hear(did, note, told, suspect).await? {
            Next::Done => Ok(()),
            Next::Fetch(named) => self.fetch(did, note, named, false).await,
            Next::Adopt(named) => self.fetch(did, note, named, true).await,
        }
    }

    pub(super) fn refused(&self, did: &Did, error: &AskError) {
        self.shared.metrics.request_failures.inc();
        tracing::debug!(%did, %error, "the host did not answer; asked again later");
    }

    pub(super) fn address(&self, host: HostId) -> Option<HostAddress> {
        let row = self.shared.hosts.get(host)?;
        Some(self.addresses.of(&row.name))
    }

    /// The host has answered.
    pub(super) async fn hear(
        &self,
        did: &Did,
        note: Note,
        told: Told,
        suspect: Option<Suspect>,
    ) -> Result<Next, StoreError> {
        let census = match told {
            Told::Head(named) if note.known.is_some_and(|known| named.rev <= known) => {
                self.census(note.host).await?
            }
            _ => Census::default(),
        };
        let host = self.shared.hosts.get(note.host).unwrap_or_default();
        let next = self.desks.visit(did, move |turn| {
            let (shared, view) = (turn.shared, turn.view);
            let Some(draft) = turn.draft.as_mut() else {
                return Ok(Next::Done);
            };
            let now = shared.clock.now();
            let (repo, notices) = (&mut draft.repo, &mut draft.notices);
            let next = shared.decide(now, |context| {
                fetch::told(context, repo, &note, told, &host, census, notices)
            });
            if let Some(suspect) = &suspect
                && let Told::Head(named) = told
            {
                sweep::answered(now, &mut draft.repo, suspect, Some(named));
            }
            draft.unpark(shared, view)?;
            Ok::<Next, StoreError>(next)
        });
        next.await?
    }

    /// A request failed: the debt stays, and is tried later.
    pub(super) async fn failed(
        &self,
        did: &Did,
        suspect: Option<Suspect>,
        retry_after: Option<Duration>,
    ) -> Result<(), StoreError> {
        let visit = self.desks.visit(did, move |turn| {
            let now = turn.shared.clock.now();
            if let Some(draft) = turn.draft.as_mut() {
                if let Some(suspect) = &suspect {
                    sweep::answered(now, &mut draft.repo, suspect, None);
                }
                debt::failed(now, &mut draft.repo, retry_after);
            }
        });
        visit.await
    }

    /// How many repositories a host has, and with how many it is behind.
    async fn census(&self, host: HostId) -> Result<Census, StoreError> {
        let now = self.shared.clock.time();
        {
            let censuses = self.censuses.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, census)) = censuses.get(&host)
                && !now.passed(*at, CENSUS_FOR)
            {
                return Ok(*census);
            }
        }
        let store = self.shared.store.clone();
        let counted = tokio::task::spawn_blocking(move || count(&store.view(), host)).await;
        let census = counted.unwrap_or(Err(StoreError::CommitterGone))?;
        let mut censuses = self.censuses.lock().unwrap_or_else(PoisonError::into_inner);
        censuses.insert(host, (now, census));
        Ok(census)
    }

    /// Asks about one repository although nothing is owed: a suspect, or a head
    /// that only a listing has confirmed. Not if somebody is at work for it.
    pub(super) async fn ask(&self, did: &Did, host: HostId, suspect: Option<Suspect>) -> bool {
        if !self.shared.schedule.begin(did, Payee::Host(host)) {
            return false;
        }
        let _released = Released(&self.shared, did);
        let worked = self.ask_now(did, suspect).await;
        self.see_to(worked);
        true
    }

    async fn ask_now(&self, did: &Did, suspect: Option<Suspect>) -> Result<(), Trouble> {
        let note = self.desks.visit(did, note).await?;
        match note {
            None => Ok(()),
            Some(note) => self.compare(did, note, suspect).await,
        }
    }

    pub(super) fn tried(&self, did: &Did) -> Option<Rev> {
        let tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.get(did).copied()
    }

    pub(super) fn try_from(&self, did: &Did, rev: Rev) {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.len() >= TRIED {
            tried.clear();
        }
        tried.insert(did.clone(), rev);
    }
}

/// Whatever happens, somebody else may work for it afterwards.
pub(super) struct Released<'a>(pub &'a Shared, pub &'a Did);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.schedule.release(self.1);
    }
}

fn count(view: &Contents, host: HostId) -> Result<Census, StoreError> {
    let mut census = Census::default();
    for id in view.hosted(host) {
        let Some(repo) = view.repo(id?)? else {
            continue;
        };
        census.repos += 1;
        census.behind += u64::from(repo.behind.is_some());
    }
    Ok(census)
}

/// What is known of an owner already.
pub fn known(shared: &Shared, repo: &Repo) -> Known {
    let host = repo.host.and_then(|host| shared.hosts.get(host));
    Known {
        version: repo.document,
        host: host.map(|host| host.name),
        key: repo.signing.and_then(|signing| signing.key),
    }
}

/// Begins the work that is due, at the desk.
fn begin(turn: &mut Turn<'_>) -> Plan {
    let shared = turn.shared;
    let now = shared.clock.now();
    let Some(draft) = turn.draft.as_mut() else {
        return Plan::Nothing;
    };
    let Some(work) = debt::plan(now.time, &draft.repo) else {
        if !draft.repo.debt.is_empty() {
            // Not due yet: noted again, so that it is not forgotten.
            shared.schedule.note(now.time, &draft.repo);
            return Plan::Nothing;
        }
        // Nothing is owed: then it is here because its document is old.
        return Plan::Resolve {
            asked: now.tick,
            known: known(shared, &draft.repo),
        };
    };
    debt::begin(now, &mut draft.repo);
    match work {
        Work::Resolve => Plan::Resolve {
            asked: now.tick,
            known: known(shared, &draft.repo),
        },
        Work::Compare | Work::Fetch => match note_at(turn, now) {
            None => Plan::Nothing,
            Some(note) => Plan::Ask { note },
        },
    }
}

fn note(turn: &mut Turn<'_>) -> Option<Note> {
    let now = turn.shared.clock.now();
    note_at(turn, now)
}

fn note_at(turn: &mut Turn<'_>, now: gapless_core::ledger::Now) -> Option<Note> {
    let draft = turn.draft.as_mut()?;
    let repo = &mut draft.repo;
    turn.shared
        .decide(now, |context| fetch::note(context, repo))
}

/// Reads what is owed from the store into the schedule.
pub fn read_debts(shared: &Shared) -> Result<(), StoreError> {
    let view = shared.store.view();
    let now = shared.clock.time();
    for row in view.debts() {
        let (id, _) = row?;
        if let Some(repo) = view.repo(id)? {
            shared.schedule.note(now, &repo);
        }
    }
    Ok(())
}
