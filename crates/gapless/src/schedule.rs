//! What is owed, by when it may be tried: debts in memory, as the store has them.
//!
//! The store is the truth; this is its shadow, so that nobody has to read every
//! debt every second. It is bounded: when more is owed than fits, whoever is owed
//! most for makes room, and the rest is read from the store later. Hosts take
//! turns. So one with a million debts does not keep the others waiting. Nor do
//! hosts that answer slowly: what is asked of the directory has places of its own,
//! and the last places are for hosts that nothing is asked of yet.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::pending;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gapless_atp::syntax::{Did, DidMethod};
use gapless_core::ledger::debt::{self, Work};
use gapless_core::ledger::{HostId, Repo, Time};
use tokio::sync::Notify;

use old::OldDocuments;

mod old;

/// Debts that are kept in memory.
const IN_MEMORY: usize = 400_000;
/// While not all fit, the store is read again after so long.
const READ_AGAIN: Duration = Duration::from_secs(600);

/// Where a debt is paid: at the directory, where a did:web keeps its document, or
/// at a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payee {
    Directory,
    /// Each did:web has a host of its own for its document, so all of them share
    /// their places, and none takes more than one.
    Web,
    Host(HostId),
}

/// How many may be at work at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Questions to the directory.
    pub directory: usize,
    /// Questions for documents of did:web.
    pub web: usize,
    /// Debts that are paid at hosts.
    pub hosts: usize,
    /// Of these: at one host.
    pub per_host: usize,
}

impl Slots {
    /// The places at hosts that are open to one with so many at hand. The last
    /// quarter is for hosts with none: a few slow ones cannot fill them all.
    fn open_to(&self, at_hand: usize) -> usize {
        match at_hand {
            0 => self.hosts,
            _ => self.hosts - self.hosts / 4,
        }
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub did: Did,
    pub payee: Payee,
    /// Nothing need be owed: the document is old.
    pub refresh: bool,
}

/// Somebody is at work for a repository at a host.
struct Busy {
    payee: Payee,
    /// For a debt, and not for a sweep.
    owed: bool,
    /// Told when the repository does not live there any more.
    moved: Arc<Notify>,
}

/// How many are at work at one payee, and how many of these for debts.
#[derive(Default, Clone, Copy)]
struct AtWork {
    all: usize,
    owed: usize,
}

/// How dear it is to pay: the directory's answer, a head, what is new, the whole.
const CLASSES: usize = 4;

/// What one payee is to be asked for, cheap before dear, then by time.
type Line = [BTreeSet<(Time, Did)>; CLASSES];

#[derive(Default)]
struct Queues {
    places: HashMap<Did, (Payee, usize, Time)>,
    lines: BTreeMap<Payee, Line>,
    /// How many debts each payee has, and the payees by that.
    sizes: HashMap<Payee, usize>,
    by_size: BTreeSet<(usize, Payee)>,
    /// Somebody is at work for these at a host, or asks who they are. Both may be:
    /// a repository that moves must not wait for what its old host sends.
    busy: HashMap<Did, Busy>,
    resolving: HashSet<Did>,
    at_work: HashMap<Payee, AtWork>,
    /// Debts that are being paid at hosts.
    at_hosts: usize,
    /// Documents that are old, though nothing is owed, by who is asked for them:
    /// those of did:web that nobody serves any more leave room for the others.
    old: BTreeMap<Payee, OldDocuments>,
    /// The payee that was served last.
    last: Option<Payee>,
    /// More is owed than is in here; when the store was last read for it.
    overflowed: bool,
    read_at: Option<Time>,
}

pub struct Schedule {
    queues: Mutex<Queues>,
    /// Something became due, or somebody has time.
    pub wake: Notify,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule {
            queues: Mutex::default(),
            wake: Notify::new(),
        }
    }
}

impl Schedule {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        // Nothing in here can panic half way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row was read from the store. By now its desk may know better: what it noted
    /// stands.
    pub fn found(&self, now: Time, repo: &Repo) {
        let queues = self.lock();
        if !repo.debt.is_empty() && !queues.places.contains_key(&repo.did) {
            self.put(now, repo, queues);
        }
    }

    /// A repository's row is this now.
    pub fn note(&self, now: Time, repo: &Repo) {
        let mut queues = self.lock();
        queues.call_off(repo);
        queues.forget(&repo.did);
        if !repo.debt.is_empty() {
            self.put(now, repo, queues);
        }
    }

    fn put(&self, now: Time, repo: &Repo, mut queues: MutexGuard<'_, Queues>) {
        let (payee, class) = place(repo);
        // Nothing waits longer, whatever a clock that ran ahead has written.
        let at = match repo.debt.is_due(now) {
            true => repo.debt.next_try.min(now),
            false => repo.debt.next_try,
        };
        if queues.places.len() >= IN_MEMORY {
            queues.overflowed = true;
            if !queues.make_room(payee, at) {
                return;
            }
        }
        queues.put(repo.did.clone(), payee, class, at);
        drop(queues);
        self.wake.notify_one();
    }

    /// A DID document is old.
    pub fn refresh(&self, did: &Did) {
        let new = self.lock().old.entry(resolver(did)).or_default().put(did);
        if new {
            self.wake.notify_one();
        }
    }

    /// It is old no more, or is asked for because that is owed.
    pub fn refreshed(&self, did: &Did) {
        if let Some(old) = self.lock().old.get_mut(&resolver(did)) {
            old.take(did);
        }
    }

    /// The next one to work for: due, nobody at work, and there is a place for it.
    /// Whoever takes it calls [`Schedule::release`] at the end.
    pub fn take(&self, now: Time, slots: &Slots) -> Option<Task> {
        let mut queues = self.lock();
        let owed = queues.find(now, slots).map(|(did, payee)| Task {
            did,
            payee,
            refresh: false,
        });
        let task = owed.or_else(|| queues.find_old(now, slots))?;
        if task.refresh {
            let old = queues.old.entry(task.payee).or_default();
            old.begin(now, &task.did);
        }
        queues.last = Some(task.payee);
        queues.begin(&task.did, task.payee, true);
        Some(task)
    }

    /// Begins work at a host that is not owed, unless somebody is at work already.
    pub fn begin(&self, did: &Did, host: HostId) -> bool {
        let mut queues = self.lock();
        if queues.busy.contains_key(did) || queues.resolving.contains(did) {
            return false;
        }
        queues.begin(did, Payee::Host(host), false);
        true
    }

    /// The work is done, one way or another.
    pub fn release(&self, did: &Did, payee: Payee) {
        let mut queues = self.lock();
        queues.end(did, payee);
        drop(queues);
        self.wake.notify_one();
    }

    /// Resolves when a repository that somebody is at work for at a host does not
    /// live there any more. One person may wait for it.
    pub async fn moved_away(&self, did: &Did) {
        let busy = self.lock().busy.get(did).map(|busy| busy.moved.clone());
        match busy {
            Some(moved) => moved.notified().await,
            None => pending().await,
        }
    }

    /// When the next debt that nobody works for may be tried.
    pub fn next_due(&self) -> Option<Time> {
        let queues = self.lock();
        let firsts = queues.lines.iter().flat_map(|(payee, line)| {
            let free = |entry: &&(Time, Did)| queues.is_free(&entry.1, *payee);
            line.iter().filter_map(move |class| class.iter().find(free))
        });
        firsts.map(|(at, _)| *at).min()
    }

    /// Whether the store should be read for more, and if so marks it as read.
    pub fn wants_more(&self, now: Time) -> bool {
        let mut queues = self.lock();
        let roomy = queues.places.len() < IN_MEMORY / 2;
        let rested = queues.read_at.is_none_or(|at| now.passed(at, READ_AGAIN));
        let wants = queues.overflowed && (roomy || rested);
        if wants {
            queues.overflowed = false;
            queues.read_at = Some(now);
        }
        wants
    }

    /// The store is to be read for more.
    pub fn want_more(&self) {
        self.lock().overflowed = true;
    }

    pub fn len(&self) -> usize {
        self.lock().places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn at_work(&self) -> usize {
        let queues = self.lock();
        queues.busy.len() + queues.resolving.len()
    }
}

/// Who knows who a DID is.
fn resolver(did: &Did) -> Payee {
    match did.method() {
        DidMethod::Plc => Payee::Directory,
        DidMethod::Web => Payee::Web,
    }
}

/// Where the next thing that is owed for a repository is paid.
pub fn payee(repo: &Repo) -> Payee {
    place(repo).0
}

/// Who is to be asked, and how dear it is.
fn place(repo: &Repo) -> (Payee, usize) {
    let at_any_time = Time(u64::MAX);
    match (debt::plan(at_any_time, repo), repo.host) {
        (Some(Work::Resolve) | None, _) | (_, None) => (resolver(&repo.did), 0),
        (Some(Work::Compare), Some(host)) => (Payee::Host(host), 1),
        (Some(Work::Fetch), Some(host)) if repo.head().is_some() => (Payee::Host(host), 2),
        (Some(Work::Fetch), Some(host)) => (Payee::Host(host), 3),
    }
}

impl Queues {
    fn forget(&mut self, did: &Did) {
        let Some((payee, class, at)) = self.places.remove(did) else {
            return;
        };
        if let Some(line) = self.lines.get_mut(&payee) {
            line[class].remove(&(at, did.clone()));
            if line.iter().all(BTreeSet::is_empty) {
                self.lines.remove(&payee);
            }
        }
        self.resize(payee, |size| size.saturating_sub(1));
    }

    fn put(&mut self, did: Did, payee: Payee, class: usize, at: Time) {
        self.lines.entry(payee).or_default()[class].insert((at, did.clone()));
        self.places.insert(did, (payee, class, at));
        self.resize(payee, |size| size + 1);
    }

    fn resize(&mut self, payee: Payee, change: impl FnOnce(usize) -> usize) {
        let before = self.sizes.remove(&payee).unwrap_or(0);
        self.by_size.remove(&(before, payee));
        let after = change(before);
        if after > 0 {
            self.sizes.insert(payee, after);
            self.by_size.insert((after, payee));
        }
    }

    /// Forgets what can wait longest of the payee that is owed most for. False if
    /// that is the newcomer's own, and the newcomer can wait as long.
    fn make_room(&mut self, newcomer: Payee, at: Time) -> bool {
        let Some((_, largest)) = self.by_size.last().copied() else {
            return true;
        };
        let last = self.lines.get(&largest).and_then(|line| {
            let dearest = line.iter().rev().find_map(BTreeSet::last);
            dearest.cloned()
        });
        match last {
            Some((latest, _)) if largest == newcomer && at >= latest => false,
            Some((_, did)) => {
                self.forget(&did);
                true
            }
            None => true,
        }
    }

    /// Whoever is at work at a host that the repository has left need not go on.
    fn call_off(&self, repo: &Repo) {
        if let Some(busy) = self.busy.get(&repo.did)
            && repo.host.map(Payee::Host) != Some(busy.payee)
        {
            busy.moved.notify_one();
        }
    }

    fn begin(&mut self, did: &Did, payee: Payee, owed: bool) {
        let at_work = self.at_work.entry(payee).or_default();
        at_work.all += 1;
        at_work.owed += usize::from(owed);
        if let Payee::Host(_) = payee {
            self.at_hosts += usize::from(owed);
            let moved = Arc::default();
            self.busy.insert(did.clone(), Busy { payee, owed, moved });
        } else {
            self.resolving.insert(did.clone());
        }
    }

    fn end(&mut self, did: &Did, payee: Payee) {
        let owed = match payee {
            Payee::Host(_) => self.busy.remove(did).map(|busy| busy.owed),
            Payee::Directory | Payee::Web => self.resolving.remove(did).then_some(true),
        };
        let (Some(owed), Some(at_work)) = (owed, self.at_work.get_mut(&payee)) else {
            return;
        };
        at_work.all = at_work.all.saturating_sub(1);
        at_work.owed = at_work.owed.saturating_sub(usize::from(owed));
        if at_work.all == 0 {
            self.at_work.remove(&payee);
        }
        if let Payee::Host(_) = payee {
            self.at_hosts = self.at_hosts.saturating_sub(usize::from(owed));
        }
    }

    /// Whether nobody is at work for it who would be in the way.
    fn is_free(&self, did: &Did, payee: Payee) -> bool {
        let at_a_host = matches!(payee, Payee::Host(_)) && self.busy.contains_key(did);
        !at_a_host && !self.resolving.contains(did)
    }

    /// Whether there is a place for one more at work there.
    fn has_place(&self, payee: Payee, slots: &Slots) -> bool {
        let here = self.at_work.get(&payee).copied().unwrap_or_default();
        match payee {
            Payee::Directory => here.all < slots.directory,
            Payee::Web => here.all < slots.web,
            // What a sweep asks has its own bound, and keeps no debt waiting.
            Payee::Host(_) => {
                here.owed < slots.per_host && self.at_hosts < slots.open_to(here.owed)
            }
        }
    }

    /// A document that is old, though nothing is owed.
    fn find_old(&self, now: Time, slots: &Slots) -> Option<Task> {
        let mut waiting = self.old.iter();
        waiting.find_map(|(payee, old)| {
            let asked = |did: &Did| self.resolving.contains(did);
            let did = old.next(now, asked)?;
            self.has_place(*payee, slots).then(|| Task {
                did: did.clone(),
                payee: *payee,
                refresh: true,
            })
        })
    }

    /// The first due debt, the payees in turn.
    fn find(&self, now: Time, slots: &Slots) -> Option<(Did, Payee)> {
        let after = match self.last {
            None => Bound::Unbounded,
            Some(last) => Bound::Excluded(last),
        };
        let rest = self.lines.range((after, Bound::Unbounded));
        let upto = self.last.map(|last| self.lines.range(..=last));
        let mut in_turn = rest.chain(upto.into_iter().flatten());
        in_turn.find_map(|(payee, line)| {
            if !self.has_place(*payee, slots) {
                return None;
            }
            let due = line.iter().find_map(|class| {
                let mut due = class.iter().take_while(|(at, _)| *at <= now);
                due.find(|(_, did)| self.is_free(did, *payee))
            });
            due.map(|(_, did)| (did.clone(), *payee))
        })
    }
}

#[cfg(test)]
mod tests;
