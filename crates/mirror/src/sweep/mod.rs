//! Sweeps: page by page through a host's own listing, or question by question
//! where we want few of its repositories. The only way to find what a host silently
//! left out. Here: which hosts are due, what a sweep is, and when it is done.

mod confirm_deletion;
mod listing;
mod pace;
mod page_guard;
mod patience;
mod questions;
pub mod queue;

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
use crate::sweep::pace::{Cost, rest, rest_of_stranger};
use crate::sweep::patience::Patience;
use crate::sweep::queue::{Due, HostTurn, Sweeps};

/// How often it is looked whether a sweep is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Why a sweep did not go through.
#[derive(Debug)]
pub(crate) enum Cut {
    /// In words for a person.
    Short(String),
    /// Likewise; the host has done nothing wrong.
    Here(String),
    Store(StoreError),
}

impl Cut {
    pub fn short(why: impl std::fmt::Display) -> Cut {
        Cut::Short(why.to_string())
    }

    pub fn ending() -> Cut {
        Cut::short("Gapless was ended meanwhile")
    }
}

impl From<StoreError> for Cut {
    fn from(error: StoreError) -> Cut {
        Cut::Store(error)
    }
}

/// Whether an upstream is followed for every repository of its host: it is the
/// host's own stream, and not read for tracked repositories alone.
pub fn is_whole(row: &Upstream) -> bool {
    row.kind == UpstreamKind::Pds && row.followed.reads_all()
}

/// What a sweep found, and what it cost.
pub(crate) struct Sweep {
    pub host: HostId,
    pub began: Now,
    pub address: HostAddress,
    pub adopt: bool,
    pub listed: HashSet<RepoId>,
    /// Lines of the listing, known or not.
    pub lines: u64,
    /// Its place among the large ones, once it is one.
    pub large: Option<OwnedSemaphorePermit>,
    pub suspects: Vec<(Did, Suspect, Arc<PageNote>)>,
    pub confirm: Vec<Did>,
    /// Some line could not be looked at, or of a host that is asked about each by
    /// itself some question was not answered: then it is not swept. The first, in
    /// words.
    pub passed: Option<String>,
    /// Our store did not take what lines of its listing led to.
    pub unwritten: bool,
    /// Repositories that should be there, how many of them were not listed, and
    /// those that the host does not have when it is asked.
    pub all: u64,
    pub absent: u64,
    pub vanished: Vec<Did>,
    /// All of these, once they are known not to be there.
    pub missing: HashSet<Did>,
    /// Those that it has missed and that a relay calls deleted.
    pub awaiting: Vec<Did>,
    pub cost: Cost,
    pub patience: Patience,
}

pub struct Sweeper {
    pub fetcher: Arc<Fetcher>,
    pub sweeps: Arc<Sweeps>,
    /// The operator gave the interval: it is kept, whatever it costs.
    pub fixed: bool,
    /// To one host.
    pub requests_per_second: f64,
}

impl Sweep {
    /// Something was passed over: the host is not swept.
    pub fn pass(&mut self, why: impl std::fmt::Display) {
        self.passed.get_or_insert_with(|| why.to_string());
    }
}

impl Sweeper {
    pub async fn run(self: Arc<Self>) {
        let services = self.fetcher.services.clone();
        let mut running = JoinSet::new();
        while !services.shutdown.has_begun() {
            // Looking at every host takes its time: once a round, however many begin.
            let due = self.sweeps.in_turn(self.due());
            tokio::select! {
                () = self.begin(due, &mut running) => {}
                () = self.fetcher.sweep_wake.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = services.shutdown.begun() => {}
            }
        }
        running.shutdown().await;
    }

    /// Begins with as many as there are places, and with another whenever one is
    /// left. Does not end by itself: after a while others are due.
    async fn begin(self: &Arc<Self>, mut due: VecDeque<Due>, running: &mut JoinSet<()>) {
        loop {
            let now = self.fetcher.services.clock.time();
            while let Some(turn) = self.sweeps.take(now, &mut due) {
                let sweeper = self.clone();
                running.spawn(async move { sweeper.sweep(turn).await });
            }
            match running.join_next().await {
                Some(ended) => self.see_how_it_ended(ended),
                None => std::future::pending().await,
            }
        }
    }

    /// A sweep that a fault of ours has ended is counted as one that failed.
    fn see_how_it_ended(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(fault) = ended
            && fault.is_panic()
        {
            self.fetcher.services.metrics.sweep_failures.inc();
            tracing::error!(%fault, "a sweep ended unexpectedly, a fault of Gapless; begun again later");
        }
    }

    /// The hosts that are due.
    fn due(&self) -> Vec<Due> {
        let services = &self.fetcher.services;
        let now = services.clock.glance();
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
            if let Some(failing) = self.sweeps.waits(id)
                && (sweep::is_due(context, id, host) || self.is_doubted(id, host))
            {
                due.push(Due {
                    host: id,
                    followed: own.contains(&id),
                    proven: host.swept.is_some() && !failing,
                });
            }
        });
        due
    }

    /// Whether the stream that speaks for what lives there has missed something that
    /// another one brought.
    fn is_doubted(&self, id: HostId, host: &Host) -> bool {
        let services = &self.fetcher.services;
        host.swept.is_some_and(|last| {
            let age = services.clock.time().since(last.at);
            services.upstreams.sources.wants_sweep(id, last.tick, age)
        })
    }

    async fn sweep(&self, turn: HostTurn) {
        let host = turn.host;
        let services = &self.fetcher.services;
        let mut cost = Cost::default();
        let mut asked = false;
        let failed = match self.go_through(host, &mut cost).await {
            Ok(went) => {
                asked = went;
                None
            }
            // With no room nothing is written, and no answer of a host is taken in.
            Err(Cut::Short(why)) => Some((why, services.disk.shortage().is_some())),
            Err(Cut::Here(why)) => Some((why, true)),
            Err(Cut::Store(error)) => {
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
                "a sweep was cut short here; begun again later"
            );
        }
        let every = services.rules.settings.sweep_every;
        let named = self.is_named(host);
        self.sweeps.change(host, |state| {
            match &failed {
                Some((why, false)) => state.fail(turn.began, why),
                Some((_, true)) => {}
                None => state.failing = None,
            }
            let failures = state.failures().max(u32::from(failed.is_some()));
            let rest = match named {
                true => rest(cost, failures, every),
                false => rest_of_stranger(cost, failures, every, host.0),
            };
            state.not_before = Some(Instant::now() + rest);
        });
        let stretched = (!self.fixed).then_some(every);
        self.sweeps.spend(host, cost, failed.is_none(), stretched);
        if services.hosts.get(host).is_none() {
            // Forgotten meanwhile.
            self.sweeps.forget(host);
        }
        match failed {
            Some(_) => services.metrics.sweep_failures.inc(),
            None => services.metrics.sweeps.inc(),
        }
    }

    /// The cost is told even if the sweep was cut short. False: there was nothing to ask,
    /// so the host is not swept, and nobody knows whether it answers.
    async fn go_through(&self, host: HostId, cost: &mut Cost) -> Result<bool, Cut> {
        let services = &self.fetcher.services;
        let Some(address) = self.fetcher.address(host) else {
            return Err(Cut::short("nobody knows where it is reached"));
        };
        let mut sweep = Sweep {
            host,
            began: services.clock.now(),
            address,
            adopt: self.wants_all(host),
            listed: HashSet::new(),
            lines: 0,
            large: None,
            suspects: Vec::new(),
            confirm: Vec::new(),
            passed: None,
            unwritten: false,
            all: 0,
            absent: 0,
            vanished: Vec::new(),
            missing: HashSet::new(),
            awaiting: Vec::new(),
            cost: Cost::default(),
            patience: Patience::new(self.requests_per_second),
        };
        let gone = self.pages_and_questions(&mut sweep).await;
        *cost = sweep.cost;
        let asked = gone?;
        match (sweep.passed.take(), sweep.unwritten) {
            (Some(why), true) => return Err(Cut::Here(why)),
            (Some(why), false) => return Err(Cut::Short(why)),
            (None, _) => {}
        }
        if !sweep.adopt && self.wants_all(host) {
            // All of it is wanted by now, and new ones were passed by.
            return Err(Cut::short("it came to be followed whole meanwhile"));
        }
        failpoints::here("sweep.done");
        if asked {
            self.done(&sweep).await?;
            self.see_deleted(&sweep).await?;
        }
        Ok(asked)
    }

    /// Whether there was anything to ask.
    async fn pages_and_questions(&self, sweep: &mut Sweep) -> Result<bool, Cut> {
        if !sweep.adopt
            && let Some(few) = self.few(sweep.host).await?
        {
            let any = !few.is_empty();
            self.ask_each(sweep, few).await?;
            self.doubt_vanished(sweep).await?;
            return Ok(any);
        }
        let began = Instant::now();
        let mut read = self.read_pages(sweep).await;
        if read.is_ok() {
            read = self.count_absent(sweep).await.map_err(Cut::from);
        }
        sweep.cost.took += began.elapsed();
        // It takes memory, and a large one keeps others from being read.
        sweep.listed = HashSet::new();
        sweep.large = None;
        read?;
        let lines = sweep.lines;
        self.sweeps
            .change(sweep.host, |state| state.listed = Some(lines));
        let older = sweep.suspects.iter().filter(|(_, one, _)| one.older);
        let censuses = &self.fetcher.services.hosts.behind_counts;
        censuses.listed(sweep.host, older.count() as u64);
        self.questions(sweep).await?;
        self.doubt_vanished(sweep).await?;
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

    /// Whether an operator has named the host.
    pub(crate) fn is_named(&self, host: HostId) -> bool {
        let covers = self.fetcher.services.upstreams.read();
        let own = |row: &Upstream| row.host == Some(host) && row.followed.is_by_operator();
        covers
            .possible_covers(host)
            .any(|(_, source)| own(&source.row))
    }

    /// All suspects are decided, and all questions answered or owed.
    async fn done(&self, sweep: &Sweep) -> Result<(), StoreError> {
        let services = &self.fetcher.services;
        let tick = services.clock.now().tick;
        // What the host did since its pages were read, nobody has looked at.
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
