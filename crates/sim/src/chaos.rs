//! The run of one seed: chaos, then healing, then convergence.

use std::collections::BTreeMap;
use std::time::Duration;

use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::{RepoId, UpstreamId};

use crate::check::{Broken, Checker};
use crate::mirror::SimMirror;
use crate::mirror::log_event::LogEvents;
use crate::readers::Readers;
use crate::readers::kinds::KindCounts;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::{Fault, Faults, Place, World, name, short};

/// The result of one seed.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub hash: u64,
    pub events: u64,
    pub complete: u64,
    pub compared: u64,
    pub fetched: u64,
    pub differences: u64,
    pub differences_right: u64,
    pub claimed: u64,
    pub fired: BTreeMap<Fault, u64>,
    /// Rollbacks that were adopted.
    pub adopted: u64,
    /// What happened to the log and its readers.
    pub log_events: LogEvents,
    /// The rows of the log that readers read, by kind.
    pub kinds: KindCounts,
}

/// A seed that broke an invariant, with a readable description.
#[derive(Debug, Clone)]
pub struct Failure {
    pub seed: u64,
    pub invariant: &'static str,
    pub text: String,
}

/// One run of the simulator: world, mirror, readers of the log, checker and trace.
pub struct Run {
    pub seed: u64,
    pub world: World,
    pub mirror: SimMirror,
    pub readers: Readers,
    pub checker: Checker,
    pub trace: Trace,
}

/// The number of steps of chaos in one seed.
pub const STEPS: u64 = 1_000;

impl Run {
    pub fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let faults = Faults::some(&mut rng);
        let mut world = World::new(seed, faults);
        let mut mirror = SimMirror::new(seed);
        let hosts = rng.between(1, 3) as usize;
        for _ in 0..hosts {
            world.add_pds();
        }
        let owners = if rng.per_mille(40) {
            13
        } else {
            rng.between(2, 6) as usize
        };
        for _ in 0..owners {
            let host = rng.below(hosts);
            world.add_owner(host);
        }
        for _ in 0..rng.below(3) {
            world.add_relay();
        }
        settings(&mut rng, &mut mirror);
        let mut followed = 0;
        for place in places(&world) {
            let always = matches!(place, Place::Relay(_)) && rng.per_mille(700);
            if always || rng.per_mille(600) {
                mirror.follow(place);
                followed += 1;
            }
        }
        if followed == 0 {
            mirror.follow(Place::Pds(0));
        }
        for owner in 0..owners {
            if rng.per_mille(400) {
                world.write(owner);
            }
        }
        Run {
            seed,
            world,
            readers: Readers::new(seed, &mut mirror),
            mirror,
            checker: Checker::default(),
            trace: Trace::default(),
        }
    }

    /// An empty world in which nothing goes wrong by itself.
    pub fn bare() -> Run {
        Run {
            seed: 0,
            world: World::new(0, Faults::none()),
            mirror: SimMirror::new(0),
            readers: Readers::idle(),
            checker: Checker::default(),
            trace: Trace::default(),
        }
    }

    /// Runs a seed to its end.
    pub fn go(seed: u64) -> Result<Outcome, Box<Failure>> {
        let mut run = Run::new(seed);
        run.all().map_err(|broken| Box::new(run.failure(&broken)))?;
        Ok(run.outcome())
    }

    pub fn all(&mut self) -> Result<(), Broken> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.heal()?;
        self.aftermath()
    }

    pub fn outcome(&self) -> Outcome {
        Outcome {
            hash: self.trace.full_hash(),
            events: self.trace.steps(),
            complete: self.checker.complete,
            compared: self.checker.compared,
            fetched: self.mirror.counts.fetched,
            differences: self.mirror.counts.differences,
            differences_right: self.mirror.counts.differences_right,
            claimed: self.mirror.counts.claimed,
            fired: self.world.faults.fired().clone(),
            adopted: self.mirror.counts.adopted,
            log_events: self.mirror.book.events.clone(),
            kinds: self.readers.kinds.clone(),
        }
    }

    pub fn failure(&self, broken: &Broken) -> Failure {
        let rows: Vec<String> = self
            .mirror
            .book
            .repo_rows()
            .map(|(_, repo)| crate::trace::summary(repo, &self.mirror.answer(&self.world, repo)))
            .collect();
        let text = format!(
            "seed {}: {} does not hold: {}\n{}\n--- rows\n{}\n--- lies: {}\n--- again: cargo run --release -p gapless-sim -- --from {} --seeds 1 --verbose",
            self.seed,
            broken.invariant,
            broken.what,
            self.trace.tail(),
            rows.join("\n"),
            self.checker.doubts(),
            self.seed,
        );
        Failure {
            seed: self.seed,
            invariant: broken.invariant,
            text,
        }
    }

    /// Takes one step of chaos and checks the mirror.
    pub fn step(&mut self) -> Result<(), Broken> {
        let mut what = self.act();
        for _ in 0..4 {
            if what.is_empty() {
                what = self.act();
            }
        }
        let crashed = what.starts_with("crash");
        if what.is_empty() {
            return Ok(());
        }
        self.pass_some_time();
        self.note(what);
        self.checker
            .check(&mut self.world, &mut self.mirror, crashed)?;
        self.beside()
    }

    pub fn note(&mut self, what: String) {
        let at = (self.world.now.0 / 1000) % 1_000_000_000;
        let tick = self.mirror.ticks.last().0;
        let mut text = format!("{at:>9}ms t{tick:<5} {what}");
        for lie in &self.world.lies {
            let relay = lie.relay.map(|relay| format!("relay {relay}, "));
            let relay = relay.unwrap_or_default();
            text.push_str(&format!(" ({relay}{}: {})", name(lie.owner), lie.what));
        }
        self.trace.step(text);
    }

    fn pass_some_time(&mut self) {
        let rng = &mut self.world.rng;
        let micros = match rng.below(1000) {
            0..2 => rng.between(600_000_000, 2_400_000_000),
            2..12 => rng.between(20_000_000, 120_000_000),
            12..60 => rng.between(1_000_000, 12_000_000),
            _ => rng.between(10, 40_000),
        };
        self.world.pass(micros);
        if micros > 900_000 || self.world.rng.per_mille(60) {
            self.mirror.wait(&self.world);
        }
    }

    fn upstream(&mut self) -> Option<UpstreamId> {
        let ids: Vec<UpstreamId> = self.mirror.feeds.keys().copied().collect();
        self.world.rng.pick(&ids)
    }

    /// Takes a random action and describes it. Returns an empty text if there was nothing to do.
    fn act(&mut self) -> String {
        match self.world.rng.below(1000) {
            0..70 => self.write(),
            70..150 => self.relay_step(),
            150..300 => self.with_feed("read", |run, id| run.mirror.read(&mut run.world, id)),
            300..450 => self.process(),
            450..480 => self.with_feed("dial", |run, id| run.mirror.dial(&run.world, id)),
            480..530 => self.with_feed("connect", |run, id| run.mirror.connect(&mut run.world, id)),
            530..550 => self.with_feed("ping", |run, id| run.mirror.ping(&run.world, id)),
            550..620 => self.start_job(),
            620..800 => self.work_job(),
            800..815 => self.start_sweep(),
            815..890 => self.work_sweep(),
            890..930 => {
                self.mirror.book.sync();
                "sync to disk".to_owned()
            }
            930..935 => self.purge(),
            _ => crate::mischief::mischief(&mut self.world, &mut self.mirror),
        }
    }

    fn with_feed(&mut self, what: &str, act: impl FnOnce(&mut Run, UpstreamId) -> bool) -> String {
        let Some(id) = self.upstream() else {
            return String::new();
        };
        if act(self, id) {
            format!("{what} {id:?}")
        } else {
            String::new()
        }
    }

    fn write(&mut self) -> String {
        let owner = self.world.rng.below(self.world.owners.len());
        if self.world.write(owner) {
            let head = self
                .world
                .truth(owner)
                .map(|(commit, _)| short(commit.head.rev));
            let head = head.unwrap_or_default();
            let host = self.world.true_host(owner).unwrap_or_default();
            let log = &self.world.pds[host].log;
            let sent = log.entries.last().map(|entry| entry.frame.label());
            let sent = sent.unwrap_or_default();
            format!(
                "{} writes {head} at host {host}, sent last: {sent}",
                name(owner)
            )
        } else {
            String::new()
        }
    }

    fn relay_step(&mut self) -> String {
        if self.world.relays.is_empty() {
            return String::new();
        }
        let relay = self.world.rng.below(self.world.relays.len());
        if self.world.relay_step(relay) {
            format!("relay {relay} takes an event over")
        } else {
            String::new()
        }
    }

    fn process(&mut self) -> String {
        let Some(id) = self.upstream() else {
            return String::new();
        };
        let feed = &self.mirror.feeds[&id];
        let Some(place) = self.world.rng.pick(&feed.ready()) else {
            return String::new();
        };
        self.process_at(id, place)
    }

    pub fn process_at(&mut self, id: UpstreamId, place: usize) -> String {
        let feed = &self.mirror.feeds[&id];
        let item = &feed.queue[place];
        let (frame, from) = (item.frame.clone(), feed.place);
        let what = format!("process {id:?} #{} {}", item.at.seq, item.frame.label());
        self.mirror.process(&mut self.world, id, place);
        self.checker
            .processed(&self.world, &self.mirror, &frame, from);
        what
    }

    fn start_job(&mut self) -> String {
        let due = self.mirror.due(&self.world);
        let Some(id) = self.world.rng.pick(&due) else {
            return String::new();
        };
        self.mirror.start(&self.world, id);
        format!("begin work on {}", self.label(id))
    }

    pub fn label(&self, id: RepoId) -> char {
        name(self.mirror.owner_of(&self.world, id))
    }

    fn work_job(&mut self) -> String {
        if self.mirror.jobs.is_empty() {
            return String::new();
        }
        let place = self.world.rng.below(self.mirror.jobs.len());
        self.work_at(place)
    }

    pub fn work_at(&mut self, place: usize) -> String {
        let job = &self.mirror.jobs[place];
        let step = job.label();
        let what = format!("work on {}: {step}", self.label(job.repo));
        self.mirror.work(&mut self.world, place);
        what
    }

    fn start_sweep(&mut self) -> String {
        let due = self.mirror.sweep_due(&self.world);
        let Some(host) = self.world.rng.pick(&due) else {
            return String::new();
        };
        self.mirror.start_sweep(&self.world, host);
        format!("begin to sweep {host:?}")
    }

    fn work_sweep(&mut self) -> String {
        if self.mirror.sweeps.is_empty() {
            return String::new();
        }
        let place = self.world.rng.below(self.mirror.sweeps.len());
        let sweep = &self.mirror.sweeps[place];
        let what = format!("sweep {:?}: {}", sweep.host, sweep.label());
        if self.mirror.sweep_on(&mut self.world, place) {
            what
        } else {
            String::new()
        }
    }

    fn purge(&mut self) -> String {
        let purged = self.mirror.purge(&self.world);
        if purged.is_empty() {
            String::new()
        } else {
            format!("purge {purged:?}")
        }
    }
}

fn settings(rng: &mut Rng, mirror: &mut SimMirror) {
    let settings = &mut mirror.rules.settings;
    settings.sweep_every = Duration::from_secs([60, 300, 900][rng.below(3)]);
    settings.confirm_every = Duration::from_secs([600, 86_400][rng.below(2)]);
    settings.on_rollback = [
        OnRollback::Auto,
        OnRollback::Auto,
        OnRollback::Adopt,
        OnRollback::Hold,
    ][rng.below(4)];
    settings.wanted_keys_only = rng.per_mille(80);
    mirror.purge_grace = Duration::from_secs([60, 3600][rng.below(2)]);
}

/// The places of all streams of a world.
pub fn places(world: &World) -> Vec<Place> {
    let pds = (0..world.pds.len()).map(Place::Pds);
    pds.chain((0..world.relays.len()).map(Place::Relay))
        .collect()
}
