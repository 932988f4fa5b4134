//! Whose turn it is to be swept, and what is remembered of each host's sweeps while
//! we run: when the next one may begin, and since when and why they fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gapless_core::ledger::{HostId, Time};
use tokio::sync::Semaphore;

use super::pace::{Cost, rest};

/// Of the sweeps at a time: large ones, whose listings take memory.
const LARGE_AT_A_TIME: usize = 4;
/// Letters of an error; hosts' words are cut before, a chain of causes is not.
const LETTERS: usize = 500;

/// What people are told of a host's sweeps.
#[derive(Debug, Clone, Default)]
pub struct SweepState {
    pub every: Duration,
    pub suspects: u64,
    pub running: bool,
    /// Unless the last one went through.
    pub failing: Option<Failing>,
    pub(super) not_before: Option<Instant>,
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

    /// The sweep that began then has failed.
    pub(super) fn fail(&mut self, began: Time, error: &str) {
        let before = self.failing.take();
        self.failing = Some(Failing {
            since: before.as_ref().map_or(began, |failing| failing.since),
            times: before.map_or(0, |failing| failing.times).saturating_add(1),
            error: error.chars().take(LETTERS).collect(),
        });
    }
}

/// All hosts' sweeps.
pub struct Sweeps {
    states: Mutex<HashMap<HostId, SweepState>>,
    /// Places for large listings.
    pub(super) large: Arc<Semaphore>,
}

impl Default for Sweeps {
    fn default() -> Sweeps {
        Sweeps {
            states: Mutex::default(),
            large: Arc::new(Semaphore::new(LARGE_AT_A_TIME)),
        }
    }
}

impl Sweeps {
    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, SweepState>> {
        // Nothing in here can panic half way.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, host: HostId) -> Option<SweepState> {
        self.lock().get(&host).cloned()
    }

    /// The hosts whose last sweep failed.
    pub fn failing(&self) -> Vec<(HostId, Failing)> {
        let states = self.lock();
        let failing = states
            .iter()
            .filter_map(|(host, state)| Some((*host, state.failing.clone()?)));
        failing.collect()
    }

    /// How many these are.
    pub fn failing_count(&self) -> usize {
        let states = self.lock();
        let failing = states.values().filter(|state| state.failing.is_some());
        failing.count()
    }

    pub(super) fn change<T>(&self, host: HostId, act: impl FnOnce(&mut SweepState) -> T) -> T {
        act(self.lock().entry(host).or_default())
    }

    /// These hosts are due: whoever is not served now keeps its place in the row.
    pub(super) fn note_due(&self, due: &[HostId]) {
        let now = Instant::now();
        for host in due {
            self.change(*host, |state| state.due_since.get_or_insert(now).to_owned());
        }
    }

    /// The turn of the host that has been due the longest.
    pub(super) fn take(self: &Arc<Self>, now: Time, due: &[HostId]) -> Option<HostTurn> {
        let waiting = due.iter().map(|host| {
            let since = self.get(*host).and_then(|state| state.due_since);
            (since, *host)
        });
        let (_, host) = waiting.min()?;
        self.change(host, |state| {
            state.running = true;
            state.due_since = None;
        });
        Some(HostTurn {
            sweeps: self.clone(),
            host,
            began: now,
        })
    }
}

/// A host's turn. However it ends, the host can be swept again.
pub(super) struct HostTurn {
    sweeps: Arc<Sweeps>,
    pub host: HostId,
    pub began: Time,
}

impl Drop for HostTurn {
    fn drop(&mut self) {
        let fault = std::thread::panicking();
        self.sweeps.change(self.host, |state| {
            state.running = false;
            if fault {
                state.fail(self.began, "a fault of Gapless; the log says more");
                let rest = rest(Cost::default(), state.failures(), Duration::MAX);
                state.not_before = Some(Instant::now() + rest);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_take_their_turns_in_the_order_in_which_they_became_due() {
        let sweeps = Arc::new(Sweeps::default());
        let all: Vec<HostId> = (0..9).map(HostId).collect();
        let mut order = Vec::new();
        // They become due one after the other, the last of them first.
        for first in (0..all.len()).rev() {
            sweeps.note_due(&all[first..]);
        }
        for _ in 0..all.len() {
            let running = |host: &HostId| sweeps.get(*host).is_some_and(|state| state.running);
            let due: Vec<HostId> = all.iter().copied().filter(|host| !running(host)).collect();
            let turn = sweeps.take(Time(1), &due).expect("one is due");
            order.push(turn.host);
            std::mem::forget(turn);
        }
        assert!(order.iter().rev().eq(all.iter()), "{order:?}");
    }

    #[test]
    fn a_sweep_that_a_fault_has_ended_is_begun_again_after_a_rest() {
        let sweeps = Arc::new(Sweeps::default());
        let host = HostId(7);
        sweeps.note_due(&[host]);
        let turn = sweeps.take(Time(1), &[host]).expect("it is due");
        assert!(sweeps.get(host).is_some_and(|state| state.running));
        let ended = std::thread::spawn(move || {
            let _turn = turn;
            panic!("a fault of ours");
        });
        assert!(ended.join().is_err());
        let state = sweeps.get(host).expect("it is known");
        assert!(!state.running, "it can be swept again");
        assert_eq!(state.failures(), 1, "and that is counted");
        assert!(state.not_before.is_some_and(|until| until > Instant::now()));
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
