//! Tests which upstream covers a repository (T54).

use std::sync::atomic::Ordering;

use gapless_core::ledger::UpstreamKind;
use gapless_harness::proxy::Proxy;
use gapless_harness::{World, listed, unswept};
use gapless_mirror::api::Operate as _;
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec};

async fn remove(world: &World, url: String) {
    let mirror = world.mirror().clone();
    let removed = tokio::task::spawn_blocking(move || mirror.control().remove_upstream(&url));
    removed.await.expect("no panic").expect("it was followed");
}

#[tokio::test(flavor = "multi_thread")]
async fn t54_two_relays_and_the_host_each_with_epochs_of_its_own() {
    let config = NetConfig {
        relay: true,
        ..listed(3, 1)
    };
    let mut world = World::network(config).await;
    // Ways are cut here, and the window of one of them moves.
    world.expect("dials again after the wait");
    let direct = world.net.urls().relay.clone().expect("there is a relay");
    let way = Proxy::to(&direct).await;
    world.flags.upstream.push(format!("relay={}", way.url));
    world.adjust = unswept;
    world.begin().await;
    world.until_open(&way.url).await;
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
    world.until_all_complete().await;
    world.add(UpstreamKind::Relay, direct.clone(), None).await;
    world.until_open(&direct).await;
    let (busy, quiet) = (world.account(0, 0), world.account(0, 1));
    let quiet_row = world.answer(&quiet).await;
    assert_eq!(quiet_row.evidence.via, Some(way.url.clone()));

    // The cover is cut off, and comes back to a window that has moved on. The
    // other relay saw it all, and covers no repository here.
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
    assert_eq!(world.inject(window).fired, 1);
    way.open.send_replace(true);
    world.until_incomplete(&quiet, "epoch_changed").await;
    assert_eq!(world.metrics().resets.get(), resets + 1, "one of the two");
    world.until_fired("stall", 1).await;
    for _ in 0..5 {
        world.post(&busy);
        world.until_complete(&busy).await;
        let answer = world.answer(&quiet).await;
        // Later its question counts as unanswered, and is owed besides.
        assert_eq!(answer.reasons[0], "epoch_changed");
    }
    world.clear(stalled).await;
    world.until_complete_never_stale(&quiet).await;

    // The host's own stream, once followed, speaks for it, and begins with nothing.
    let stalled = world.stall(0, "listRepos", None);
    world.need_not_fire(stalled);
    world.add(UpstreamKind::Pds, world.host_url(0), None).await;
    let anew = world.until_incomplete(&quiet, "not_compared").await;
    assert_eq!(anew.evidence.via, Some(world.host_url(0)));
    world.clear(stalled).await;
    let own = world.until_complete_never_stale(&quiet).await;
    assert_eq!(own.evidence.via, Some(world.host_url(0)));

    // And when it is followed no longer, the relay that it had has to show itself
    // again. Alone: what another brings first is a replay when the cover brings it.
    remove(&world, direct).await;
    remove(&world, world.host_url(0)).await;
    let again = world.until_incomplete(&quiet, "not_compared").await;
    assert_eq!(again.evidence.via, Some(way.url.clone()));
    let written = world.metrics().snapshots_written.get();
    world.post(&quiet);
    world.until_complete_never_stale(&quiet).await;
    assert_eq!(world.metrics().snapshots_written.get(), written);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tracked_by_name_and_no_longer_changes_nothing_where_the_host_is_followed_in_full() {
    let mut world = World::settled(listed(3, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let tracked = |track: bool| {
        let (mirror, dids) = (world.mirror().clone(), vec![did.clone()]);
        tokio::task::spawn_blocking(move || {
            if track {
                mirror.control().track(&dids)
            } else {
                mirror.control().untrack(&dids)
            }
        })
    };
    tracked(true).await.expect("no panic").expect("it is done");
    world.until_complete_never_stale(&did).await;
    let marker = world.row(&did).marker;
    tracked(false).await.expect("no panic").expect("it is done");
    assert_eq!(world.row(&did).marker, marker, "its cover is the same");
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}
