//! Steps that many tests take: write, break, wait, and look without believing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gapless::config::Config;
use gapless_atp::syntax::Did;
use gapless_core::ledger::{Repo, Time, UpstreamKind};
use gapless_mirror::api::{Inspect as _, NewUpstream, Operate as _, RepoAnswer};
use gapless_mirror::metrics::Metrics;
use gapless_testnet::{
    Config as NetConfig, Fault, NewCommit, Place, SetFault, Spec, Write, encode_record,
};

use crate::common::{World, network};

/// Longer than any test: no sweep but the ones that something asks for.
const NEVER: Duration = Duration::from_secs(3600);
/// So long that no head is asked for by itself.
const UNCONFIRMED: Duration = Duration::from_secs(3650 * 24 * 3600);

/// No sweep comes by itself.
pub fn unswept(config: &mut Config) {
    config.sweep_every = NEVER;
    config.confirm_every = UNCONFIRMED;
}

/// A sweep every second, and nothing is confirmed by itself.
pub fn swept(config: &mut Config) {
    config.sweep_every = Duration::from_secs(1);
    config.confirm_every = UNCONFIRMED;
}

/// A network whose accounts are all in the directory.
pub fn listed(repos: usize, pds: usize) -> NetConfig {
    NetConfig {
        did_web: false,
        ..network(repos, pds)
    }
}

pub fn post(number: u64) -> Write {
    let text = format!("number {number}");
    let record = serde_json::json!({ "$type": "app.bsky.feed.post", "text": text });
    Write::Create {
        path: format!("app.bsky.feed.post/step{number}"),
        record: encode_record(&record).expect("a record"),
    }
}

/// Posts of all tests, numbered.
pub fn next() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl World {
    /// A network, a mirror of all its hosts with these settings, all complete.
    pub async fn settled(config: NetConfig, adjust: fn(&mut Config)) -> World {
        let mut world = World::network(config).await;
        for url in world.net.urls().pds.clone() {
            world.flags.upstream.push(format!("pds={url}"));
        }
        world.adjust = adjust;
        world.begin().await;
        world.all_complete().await;
        world
    }

    /// The account of this number on a host.
    pub fn account(&self, host: usize, number: usize) -> Did {
        let truth = self.net.truth();
        let there = truth.dids().into_iter();
        let mut there = there.filter(|did| truth.head(did).is_some_and(|head| head.host == host));
        there.nth(number).expect("it has so many")
    }

    pub fn url(&self, host: usize) -> String {
        self.net.urls().pds[host].clone()
    }

    /// One more record.
    pub fn post(&self, did: &Did) -> NewCommit {
        self.net.write(did, &[post(next())]).expect("it is written")
    }

    pub fn fault(&self, spec: Spec) -> SetFault {
        self.arm(spec)
    }

    /// Follows one more host, or relay.
    pub async fn add(&self, kind: UpstreamKind, url: String, host: Option<String>) {
        let mirror = self.mirror().clone();
        let new = NewUpstream { kind, url, host };
        let added = tokio::task::spawn_blocking(move || mirror.control().add_upstream(new));
        added.await.expect("no panic").expect("it is added");
    }

    /// Waits until an upstream is open.
    pub async fn opened(&self, url: &str) {
        self.until("open", async |world: &World| {
            let mirror = world.mirror().clone();
            let all = tokio::task::spawn_blocking(move || mirror.inspector().upstreams());
            let all = all.await.expect("no panic").expect("an answer");
            let open = all.iter().any(|one| one.url == url && one.open);
            open.then_some(()).ok_or(format!("{all:?}"))
        })
        .await;
    }

    /// Ends a fault that is set until cleared, not before it has fired.
    pub async fn clear(&self, set: SetFault) {
        let id = set.id.expect("it was not done at once");
        self.until("the fault fires", async |world: &World| {
            match world.unfired(id) {
                true => Err(format!("{id} has not")),
                false => Ok(()),
            }
        })
        .await;
        assert!(self.net.clear_fault(id), "it was set");
    }

    /// Holds every answer on a route back until cleared.
    pub fn stall(&self, host: usize, route: &str, did: Option<&Did>) -> SetFault {
        let spec = Spec::new(Fault::Stall {
            ms: None,
            route: Some(route.to_owned()),
        });
        let spec = spec.on(Place::Pds(host));
        self.fault(match did {
            None => spec,
            Some(did) => spec.of(did),
        })
    }

    /// The next answer on a route is made at once and trickles.
    pub fn drip(&self, host: usize, route: &str, bytes_per_second: u64) -> SetFault {
        let spec = Spec::new(Fault::Drip {
            bytes_per_second,
            route: Some(route.to_owned()),
        });
        self.fault(spec.on(Place::Pds(host)).times(1))
    }

    pub fn fired(&self, name: &str) -> u64 {
        self.net.faults().fired(name)
    }

    /// Waits until faults of this name have fired so often.
    pub async fn fires(&self, name: &str, times: u64) {
        self.until(&format!("{name} fires"), async |world: &World| {
            match world.fired(name) >= times {
                true => Ok(()),
                false => Err(format!("{} times", world.fired(name))),
            }
        })
        .await;
    }

    pub fn metrics(&self) -> &Metrics {
        &self.mirror().services().metrics
    }

    /// Waits until a counter is at least this.
    pub async fn counted(&self, what: &str, of: fn(&Metrics) -> u64, least: u64) {
        self.until(what, async |world: &World| {
            match of(world.metrics()) >= least {
                true => Ok(()),
                false => Err(format!("{} of {least}", of(world.metrics()))),
            }
        })
        .await;
    }

    /// Waits until so many more sweeps went through.
    pub async fn sweeps(&self, more: u64) {
        let least = self.metrics().sweeps.get() + more;
        self.counted("sweeps", |metrics| metrics.sweeps.get(), least)
            .await;
    }

    /// The answer about a repository that is known; what it holds was checked.
    pub async fn answer(&self, did: &Did) -> RepoAnswer {
        self.repo(did).await.expect("it is known")
    }

    /// The same, of a moment at which anything that is not the head is known to be
    /// old.
    pub async fn honest(&self, did: &Did) -> RepoAnswer {
        let answer = self.answer(did).await;
        let head = self.net.truth().head(did).map(|head| head.rev.to_string());
        assert!(
            !answer.complete || answer.rev == head,
            "complete at {:?}, and the head is {head:?}: {answer:?}",
            answer.rev
        );
        answer
    }

    /// Waits until a repository is not complete for this reason.
    pub async fn reason(&self, did: &Did, reason: &str) -> RepoAnswer {
        let mut found = None;
        self.until(&format!("{did}: {reason}"), async |world: &World| {
            let answer = world.answer(did).await;
            match answer.reasons.iter().any(|one| one == reason) {
                true => {
                    assert!(!answer.complete);
                    found = Some(answer);
                    Ok(())
                }
                false => Err(format!("{answer:?}")),
            }
        })
        .await;
        found.expect("it was seen")
    }

    /// Waits until it is complete at the head; it is never complete elsewhere.
    pub async fn honestly_complete(&self, did: &Did) -> RepoAnswer {
        let mut found = None;
        self.until(&format!("{did} complete"), async |world: &World| {
            let answer = world.honest(did).await;
            match answer.complete {
                true => {
                    found = Some(answer);
                    Ok(())
                }
                false => Err(format!("{answer:?}")),
            }
        })
        .await;
        found.expect("it was seen")
    }

    /// Waits until an answer is as wanted.
    pub async fn becomes(
        &self,
        did: &Did,
        what: &str,
        wanted: impl Fn(&RepoAnswer) -> bool,
    ) -> RepoAnswer {
        let mut found = None;
        self.until(&format!("{did}: {what}"), async |world: &World| {
            let answer = world.answer(did).await;
            match wanted(&answer) {
                true => {
                    found = Some(answer);
                    Ok(())
                }
                false => Err(format!("{answer:?}")),
            }
        })
        .await;
        found.expect("it was seen")
    }

    /// The durable row.
    pub fn row(&self, did: &Did) -> Repo {
        let view = self.mirror().services().store.view();
        let found = view.repo_by_did(did).expect("it can be read");
        found.expect("it is known").1
    }

    /// How far the stream of a host is durable.
    pub fn cursor(&self, host: usize) -> Option<u64> {
        let services = &self.mirror().services();
        let covers = services.upstreams.read();
        let mut all = covers.iter();
        let (id, _) = all.find(|(_, source)| source.row.url == self.url(host))?;
        let cursor = services.store.view().cursor(id).expect("it can be read");
        cursor.map(|cursor| cursor.seq)
    }

    /// What is owed to a repository is tried now, as if the time for it had come.
    pub async fn try_now(&self, did: &Did) {
        let visit = self.mirror().desks().visit(did, |turn| {
            if let Some(tx) = turn.tx.as_mut() {
                tx.repo.debt.next_try = Time(0);
            }
        });
        visit.await.expect("it is written");
    }

    /// `did` owes a fetch for a commit that its event did not carry.
    pub fn too_big(&self, did: &Did) -> NewCommit {
        self.fault(Spec::new(Fault::TooBig {}).of(did).times(1));
        let fired = self.fired("too-big");
        let made = self.post(did);
        assert_eq!(self.fired("too-big"), fired + 1);
        made
    }

    /// A commit of which the stream says nothing.
    pub fn omitted(&self, did: &Did) -> NewCommit {
        let drop = Fault::Drop { unnumbered: false };
        self.fault(Spec::new(drop).of(did).times(1));
        let fired = self.fired("drop");
        let made = self.post(did);
        assert_eq!(self.fired("drop"), fired + 1);
        made
    }

    /// The host says in mid-stream that something was missed.
    pub async fn reset(&self, host: usize) {
        let resets = self.metrics().resets.get();
        let info = Fault::Info {
            name: "OutdatedCursor".to_owned(),
            message: None,
        };
        let set = self.fault(Spec::new(info).on(Place::Pds(host)));
        assert_eq!(set.fired, 1);
        self.counted("a reset", |metrics| metrics.resets.get(), resets + 1)
            .await;
    }
}
