//! Sweeps: page by page through a host's own listing, or question by question
//! where we want few of its repositories. The only way to find what a host silently
//! left out. Here: which host is next, what a sweep is, and when it is done.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_core::ledger::sweep::{self, PageNote, Suspect};
use gapless_core::ledger::{Followed, HostId, Kind, Now, RepoId, Settings};
use gapless_store::error::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pace::{Cost, interval, rest};
use super::work::{Fetcher, Trouble};
use crate::net::HostAddress;
use crate::stop;

/// Hosts that are swept at a time. Most of them are waited for: it takes many that
/// are silent until one that answers has to wait.
const AT_A_TIME: usize = 32;
/// Of these: large ones, whose listings take memory.
const LARGE_AT_A_TIME: usize = 4;
/// How often it is looked whether a sweep is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What people are told of a host's sweeps.
#[derive(Debug, Clone, Copy, Default)]
pub struct SweepState {
    pub every: Duration,
    pub suspects: u64,
    pub running: bool,
    pub failures: u32,
    not_before: Option<Instant>,
    /// Since when it has been waiting for its turn.
    due_since: Option<Instant>,
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
    pub fn get(&self, host: HostId) -> Option<SweepState> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.get(&host).copied()
    }

    pub(super) fn change<T>(&self, host: HostId, act: impl FnOnce(&mut SweepState) -> T) -> T {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        act(states.entry(host).or_default())
    }

    /// These hosts are due: whoever is not served now keeps its place in the row.
    fn note_due(&self, due: &[HostId]) {
        let now = Instant::now();
        for host in due {
            self.change(*host, |state| state.due_since.get_or_insert(now).to_owned());
        }
    }

    /// The turn of the host that has been due the longest.
    fn take(self: &Arc<Self>, due: &[HostId]) -> Option<HostTurn> {
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
        })
    }
}

/// A host's turn. However it ends, the host can be swept again.
struct HostTurn {
    sweeps: Arc<Sweeps>,
    host: HostId,
}

impl Drop for HostTurn {
    fn drop(&mut self) {
        let fault = std::thread::panicking();
        self.sweeps.change(self.host, |state| {
            state.running = false;
            if fault {
                state.failures += 1;
                let rest = rest(Cost::default(), state.failures, Duration::MAX);
                state.not_before = Some(Instant::now() + rest);
            }
        });
    }
}

/// What a sweep found, and what it cost.
pub(super) struct Sweep {
    pub host: HostId,
    pub began: Now,
    pub address: HostAddress,
    pub adopt: bool,
    pub listed: HashSet<RepoId>,
    /// Its place among the large ones, once it is one.
    pub large: Option<OwnedSemaphorePermit>,
    pub suspects: Vec<(Did, Suspect, Arc<PageNote>)>,
    pub confirm: Vec<Did>,
    /// Some line could not be looked at, or of a host that is asked about each by
    /// itself some question was not answered: then it is not swept.
    pub passed: bool,
    /// Repositories that should be there, how many of them were not listed, and
    /// those that the host does not have when it is asked.
    pub all: u64,
    pub absent: u64,
    pub vanished: Vec<Did>,
    pub cost: Cost,
}

pub struct Sweeper {
    pub fetcher: Arc<Fetcher>,
    pub sweeps: Arc<Sweeps>,
    /// The operator gave the interval: it is kept, whatever it costs.
    pub fixed: bool,
}

impl Sweeper {
    pub async fn run(self: Arc<Self>) {
        let shared = self.fetcher.shared.clone();
        let mut running = tokio::task::JoinSet::new();
        while !shared.end.is_ending() {
            while let Some(ended) = running.try_join_next() {
                self.see_how_it_ended(ended);
            }
            let due = self.due();
            self.sweeps.note_due(&due);
            if running.len() < AT_A_TIME
                && let Some(turn) = self.sweeps.take(&due)
            {
                let sweeper = self.clone();
                running.spawn(async move { sweeper.sweep(turn).await });
                continue;
            }
            tokio::select! {
                () = self.fetcher.sweep_wake.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = shared.end.ended() => {}
            }
        }
        running.shutdown().await;
    }

    /// A sweep that a fault of ours has ended is counted as one that failed.
    fn see_how_it_ended(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(fault) = ended
            && fault.is_panic()
        {
            self.fetcher.shared.metrics.sweep_failures.inc();
            tracing::error!(%fault, "a sweep ended unexpectedly, a fault of Gapless; begun again later");
        }
    }

    /// The hosts that are due.
    fn due(&self) -> Vec<HostId> {
        let shared = &self.fetcher.shared;
        let now = shared.clock.glance();
        let hosts = shared.hosts.all();
        let covers = shared.upstreams.read();
        let mut due = Vec::new();
        for (id, host) in hosts {
            let state = self.sweeps.get(id).unwrap_or_default();
            let resting = state.not_before.is_some_and(|until| Instant::now() < until);
            if state.running || resting {
                continue;
            }
            let settings = Settings {
                sweep_every: state.every.max(shared.settings.sweep_every),
                ..shared.settings
            };
            let context = gapless_core::ledger::event::Context {
                now,
                covers: &covers,
                settings: &settings,
            };
            if sweep::due(context, id, &host) {
                due.push(id);
            }
        }
        due
    }

    async fn sweep(&self, turn: HostTurn) {
        let host = turn.host;
        let shared = &self.fetcher.shared;
        let mut cost = Cost::default();
        let swept = self.go_through(host, &mut cost).await;
        let failed = match &swept {
            Ok(()) => false,
            Err(Trouble::Failed) => true,
            Err(Trouble::Store(error)) => {
                if error.is_final() {
                    shared.end.fail(error.clone());
                }
                true
            }
        };
        let every = shared.settings.sweep_every;
        self.sweeps.change(host, |state| {
            state.failures = if failed { state.failures + 1 } else { 0 };
            state.not_before = Some(Instant::now() + rest(cost, state.failures, every));
            if !failed {
                state.every = match self.fixed {
                    true => every,
                    false => interval(cost, every),
                };
            }
        });
        match failed {
            true => shared.metrics.sweep_failures.inc(),
            false => shared.metrics.sweeps.inc(),
        }
    }

    /// The cost is told even if the sweep was cut short.
    async fn go_through(&self, host: HostId, cost: &mut Cost) -> Result<(), Trouble> {
        let shared = &self.fetcher.shared;
        let Some(address) = self.fetcher.address(host) else {
            return Err(Trouble::Failed);
        };
        let mut sweep = Sweep {
            host,
            began: shared.clock.now(),
            address,
            adopt: self.wants_all(host),
            listed: HashSet::new(),
            large: None,
            suspects: Vec::new(),
            confirm: Vec::new(),
            passed: false,
            all: 0,
            absent: 0,
            vanished: Vec::new(),
            cost: Cost::default(),
        };
        let gone = self.pages_and_questions(&mut sweep).await;
        *cost = sweep.cost;
        gone?;
        if sweep.passed {
            return Err(Trouble::Failed);
        }
        stop::here("sweep.done");
        Ok(self.done(&sweep).await?)
    }

    async fn pages_and_questions(&self, sweep: &mut Sweep) -> Result<(), Trouble> {
        if !sweep.adopt
            && let Some(few) = self.few(sweep.host).await?
        {
            self.ask_each(sweep, few).await?;
            return Ok(self.doubt_vanished(sweep).await?);
        }
        let began = Instant::now();
        let mut read = self.read_pages(sweep).await;
        if read.is_ok() {
            read = self.count_absent(sweep).await.map_err(Trouble::from);
        }
        sweep.cost.took += began.elapsed();
        // It takes memory, and a large one keeps others from being read.
        sweep.listed = HashSet::new();
        sweep.large = None;
        read?;
        self.questions(sweep).await?;
        Ok(self.doubt_vanished(sweep).await?)
    }

    /// Whether every repository of a host is wanted: its own stream is followed,
    /// and not for tracked repositories alone.
    fn wants_all(&self, host: HostId) -> bool {
        let covers = self.fetcher.shared.upstreams.read();
        covers.iter().any(|(_, source)| {
            source.row.kind == Kind::Pds
                && source.row.host == Some(host)
                && source.row.followed != Followed::ForTracked
        })
    }

    /// All suspects are decided, and all questions answered or owed.
    async fn done(&self, sweep: &Sweep) -> Result<(), StoreError> {
        let shared = &self.fetcher.shared;
        let tick = shared.clock.now().tick;
        // What the host did since its pages were read, nobody has looked at.
        let began = sweep.began;
        let written = shared
            .hosts
            .change(tick, sweep.host, |row| sweep::done(row, began))
            .await;
        written.map(|_| ())
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
            let turn = sweeps.take(&due).expect("one is due");
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
        let turn = sweeps.take(&[host]).expect("it is due");
        assert!(sweeps.get(host).is_some_and(|state| state.running));
        let ended = std::thread::spawn(move || {
            let _turn = turn;
            panic!("a fault of ours");
        });
        assert!(ended.join().is_err());
        let state = sweeps.get(host).expect("it is known");
        assert!(!state.running, "it can be swept again");
        assert_eq!(state.failures, 1, "and that is counted");
        assert!(state.not_before.is_some_and(|until| until > Instant::now()));
    }
}
