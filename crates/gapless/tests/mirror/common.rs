//! A network, a mirror of it, and the truth.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gapless::config::{self, Config, Flags, ServeConfig};
use gapless::serve::Serving;
use gapless_atp::syntax::{Did, Rev};
use gapless_mirror::api::Inspect as _;
use gapless_mirror::api::RepoAnswer;
use gapless_mirror::lifecycle::{Mirror, StartError};
use gapless_testnet::Config as NetConfig;
use gapless_testnet::{SetFault, Spec, Testnet};
use tempfile::TempDir;

use crate::logs::{self, Lines};
use crate::oracle::{self, Scope};

/// Nothing that is waited for takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The log of programs, in the world's folder.
pub const LOG: &str = "log";

/// What happens to one test. At its end, every fault that it set must have fired,
/// and the mirror must have said nothing that the test did not expect.
pub struct World {
    pub net: Testnet,
    pub folder: TempDir,
    pub mirror: Option<Arc<Mirror>>,
    /// How the mirror that runs is to be served.
    serve: Option<ServeConfig>,
    /// What is served of the mirror that runs, once a test wants it.
    serving: OnceLock<Arc<Serving>>,
    pub flags: Flags,
    /// The configuration file of programs.
    pub toml: String,
    pub adjust: fn(&mut Config),
    /// More is wanted than when it was first begun.
    pub widened: bool,
    /// Faults that need not fire, by number.
    idle: Mutex<BTreeSet<u64>>,
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

impl World {
    /// A network, and a mirror that follows all its hosts.
    #[allow(dead_code)]
    pub async fn start(config: NetConfig) -> World {
        let mut world = World::network(config).await;
        for url in world.net.urls().pds.clone() {
            world.flags.upstream.push(format!("pds={url}"));
        }
        world.begin().await;
        world
    }

    /// A network, and no mirror yet.
    pub async fn network(config: NetConfig) -> World {
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
            idle: Mutex::default(),
            expected: Mutex::default(),
            lines: logs::listen(),
        }
    }

    /// Repositories that are followed by name, from a file.
    pub fn name(&mut self, dids: &[&Did]) {
        let file = self.folder.path().join("dids");
        let lines: String = dids.iter().map(|did| format!("{did}\n")).collect();
        std::fs::write(&file, format!("# ours\n{lines}")).expect("a file");
        self.flags.dids = Some(file.display().to_string());
    }

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

    /// Desks are threads of their own. Somebody comes to each, and asks which.
    async fn listen_to_desks(&self, mirror: &Arc<Mirror>, desks: usize) {
        let mut found = HashSet::new();
        for number in 0.. {
            let nobody = Did::parse(&format!("did:web:nobody{number}.example")).expect("a DID");
            let visit = mirror
                .desks()
                .visit(&nobody, |_| std::thread::current().id())
                .await;
            let thread = visit.expect("it answers");
            if found.insert(thread) {
                logs::listen_to(thread, &self.lines);
            }
            if found.len() == desks {
                return;
            }
        }
    }

    /// Which records are to be kept.
    pub fn scope(&self) -> Scope {
        Scope::of(&self.flags)
    }

    /// Sets a fault. One that is done at once has fired.
    pub fn arm(&self, spec: Spec) -> SetFault {
        let set = self.net.fault(spec.clone()).expect("it can be set");
        assert!(set.id.is_some() || set.fired > 0, "{spec:?} did nothing");
        set
    }

    /// This fault is a guard: the test does not fail if nothing runs into it.
    pub fn need_not_fire(&self, id: Option<u64>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.insert(id.expect("it waits for its moment"));
    }

    /// Warnings and errors with this text are what the test is about.
    pub fn expect(&self, text: &'static str) {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected.push(text);
    }

    pub fn mirror(&self) -> &Arc<Mirror> {
        self.mirror.as_ref().expect("it runs")
    }

    /// What is served of the mirror. There is one for a mirror, as in the program.
    #[allow(dead_code)]
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

    pub async fn stop(&mut self) {
        self.serving.take();
        if let Some(mirror) = self.mirror.take() {
            mirror.stop().await.expect("it stops in good order");
        }
    }

    /// What the mirror says of a repository; never anything that is not true.
    pub async fn repo(&self, did: &Did) -> Option<RepoAnswer> {
        let (mirror, did) = (self.mirror().clone(), did.clone());
        let asked = tokio::task::spawn_blocking(move || mirror.inspector().repo(&did));
        let answer = asked.await.expect("no panic").expect("an answer");
        if let Some(answer) = &answer {
            self.check(answer);
        }
        answer
    }

    /// Waits until a condition holds; else shows what was last seen.
    pub async fn until(
        &self,
        what: &str,
        mut holds: impl AsyncFnMut(&World) -> Result<(), String>,
    ) {
        let began = Instant::now();
        loop {
            let seen = holds(self).await;
            match seen {
                Ok(()) => return,
                Err(seen) if began.elapsed() > PATIENCE => panic!("{what}: {seen}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Waits until a repository is complete at the truth's head.
    pub async fn complete(&self, did: &Did) {
        self.until(&format!("{did} complete"), async |world: &World| {
            world.is_complete(did).await
        })
        .await;
    }

    pub async fn is_complete(&self, did: &Did) -> Result<(), String> {
        let Some(answer) = self.repo(did).await else {
            return Err("unknown".to_owned());
        };
        let head = self.net.truth().head(did).expect("it exists");
        match answer.complete && answer.rev == Some(head.rev.to_string()) {
            true => Ok(()),
            false => Err(format!("{answer:?}, the truth is at {}", head.rev)),
        }
    }

    pub async fn all_complete(&self) {
        for did in self.net.truth().dids() {
            self.complete(&did).await;
        }
    }

    /// Whatever is said to be held must be exactly what the owner signed at that
    /// rev, complete or not.
    fn check(&self, answer: &RepoAnswer) {
        let scope = self.scope();
        let Some(truth) = oracle::agrees(&self.net.truth(), &scope, answer) else {
            return;
        };
        let did = Did::parse(&answer.did).expect("a DID");
        let rev: Option<Rev> = answer.rev.as_deref().and_then(|rev| rev.parse().ok());
        let view = self.mirror().services().store.view();
        let Ok(Some((id, repo))) = view.repo_by_did(&did) else {
            panic!("{did} is not in the store");
        };
        if repo.head().map(|head| head.rev) != rev {
            // It moved on since it was asked.
            return;
        }
        let mut held: Vec<(String, Option<Vec<u8>>)> = view
            .records(id)
            .map(|record| {
                let record = record.expect("it can be read");
                let path = String::from_utf8(record.path().to_vec()).expect("text");
                (path, record.bytes().map(<[u8]>::to_vec))
            })
            .collect();
        let mut truth: Vec<(String, Option<Vec<u8>>)> = truth
            .into_iter()
            .filter(|(path, _)| scope.keeps_key(path))
            .map(|(path, (_, bytes))| {
                let bytes = scope.wants(&path).then(|| bytes.to_vec());
                (path, bytes)
            })
            .collect();
        if self.widened && !answer.complete {
            // Not yet what is wanted, or more than that, but nothing else than what
            // was signed.
            held.retain(|(path, _)| truth.iter().any(|(there, _)| there == path));
            truth.retain(|(path, _)| held.iter().any(|(here, _)| here == path));
            for (own, (_, bytes)) in held.iter().zip(&mut truth) {
                *bytes = bytes.take().filter(|_| own.1.is_some());
            }
        }
        assert_eq!(held, truth, "records of {did} at {rev:?}");
    }

    /// Faults that should have fired by the end and have not.
    fn silent(&self) -> Vec<(u64, Spec)> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut silent = self.net.faults().silent();
        silent.retain(|(id, _)| !idle.contains(id));
        silent
    }

    /// Whether a fault that should fire has not done so yet.
    pub fn unfired(&self, id: u64) -> bool {
        self.silent().iter().any(|(silent, _)| *silent == id)
    }

    /// What nobody expected, as words.
    fn unexpected(&self) -> Vec<String> {
        let silent = self.silent().into_iter();
        silent
            .map(|(_, spec)| format!("never fired: {}", spec.to_json()))
            .chain(self.unexpected_lines())
            .collect()
    }

    fn unexpected_lines(&self) -> Vec<String> {
        let programs = std::fs::read_to_string(self.folder.path().join(LOG));
        let programs = logs::of_program(&programs.unwrap_or_default());
        let own = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |line: &String| expected.iter().any(|text| line.contains(text));
        let explained = |line: &String| logs::explained(line, self.net.faults());
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
