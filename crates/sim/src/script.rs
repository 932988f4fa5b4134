//! Directed schedules: tests that play the world, the mirror and the checker step by step.
//! Accounts are called `a`, `b`, …; hosts and relays have numbers. Every step is checked
//! like a step of chaos.

use gapless_core::ledger::complete::Completeness;
use gapless_core::ledger::{Repo, RepoId, UpstreamId};
use gapless_store::table::log::LogRow;

use crate::chaos::Run;
use crate::world::{Commit, Fault, OwnerId, Place, World};

/// A run that a directed test controls.
pub struct Stage {
    pub run: Run,
}

impl Stage {
    /// Creates hosts, and accounts on the hosts with these numbers. The mirror follows nothing.
    pub fn new(hosts: usize, accounts: &[usize]) -> Stage {
        let mut stage = Stage { run: Run::bare() };
        for _ in 0..hosts {
            stage.run.world.add_pds();
        }
        for host in accounts {
            stage.run.world.add_owner(*host);
        }
        stage
    }

    /// One host with accounts `a` and `b`, followed, with both complete.
    pub fn one_host() -> Stage {
        let mut stage = Stage::new(1, &[0, 0]);
        stage.follow(Place::Pds(0));
        stage.settle();
        stage.commit("a");
        stage.commit("b");
        stage.settle();
        assert!(stage.complete("a") && stage.complete("b"));
        stage
    }

    /// Two hosts with `a` on the first and `b` on the second, both followed, with both
    /// accounts complete.
    pub fn two_hosts() -> Stage {
        let mut stage = Stage::new(2, &[0, 1]);
        stage.follow(Place::Pds(0));
        stage.follow(Place::Pds(1));
        stage.settle();
        stage.commit("a");
        stage.commit("b");
        stage.settle();
        assert!(stage.complete("a") && stage.complete("b"));
        stage
    }

    /// One host with `a` and `b`, followed through a relay, with both complete.
    pub fn relay() -> Stage {
        let mut stage = Stage::new(1, &[0, 0]);
        stage.run.world.add_relay();
        stage.follow(Place::Relay(0));
        stage.commit("a");
        stage.commit("b");
        stage.deliver();
        stage.commit("a");
        stage.commit("b");
        stage.settle();
        assert!(stage.complete("a") && stage.complete("b"));
        stage
    }

    pub fn world(&mut self) -> &mut World {
        &mut self.run.world
    }

    pub fn follow(&mut self, place: Place) -> UpstreamId {
        self.run.mirror.follow(place)
    }

    pub fn force(&mut self, fault: Fault) {
        self.run.world.faults.force(fault, 1);
    }

    pub fn owner(&self, name: &str) -> OwnerId {
        usize::from(name.as_bytes()[0] - b'a')
    }

    pub fn id(&self, name: &str) -> RepoId {
        let did = &self.run.world.owners[self.owner(name)].did;
        self.run.mirror.book.find(did).expect("the mirror knows it")
    }

    pub fn repo(&self, name: &str) -> Repo {
        self.run.mirror.book.repo(self.id(name))
    }

    pub fn answer(&self, name: &str) -> Completeness {
        self.run.mirror.answer(&self.run.world, &self.repo(name))
    }

    pub fn complete(&self, name: &str) -> bool {
        self.answer(name).complete()
    }

    /// The reasons why a repository is not complete, as the API names them.
    pub fn reasons(&self, name: &str) -> Vec<&'static str> {
        let answer = self.answer(name);
        answer
            .reasons
            .iter()
            .map(|reason| reason.as_str())
            .collect()
    }

    /// Whether the mirror holds the newest commit of the true host.
    pub fn up_to_date(&self, name: &str) -> bool {
        let truth = self.run.world.truth(self.owner(name));
        truth.map(|(commit, _)| commit.head) == self.repo(name).head().copied()
    }

    pub fn truth(&self, name: &str) -> Commit {
        let truth = self.run.world.truth(self.owner(name));
        Commit::clone(truth.expect("it lives somewhere").0)
    }

    pub fn fetches(&self, name: &str) -> u64 {
        let fetches = self.run.mirror.fetches.get(&self.id(name));
        fetches.copied().unwrap_or(0)
    }

    /// The number of parked frames of a repository.
    pub fn parked(&self, name: &str) -> usize {
        self.run.mirror.book.parked(self.id(name)).len()
    }

    /// The log rows of a repository, in order.
    pub fn log(&self, name: &str) -> Vec<LogRow> {
        self.run.mirror.book.log(self.id(name))
    }

    /// The number of requests for heads that all hosts have received.
    pub fn questions(&self) -> u64 {
        self.run.world.pds.iter().map(|pds| pds.asked.heads).sum()
    }

    fn check(&mut self, what: &str) {
        self.run.note(what.to_owned());
        let Run {
            world,
            mirror,
            checker,
            ..
        } = &mut self.run;
        if let Err(broken) = checker.check(world, mirror, what == "crash") {
            panic!("{}", self.run.failure(&broken).text);
        }
    }

    pub fn commit(&mut self, name: &str) {
        let owner = self.owner(name);
        assert!(self.run.world.write(owner), "{name} can write");
        self.run.world.pass(1_000);
        self.check("commit");
    }

    /// Lets time pass.
    pub fn pass(&mut self, seconds: u64) {
        self.run.world.pass(seconds * 1_000_000);
        self.run.mirror.wait(&self.run.world);
        self.check("time passes");
    }

    fn feeds(&self) -> Vec<UpstreamId> {
        self.run.mirror.feeds.keys().copied().collect()
    }

    pub fn upstream(&self, place: Place) -> UpstreamId {
        self.run.mirror.upstream_of(place).expect("it is followed")
    }

    /// Lets relays read all events, ends dead connections, and connects every
    /// upstream.
    pub fn connect(&mut self) {
        self.connect_relays();
        for id in self.feeds() {
            let Run { world, mirror, .. } = &mut self.run;
            mirror.dial(world, id);
            mirror.connect(world, id);
        }
        self.check("connect");
    }

    /// Lets relays read all events of their hosts.
    pub fn connect_relays(&mut self) {
        for relay in 0..self.run.world.relays.len() {
            while self.run.world.relay_step(relay) {}
        }
    }

    /// Reads all events into the queues.
    pub fn read(&mut self) {
        self.connect();
        for id in self.feeds() {
            while self.run.mirror.read(&mut self.run.world, id) {
                self.check("read");
            }
        }
        self.connect();
        for id in self.feeds() {
            while self.run.mirror.read(&mut self.run.world, id) {
                self.check("read");
            }
        }
    }

    /// Processes the queues, in order.
    pub fn process(&mut self) {
        for id in self.feeds() {
            while let Some(place) = self.run.mirror.feeds[&id].ready().first().copied() {
                let what = self.run.process_at(id, place);
                self.check(&what);
            }
        }
    }

    pub fn deliver(&mut self) {
        self.read();
        self.process();
    }

    /// Begins the work that is due for a repository.
    pub fn begin_work(&mut self, name: &str) {
        let id = self.id(name);
        assert!(
            self.run.mirror.start(&self.run.world, id),
            "nothing is due for {name}: {:?}",
            self.repo(name).debt
        );
        self.check("begin work");
    }

    /// Does one step of a repository's work.
    pub fn step_work(&mut self, name: &str) {
        let id = self.id(name);
        let jobs = &self.run.mirror.jobs;
        let place = jobs.iter().position(|job| job.repo == id);
        let what = self.run.work_at(place.expect("work is under way"));
        self.check(&what);
    }

    /// Works until the next step has a label that begins with `step`.
    pub fn work_until(&mut self, name: &str, step: &str) {
        let id = self.id(name);
        for _ in 0..20 {
            let jobs = &self.run.mirror.jobs;
            let job = jobs.iter().find(|job| job.repo == id);
            match job {
                Some(job) if job.label().starts_with(step) => return,
                Some(_) => self.step_work(name),
                None => self.begin_work(name),
            }
        }
        panic!("{name} never came to {step}");
    }

    /// Asks the directory until the mirror knows the host of a repository.
    pub fn resolve(&mut self, name: &str) {
        for _ in 0..5 {
            if self.repo(name).host.is_some() {
                return;
            }
            self.pass(60);
            self.begin_work(name);
            self.step_work(name);
        }
        panic!("{name} is not resolved");
    }

    /// Finishes all running work.
    pub fn finish_work(&mut self) {
        while !self.run.mirror.jobs.is_empty() {
            let what = self.run.work_at(0);
            self.check(&what);
        }
    }

    /// Does all work that is due now.
    pub fn work(&mut self) {
        self.finish_work();
        for _ in 0..20 {
            let due = self.run.mirror.due(&self.run.world);
            if due.is_empty() {
                return;
            }
            for id in due {
                self.run.mirror.start(&self.run.world, id);
            }
            self.finish_work();
        }
    }

    /// Sweeps every host, to the end.
    pub fn sweep(&mut self) {
        let hosts: Vec<_> = self.run.mirror.book.hosts().map(|(id, _)| id).collect();
        for host in hosts {
            if !self
                .run
                .mirror
                .sweeps
                .iter()
                .any(|sweep| sweep.host == host)
            {
                self.run.mirror.start_sweep(&self.run.world, host);
            }
        }
        self.finish_sweeps();
    }

    pub fn sweep_step(&mut self) {
        self.run.mirror.sweep_on(&mut self.run.world, 0);
        self.check("sweep");
    }

    pub fn finish_sweeps(&mut self) {
        for _ in 0..200 {
            if self.run.mirror.sweeps.is_empty() {
                return;
            }
            let moved = self.run.mirror.sweep_on(&mut self.run.world, 0);
            self.check("sweep");
            self.finish_work();
            if !moved {
                self.pass(1);
            }
        }
        panic!("a sweep does not end");
    }

    /// Does all work that can be done while a little time passes.
    pub fn settle(&mut self) {
        for _ in 0..4 {
            if let Err(broken) = self.run.settle_all() {
                panic!("{}", self.run.failure(&broken).text);
            }
            self.pass(6);
        }
    }

    /// Breaks the connection to a stream.
    pub fn lose(&mut self, place: Place) {
        let id = self.upstream(place);
        self.run.mirror.ping(&self.run.world, id);
        self.run.mirror.hang_up(&self.run.world, id);
        self.check("lose a connection");
    }

    /// Breaks the connection, and lets the window pass the mirror's cursor.
    pub fn lose_for_long(&mut self, place: Place) {
        self.lose(place);
        self.run.world.forget(place, 0);
    }

    /// Breaks the connection, lets the window pass, and reconnects.
    pub fn reset(&mut self, place: Place) {
        self.lose_for_long(place);
        self.read();
    }

    /// Kills the mirror; `keep` of the unsynced batches survive.
    pub fn crash(&mut self, keep: usize) {
        self.run.mirror.crash(&self.run.world, keep);
        self.check("crash");
    }

    pub fn sync(&mut self) {
        self.run.mirror.book.sync();
    }
}
