//! A network, a mirror of it, and the truth.

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

/// The longest wait for anything; after it the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The log file of programs, in the world's folder.
pub const LOG: &str = "log";

/// An interval that no test outlives: sweeps happen only when a rule asks for them.
const NEVER: &str = "1h";
/// So long that no head is asked for without another reason.
const UNCONFIRMED: Duration = Duration::from_secs(3650 * 24 * 3600);

/// Everything that happens to one test. At its end, every fault that the test injected must
/// have fired, and the mirror must have logged no warning or error that the test did not
/// expect.
pub struct World {
    pub net: Testnet,
    pub folder: TempDir,
    pub mirror: Option<Arc<Mirror>>,
    /// How the running mirror is to be served.
    serve: Option<ServeConfig>,
    /// What is served of the running mirror, once a test wants it.
    serving: OnceLock<Arc<Serving>>,
    pub flags: Flags,
    /// The configuration file of programs.
    pub toml: String,
    /// Changes the settings of the mirror before each start.
    pub adjust: fn(&mut Config),
    /// The filter is wider than when the mirror first began.
    pub widened: bool,
    /// Whether no other test has these accounts; see [`own_accounts`].
    pub(crate) own_accounts: bool,
    /// Faults that need not fire, by number.
    pub(crate) idle: Mutex<BTreeSet<u64>>,
    /// Parts of warnings and errors that the test is about.
    expected: Mutex<Vec<&'static str>>,
    lines: Lines,
}

/// A network with wall-clock revs, so that nothing is from the future or past.
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

/// The network with accounts that no other test has, chosen by the place of the call. All
/// other tests have the same accounts, so what the process keeps by DID needs this.
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

/// Settings with which no sweep and no confirmation comes without another reason.
pub fn unswept(config: &mut Config) {
    config.sweep_every = Duration::from_secs(3600);
    config.confirm_every = UNCONFIRMED;
}

/// Settings with a sweep every second, and no confirmation without another reason.
pub fn swept(config: &mut Config) {
    config.sweep_every = Duration::from_secs(1);
    config.confirm_every = UNCONFIRMED;
}

/// A settled world in the making; see [`World::settled`].
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
    /// A network, and a mirror that follows all its hosts and sweeps them every two seconds.
    pub async fn start(config: NetConfig) -> World {
        let mut world = World::network(config).await;
        world.follow_hosts();
        world.begin().await;
        world
    }

    /// A network, and a mirror that is not begun; once begun, it follows all hosts and sweeps
    /// them only when a rule asks for it.
    pub async fn quiet(config: NetConfig) -> World {
        let mut world = World::network(config).await;
        world.follow_hosts();
        world.flags.sweep_every = Some(NEVER.to_owned());
        world
    }

    /// A [`World::quiet`] that is begun, with every repository complete and no work left:
    /// what happens from here on is the test's doing. [`Settled::with`] changes its settings.
    pub fn settled(net: NetConfig) -> Settled {
        Settled {
            net,
            adjust: |_| {},
        }
    }

    /// A network, and no mirror yet.
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

    /// Makes every host of the network an upstream of the mirror to be begun.
    pub(crate) fn follow_hosts(&mut self) {
        for url in self.net.urls().pds.clone() {
            self.flags.upstream.push(format!("pds={url}"));
        }
    }

    /// Repositories that are followed by name, from a file.
    pub fn name(&mut self, dids: &[&Did]) {
        let file = self.folder.path().join("dids");
        let lines: String = dids.iter().map(|did| format!("{did}\n")).collect();
        std::fs::write(&file, format!("# ours\n{lines}")).expect("a file");
        self.flags.dids = Some(file.display().to_string());
    }

    /// Starts the mirror as flags and settings say.
    pub async fn begin(&mut self) {
        self.try_begin().await.expect("it starts");
    }

    pub async fn try_begin(&mut self) -> Result<(), StartError> {
        let loaded =
            config::load(&self.flags, &[], Path::new("/nonexistent")).expect("it is valid");
        let mut config = loaded.config;
        config.fetch.requests_per_second = 10_000.0;
        (self.adjust)(&mut config);
        let desks = config.limits.workers;
        let serve = config.serve.clone();
        let mirror = Mirror::start(config.mirror_settings(), true).await?;
        self.listen_to_desks(&mirror, desks).await;
        self.mirror = Some(mirror);
        self.serve = Some(serve);
        Ok(())
    }

    /// Captures the log of the desks, which are threads of their own: runs work at each of them to
    /// learn which thread it is.
    async fn listen_to_desks(&self, mirror: &Arc<Mirror>, desks: usize) {
        let mut found = HashSet::new();
        for number in 0.. {
            let nobody = Did::parse(&format!("did:web:nobody{number}.example")).expect("a DID");
            let id = mirror
                .desks()
                .with_repo(&nobody, |_| std::thread::current().id())
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

    /// Which records are to be kept.
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

    /// What is served of the mirror. There is one for a mirror, as in the program.
    pub fn serving(&self) -> Arc<Serving> {
        let serving = self.serving.get_or_init(|| {
            let mirror = self.mirror();
            Arc::new(Serving::new(
                mirror.services().clone(),
                mirror.desks().clone(),
                mirror.fetcher().net.clone(),
                self.serve.as_ref().expect("it runs"),
            ))
        });
        serving.clone()
    }

    /// Warnings and errors with this text are what the test is about.
    pub fn expect(&self, text: &'static str) {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected.push(text);
    }

    /// Faults that should have fired by the end and have not.
    fn silent(&self) -> Vec<(u64, Spec)> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut silent = self.net.faults().silent();
        silent.retain(|(id, _)| !idle.contains(id));
        silent
    }

    /// Whether a fault that should fire has not done so yet.
    pub(crate) fn unfired(&self, id: u64) -> bool {
        self.silent().iter().any(|(silent, _)| *silent == id)
    }

    /// What the test did not expect, as words.
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
