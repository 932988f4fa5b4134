//! The [`World`] of a test: a test network, a mirror of it, and the truth.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gapless::config::{self, Config, Flags, ServeConfig};
use gapless::serve::Serving;
use gapless_atp::syntax::Did;
use gapless_mirror::lifecycle::{Mirror, StartError};
use gapless_testnet::Config as NetConfig;
use gapless_testnet::{Spec, Testnet};
use tempfile::TempDir;

use crate::log_capture::{self, Lines};
use crate::oracle::RecordScope;

/// How long a test waits for any condition before it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the log file of programs in the world's folder.
pub const LOG: &str = "log";

/// A sweep interval longer than any test, so that sweeps happen only when a rule asks for them.
const NEVER: &str = "1h";
/// A confirmation interval so long that no head is requested without another reason.
const UNCONFIRMED: Duration = Duration::from_secs(3650 * 24 * 3600);

/// A test network, a mirror of it, and the truth, for one test. Dropping the world fails the test
/// if an injected fault has not fired, or if the mirror logged an unexpected warning or error.
pub struct World {
    pub net: Testnet,
    pub folder: TempDir,
    pub mirror: Option<Arc<Mirror>>,
    /// The serving configuration of the running mirror.
    serve: Option<ServeConfig>,
    /// Created at the first call of [`World::serving`].
    serving: OnceLock<Arc<Serving>>,
    pub flags: Flags,
    /// The configuration file of programs.
    pub toml: String,
    /// Changes the settings of the mirror before each start.
    pub adjust: fn(&mut Config),
    /// Whether the filter is wider than at the first start of the mirror.
    pub widened: bool,
    /// Whether no other test has these accounts; see [`own_accounts`].
    pub(crate) own_accounts: bool,
    /// Faults that need not fire, by number.
    pub(crate) idle: Mutex<BTreeSet<u64>>,
    /// Texts of the warnings and errors that the test expects.
    expected: Mutex<Vec<&'static str>>,
    lines: Lines,
}

/// A network whose revs come from the wall clock, so that none lies in the future or far in the
/// past.
pub fn network(repos: usize, pds: usize) -> NetConfig {
    NetConfig {
        repos,
        pds,
        wall_clock: true,
        ..NetConfig::default()
    }
}

/// A [`network`] whose accounts are all in the directory: none has a did:web.
pub fn listed(repos: usize, pds: usize) -> NetConfig {
    NetConfig {
        did_web: false,
        ..network(repos, pds)
    }
}

/// The network with accounts that no other test has: the seed comes from the place of the call.
/// All other tests have the same accounts, so a test that changes process-wide state by DID
/// needs this.
#[track_caller]
pub fn own_accounts(net: NetConfig) -> NetConfig {
    let caller = Location::caller();
    let mut hasher = DefaultHasher::new();
    (caller.file(), caller.line()).hash(&mut hasher);
    NetConfig {
        seed: hasher.finish(),
        ..net
    }
}

/// Sets the intervals so that no sweep and no confirmation happens without another reason.
pub fn unswept(config: &mut Config) {
    config.mirror.sweep_every = Duration::from_secs(3600);
    config.mirror.confirm_every = UNCONFIRMED;
}

/// Sets a sweep every second, and no confirmation without another reason.
pub fn swept(config: &mut Config) {
    config.mirror.sweep_every = Duration::from_secs(1);
    config.mirror.confirm_every = UNCONFIRMED;
}

/// Builds a settled world when awaited; see [`World::settled`].
pub struct Settled {
    net: NetConfig,
    adjust: fn(&mut Config),
}

impl Settled {
    /// Starts the mirror with these settings.
    pub fn with(self, adjust: fn(&mut Config)) -> Settled {
        Settled { adjust, ..self }
    }
}

impl IntoFuture for Settled {
    type Output = World;
    type IntoFuture = Pin<Box<dyn Future<Output = World>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut world = World::quiet(self.net).await;
            world.adjust = self.adjust;
            world.begin().await;
            world.settle().await;
            world
        })
    }
}

impl World {
    /// Starts a network, and a mirror that follows all its hosts and sweeps them every two seconds.
    pub async fn start(config: NetConfig) -> World {
        let mut world = World::network(config).await;
        world.follow_hosts();
        world.begin().await;
        world
    }

    /// Starts a network. [`World::begin`] then starts a mirror that follows all hosts and sweeps
    /// them only when a rule asks for it.
    pub async fn quiet(config: NetConfig) -> World {
        let mut world = World::network(config).await;
        world.follow_hosts();
        world.flags.sweep_every = Some(NEVER.to_owned());
        world
    }

    /// Starts a [`World::quiet`] and its mirror, and waits until every repository is complete and
    /// no work is left, so that only the test causes what happens next. [`Settled::with`] changes
    /// the settings.
    pub fn settled(net: NetConfig) -> Settled {
        Settled {
            net,
            adjust: |_| {},
        }
    }

    /// Starts a network without a mirror.
    pub async fn network(config: NetConfig) -> World {
        let own_accounts = config.seed != NetConfig::default().seed;
        let net = Testnet::start(config).await.expect("the network starts");
        let folder = tempfile::tempdir().expect("a folder");
        let flags = Flags {
            data: Some(folder.path().join("data").display().to_string()),
            plc: Some(net.urls().plc.clone()),
            allow_private: true,
            sweep_every: Some("2s".to_owned()),
            ..Flags::default()
        };
        World {
            net,
            folder,
            mirror: None,
            serve: None,
            serving: OnceLock::new(),
            flags,
            toml: "[fetch]\nrequests_per_second = 10000.0\n".to_owned(),
            adjust: |_| {},
            widened: false,
            own_accounts,
            idle: Mutex::default(),
            expected: Mutex::default(),
            lines: log_capture::listen(),
        }
    }

    /// Makes every host of the network an upstream of the mirror that is not started yet.
    pub(crate) fn follow_hosts(&mut self) {
        for url in self.net.urls().pds.clone() {
            self.flags.upstream.push(format!("pds={url}"));
        }
    }

    /// Writes a file of DIDs, which the mirror then follows by name.
    pub fn name(&mut self, dids: &[&Did]) {
        let file = self.folder.path().join("dids");
        let lines: String = dids.iter().map(|did| format!("{did}\n")).collect();
        std::fs::write(&file, format!("# ours\n{lines}")).expect("a file");
        self.flags.dids = Some(file.display().to_string());
    }

    /// Starts the mirror with the world's flags and settings.
    pub async fn begin(&mut self) {
        self.try_begin().await.expect("it starts");
    }

    pub async fn try_begin(&mut self) -> Result<(), StartError> {
        let loaded =
            config::load(&self.flags, &[], Path::new("/nonexistent")).expect("it is valid");
        let mut config = loaded.config;
        config.mirror.fetch.requests_per_second = 10_000.0;
        (self.adjust)(&mut config);
        let desks = config.mirror.workers;
        let serve = config.serve.clone();
        let mirror = Mirror::start(config.mirror.clone(), true).await?;
        self.listen_to_desks(&mirror, desks).await;
        self.mirror = Some(mirror);
        self.serve = Some(serve);
        Ok(())
    }

    /// Captures the log of the desks, which are threads outside the runtime. Runs work at each desk
    /// to learn its thread.
    async fn listen_to_desks(&self, mirror: &Arc<Mirror>, desks: usize) {
        let mut found = HashSet::new();
        for number in 0.. {
            let unknown_did =
                Did::parse(&format!("did:web:unknown{number}.example")).expect("a DID");
            let id = mirror
                .desks()
                .with_repo(&unknown_did, |_| std::thread::current().id())
                .await;
            let thread = id.expect("it answers");
            if found.insert(thread) {
                log_capture::listen_to(thread, &self.lines);
            }
            if found.len() == desks {
                return;
            }
        }
    }

    pub async fn stop(&mut self) {
        self.serving.take();
        if let Some(mirror) = self.mirror.take() {
            mirror.stop().await.expect("it stops in good order");
        }
    }

    /// The records that the mirror is configured to keep.
    pub fn scope(&self) -> RecordScope {
        RecordScope::of(&self.flags)
    }

    /// The folder of the mirror's data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn mirror(&self) -> &Arc<Mirror> {
        self.mirror.as_ref().expect("it runs")
    }

    /// The [`Serving`] of the mirror: one for each mirror, as in the program.
    pub fn serving(&self) -> Arc<Serving> {
        let serving = self.serving.get_or_init(|| {
            let config = self.serve.as_ref().expect("it runs");
            Arc::new(Serving::new(self.mirror(), config))
        });
        serving.clone()
    }

    /// Expects warnings and errors that contain this text.
    pub fn expect(&self, text: &'static str) {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected.push(text);
    }

    /// Faults that have not fired and are not declared as guards.
    fn silent(&self) -> Vec<(u64, Spec)> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut silent = self.net.faults().silent();
        silent.retain(|(id, _)| !idle.contains(id));
        silent
    }

    /// Whether a fault that is not a guard has not fired yet.
    pub(crate) fn unfired(&self, id: u64) -> bool {
        self.silent().iter().any(|(silent, _)| *silent == id)
    }

    /// Describes every fault that never fired and every unexpected line of the log.
    fn unexpected(&self) -> Vec<String> {
        let silent = self.silent().into_iter();
        silent
            .map(|(_, spec)| format!("never fired: {}", spec.to_json()))
            .chain(self.unexpected_lines())
            .collect()
    }

    fn unexpected_lines(&self) -> Vec<String> {
        let programs = std::fs::read_to_string(self.folder.path().join(LOG));
        let programs = log_capture::of_program(&programs.unwrap_or_default());
        let own = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |line: &String| expected.iter().any(|text| line.contains(text));
        let explained = |line: &String| log_capture::explained(line, self.net.faults());
        let all = own.iter().cloned().chain(programs);
        all.filter(|line| !named(line) && !explained(line))
            .map(|line| format!("said: {line}"))
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let unexpected = self.unexpected();
        assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    }
}
