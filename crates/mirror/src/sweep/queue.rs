//! Whose turn it is to be swept, and what is remembered of each host's sweeps while
//! we run: when the next one may begin, and since when and why they fail.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gapless_core::ledger::{HostId, Time};
use tokio::sync::Semaphore;

use crate::sweep::pace::{Cost, interval, rest};

/// Hosts that are swept at a time. Most of them are waited for: it takes many that
/// are silent until one that answers has to wait.
const AT_A_TIME: usize = 32;
/// Of these: kept for hosts whose last sweep went through. Those that may be silent
/// have no more than the rest, however many they are.
const FOR_PROVEN: usize = 8;
/// A host that is followed itself goes before one that is only known by name, unless
/// that one has waited longer by so much.
const HEAD_START: Duration = Duration::from_secs(3600);
/// Of the sweeps at a time: large ones, whose listings take memory.
const LARGE_AT_A_TIME: usize = 4;
/// Letters of an error; hosts' words are cut before, a chain of causes is not.
const LETTERS: usize = 500;

/// What people are told of a host's sweeps.
#[derive(Debug, Clone, Default)]
pub struct SweepState {
    pub suspects: u64,
    pub running: bool,
    /// Unless the last one went through.
    pub failing: Option<Failing>,
    /// Repositories that its last listing had.
    pub listed: Option<u64>,
    /// What the last one cost.
    cost: Cost,
    pub(crate) not_before: Option<Instant>,
    /// Since when it has been waiting for its turn.
    due_since: Option<Instant>,
}

/// Sweeps that fail, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// When the first of them began.
    pub since: Time,
    pub times: u32,
    /// Why the last one failed.
    pub error: String,
}

impl SweepState {
    pub fn failures(&self) -> u32 {
        self.failing.as_ref().map_or(0, |failing| failing.times)
    }

    /// How long until it may be swept again.
    pub fn rests_for(&self) -> Duration {
        let until = self.not_before;
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    /// The sweep that began then has failed.
    pub(crate) fn fail(&mut self, began: Time, error: &str) {
        let before = self.failing.take();
        self.failing = Some(Failing {
            since: before.as_ref().map_or(began, |failing| failing.since),
            times: before.map_or(0, |failing| failing.times).saturating_add(1),
            error: error.chars().take(LETTERS).collect(),
        });
    }
}

/// A host that is to be swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub host: HostId,
    /// A stream of its own is followed.
    pub followed: bool,
    /// Its last sweep went through.
    pub proven: bool,
}

/// All hosts' sweeps.
pub struct Sweeps {
    kept: Mutex<Kept>,
    /// Places for large listings.
    pub(crate) large: Arc<Semaphore>,
}

#[derive(Default)]
struct Kept {
    states: HashMap<HostId, SweepState>,
    /// Places that are taken; and of these, by hosts that may be silent.
    taken: usize,
    unproven: usize,
    /// What the last sweeps of all hosts cost together.
    spent: Cost,
    every: Duration,
}

impl Default for Sweeps {
    fn default() -> Sweeps {
        Sweeps {
            kept: Mutex::default(),
            large: Arc::new(Semaphore::new(LARGE_AT_A_TIME)),
        }
    }
}

impl Sweeps {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here can panic half way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, host: HostId) -> Option<SweepState> {
        self.lock().states.get(&host).cloned()
    }

    /// Whether a host's last sweep failed; none if it is swept just now, or rests.
    pub(crate) fn waits(&self, host: HostId) -> Option<bool> {
        let kept = self.lock();
        let Some(state) = kept.states.get(&host) else {
            return Some(false);
        };
        let rests = state.not_before.is_some_and(|until| Instant::now() < until);
        (!state.running && !rests).then_some(state.failing.is_some())
    }

    /// How many repositories a host's last listing had.
    pub fn listed(&self, host: HostId) -> Option<u64> {
        self.lock().states.get(&host)?.listed
    }

    /// The hosts whose last sweep failed.
    pub fn failing(&self) -> Vec<(HostId, Failing)> {
        let kept = self.lock();
        let failing = kept
            .states
            .iter()
            .filter_map(|(host, state)| Some((*host, state.failing.clone()?)));
        failing.collect()
    }

    /// How many these are.
    pub fn failing_count(&self) -> usize {
        let kept = self.lock();
        let failing = kept.states.values().filter(|state| state.failing.is_some());
        failing.count()
    }

    /// A host is known no more.
    pub fn forget(&self, host: HostId) {
        let mut kept = self.lock();
        if let Some(gone) = kept.states.remove(&host) {
            kept.spent = kept.spent.minus(gone.cost);
        }
    }

    pub(crate) fn change<T>(&self, host: HostId, act: impl FnOnce(&mut SweepState) -> T) -> T {
        act(self.lock().states.entry(host).or_default())
    }

    /// How often every host is swept, by what that costs; zero when the operator has
    /// said how often.
    pub fn every(&self) -> Duration {
        self.lock().every
    }

    /// A sweep of a host has cost so much; the next one would, too. One that was cut
    /// short shows only the least of it. Unless the operator has said how often, all
    /// hosts are swept as often as that allows, and not more often than this.
    pub(crate) fn spend(&self, host: HostId, cost: Cost, whole: bool, every: Option<Duration>) {
        let mut kept = self.lock();
        let before = kept.states.get(&host).map(|state| state.cost);
        let before = before.unwrap_or_default();
        let cost = match whole {
            true => cost,
            false => cost.or_more(before),
        };
        kept.states.entry(host).or_default().cost = cost;
        kept.spent = kept.spent.minus(before).plus(cost);
        if let Some(every) = every {
            kept.every = interval(kept.spent, every);
        }
    }

    /// These hosts are due, in the order in which they take their turns: whoever is
    /// not served now keeps its place in the row.
    pub(crate) fn in_turn(&self, due: Vec<Due>) -> VecDeque<Due> {
        let now = Instant::now();
        let mut kept = self.lock();
        let mut waited = |due: &Due| {
            let state = kept.states.entry(due.host).or_default();
            let since = *state.due_since.get_or_insert(now);
            let head_start = match due.followed {
                true => HEAD_START,
                false => Duration::ZERO,
            };
            now.saturating_duration_since(since) + head_start
        };
        let mut row: Vec<(Duration, Due)> =
            due.into_iter().map(|due| (waited(&due), due)).collect();
        row.sort_by_key(|(waited, _)| Reverse(*waited));
        row.into_iter().map(|(_, due)| due).collect()
    }

    /// The turn of the first for which there is a place.
    pub(crate) fn take(
        self: &Arc<Self>,
        now: Time,
        waiting: &mut VecDeque<Due>,
    ) -> Option<HostTurn> {
        let mut kept = self.lock();
        if kept.taken >= AT_A_TIME {
            return None;
        }
        let any = kept.unproven < AT_A_TIME - FOR_PROVEN;
        let next = waiting.iter().position(|due| due.proven || any)?;
        let Due { host, proven, .. } = waiting.remove(next)?;
        kept.taken += 1;
        kept.unproven += usize::from(!proven);
        let state = kept.states.entry(host).or_default();
        state.running = true;
        state.due_since = None;
        Some(HostTurn {
            sweeps: self.clone(),
            host,
            began: now,
            proven,
        })
    }
}

/// A host's turn. However it ends, the host can be swept again.
pub(crate) struct HostTurn {
    sweeps: Arc<Sweeps>,
    pub host: HostId,
    pub began: Time,
    proven: bool,
}

impl Drop for HostTurn {
    fn drop(&mut self) {
        let mut kept = self.sweeps.lock();
        kept.taken -= 1;
        kept.unproven -= usize::from(!self.proven);
        let state = kept.states.entry(self.host).or_default();
        state.running = false;
        if std::thread::panicking() {
            state.fail(self.began, "a fault of Gapless; the log says more");
            let rest = rest(Cost::default(), state.failures(), Duration::MAX);
            state.not_before = Some(Instant::now() + rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(host: u32, followed: bool, proven: bool) -> Due {
        Due {
            host: HostId(host),
            followed,
            proven,
        }
    }

    /// Takes turns until there is no place, or nobody is left.
    fn take_all(sweeps: &Arc<Sweeps>, waiting: &mut VecDeque<Due>) -> Vec<HostTurn> {
        std::iter::from_fn(|| sweeps.take(Time(1), waiting)).collect()
    }

    fn hosts(turns: &[HostTurn]) -> Vec<u32> {
        turns.iter().map(|turn| turn.host.0).collect()
    }

    #[test]
    fn hosts_take_their_turns_in_the_order_in_which_they_became_due() {
        let sweeps = Arc::new(Sweeps::default());
        let all: Vec<Due> = (0..9).map(|host| due(host, false, true)).collect();
        // They become due one after the other, the last of them first.
        for first in (0..all.len()).rev() {
            sweeps.in_turn(all[first..].to_vec());
        }
        let mut waiting = sweeps.in_turn(all);
        let turns = take_all(&sweeps, &mut waiting);
        assert_eq!(hosts(&turns), (0..9).rev().collect::<Vec<u32>>());
    }

    #[test]
    fn hosts_that_are_followed_go_first() {
        let sweeps = Arc::new(Sweeps::default());
        // The one that is only known by name has waited a little longer.
        sweeps.in_turn(vec![due(1, false, true)]);
        let all = vec![due(1, false, true), due(2, true, true)];
        let turns = take_all(&sweeps, &mut sweeps.in_turn(all.clone()));
        assert_eq!(hosts(&turns), [2, 1]);
        drop(turns);
        // But not for ever.
        let long_ago = Instant::now().checked_sub(2 * HEAD_START);
        sweeps.change(HostId(1), |state| state.due_since = long_ago);
        if long_ago.is_some() {
            let turns = take_all(&sweeps, &mut sweeps.in_turn(all));
            assert_eq!(hosts(&turns), [1, 2]);
        }
    }

    #[test]
    fn hosts_that_may_be_silent_leave_places_to_those_that_answer() {
        let sweeps = Arc::new(Sweeps::default());
        let silent = (0..100).map(|host| due(host, true, false));
        let mut all: Vec<Due> = silent.collect();
        all.push(due(100, false, true));
        let mut waiting = sweeps.in_turn(all);
        let mut turns = take_all(&sweeps, &mut waiting);
        assert_eq!(turns.len(), AT_A_TIME - FOR_PROVEN + 1);
        assert_eq!(turns.last().map(|turn| turn.host), Some(HostId(100)));
        // A place that is left is taken, by nobody of another kind.
        turns.pop();
        assert_eq!(take_all(&sweeps, &mut waiting).len(), 0);
        turns.pop();
        assert_eq!(take_all(&sweeps, &mut waiting).len(), 1);
        let answering = (200..300).map(|host| due(host, false, true)).collect();
        let more = take_all(&sweeps, &mut sweeps.in_turn(answering));
        assert_eq!(more.len(), AT_A_TIME - turns.len());
    }

    #[test]
    fn a_sweep_that_a_fault_has_ended_is_begun_again_after_a_rest() {
        let sweeps = Arc::new(Sweeps::default());
        let host = HostId(7);
        let mut waiting = sweeps.in_turn(vec![due(7, true, true)]);
        let turn = sweeps.take(Time(1), &mut waiting).expect("it is due");
        assert_eq!(sweeps.waits(host), None, "it is swept");
        let ended = std::thread::spawn(move || {
            let _turn = turn;
            panic!("a fault of ours");
        });
        assert!(ended.join().is_err());
        let state = sweeps.get(host).expect("it is known");
        assert!(!state.running, "it can be swept again");
        assert_eq!(sweeps.waits(host), None, "but not at once");
        sweeps.change(host, |state| state.not_before = Some(Instant::now()));
        assert_eq!(sweeps.waits(host), Some(true));
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
            sweeps.spend(HostId(host), busy(10), true, Some(least));
        }
        assert_eq!(sweeps.every(), Duration::from_secs(20 * 100));
        sweeps.spend(HostId(0), busy(30), true, Some(least));
        assert_eq!(sweeps.every(), Duration::from_secs(20 * 120));
        sweeps.spend(HostId(0), busy(1), false, Some(least));
        assert_eq!(
            sweeps.every(),
            Duration::from_secs(20 * 120),
            "one that was cut short says nothing"
        );
        for host in 0..10 {
            sweeps.spend(HostId(host), busy(1), true, Some(least));
        }
        assert_eq!(sweeps.every(), least);
        let fixed = Sweeps::default();
        fixed.spend(HostId(0), busy(1000), true, None);
        assert_eq!(fixed.every(), Duration::ZERO, "whatever it costs");
    }

    #[test]
    fn it_is_remembered_since_when_sweeps_fail_and_why_the_last_one_did() {
        let sweeps = Sweeps::default();
        sweeps.change(HostId(1), |state| state.fail(Time(10), "status 500"));
        sweeps.change(HostId(1), |state| {
            state.fail(Time(20), &"x".repeat(2 * LETTERS))
        });
        sweeps.change(HostId(2), |_| ());
        let failing = Failing {
            since: Time(10),
            times: 2,
            error: "x".repeat(LETTERS),
        };
        assert_eq!(sweeps.failing(), [(HostId(1), failing)]);
        assert_eq!(sweeps.failing_count(), 1);
    }
}
