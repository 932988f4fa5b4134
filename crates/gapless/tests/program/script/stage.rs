//! A network, the real program, the checker, and what the steps of the script need.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use gapless_atp::syntax::Did;
use gapless_core::ledger::Time;
use gapless_harness::audit::{Audit, Chance};
use gapless_harness::{Program, World, network};
use gapless_testnet::{Config as NetConfig, Place};

use crate::EXE;
use crate::script::checker::{Checker, Figures};

/// Repositories, and servers that they live on.
const REPOS: usize = 20;
pub const HOSTS: usize = 2;
/// How long a stream may be down, or nothing be written, before that is doubted.
const GRACE: &str = "4s";
/// Debug builds read how much room there is from the file that this names.
const ROOM: &str = "FREE_BYTES_FILE";

/// Whose streams the mirror follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Hosts,
    Relay,
}

pub struct Script {
    pub world: World,
    pub layout: Layout,
    pub chance: Chance,
    pub audit: Audit,
    program: Option<Program>,
    checker: Checker,
}

impl Script {
    /// A mirror that runs, with everything complete.
    pub async fn begin(layout: Layout) -> Script {
        let mut world = World::network(NetConfig {
            did_web: false,
            relay: layout == Layout::Relay,
            ..network(REPOS, HOSTS)
        })
        .await;
        let urls = world.net.urls().clone();
        let upstreams = match layout {
            Layout::Hosts => urls.pds.iter().map(|url| format!("pds={url}")).collect(),
            Layout::Relay => vec![format!("relay={}", urls.relay.expect("there is one"))],
        };
        world.flags.upstream = upstreams;
        world.flags.sweep_every = Some("1s".to_owned());
        // What cannot be written is not called complete for a minute.
        world.toml = format!("live_grace = \"{GRACE}\"\n{}", world.toml);
        let checker = Checker::start(world.net.truth(), world.scope());
        let mut script = Script {
            world,
            layout,
            chance: Chance::new(),
            audit: Audit::default(),
            program: None,
            checker,
        };
        script.start(&[]).await;
        // A relay is asked for nobody it has not spoken of.
        script.everybody_posts();
        script.all_true().await;
        script
    }

    pub fn did(&self, number: usize) -> Did {
        self.world.did(number)
    }

    /// The stream that faults of streams are for.
    pub fn stream(&self) -> Place {
        match self.layout {
            Layout::Hosts => Place::Pds(0),
            Layout::Relay => Place::Relay,
        }
    }

    pub fn data(&self) -> PathBuf {
        self.world.folder.path().join("data")
    }

    /// The file that says how much room there is.
    pub fn room(&self) -> PathBuf {
        self.world.folder.path().join("free-bytes")
    }

    pub fn program(&mut self) -> &mut Program {
        self.program.as_mut().expect("it runs")
    }

    /// Starts the program on what it has, and waits until it follows.
    pub async fn start(&mut self, variables: &[(&str, &str)]) {
        self.launch(variables);
        let upstreams = self.world.flags.upstream.len();
        self.program()
            .until_status("connected", |status| {
                let connected = status.upstreams.iter().filter(|one| one.connected);
                connected.count() == upstreams
            })
            .await;
    }

    /// Starts it, and does not wait for anything.
    pub fn launch(&mut self, variables: &[(&str, &str)]) {
        let room = self.room().display().to_string();
        let mut all = vec![(ROOM, room.as_str())];
        all.extend(variables);
        let program = Program::start_with(&self.world, EXE, &all);
        self.checker.port.send_replace(Some(program.port()));
        self.program = Some(program);
    }

    /// Ends it as `kill -9` does, and looks at what it left.
    pub fn kill(&mut self) {
        self.checker.port.send_replace(None);
        if let Some(program) = self.program.take() {
            program.kill();
        }
        self.audit.look(&self.data(), &self.world.net);
    }

    pub fn everybody_posts(&self) {
        for did in self.world.net.truth().dids() {
            self.world.post(&did);
        }
    }

    /// Waits until a repository is complete at its owner's head.
    pub async fn true_again(&mut self, did: &Did) {
        self.program().until_complete(did).await;
    }

    /// The same for everybody.
    pub async fn all_true(&mut self) {
        self.program().until_all_complete().await;
    }

    /// Faults are over: a whole sweep later everything is complete and true, by all
    /// answers and on the disk.
    pub async fn end(mut self) {
        self.world.net.set_rate(0.0).expect("a rate");
        self.all_true().await;
        let healed = now();
        for did in self.world.net.truth().dids() {
            let swept = |answer: &gapless_mirror::api::RepoAnswer| {
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
        audit.look(&world.folder.path().join("data"), &world.net);
        assert_eq!(audit.exact - before, repos, "all of them, byte by byte");
        tell(layout, &world, &figures, &audit);
    }
}

fn tell(layout: Layout, world: &World, figures: &Figures, audit: &Audit) {
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

/// Now, as answers say it.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = now.expect("after 1970").as_micros() as u64;
    gapless_mirror::api::timestamp(Time(micros)).expect("a time")
}
