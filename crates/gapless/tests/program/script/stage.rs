//! The stage of the fault script: a network, the real program, and the checker.

use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gapless::demo::MIN_REPOS;
use gapless::demo::acts::HOSTS;
use gapless_core::ledger::Time;
use gapless_harness::audit::{Audit, Chance};
use gapless_harness::{Program, World, network};
use gapless_mirror::api::RepoAnswer;
use gapless_testnet::Config as NetConfig;

use crate::EXE;
use crate::script::checker::{Checker, Figures};

/// How long a stream may be down, or nothing be written, before the mirror calls nothing
/// complete that depends on it. The default is a minute.
const GRACE: &str = "4s";
/// Names the file from which debug builds read the free space of the disk.
const ROOM: &str = "FREE_BYTES_FILE";

/// Whose streams the mirror follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Hosts,
    Relay,
}

pub(crate) struct Script {
    pub(crate) world: World,
    pub(crate) layout: Layout,
    pub(crate) chance: Chance,
    audit: Audit,
    program: Option<Program>,
    checker: Checker,
    began: Instant,
}

impl Script {
    /// Starts a mirror, and waits until everything is complete.
    pub(crate) async fn begin(layout: Layout) -> Script {
        let mut world = World::network(NetConfig {
            did_web: false,
            relay: layout == Layout::Relay,
            ..network(MIN_REPOS, HOSTS)
        })
        .await;
        let urls = world.net.urls().clone();
        let upstreams = match layout {
            Layout::Hosts => urls.pds.iter().map(|url| format!("pds={url}")).collect(),
            Layout::Relay => vec![format!("relay={}", urls.relay.expect("there is one"))],
        };
        world.flags.upstream = upstreams;
        world.flags.sweep_every = Some("1s".to_owned());
        world.toml = format!("live_grace = \"{GRACE}\"\n{}", world.toml);
        let checker = Checker::start(world.net.truth(), world.scope());
        let mut script = Script {
            world,
            layout,
            chance: Chance::new(),
            audit: Audit::default(),
            program: None,
            checker,
            began: Instant::now(),
        };
        script.start().await;
        // The mirror knows only the repositories of which a relay has spoken.
        script.post_to_all();
        script.all_true().await;
        script
    }

    /// The file that states the free space of the disk.
    pub(crate) fn room(&self) -> PathBuf {
        self.world.folder.path().join("free-bytes")
    }

    pub(crate) fn program(&mut self) -> &mut Program {
        self.program.as_mut().expect("it runs")
    }

    /// Starts the program on its existing data, and waits until it follows all upstreams.
    pub(crate) async fn start(&mut self) {
        self.launch(&[]);
        let upstreams = self.world.flags.upstream.len();
        self.program()
            .until_status("connected", |status| {
                let connected = status.upstreams.iter().filter(|one| one.connected);
                connected.count() == upstreams
            })
            .await;
    }

    /// Starts the program without waiting for it.
    pub(crate) fn launch(&mut self, variables: &[(&str, &str)]) {
        let room = self.room().display().to_string();
        let mut all = vec![(ROOM, room.as_str())];
        all.extend(variables);
        let program = Program::start_with(&self.world, EXE, &all);
        self.checker.port.send_replace(Some(program.port()));
        self.program = Some(program);
    }

    /// Kills the program as `kill -9` does, and audits what it left on the disk.
    pub(crate) fn kill(&mut self) {
        self.checker.port.send_replace(None);
        if let Some(program) = self.program.take() {
            program.kill();
        }
        self.audit.check_data(&self.world.data(), &self.world.net);
    }

    pub(crate) fn post_to_all(&self) {
        for did in self.world.net.truth().dids() {
            self.world.post(&did);
        }
    }

    /// Waits until all repositories are complete at their owners' heads.
    pub(crate) async fn all_true(&mut self) {
        self.program().until_all_complete().await;
    }

    /// Writes into the test's output when a part of the script was done.
    pub(crate) fn log_time(&self, part: &str) {
        eprintln!("{:>6.1} s  {part}", self.began.elapsed().as_secs_f64());
    }

    /// After the last fault: waits for a whole sweep, and fails unless everything is complete
    /// and true by all answers and on the disk.
    pub(crate) async fn end(mut self) {
        self.all_true().await;
        let healed = now();
        for did in self.world.net.truth().dids() {
            let swept = |answer: &RepoAnswer| {
                answer.complete && answer.evidence.swept_at > Some(healed.clone())
            };
            self.program().until_repo(&did, "swept since", swept).await;
        }
        let status = self.program().until_all_complete().await;
        let repos = self.world.net.truth().dids().len() as u64;
        assert_eq!((status.repos.total, status.repos.complete), (repos, repos));
        let Script {
            world,
            layout,
            mut audit,
            program,
            checker,
            ..
        } = self;
        let figures = checker.stop().await;
        drop(program);
        let before = audit.exact;
        audit.check_data(&world.data(), &world.net);
        assert_eq!(audit.exact - before, repos, "all of them, byte by byte");
        print_figures(layout, &world, &figures, &audit);
    }
}

fn print_figures(layout: Layout, world: &World, figures: &Figures, audit: &Audit) {
    let truth = world.net.truth();
    let records = truth
        .dids()
        .into_iter()
        .filter_map(|did| truth.records(&did));
    let records: usize = records.map(|records| records.len()).sum();
    eprintln!(
        "fault script, {layout:?}: {} answers checked ({} called complete), {} records of {} states \
         compared while it ran, {} states on the disk; at the end {records} records, all complete. \
         Differences: {}",
        figures.checks,
        figures.complete,
        figures.records,
        figures.states,
        audit.exact,
        figures.different.len(),
    );
    assert!(figures.checks > 1_000, "{figures:?}");
    assert!(
        figures.states > 100 && figures.records > 1_000,
        "{figures:?}"
    );
}

/// The present time, as answers state times.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = now.expect("after 1970").as_micros() as u64;
    gapless_mirror::api::timestamp(Time(micros)).expect("a time")
}
