//! A network, a mirror of it, and the truth.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless::api::Mirror as _;
use gapless::api::RepoAnswer;
use gapless::config::{self, Config, Flags};
use gapless::mirror::Mirror;
use gapless_atp::syntax::{Did, Rev};
use gapless_testnet::Config as NetConfig;
use gapless_testnet::Testnet;
use tempfile::TempDir;

/// Nothing that is waited for takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    pub net: Testnet,
    pub folder: TempDir,
    pub mirror: Option<Arc<Mirror>>,
    pub flags: Flags,
    pub adjust: fn(&mut Config),
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
            flags,
            adjust: |_| {},
        }
    }

    pub async fn begin(&mut self) {
        let loaded =
            config::load(&self.flags, &[], Path::new("/nonexistent")).expect("it is valid");
        let mut config = loaded.config;
        config.fetch.requests_per_second = 10_000.0;
        (self.adjust)(&mut config);
        let mirror = Mirror::start(config, true).await.expect("it starts");
        self.mirror = Some(mirror);
    }

    pub fn mirror(&self) -> &Arc<Mirror> {
        self.mirror.as_ref().expect("it runs")
    }

    pub async fn stop(&mut self) {
        if let Some(mirror) = self.mirror.take() {
            mirror.stop().await.expect("it stops in good order");
        }
    }

    pub async fn repo(&self, did: &Did) -> Option<RepoAnswer> {
        let (mirror, did) = (self.mirror().clone(), did.clone());
        let asked = tokio::task::spawn_blocking(move || mirror.repo(&did));
        asked.await.expect("no panic").expect("an answer")
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
        self.check(&answer);
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
    pub fn check(&self, answer: &RepoAnswer) {
        let Some(rev) = &answer.rev else {
            assert!(!answer.complete, "complete with nothing held: {answer:?}");
            return;
        };
        let did = Did::parse(&answer.did).expect("a DID");
        let rev: Rev = rev.parse().expect("a rev");
        let truth = self.net.truth().records_at(&did, rev);
        let truth = truth.unwrap_or_else(|| panic!("the owner never signed {rev} of {did}"));
        let view = self.mirror().shared.store.view();
        let Ok(Some((id, repo))) = view.repo_by_did(&did) else {
            panic!("{did} is not in the store");
        };
        if repo.head().map(|head| head.rev) != Some(rev) {
            // It moved on since it was asked.
            return;
        }
        let held: Vec<(String, Vec<u8>)> = view
            .records(id)
            .map(|record| {
                let record = record.expect("it can be read");
                let path = String::from_utf8(record.path().to_vec()).expect("text");
                (path, record.bytes().expect("bytes are kept").to_vec())
            })
            .collect();
        let truth: Vec<(String, Vec<u8>)> = truth
            .into_iter()
            .map(|(path, (_, bytes))| (path, bytes.to_vec()))
            .collect();
        assert_eq!(held, truth, "records of {did} at {rev}");
    }
}
