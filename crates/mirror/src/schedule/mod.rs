//! The schedule of debts, by when they may be tried, and the tasks that run.
//!
//! The store holds every debt; the schedule is a bounded copy of them, so that the debts
//! need not be read once a second. At capacity, the payee with the most queued debts loses
//! its latest one; evicted debts are reloaded from the store. Payees take turns, so a host
//! with a million debts does not delay others. Requests to the directory and for heads have
//! slots of their own, apart from fetches, which may take an hour. The last fetch slots are
//! reserved for hosts without a running fetch, and half of these for hosts whose last task
//! succeeded.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::MutexGuard;
use std::time::Duration;

use gapless_atp::syntax::{Did, DidMethod};
use gapless_core::ledger::debt::{self, Work};
use gapless_core::ledger::{HostId, Repo, Time};
use tokio::sync::Notify;

use gapless_store::sync::Mutex;
use queue::DebtQueue;
pub use slots::SlotLimits;
use slots::{RunningTasks, TaskKind};
use stale_documents::StaleDocuments;
use unreachable_hosts::UnreachableHosts;

mod queue;
mod slots;
mod stale_documents;
mod unreachable_hosts;

/// How often evicted debts are reloaded from the store.
const RELOAD_INTERVAL: Duration = Duration::from_secs(600);

/// What must be asked to settle a debt: the PLC directory, the domain of a did:web, or a
/// host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payee {
    Directory,
    /// Each did:web keeps its document at a domain of its own, so all of them share slots,
    /// and none takes more than one.
    Web,
    Host(HostId),
}

/// The next task to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub did: Did,
    pub payee: Payee,
    /// Whether the task refreshes a stale DID document, for which no debt is needed.
    pub refresh: bool,
}

/// The queued debts and the running tasks.
#[derive(Default)]
struct Inner {
    debts: DebtQueue,
    tasks: RunningTasks,
    unreachable: UnreachableHosts,
    /// Stale DID documents without a debt, by payee: did:web domains that do not answer must
    /// not crowd out the directory.
    stale: BTreeMap<Payee, StaleDocuments>,
    /// The payee of the last task.
    last_payee: Option<Payee>,
    /// Whether the store has debts that are not in memory.
    overflowed: bool,
    reloaded_at: Option<Time>,
}

#[derive(Default)]
pub struct Schedule {
    inner: Mutex<Inner>,
    /// Notified when a debt becomes due or a slot becomes free.
    pub(crate) wake: Notify,
}

impl Schedule {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Queues the debt of a row that was read from the store, unless a debt of the
    /// repository is queued already: a desk may have noted a newer row.
    pub fn note_reloaded(&self, now: Time, repo: &Repo) {
        let inner = self.lock();
        if !repo.debt.is_empty() && !inner.debts.contains(&repo.did) {
            self.insert(now, repo, inner);
        }
    }

    /// Replaces the queued debt of a repository with the debt of its new row.
    pub fn note(&self, now: Time, repo: &Repo) {
        let mut inner = self.lock();
        inner.tasks.call_off(&repo.did, repo.host);
        inner.debts.remove(&repo.did);
        if !repo.debt.is_empty() {
            self.insert(now, repo, inner);
        }
    }

    fn insert(&self, now: Time, repo: &Repo, mut inner: MutexGuard<'_, Inner>) {
        let (payee, class) = payee_and_class(repo);
        // A debt that is due counts from now at the latest, even if a clock that was ahead
        // has written a later time.
        let due_at = if repo.debt.is_due(now) {
            repo.debt.due_at().min(now)
        } else {
            repo.debt.due_at()
        };
        if inner.debts.is_full() {
            inner.overflowed = true;
            if !inner.debts.evict_for(payee, due_at) {
                return;
            }
        }
        inner.debts.insert(repo.did.clone(), payee, class, due_at);
        drop(inner);
        self.wake.notify_one();
    }

    /// Queues a refresh of a stale DID document.
    pub(crate) fn refresh(&self, did: &Did) {
        let mut inner = self.lock();
        let new = inner.stale.entry(resolver(did)).or_default().insert(did);
        drop(inner);
        if new {
            self.wake.notify_one();
        }
    }

    /// Removes a queued refresh: the document is fresh, or its resolution is a debt now.
    pub(crate) fn refreshed(&self, did: &Did) {
        if let Some(stale) = self.lock().stale.get_mut(&resolver(did)) {
            stale.remove(did);
        }
    }

    /// Takes the next task that is due, of a repository without such a task, and with a free
    /// slot. The caller must call [`Schedule::release`] at its end.
    pub fn take(&self, now: Time, slots: &SlotLimits) -> Option<Task> {
        let mut inner = self.lock();
        let debt = inner.next_debt(now, slots);
        let (task, kind) = debt.or_else(|| {
            let refresh = inner.next_refresh(now, slots)?;
            Some((refresh, TaskKind::Ask))
        })?;
        if task.refresh {
            let stale = inner.stale.entry(task.payee).or_default();
            stale.begin(now, &task.did);
        }
        inner.last_payee = Some(task.payee);
        inner.tasks.begin(&task.did, task.payee, kind);
        Some(task)
    }

    /// Turns a task that has asked a host for a head into a fetch. Returns false if no slot
    /// is free: the fetch is a debt, and is taken later.
    pub(crate) fn try_start_fetch(&self, did: &Did, slots: &SlotLimits) -> bool {
        let mut inner = self.lock();
        let Some((payee, kind)) = inner.tasks.host_task(did) else {
            return false;
        };
        if kind == TaskKind::Fetch {
            return true;
        }
        if !inner.tasks.has_slot(payee, TaskKind::Fetch, slots) {
            return false;
        }
        inner.tasks.turn_into_fetch(did, payee, kind);
        true
    }

    /// Records whether the last task at a host succeeded.
    pub(crate) fn record_result(&self, host: HostId, success: bool) {
        self.lock().tasks.record_result(host, success);
    }

    /// Records that a host could not be reached.
    pub(crate) fn unreachable(&self, now: Time, host: HostId) {
        self.lock().unreachable.record_failure(now, host);
    }

    /// Records that a host has answered, whatever the answer was.
    pub(crate) fn reached(&self, host: HostId) {
        let had_rested = self.lock().unreachable.remove(host);
        if had_rested {
            self.wake.notify_one();
        }
    }

    /// Begins a task at a host that no debt calls for. Returns false if a task for the
    /// repository runs already.
    pub(crate) fn begin(&self, did: &Did, host: HostId) -> bool {
        let mut inner = self.lock();
        if inner.tasks.has_task(did) {
            return false;
        }
        let payee = Payee::Host(host);
        inner.tasks.begin(did, payee, TaskKind::SweepQuestion);
        true
    }

    /// Ends a task, whatever its result.
    pub(crate) fn release(&self, did: &Did, payee: Payee) {
        let mut inner = self.lock();
        inner.tasks.end(did, payee);
        drop(inner);
        self.wake.notify_one();
    }

    /// Resolves when a repository has left the host at which its task runs. Only one caller
    /// may wait for each repository.
    pub(crate) async fn moved_away(&self, did: &Did) {
        let moved = self.lock().tasks.moved(did);
        match moved {
            Some(moved) => moved.notified().await,
            None => pending().await,
        }
    }

    /// Returns when the next debt without a running task may be tried.
    pub fn next_due(&self) -> Option<Time> {
        let inner = self.lock();
        let firsts = inner.debts.payees().flat_map(|(payee, queue)| {
            let free = |debt: &&(Time, Did)| inner.tasks.may_begin(&debt.1, *payee);
            queue
                .iter()
                .filter_map(move |class| class.iter().find(free))
        });
        firsts.map(|(due_at, _)| *due_at).min()
    }

    /// Whether evicted debts should be reloaded now. If so, the reload counts as begun.
    pub fn should_reload(&self, now: Time) -> bool {
        let mut inner = self.lock();
        let reloaded_at = inner.reloaded_at;
        let rested = reloaded_at.is_none_or(|at| now.passed(at, RELOAD_INTERVAL));
        let should = inner.overflowed && (inner.debts.is_half_empty() || rested);
        if should {
            inner.overflowed = false;
            inner.reloaded_at = Some(now);
        }
        should
    }

    /// Requests that debts are reloaded from the store.
    pub(crate) fn request_reload(&self) {
        self.lock().overflowed = true;
    }

    /// The number of queued debts.
    pub fn len(&self) -> usize {
        self.lock().debts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of running tasks.
    pub fn at_work(&self) -> usize {
        self.lock().tasks.len()
    }
}

/// Returns what resolves a DID.
fn resolver(did: &Did) -> Payee {
    match did.method() {
        DidMethod::Plc => Payee::Directory,
        DidMethod::Web => Payee::Web,
    }
}

/// Returns what must be asked to settle the next debt of a repository.
pub(crate) fn payee(repo: &Repo) -> Payee {
    payee_and_class(repo).0
}

/// Returns the payee and the class of cost of the next debt.
fn payee_and_class(repo: &Repo) -> (Payee, usize) {
    let at_any_time = Time(u64::MAX);
    match (debt::plan_work(at_any_time, repo), repo.host) {
        (Some(Work::Resolve) | None, _) | (_, None) => {
            // Held repositories come first: unknown DIDs can be made up without end.
            let class = usize::from(repo.head().is_none());
            (resolver(&repo.did), class)
        }
        (Some(Work::Compare), Some(host)) => (Payee::Host(host), 1),
        (Some(Work::Fetch), Some(host)) if repo.head().is_some() => (Payee::Host(host), 2),
        (Some(Work::Fetch), Some(host)) => (Payee::Host(host), 3),
    }
}

/// Returns the kind of task that settles a debt.
fn kind_of(payee: Payee, class: usize) -> TaskKind {
    match (payee, class) {
        (Payee::Host(_), 2..) => TaskKind::Fetch,
        _ => TaskKind::Ask,
    }
}

impl Inner {
    /// Whether a payee is reachable, or may be reachable again.
    fn may_ask(&self, now: Time, payee: Payee) -> bool {
        let Payee::Host(host) = payee else {
            return true;
        };
        self.unreachable
            .may_ask(now, host, self.tasks.count_at(payee))
    }

    /// Finds a stale document to refresh.
    fn next_refresh(&self, now: Time, slots: &SlotLimits) -> Option<Task> {
        self.stale.iter().find_map(|(payee, stale)| {
            let did = stale.next(now, |did| self.tasks.is_resolving(did))?;
            let has_slot = self.tasks.has_slot(*payee, TaskKind::Ask, slots);
            has_slot.then(|| Task {
                did: did.clone(),
                payee: *payee,
                refresh: true,
            })
        })
    }

    /// Finds the first debt that is due, payees in turn.
    fn next_debt(&self, now: Time, slots: &SlotLimits) -> Option<(Task, TaskKind)> {
        for (payee, queue) in self.debts.payees_after(self.last_payee) {
            if !self.may_ask(now, *payee) {
                continue;
            }
            for (class, debts) in queue.iter().enumerate() {
                let kind = kind_of(*payee, class);
                if !self.tasks.has_slot(*payee, kind, slots) {
                    continue;
                }
                let mut due = debts.iter().take_while(|(due_at, _)| *due_at <= now);
                if let Some((_, did)) = due.find(|(_, did)| self.tasks.may_begin(did, *payee)) {
                    let task = Task {
                        did: did.clone(),
                        payee: *payee,
                        refresh: false,
                    };
                    return Some((task, kind));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
