//! How many tasks run at a time, and which tasks run: at the directory, for did:web
//! documents, and at hosts. A host that answers slowly must not take every slot.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::HostId;
use tokio::sync::Notify;

use super::Payee;

/// Limits on concurrent tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLimits {
    /// Requests to the PLC directory.
    pub directory: usize,
    /// Requests for did:web documents.
    pub web: usize,
    /// Requests for heads at all hosts.
    pub asks: usize,
    /// Fetches at all hosts.
    pub fetches: usize,
    /// Requests for heads at one host, and fetches at one host.
    pub per_host: usize,
}

impl SlotLimits {
    /// Returns the fetch slots that a host may use. The last quarter is reserved for hosts
    /// without a running fetch, so that a few slow hosts cannot fill all slots. Half of that
    /// quarter is reserved for hosts whose last task succeeded, so that many slow hosts
    /// cannot either.
    fn fetches_open_to(&self, running: usize, last_succeeded: bool) -> usize {
        match (running, last_succeeded) {
            (0, true) => self.fetches,
            (0, false) => self.fetches - self.fetches / 8,
            _ => self.fetches - self.fetches / 4,
        }
    }
}

/// The kind of a running task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskKind {
    /// A question of a sweep, which has a limit of its own and takes no slot from debts.
    SweepQuestion,
    Ask,
    Fetch,
}

/// A task that runs at a host.
struct HostTask {
    payee: Payee,
    kind: TaskKind,
    /// Notified when the repository has left the host.
    moved: Arc<Notify>,
}

/// Numbers of running tasks by kind.
#[derive(Default, Clone, Copy)]
struct TaskCounts {
    sweep_questions: usize,
    asks: usize,
    fetches: usize,
}

impl TaskCounts {
    fn of_kind(&mut self, kind: TaskKind) -> &mut usize {
        match kind {
            TaskKind::SweepQuestion => &mut self.sweep_questions,
            TaskKind::Ask => &mut self.asks,
            TaskKind::Fetch => &mut self.fetches,
        }
    }

    fn remove(&mut self, kind: TaskKind) {
        let count = self.of_kind(kind);
        *count = count.saturating_sub(1);
    }

    fn is_empty(&self) -> bool {
        self.sweep_questions + self.asks + self.fetches == 0
    }
}

/// The tasks that run. A repository may have one task at a host and one resolution at a
/// time: a repository that moves must not wait for its old host.
#[derive(Default)]
pub(super) struct RunningTasks {
    at_hosts: HashMap<Did, HostTask>,
    resolutions: HashSet<Did>,
    by_payee: HashMap<Payee, TaskCounts>,
    host_totals: TaskCounts,
    /// Hosts whose last task succeeded.
    succeeded: HashSet<HostId>,
}

impl RunningTasks {
    pub(super) fn len(&self) -> usize {
        self.at_hosts.len() + self.resolutions.len()
    }

    /// Whether any task runs for a repository.
    pub(super) fn has_task(&self, did: &Did) -> bool {
        self.at_hosts.contains_key(did) || self.resolutions.contains(did)
    }

    pub(super) fn is_resolving(&self, did: &Did) -> bool {
        self.resolutions.contains(did)
    }

    /// Whether a task at `payee` can begin beside the tasks of the repository that run.
    pub(super) fn may_begin(&self, did: &Did, payee: Payee) -> bool {
        let at_a_host = matches!(payee, Payee::Host(_)) && self.at_hosts.contains_key(did);
        !at_a_host && !self.resolutions.contains(did)
    }

    /// The payee and the kind of the task that runs at a host.
    pub(super) fn host_task(&self, did: &Did) -> Option<(Payee, TaskKind)> {
        let task = self.at_hosts.get(did)?;
        Some((task.payee, task.kind))
    }

    /// Returns what is notified when the repository leaves the host at which its task runs.
    pub(super) fn moved(&self, did: &Did) -> Option<Arc<Notify>> {
        self.at_hosts.get(did).map(|task| task.moved.clone())
    }

    /// Notifies the task at a host, if any, that the repository now lives at another host.
    pub(super) fn call_off(&self, did: &Did, host: Option<HostId>) {
        if let Some(task) = self.at_hosts.get(did)
            && host.map(Payee::Host) != Some(task.payee)
        {
            task.moved.notify_one();
        }
    }

    pub(super) fn record_result(&mut self, host: HostId, success: bool) {
        if success {
            self.succeeded.insert(host);
        } else {
            self.succeeded.remove(&host);
        }
    }

    /// Requests for heads and fetches that run at a payee.
    pub(super) fn count_at(&self, payee: Payee) -> usize {
        let counts = self.counts_at(payee);
        counts.asks + counts.fetches
    }

    fn counts_at(&self, payee: Payee) -> TaskCounts {
        self.by_payee.get(&payee).copied().unwrap_or_default()
    }

    /// Whether a slot is free for one more task.
    pub(super) fn has_slot(&self, payee: Payee, kind: TaskKind, slots: &SlotLimits) -> bool {
        let here = self.counts_at(payee);
        match (payee, kind) {
            (Payee::Directory, _) => here.asks < slots.directory,
            (Payee::Web, _) => here.asks < slots.web,
            (Payee::Host(_), TaskKind::Ask | TaskKind::SweepQuestion) => {
                here.asks < slots.per_host && self.host_totals.asks < slots.asks
            }
            (Payee::Host(host), TaskKind::Fetch) => {
                let open = slots.fetches_open_to(here.fetches, self.succeeded.contains(&host));
                here.fetches < slots.per_host && self.host_totals.fetches < open
            }
        }
    }

    pub(super) fn begin(&mut self, did: &Did, payee: Payee, kind: TaskKind) {
        *self.by_payee.entry(payee).or_default().of_kind(kind) += 1;
        if let Payee::Host(_) = payee {
            *self.host_totals.of_kind(kind) += 1;
            let moved = Arc::default();
            self.at_hosts
                .insert(did.clone(), HostTask { payee, kind, moved });
        } else {
            self.resolutions.insert(did.clone());
        }
    }

    /// Turns a task at a host into a fetch, which is still notified of a move.
    pub(super) fn turn_into_fetch(&mut self, did: &Did, payee: Payee, from: TaskKind) {
        for counts in [self.by_payee.get_mut(&payee), Some(&mut self.host_totals)] {
            let Some(counts) = counts else { continue };
            counts.remove(from);
            *counts.of_kind(TaskKind::Fetch) += 1;
        }
        if let Some(task) = self.at_hosts.get_mut(did) {
            task.kind = TaskKind::Fetch;
        }
    }

    pub(super) fn end(&mut self, did: &Did, payee: Payee) {
        let kind = match payee {
            Payee::Host(_) => self.at_hosts.remove(did).map(|task| task.kind),
            Payee::Directory | Payee::Web => self.resolutions.remove(did).then_some(TaskKind::Ask),
        };
        let (Some(kind), Some(counts)) = (kind, self.by_payee.get_mut(&payee)) else {
            return;
        };
        counts.remove(kind);
        if counts.is_empty() {
            self.by_payee.remove(&payee);
        }
        if let Payee::Host(_) = payee {
            self.host_totals.remove(kind);
        }
    }
}
