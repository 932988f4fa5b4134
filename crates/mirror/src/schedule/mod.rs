//! What is owed, by when it may be tried: debts in memory, as the store has them.
//!
//! The store is the truth; this is its shadow, so that nobody has to read every
//! debt every second. It is bounded: when more is owed than fits, whoever is owed
//! most for makes room, and the rest is read from the store later. Hosts take
//! turns. So one with a million debts does not keep the others waiting. Nor do
//! hosts that answer slowly: questions, to the directory or for a head, have other
//! places than downloads, which may take an hour; and the last places are for hosts
//! of which nothing is fetched yet, the very last for those that served well before.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::pending;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gapless_atp::syntax::{Did, DidMethod};
use gapless_core::ledger::debt::{self, Work};
use gapless_core::ledger::{HostId, Repo, Time};
use tokio::sync::Notify;

use stale_documents::OldDocuments;
use unreachable_hosts::SilentHosts;

mod stale_documents;
mod unreachable_hosts;

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
    /// Questions to hosts for a head.
    pub asks: usize,
    /// Repositories that are fetched.
    pub fetches: usize,
    /// Of either: at one host.
    pub per_host: usize,
}

impl Slots {
    /// The places for fetches that are open to a host with so many at hand. The last
    /// quarter is for hosts with none, so that a few slow ones cannot fill them all;
    /// and half of that for those whose last one went well, so that many cannot.
    fn open_to(&self, at_hand: usize, went_well: bool) -> usize {
        match (at_hand, went_well) {
            (0, true) => self.fetches,
            (0, false) => self.fetches - self.fetches / 8,
            _ => self.fetches - self.fetches / 4,
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

/// What is done for a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// A question that a sweep asks. It has its own bound, and keeps no debt waiting.
    Sweep,
    Ask,
    Fetch,
}

/// Somebody is at work for a repository at a host.
struct Busy {
    payee: Payee,
    doing: Doing,
    /// Told when the repository does not live there any more.
    moved: Arc<Notify>,
}

/// How many are at work, and at what.
#[derive(Default, Clone, Copy)]
struct AtWork {
    sweeps: usize,
    asks: usize,
    fetches: usize,
}

impl AtWork {
    fn of(&mut self, doing: Doing) -> &mut usize {
        match doing {
            Doing::Sweep => &mut self.sweeps,
            Doing::Ask => &mut self.asks,
            Doing::Fetch => &mut self.fetches,
        }
    }

    fn ends(&mut self, doing: Doing) {
        let count = self.of(doing);
        *count = count.saturating_sub(1);
    }

    fn is_idle(&self) -> bool {
        self.sweeps + self.asks + self.fetches == 0
    }
}

/// How dear it is to pay. At a host: a head, what is new, the whole. At the
/// directory: first for those that we hold.
const CLASSES: usize = 4;

fn doing_at(payee: Payee, class: usize) -> Doing {
    match (payee, class) {
        (Payee::Host(_), 2..) => Doing::Fetch,
        _ => Doing::Ask,
    }
}

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
    /// At all hosts together.
    at_hosts: AtWork,
    /// Hosts whose last work went well.
    good: HashSet<HostId>,
    /// Hosts that nobody reaches.
    silent: SilentHosts,
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
            true => repo.debt.due_at().min(now),
            false => repo.debt.due_at(),
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
        let owed = queues.find(now, slots).map(|(did, payee, doing)| {
            let refresh = false;
            let task = Task {
                did,
                payee,
                refresh,
            };
            (task, doing)
        });
        let old = || queues.find_old(now, slots).map(|task| (task, Doing::Ask));
        let (task, doing) = owed.or_else(old)?;
        if task.refresh {
            let old = queues.old.entry(task.payee).or_default();
            old.begin(now, &task.did);
        }
        queues.last = Some(task.payee);
        queues.begin(&task.did, task.payee, doing);
        Some(task)
    }

    /// Whoever asked a host for a repository's head is to fetch it now. False if there
    /// is no place for that: it is owed, and comes later.
    pub fn goes_on_to_fetch(&self, did: &Did, slots: &Slots) -> bool {
        let mut queues = self.lock();
        let Some(busy) = queues.busy.get(did) else {
            return false;
        };
        let (payee, doing) = (busy.payee, busy.doing);
        if doing == Doing::Fetch {
            return true;
        }
        if !queues.has_place(payee, Doing::Fetch, slots) {
            return false;
        }
        queues.go_on(did, payee, doing);
        true
    }

    /// How the last work at a host went.
    pub fn went(&self, host: HostId, well: bool) {
        let mut queues = self.lock();
        match well {
            true => queues.good.insert(host),
            false => queues.good.remove(&host),
        };
    }

    /// Nobody was there when a host was asked.
    pub fn unreachable(&self, now: Time, host: HostId) {
        self.lock().silent.unreachable(now, host);
    }

    /// A host has answered, whatever it said.
    pub fn reached(&self, host: HostId) {
        let waited_for = self.lock().silent.reached(host);
        if waited_for {
            self.wake.notify_one();
        }
    }

    /// Begins work at a host that is not owed, unless somebody is at work already.
    pub fn begin(&self, did: &Did, host: HostId) -> bool {
        let mut queues = self.lock();
        if queues.busy.contains_key(did) || queues.resolving.contains(did) {
            return false;
        }
        queues.begin(did, Payee::Host(host), Doing::Sweep);
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
    match (debt::plan_work(at_any_time, repo), repo.host) {
        (Some(Work::Resolve) | None, _) | (_, None) => {
            // Names that anybody can make up keep nobody waiting who is held.
            let class = usize::from(repo.head().is_none());
            (resolver(&repo.did), class)
        }
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

    fn begin(&mut self, did: &Did, payee: Payee, doing: Doing) {
        *self.at_work.entry(payee).or_default().of(doing) += 1;
        if let Payee::Host(_) = payee {
            *self.at_hosts.of(doing) += 1;
            let moved = Arc::default();
            self.busy.insert(
                did.clone(),
                Busy {
                    payee,
                    doing,
                    moved,
                },
            );
        } else {
            self.resolving.insert(did.clone());
        }
    }

    /// From one thing at a host to a fetch; told of a move all the same.
    fn go_on(&mut self, did: &Did, payee: Payee, from: Doing) {
        for at_work in [self.at_work.get_mut(&payee), Some(&mut self.at_hosts)] {
            let Some(at_work) = at_work else { continue };
            at_work.ends(from);
            *at_work.of(Doing::Fetch) += 1;
        }
        if let Some(busy) = self.busy.get_mut(did) {
            busy.doing = Doing::Fetch;
        }
    }

    fn end(&mut self, did: &Did, payee: Payee) {
        let doing = match payee {
            Payee::Host(_) => self.busy.remove(did).map(|busy| busy.doing),
            Payee::Directory | Payee::Web => self.resolving.remove(did).then_some(Doing::Ask),
        };
        let (Some(doing), Some(at_work)) = (doing, self.at_work.get_mut(&payee)) else {
            return;
        };
        at_work.ends(doing);
        if at_work.is_idle() {
            self.at_work.remove(&payee);
        }
        if let Payee::Host(_) = payee {
            self.at_hosts.ends(doing);
        }
    }

    /// Whether nobody is at work for it who would be in the way.
    fn is_free(&self, did: &Did, payee: Payee) -> bool {
        let at_a_host = matches!(payee, Payee::Host(_)) && self.busy.contains_key(did);
        !at_a_host && !self.resolving.contains(did)
    }

    /// Whether there is a place for one more at work there.
    fn has_place(&self, payee: Payee, doing: Doing, slots: &Slots) -> bool {
        let here = self.at_work.get(&payee).copied().unwrap_or_default();
        match (payee, doing) {
            (Payee::Directory, _) => here.asks < slots.directory,
            (Payee::Web, _) => here.asks < slots.web,
            (Payee::Host(_), Doing::Ask | Doing::Sweep) => {
                here.asks < slots.per_host && self.at_hosts.asks < slots.asks
            }
            (Payee::Host(host), Doing::Fetch) => {
                let open = slots.open_to(here.fetches, self.good.contains(&host));
                here.fetches < slots.per_host && self.at_hosts.fetches < open
            }
        }
    }

    /// Whether a host is there, or may be by now.
    fn lets(&self, now: Time, payee: Payee) -> bool {
        let Payee::Host(host) = payee else {
            return true;
        };
        let here = self.at_work.get(&payee).copied().unwrap_or_default();
        self.silent.lets(now, host, here.asks + here.fetches)
    }

    /// A document that is old, though nothing is owed.
    fn find_old(&self, now: Time, slots: &Slots) -> Option<Task> {
        let mut waiting = self.old.iter();
        waiting.find_map(|(payee, old)| {
            let asked = |did: &Did| self.resolving.contains(did);
            let did = old.next(now, asked)?;
            self.has_place(*payee, Doing::Ask, slots).then(|| Task {
                did: did.clone(),
                payee: *payee,
                refresh: true,
            })
        })
    }

    /// The first due debt, the payees in turn.
    fn find(&self, now: Time, slots: &Slots) -> Option<(Did, Payee, Doing)> {
        let after = match self.last {
            None => Bound::Unbounded,
            Some(last) => Bound::Excluded(last),
        };
        let rest = self.lines.range((after, Bound::Unbounded));
        let upto = self.last.map(|last| self.lines.range(..=last));
        let mut in_turn = rest.chain(upto.into_iter().flatten());
        in_turn.find_map(|(payee, line)| {
            if !self.lets(now, *payee) {
                return None;
            }
            line.iter().enumerate().find_map(|(class, debts)| {
                let doing = doing_at(*payee, class);
                if !self.has_place(*payee, doing, slots) {
                    return None;
                }
                let mut due = debts.iter().take_while(|(at, _)| *at <= now);
                let (_, did) = due.find(|(_, did)| self.is_free(did, *payee))?;
                Some((did.clone(), *payee, doing))
            })
        })
    }
}

#[cfg(test)]
mod tests;
