//! Sweeps: page by page through a host's own listing, or question by question if few of its
//! repositories are wanted. Only a sweep finds what a host has silently left out. This file
//! decides which hosts are due, runs a sweep, and records its result.

mod confirm_deletion;
mod listing;
mod pace;
mod page_guard;
mod patience;
mod questions;
pub(crate) mod queue;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_core::ledger::event::Context;
use gapless_core::ledger::sweep::{self, PageNote, Suspect};
use gapless_core::ledger::{Host, HostId, Now, RepoId, Settings, Upstream, UpstreamKind};
use gapless_net::HostAddress;
use gapless_store::error::StoreError;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use crate::failpoints;
use crate::repair::worker::Fetcher;
use crate::sweep::pace::{Cost, rest, rest_of_unnamed_host};
use crate::sweep::patience::Patience;
use crate::sweep::queue::{DueHost, SweepPermit, Sweeps};

/// How often the sweeper checks which hosts are due.
const DUE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Why a sweep did not complete.
#[derive(Debug)]
pub(crate) enum SweepError {
    /// The host caused the failure; the text is for an operator.
    Failed(String),
    /// The host did not cause the failure; the text is for an operator.
    Local(String),
    Store(StoreError),
}

impl SweepError {
    pub(crate) fn failed(why: impl std::fmt::Display) -> SweepError {
        SweepError::Failed(why.to_string())
    }

    pub(crate) fn shutdown() -> SweepError {
        SweepError::failed("Gapless is shutting down")
    }
}

impl From<StoreError> for SweepError {
    fn from(error: StoreError) -> SweepError {
        SweepError::Store(error)
    }
}

/// Whether an upstream is followed for every repository of its host: it is the host's own
/// stream, and not read for tracked repositories alone.
pub(crate) fn is_whole(row: &Upstream) -> bool {
    row.kind == UpstreamKind::Pds && row.followed.reads_all()
}

/// A sweep in progress: what it has found, and what it has cost.
pub(crate) struct SweepRun {
    pub host: HostId,
    pub began: Now,
    pub address: HostAddress,
    /// Whether every repository of the host is wanted, new ones included.
    pub adopt: bool,
    pub listed: HashSet<RepoId>,
    /// Entries of the listing, of known and unknown repositories.
    pub entries: u64,
    /// The permit for a large listing, once the listing is large.
    pub large: Option<OwnedSemaphorePermit>,
    pub suspects: Vec<(Did, Suspect, Arc<PageNote>)>,
    pub confirm: Vec<Did>,
    /// Why the first entry was skipped, or the first question had no answer. Then the host
    /// does not count as swept.
    pub skipped: Option<String>,
    /// Whether the store refused a change that an entry led to.
    pub store_refused: bool,
    /// Repositories that the host should have.
    pub expected: u64,
    /// How many of the expected repositories the host does not have.
    pub absent: u64,
    /// Repositories that the host does not have, as its answer says.
    pub vanished: Vec<Did>,
    /// All repositories that count as absent.
    pub missing: HashSet<Did>,
    /// Repositories that were not listed and that a relay calls deleted.
    pub awaiting_deletion: Vec<Did>,
    pub cost: Cost,
    pub patience: Patience,
}

pub(crate) struct Sweeper {
    pub fetcher: Arc<Fetcher>,
    pub sweeps: Arc<Sweeps>,
    /// Whether the operator set the interval. Such an interval is kept, whatever the sweeps cost.
    pub fixed_interval: bool,
    /// The limit of requests to one host.
    pub requests_per_second: f64,
}

impl SweepRun {
    /// Records that something was skipped, so the host does not count as swept.
    pub(crate) fn skip(&mut self, why: impl std::fmt::Display) {
        self.skipped.get_or_insert_with(|| why.to_string());
    }
}

impl Sweeper {
    pub(crate) async fn run(self: Arc<Self>) {
        let services = self.fetcher.services.clone();
        let mut running = JoinSet::new();
        while !services.shutdown.has_begun() {
            // Check every host only once per round, because that takes time.
            let due = self.sweeps.order_by_wait(self.due());
            tokio::select! {
                () = self.begin(due, &mut running) => {}
                () = self.fetcher.sweep_wake.notified() => {}
                () = tokio::time::sleep(DUE_CHECK_INTERVAL) => {}
                () = services.shutdown.begun() => {}
            }
        }
        running.shutdown().await;
    }

    /// Begins a sweep for each free slot, and another one whenever a sweep ends. Never returns; the
    /// caller drops the future when other hosts may be due.
    async fn begin(self: &Arc<Self>, mut due: VecDeque<DueHost>, running: &mut JoinSet<()>) {
        loop {
            let now = self.fetcher.services.clock.time();
            while let Some(turn) = self.sweeps.begin_next(now, &mut due) {
                let sweeper = self.clone();
                running.spawn(async move { sweeper.sweep(turn).await });
            }
            match running.join_next().await {
                Some(ended) => self.log_panic(ended),
                None => std::future::pending().await,
            }
        }
    }

    /// Counts a sweep that panicked as a failure.
    fn log_panic(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(fault) = ended
            && fault.is_panic()
        {
            self.fetcher.services.metrics.sweep_failures.inc();
            tracing::error!(%fault, "a sweep ended unexpectedly, a fault of Gapless; swept again later");
        }
    }

    /// Returns the hosts that are due.
    fn due(&self) -> Vec<DueHost> {
        let services = &self.fetcher.services;
        let now = services.clock.last_tick_now();
        let covers = services.upstreams.read();
        let streams = covers
            .iter()
            .filter(|(_, source)| source.row.kind == UpstreamKind::Pds);
        let own: HashSet<HostId> = streams.filter_map(|(_, source)| source.row.host).collect();
        let settings = Settings {
            sweep_every: self.sweeps.every().max(services.rules.settings.sweep_every),
            ..services.rules.settings
        };
        let context = Context {
            now,
            covers: &covers,
            settings: &settings,
        };
        let mut due = Vec::new();
        services.hosts.each(|id, host| {
            if let Some(failing) = self.sweeps.idle_state(id)
                && (sweep::is_due(context, id, host) || self.is_doubted(id, host))
            {
                due.push(DueHost {
                    host: id,
                    followed: own.contains(&id),
                    proven: host.swept.is_some() && !failing,
                });
            }
        });
        due
    }

    /// Whether the stream that vouches for a host's repositories has missed something that
    /// another stream brought.
    fn is_doubted(&self, id: HostId, host: &Host) -> bool {
        let services = &self.fetcher.services;
        host.swept.is_some_and(|last| {
            let age = services.clock.time().since(last.at);
            services.upstreams.sources.wants_sweep(id, last.tick, age)
        })
    }

    async fn sweep(&self, turn: SweepPermit) {
        let host = turn.host;
        let services = &self.fetcher.services;
        let mut cost = Cost::default();
        let mut asked = false;
        let failed = match self.run_sweep(host, &mut cost).await {
            Ok(any) => {
                asked = any;
                None
            }
            // While the disk is full, no answer of a host can be recorded.
            Err(SweepError::Failed(why)) => Some((why, services.disk.shortage().is_some())),
            Err(SweepError::Local(why)) => Some((why, true)),
            Err(SweepError::Store(error)) => {
                if error.is_final() {
                    services.shutdown.fail(error.clone());
                }
                Some((error.to_string(), true))
            }
        };
        if asked {
            services.schedule.reached(host);
        }
        if let Some((error, true)) = &failed {
            tracing::debug!(
                ?host,
                error,
                "a sweep failed for a local reason; swept again later"
            );
        }
        let every = services.rules.settings.sweep_every;
        let named = self.is_named(host);
        self.sweeps.change(host, |state| {
            match &failed {
                Some((why, false)) => state.record_failure(turn.began, why),
                Some((_, true)) => {}
                None => state.failing = None,
            }
            let failures = state.failures().max(u32::from(failed.is_some()));
            let rest = if named {
                rest(cost, failures, every)
            } else {
                rest_of_unnamed_host(cost, failures, every, host.0)
            };
            state.not_before = Some(Instant::now() + rest);
        });
        let stretched = (!self.fixed_interval).then_some(every);
        self.sweeps
            .record_cost(host, cost, failed.is_none(), stretched);
        if services.hosts.get(host).is_none() {
            // The host was forgotten meanwhile.
            self.sweeps.forget(host);
        }
        match failed {
            Some(_) => services.metrics.sweep_failures.inc(),
            None => services.metrics.sweeps.inc(),
        }
    }

    /// Runs one sweep. `cost` is set even if the sweep fails. Returns false if there was
    /// nothing to ask: then the host does not count as swept or as reached.
    async fn run_sweep(&self, host: HostId, cost: &mut Cost) -> Result<bool, SweepError> {
        let services = &self.fetcher.services;
        let Some(address) = self.fetcher.address(host) else {
            return Err(SweepError::failed("the address of the host is unknown"));
        };
        let mut sweep = SweepRun {
            host,
            began: services.clock.now(),
            address,
            adopt: self.wants_all(host),
            listed: HashSet::new(),
            entries: 0,
            large: None,
            suspects: Vec::new(),
            confirm: Vec::new(),
            skipped: None,
            store_refused: false,
            expected: 0,
            absent: 0,
            vanished: Vec::new(),
            missing: HashSet::new(),
            awaiting_deletion: Vec::new(),
            cost: Cost::default(),
            patience: Patience::new(self.requests_per_second),
        };
        let result = self.read_and_ask(&mut sweep).await;
        *cost = sweep.cost;
        let asked = result?;
        match (sweep.skipped.take(), sweep.store_refused) {
            (Some(why), true) => return Err(SweepError::Local(why)),
            (Some(why), false) => return Err(SweepError::Failed(why)),
            (None, _) => {}
        }
        if !sweep.adopt && self.wants_all(host) {
            // Now every repository is wanted, but this sweep has ignored new ones.
            return Err(SweepError::failed(
                "the host became one whose repositories are all wanted",
            ));
        }
        failpoints::here("sweep.done");
        if asked {
            self.record_swept(&sweep).await?;
            self.confirm_deletions(&sweep).await?;
        }
        Ok(asked)
    }

    /// Reads the listing, or asks about each repository. Returns whether there was anything
    /// to ask.
    async fn read_and_ask(&self, sweep: &mut SweepRun) -> Result<bool, SweepError> {
        if !sweep.adopt
            && let Some(few) = self.read_small_host(sweep.host).await?
        {
            let any = !few.is_empty();
            self.ask_each(sweep, few).await?;
            self.count_vanished(sweep).await?;
            return Ok(any);
        }
        let began = Instant::now();
        let mut read = self.read_pages(sweep).await;
        if read.is_ok() {
            read = self.count_absent(sweep).await.map_err(SweepError::from);
        }
        sweep.cost.took += began.elapsed();
        // Frees memory, and the permit that other large listings wait for.
        sweep.listed = HashSet::new();
        sweep.large = None;
        read?;
        let lines = sweep.entries;
        self.sweeps
            .change(sweep.host, |state| state.listed = Some(lines));
        let older = sweep.suspects.iter().filter(|(_, one, _)| one.older);
        let behind_counts = &self.fetcher.services.hosts.behind_counts;
        behind_counts.record_listed(sweep.host, older.count() as u64);
        self.ask_suspects(sweep).await?;
        self.count_vanished(sweep).await?;
        Ok(true)
    }

    /// Whether every repository of a host is wanted.
    fn wants_all(&self, host: HostId) -> bool {
        if self.fetcher.services.admission.scope.network {
            return true;
        }
        let covers = self.fetcher.services.upstreams.read();
        covers
            .iter()
            .any(|(_, source)| is_whole(&source.row) && source.row.host == Some(host))
    }

    /// Whether the operator added the host as an upstream.
    pub(crate) fn is_named(&self, host: HostId) -> bool {
        let covers = self.fetcher.services.upstreams.read();
        let own = |row: &Upstream| row.host == Some(host) && row.followed.is_by_operator();
        covers
            .possible_covers(host)
            .any(|(_, source)| own(&source.row))
    }

    /// Records that the host is swept: all suspects are decided, and all questions are
    /// answered or owed.
    async fn record_swept(&self, sweep: &SweepRun) -> Result<(), StoreError> {
        let services = &self.fetcher.services;
        let tick = services.clock.now().tick;
        // The sweep covers nothing that happened after its pages were read.
        let began = sweep.began;
        let change = |row: &mut Host| {
            sweep::finish(row, began);
            row.reached = true;
            if sweep.absent == 0 {
                sweep::resume_hiding(row);
            }
        };
        let written = services.hosts.change(tick, sweep.host, change).await;
        written.map(|_| ())
    }
}
