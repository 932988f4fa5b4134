//! What is owed, by when it may be tried: debts in memory, as the store has them.
//!
//! The store is the truth; this is its shadow, so that nobody has to read every
//! debt every second. It is bounded: when more is owed than fits, the rest is read
//! from the store once there is room again. Hosts take turns, so that one with a
//! million debts does not keep the others waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, Work};
use gapless_core::ledger::{HostId, Repo, Time};
use tokio::sync::Notify;

/// Debts that are kept in memory.
const IN_MEMORY: usize = 400_000;

/// Where a debt is paid: at the directory, or at a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payee {
    Directory,
    Host(HostId),
}

/// How dear it is to pay: the directory's answer, a head, what is new, the whole.
const CLASSES: usize = 4;

/// What one payee is to be asked for, cheap before dear, then by time.
type Line = [BTreeSet<(Time, Did)>; CLASSES];

#[derive(Default)]
struct Queues {
    places: HashMap<Did, (Payee, usize, Time)>,
    lines: BTreeMap<Payee, Line>,
    /// Somebody is at work for these.
    busy: HashMap<Did, Payee>,
    at_work: HashMap<Payee, usize>,
    /// Documents that are old, though nothing is owed.
    refresh: HashSet<Did>,
    /// The payee that was served last.
    last: Option<Payee>,
    /// More is owed than is in here.
    overflowed: bool,
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

/// Documents that wait to be read again; a further one waits for its next event.
const REFRESHES: usize = 10_000;

impl Schedule {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        // Nothing in here can panic half way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A repository's row is this now.
    pub fn note(&self, now: Time, repo: &Repo) {
        let mut queues = self.lock();
        queues.forget(&repo.did);
        if repo.debt.is_empty() {
            return;
        }
        if queues.places.len() >= IN_MEMORY {
            queues.overflowed = true;
            return;
        }
        let (payee, class) = place(repo);
        // Nothing waits longer, whatever a clock that ran ahead has written.
        let at = match repo.debt.is_due(now) {
            true => repo.debt.next_try.min(now),
            false => repo.debt.next_try,
        };
        let did = repo.did.clone();
        queues.lines.entry(payee).or_default()[class].insert((at, did.clone()));
        queues.places.insert(did, (payee, class, at));
        drop(queues);
        self.wake.notify_one();
    }

    /// A DID document is old.
    pub fn refresh(&self, did: &Did) {
        let mut queues = self.lock();
        if queues.refresh.len() < REFRESHES && queues.refresh.insert(did.clone()) {
            drop(queues);
            self.wake.notify_one();
        }
    }

    /// The next one to work for: due, nobody at work, and its payee has fewer than
    /// so many at work. Whoever takes it calls [`Schedule::release`] at the end.
    pub fn take(&self, now: Time, limit: impl Fn(Payee) -> usize) -> Option<(Did, Payee)> {
        let mut queues = self.lock();
        let found = queues.find(now, &limit).or_else(|| {
            let idle = queues.idle(Payee::Directory, &limit);
            let mut old = queues.refresh.iter();
            let did = old.find(|did| !queues.busy.contains_key(*did))?;
            idle.then(|| (did.clone(), Payee::Directory))
        });
        let (did, payee) = found?;
        queues.refresh.remove(&did);
        queues.last = Some(payee);
        queues.begin(&did, payee);
        Some((did, payee))
    }

    /// Begins work that is not owed, unless somebody is at work already.
    pub fn begin(&self, did: &Did, payee: Payee) -> bool {
        let mut queues = self.lock();
        if queues.busy.contains_key(did) {
            return false;
        }
        queues.begin(did, payee);
        true
    }

    /// The work is done, one way or another.
    pub fn release(&self, did: &Did) {
        let mut queues = self.lock();
        if let Some(payee) = queues.busy.remove(did)
            && let Some(count) = queues.at_work.get_mut(&payee)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                queues.at_work.remove(&payee);
            }
        }
        drop(queues);
        self.wake.notify_one();
    }

    /// When the next debt that nobody works for may be tried.
    pub fn next_due(&self) -> Option<Time> {
        let queues = self.lock();
        let firsts = queues.lines.values().flatten().filter_map(|line| {
            let mut waiting = line.iter();
            let first = waiting.find(|(_, did)| !queues.busy.contains_key(did))?;
            Some(first.0)
        });
        firsts.min()
    }

    /// Whether the store should be read for more, and if so marks it as read.
    pub fn wants_more(&self) -> bool {
        let mut queues = self.lock();
        let wants = queues.overflowed && queues.places.len() < IN_MEMORY / 2;
        if wants {
            queues.overflowed = false;
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
        self.lock().busy.len()
    }
}

/// Who is to be asked, and how dear it is.
fn place(repo: &Repo) -> (Payee, usize) {
    let at_any_time = Time(u64::MAX);
    match (debt::plan(at_any_time, repo), repo.host) {
        (Some(Work::Resolve) | None, _) | (_, None) => (Payee::Directory, 0),
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
    }

    fn begin(&mut self, did: &Did, payee: Payee) {
        self.busy.insert(did.clone(), payee);
        *self.at_work.entry(payee).or_default() += 1;
    }

    fn idle(&self, payee: Payee, limit: &impl Fn(Payee) -> usize) -> bool {
        self.at_work.get(&payee).copied().unwrap_or(0) < limit(payee)
    }

    /// The first due debt, the payees in turn.
    fn find(&self, now: Time, limit: &impl Fn(Payee) -> usize) -> Option<(Did, Payee)> {
        let after = match self.last {
            None => Bound::Unbounded,
            Some(last) => Bound::Excluded(last),
        };
        let rest = self.lines.range((after, Bound::Unbounded));
        let upto = self.last.map(|last| self.lines.range(..=last));
        let mut in_turn = rest.chain(upto.into_iter().flatten());
        in_turn.find_map(|(payee, line)| {
            if !self.idle(*payee, limit) {
                return None;
            }
            let due = line.iter().find_map(|class| {
                let mut due = class.iter().take_while(|(at, _)| *at <= now);
                due.find(|(_, did)| !self.busy.contains_key(did))
            });
            due.map(|(_, did)| (did.clone(), *payee))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gapless_core::ledger::debt::What;
    use gapless_core::ledger::{Now, Tick, Why};

    fn did(number: u32) -> Did {
        Did::parse(&format!("did:web:r{number}.test")).unwrap()
    }

    fn owing(number: u32, host: Option<u32>, what: What, at: u64) -> Repo {
        let mut repo = Repo::new(did(number));
        repo.host = host.map(HostId);
        let now = Now {
            time: Time(at),
            tick: Tick(1),
        };
        debt::owe(now, &mut repo, what, Why::Operator);
        repo
    }

    #[test]
    fn cheap_before_dear_payees_in_turn_and_nobody_twice() {
        let schedule = Schedule::default();
        for (number, host, what) in [
            (1, Some(1), What::Fetch),
            (2, Some(1), What::Compare),
            (3, Some(2), What::Fetch),
            (4, None, What::Resolve),
        ] {
            schedule.note(Time(10), &owing(number, host, what, 10));
        }
        assert_eq!(schedule.take(Time(9), |_| 9), None, "not yet");
        let mut taken = Vec::new();
        while let Some((did, _)) = schedule.take(Time(10), |_| 9) {
            taken.push(did);
        }
        assert_eq!(taken, [did(4), did(2), did(3), did(1)]);
        assert_eq!(schedule.at_work(), 4);
        schedule.release(&did(2));
        assert_eq!(schedule.take(Time(10), |_| 9).unwrap().0, did(2));
    }

    #[test]
    fn a_payee_has_no_more_at_work_than_it_may() {
        let schedule = Schedule::default();
        for number in 0..5 {
            schedule.note(Time(10), &owing(number, Some(1), What::Compare, 10));
        }
        let limit = |payee| {
            if payee == Payee::Host(HostId(1)) {
                2
            } else {
                9
            }
        };
        assert!(schedule.take(Time(10), limit).is_some());
        assert!(schedule.take(Time(10), limit).is_some());
        assert_eq!(schedule.take(Time(10), limit), None);
        schedule.release(&did(0));
        assert!(schedule.take(Time(10), limit).is_some());
    }

    #[test]
    fn what_is_paid_is_forgotten_and_what_is_put_off_waits() {
        let schedule = Schedule::default();
        let mut repo = owing(1, Some(1), What::Compare, 10);
        schedule.note(Time(10), &repo);
        repo.debt.next_try = Time(500);
        schedule.note(Time(10), &repo);
        assert_eq!(schedule.take(Time(100), |_| 9), None);
        assert_eq!(schedule.next_due(), Some(Time(500)));
        repo.debt = Default::default();
        schedule.note(Time(10), &repo);
        assert!(schedule.is_empty() && schedule.take(Time(900), |_| 9).is_none());
    }
}
