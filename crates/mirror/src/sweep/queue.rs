//! The queue of hosts to sweep, and the state of each host's sweeps while the mirror runs:
//! when the next sweep may begin, and since when and why sweeps fail.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use gapless_core::ledger::{HostId, Time};
use tokio::sync::Semaphore;

use crate::sweep::pace::{Cost, interval, rest};
use gapless_store::sync::Mutex;

/// Concurrent sweeps. Most of a sweep is waiting for the host, so the number is high.
const CONCURRENT_SWEEPS: usize = 32;
/// Slots reserved for hosts whose last sweep succeeded; all other hosts share the remaining
/// `CONCURRENT_SWEEPS - FOR_PROVEN`.
const FOR_PROVEN: usize = 8;
/// How much longer a host that is only known by name must wait than a host that is followed
/// itself.
const HEAD_START: Duration = Duration::from_secs(3600);
/// Concurrent sweeps with large listings, which take memory.
const CONCURRENT_LARGE_SWEEPS: usize = 4;
/// Characters of an error that are kept: a chain of causes can be long.
const MAX_ERROR_CHARS: usize = 500;

/// The state of one host's sweeps.
#[derive(Debug, Clone, Default)]
pub(crate) struct SweepState {
    pub suspects: u64,
    pub running: bool,
    /// The sweeps that failed since the last success.
    pub failing: Option<SweepFailures>,
    /// Repositories in the last listing.
    pub listed: Option<u64>,
    /// The cost of the last sweep.
    cost: Cost,
    pub(crate) not_before: Option<Instant>,
    /// When the host became due.
    due_since: Option<Instant>,
}

/// Sweeps of one host that failed in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SweepFailures {
    /// When the first of these sweeps began.
    pub since: Time,
    pub times: u32,
    /// Why the last of these sweeps failed.
    pub error: String,
}

impl SweepState {
    pub(crate) fn failures(&self) -> u32 {
        self.failing.as_ref().map_or(0, |failing| failing.times)
    }

    /// How long until the host may be swept again.
    pub(crate) fn rests_for(&self) -> Duration {
        let until = self.not_before;
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    /// Records the failure of a sweep that began at `began`.
    pub(crate) fn record_failure(&mut self, began: Time, error: &str) {
        let before = self.failing.take();
        self.failing = Some(SweepFailures {
            since: before.as_ref().map_or(began, |failing| failing.since),
            times: before.map_or(0, |failing| failing.times).saturating_add(1),
            error: error.chars().take(MAX_ERROR_CHARS).collect(),
        });
    }
}

/// A host that is due for a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueHost {
    pub host: HostId,
    /// Whether the host's own stream is followed.
    pub followed: bool,
    /// Whether the host's last sweep succeeded.
    pub proven: bool,
}

/// The sweeps of all hosts.
pub(crate) struct Sweeps {
    inner: Mutex<Inner>,
    /// Permits for large listings.
    pub(crate) large: Arc<Semaphore>,
}

#[derive(Default)]
struct Inner {
    states: HashMap<HostId, SweepState>,
    running: usize,
    /// Running sweeps of hosts that are not proven.
    running_unproven: usize,
    /// The cost of the last sweeps of all hosts together.
    total_cost: Cost,
    /// The interval that follows from the cost.
    interval: Duration,
}

impl Default for Sweeps {
    fn default() -> Sweeps {
        Sweeps {
            inner: Mutex::default(),
            large: Arc::new(Semaphore::new(CONCURRENT_LARGE_SWEEPS)),
        }
    }
}

impl Sweeps {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(crate) fn get(&self, host: HostId) -> Option<SweepState> {
        self.lock().states.get(&host).cloned()
    }

    /// Returns whether a host's last sweep failed; `None` if the host is being swept or rests.
    pub(crate) fn idle_state(&self, host: HostId) -> Option<bool> {
        let inner = self.lock();
        let Some(state) = inner.states.get(&host) else {
            return Some(false);
        };
        let rests = state.not_before.is_some_and(|until| Instant::now() < until);
        (!state.running && !rests).then_some(state.failing.is_some())
    }

    /// Returns how many repositories a host's last listing had.
    pub(crate) fn listed(&self, host: HostId) -> Option<u64> {
        self.lock().states.get(&host)?.listed
    }

    /// Returns the hosts whose last sweep failed.
    pub(crate) fn failing(&self) -> Vec<(HostId, SweepFailures)> {
        let inner = self.lock();
        let failing = inner
            .states
            .iter()
            .filter_map(|(host, state)| Some((*host, state.failing.clone()?)));
        failing.collect()
    }

    /// Returns how many hosts failed their last sweep.
    pub(crate) fn failing_count(&self) -> usize {
        let inner = self.lock();
        let failing = inner
            .states
            .values()
            .filter(|state| state.failing.is_some());
        failing.count()
    }

    /// Forgets a host.
    pub(crate) fn forget(&self, host: HostId) {
        let mut inner = self.lock();
        if let Some(gone) = inner.states.remove(&host) {
            inner.total_cost = inner.total_cost.minus(gone.cost);
        }
    }

    pub(crate) fn change<T>(&self, host: HostId, act: impl FnOnce(&mut SweepState) -> T) -> T {
        act(self.lock().states.entry(host).or_default())
    }

    /// Returns how often every host is swept, as follows from the cost; zero if the operator
    /// set the interval.
    pub(crate) fn every(&self) -> Duration {
        self.lock().interval
    }

    /// Records the cost of a sweep. An incomplete sweep shows only part of its cost, so it
    /// never lowers the cost. If `least_interval` is given, the interval of all sweeps
    /// follows from their cost, and is at least that long; otherwise the operator set it.
    pub(crate) fn record_cost(
        &self,
        host: HostId,
        cost: Cost,
        whole: bool,
        least_interval: Option<Duration>,
    ) {
        let mut inner = self.lock();
        let before = inner.states.get(&host).map(|state| state.cost);
        let before = before.unwrap_or_default();
        let cost = if whole {
            cost
        } else {
            cost.max_of_each(before)
        };
        inner.states.entry(host).or_default().cost = cost;
        inner.total_cost = inner.total_cost.minus(before).plus(cost);
        if let Some(least) = least_interval {
            inner.interval = interval(inner.total_cost, least);
        }
    }

    /// Sorts hosts that are due by how long they have been due, with a head start for
    /// followed hosts.
    pub(crate) fn order_by_wait(&self, due: Vec<DueHost>) -> VecDeque<DueHost> {
        let now = Instant::now();
        let mut inner = self.lock();
        let mut waited = |due: &DueHost| {
            let state = inner.states.entry(due.host).or_default();
            let since = *state.due_since.get_or_insert(now);
            let head_start = if due.followed {
                HEAD_START
            } else {
                Duration::ZERO
            };
            now.saturating_duration_since(since) + head_start
        };
        let mut row: Vec<(Duration, DueHost)> =
            due.into_iter().map(|due| (waited(&due), due)).collect();
        row.sort_by_key(|(waited, _)| Reverse(*waited));
        row.into_iter().map(|(_, due)| due).collect()
    }

    /// Takes the first waiting host for which a slot is free.
    pub(crate) fn begin_next(
        self: &Arc<Self>,
        now: Time,
        waiting: &mut VecDeque<DueHost>,
    ) -> Option<SweepPermit> {
        let mut inner = self.lock();
        if inner.running >= CONCURRENT_SWEEPS {
            return None;
        }
        let others_allowed = inner.running_unproven < CONCURRENT_SWEEPS - FOR_PROVEN;
        let next = waiting
            .iter()
            .position(|due| due.proven || others_allowed)?;
        let DueHost { host, proven, .. } = waiting.remove(next)?;
        inner.running += 1;
        inner.running_unproven += usize::from(!proven);
        let state = inner.states.entry(host).or_default();
        state.running = true;
        state.due_since = None;
        Some(SweepPermit {
            sweeps: self.clone(),
            host,
            began: now,
            proven,
        })
    }
}

/// The permit of one sweep. Dropping the permit frees the slot, so the host can be swept
/// again however the sweep ends.
pub(crate) struct SweepPermit {
    sweeps: Arc<Sweeps>,
    pub host: HostId,
    pub began: Time,
    proven: bool,
}

impl Drop for SweepPermit {
    fn drop(&mut self) {
        let mut inner = self.sweeps.lock();
        inner.running -= 1;
        inner.running_unproven -= usize::from(!self.proven);
        let state = inner.states.entry(self.host).or_default();
        state.running = false;
        if std::thread::panicking() {
            state.record_failure(self.began, "a fault of Gapless; the log says more");
            let rest = rest(Cost::default(), state.failures(), Duration::MAX);
            state.not_before = Some(Instant::now() + rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(host: u32, followed: bool, proven: bool) -> DueHost {
        DueHost {
            host: HostId(host),
            followed,
            proven,
        }
    }

    /// Begins sweeps until no slot or no waiting host is left.
    fn take_all(sweeps: &Arc<Sweeps>, waiting: &mut VecDeque<DueHost>) -> Vec<SweepPermit> {
        std::iter::from_fn(|| sweeps.begin_next(Time(1), waiting)).collect()
    }

    fn hosts(turns: &[SweepPermit]) -> Vec<u32> {
        turns.iter().map(|turn| turn.host.0).collect()
    }

    #[test]
    fn hosts_take_their_turns_in_the_order_in_which_they_became_due() {
        let sweeps = Arc::new(Sweeps::default());
        let all: Vec<DueHost> = (0..9).map(|host| due(host, false, true)).collect();
        // They become due one after the other, the last of them first.
        for first in (0..all.len()).rev() {
            sweeps.order_by_wait(all[first..].to_vec());
        }
        let mut waiting = sweeps.order_by_wait(all);
        let turns = take_all(&sweeps, &mut waiting);
        assert_eq!(hosts(&turns), (0..9).rev().collect::<Vec<u32>>());
    }

    #[test]
    fn hosts_that_are_followed_go_first() {
        let sweeps = Arc::new(Sweeps::default());
        // The one that is only known by name has waited a little longer.
        sweeps.order_by_wait(vec![due(1, false, true)]);
        let all = vec![due(1, false, true), due(2, true, true)];
        let turns = take_all(&sweeps, &mut sweeps.order_by_wait(all.clone()));
        assert_eq!(hosts(&turns), [2, 1]);
        drop(turns);
        // But not for ever.
        let long_ago = Instant::now().checked_sub(2 * HEAD_START);
        sweeps.change(HostId(1), |state| state.due_since = long_ago);
        if long_ago.is_some() {
            let turns = take_all(&sweeps, &mut sweeps.order_by_wait(all));
            assert_eq!(hosts(&turns), [1, 2]);
        }
    }

    #[test]
    fn hosts_that_may_be_silent_leave_places_to_those_that_answer() {
        let sweeps = Arc::new(Sweeps::default());
        let silent = (0..100).map(|host| due(host, true, false));
        let mut all: Vec<DueHost> = silent.collect();
        all.push(due(100, false, true));
        let mut waiting = sweeps.order_by_wait(all);
        let mut turns = take_all(&sweeps, &mut waiting);
        assert_eq!(turns.len(), CONCURRENT_SWEEPS - FOR_PROVEN + 1);
        assert_eq!(turns.last().map(|turn| turn.host), Some(HostId(100)));
        // A free slot is taken, but not by a host of another kind.
        turns.pop();
        assert_eq!(take_all(&sweeps, &mut waiting).len(), 0);
        turns.pop();
        assert_eq!(take_all(&sweeps, &mut waiting).len(), 1);
        let answering = (200..300).map(|host| due(host, false, true)).collect();
        let more = take_all(&sweeps, &mut sweeps.order_by_wait(answering));
        assert_eq!(more.len(), CONCURRENT_SWEEPS - turns.len());
    }

    #[test]
    fn a_sweep_that_a_fault_has_ended_is_begun_again_after_a_rest() {
        let sweeps = Arc::new(Sweeps::default());
        let host = HostId(7);
        let mut waiting = sweeps.order_by_wait(vec![due(7, true, true)]);
        let turn = sweeps.begin_next(Time(1), &mut waiting).expect("it is due");
        assert_eq!(sweeps.idle_state(host), None, "it is swept");
        let ended = std::thread::spawn(move || {
            let _turn = turn;
            panic!("a fault of ours");
        });
        assert!(ended.join().is_err());
        let state = sweeps.get(host).expect("it is known");
        assert!(!state.running, "it can be swept again");
        assert_eq!(sweeps.idle_state(host), None, "but not at once");
        sweeps.change(host, |state| state.not_before = Some(Instant::now()));
        assert_eq!(sweeps.idle_state(host), Some(true));
        assert_eq!(state.failures(), 1, "and that is counted");
        assert!(state.not_before.is_some_and(|until| until > Instant::now()));
    }

    #[test]
    fn the_sweeps_of_all_hosts_together_say_how_often_each_is_swept() {
        let sweeps = Sweeps::default();
        let least = Duration::from_secs(900);
        let busy = |seconds: u64| Cost {
            busy: Duration::from_secs(seconds),
            ..Cost::default()
        };
        // None of them alone would be too much.
        for host in 0..10 {
            sweeps.record_cost(HostId(host), busy(10), true, Some(least));
        }
        assert_eq!(sweeps.every(), Duration::from_secs(20 * 100));
        sweeps.record_cost(HostId(0), busy(30), true, Some(least));
        assert_eq!(sweeps.every(), Duration::from_secs(20 * 120));
        sweeps.record_cost(HostId(0), busy(1), false, Some(least));
        assert_eq!(
            sweeps.every(),
            Duration::from_secs(20 * 120),
            "one that was cut short says nothing"
        );
        for host in 0..10 {
            sweeps.record_cost(HostId(host), busy(1), true, Some(least));
        }
        assert_eq!(sweeps.every(), least);
        let fixed = Sweeps::default();
        fixed.record_cost(HostId(0), busy(1000), true, None);
        assert_eq!(fixed.every(), Duration::ZERO, "whatever it costs");
    }

    #[test]
    fn it_is_remembered_since_when_sweeps_fail_and_why_the_last_one_did() {
        let sweeps = Sweeps::default();
        sweeps.change(HostId(1), |state| {
            state.record_failure(Time(10), "status 500")
        });
        sweeps.change(HostId(1), |state| {
            state.record_failure(Time(20), &"x".repeat(2 * MAX_ERROR_CHARS))
        });
        sweeps.change(HostId(2), |_| ());
        let failing = SweepFailures {
            since: Time(10),
            times: 2,
            error: "x".repeat(MAX_ERROR_CHARS),
        };
        assert_eq!(sweeps.failing(), [(HostId(1), failing)]);
        assert_eq!(sweeps.failing_count(), 1);
    }
}
