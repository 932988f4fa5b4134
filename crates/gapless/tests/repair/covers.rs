//! Which upstream speaks for a repository (T54).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gapless::api::{Mirror as _, NewUpstream};
use gapless_core::ledger::Kind;
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::common::World;
use crate::steps::{listed, unswept};

/// A way to a server that can be cut, and counts how often that ended something.
struct Way {
    url: String,
    open: watch::Sender<bool>,
    cuts: Arc<AtomicU64>,
}

impl Way {
    async fn to(url: &str) -> Way {
        let target = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (open, seen) = watch::channel(true);
        let cuts = Arc::new(AtomicU64::new(0));
        let counter = cuts.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut seen, counter, target) = (seen.clone(), counter.clone(), target.clone());
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(&target).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = seen.wait_for(|open| !open) => {
                            counter.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        Way {
            url: format!("http://localhost:{port}"),
            open,
            cuts,
        }
    }
}

async fn add(world: &World, kind: Kind, url: String) {
    let (mirror, host) = (world.mirror().clone(), None);
    let new = NewUpstream { kind, url, host };
    let added = tokio::task::spawn_blocking(move || mirror.add_upstream(new));
    added.await.expect("no panic").expect("it is added");
}

async fn remove(world: &World, url: String) {
    let mirror = world.mirror().clone();
    let removed = tokio::task::spawn_blocking(move || mirror.remove_upstream(&url));
    removed.await.expect("no panic").expect("it was followed");
}

async fn connected(world: &World, url: &str) {
    world
        .until("connected", async |world: &World| {
            let mirror = world.mirror().clone();
            let all = tokio::task::spawn_blocking(move || mirror.upstreams());
            let all = all.await.expect("no panic").expect("an answer");
            match all.iter().any(|one| one.url == url && one.open) {
                true => Ok(()),
                false => Err(format!("{all:?}")),
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t54_two_relays_and_the_host_each_with_epochs_of_its_own() {
    let config = NetConfig {
        relay: true,
        ..listed(3, 1)
    };
    let mut world = World::network(config).await;
    let direct = world.net.urls().relay.clone().expect("there is a relay");
    let way = Way::to(&direct).await;
    world.flags.upstream.push(format!("relay={}", way.url));
    world.adjust = unswept;
    world.begin().await;
    connected(&world, &way.url).await;
    // A relay's repositories are known by their events.
    for did in world.net.truth().dids() {
        world.post(&did);
        world
            .until("sighted", async |world: &World| {
                let seen = world.repo(&did).await;
                seen.map(drop).ok_or_else(|| "unknown".to_owned())
            })
            .await;
    }
    world.all_complete().await;
    add(&world, Kind::Relay, direct.clone()).await;
    connected(&world, &direct).await;
    let (busy, quiet) = (world.account(0, 0), world.account(0, 1));
    let quiet_row = world.answer(&quiet).await;
    assert_eq!(quiet_row.evidence.via, Some(way.url.clone()));

    // The cover is cut off, and comes back to a window that has moved on. The
    // other relay saw it all, and speaks for nobody here.
    let stalled = world.stall(0, "getLatestCommit", Some(&quiet));
    let resets = world.metrics().resets.get();
    way.open.send_replace(false);
    world
        .until("cut", async |_: &World| {
            let cuts = way.cuts.load(Ordering::Relaxed);
            (cuts > 0).then_some(()).ok_or("not yet".to_owned())
        })
        .await;
    for _ in 0..20 {
        world.post(&busy);
    }
    let window = Spec::new(Fault::Window { events: 2 }).on(Place::Relay);
    assert_eq!(world.fault(window).fired, 1);
    way.open.send_replace(true);
    world.reason(&quiet, "epoch_changed").await;
    assert_eq!(world.metrics().resets.get(), resets + 1, "one of the two");
    world.fires("stall", 1).await;
    for _ in 0..5 {
        world.post(&busy);
        world.complete(&busy).await;
        let answer = world.answer(&quiet).await;
        assert_eq!(answer.reasons, ["epoch_changed"]);
    }
    world.clear(stalled);
    world.honestly_complete(&quiet).await;

    // The host's own stream, once followed, speaks for it, and begins with nothing.
    let stalled = world.stall(0, "listRepos", None);
    add(&world, Kind::Pds, world.url(0)).await;
    let anew = world.reason(&quiet, "not_compared").await;
    assert_eq!(anew.evidence.via, Some(world.url(0)));
    world.clear(stalled);
    let own = world.honestly_complete(&quiet).await;
    assert_eq!(own.evidence.via, Some(world.url(0)));

    // And when it is followed no longer, the relay that it had has to show itself
    // again. Alone: what another brings first is a replay when the cover brings it.
    remove(&world, direct).await;
    remove(&world, world.url(0)).await;
    let again = world.reason(&quiet, "not_compared").await;
    assert_eq!(again.evidence.via, Some(way.url.clone()));
    let written = world.metrics().snapshots_written.get();
    world.post(&quiet);
    world.honestly_complete(&quiet).await;
    assert_eq!(world.metrics().snapshots_written.get(), written);
    world.stop().await;
}
