//! Tests several upstreams that bring the same events: each event is applied once, and an
//! upstream that is late or misses events is reported.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Tick, UpstreamKind};
use gapless_harness::proxy::LossyRelay;
use gapless_harness::{PDS, World, condition, network};
use gapless_mirror::api::{Inspect as _, NewUpstream, Operate as _, SourceAnswer, UpstreamAnswer};
use gapless_mirror::upstreams::sources::MISSED_AFTER;
use gapless_store::table::log::LogKind;
use gapless_testnet::{Config as NetConfig, Place};

fn relayed(repos: usize) -> NetConfig {
    NetConfig {
        relay: true,
        did_web: false,
        ..network(repos, 2)
    }
}

async fn upstreams(world: &World) -> Vec<UpstreamAnswer> {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().upstreams());
    asked.await.expect("no panic").expect("an answer")
}

async fn source(world: &World, url: &str) -> SourceAnswer {
    let mut all = upstreams(world).await.into_iter();
    let ours = all.find(|one| one.url == url).expect("it is followed");
    ours.source.expect("it is compared")
}

/// A minute later, as far as who missed what is concerned.
fn a_minute_later(world: &World) {
    let sources = &world.mirror().services().upstreams.sources;
    sources.expire_due_at(Instant::now() + MISSED_AFTER);
}

async fn all_connected(world: &World) {
    world
        .until("all are connected", async |world: &World| {
            let all = upstreams(world).await;
            condition(all.iter().all(|one| one.connected), &all)
        })
        .await;
}

/// Commits that came by streams, and how often each is in the log.
fn live_rows(world: &World) -> HashMap<(u64, String), u64> {
    let view = world.mirror().services().store.view();
    let mut rows = HashMap::new();
    for row in view.log_from(0).expect("it can be read") {
        let (_, row) = row.expect("it can be read");
        if let (LogKind::Live, Some(repo), Some(commit)) = (row.kind, row.repo, row.commit) {
            *rows.entry((repo.0, commit.0.to_string())).or_default() += 1;
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_relays_and_the_hosts_the_lossy_one_is_named_and_all_is_applied_once() {
    let mut world = World::network(relayed(6)).await;
    let relay = world.net.urls().relay.clone().expect("there is one");
    let lossy = LossyRelay::before(&relay).await;
    for upstream in [
        format!("relay={relay}"),
        format!("relay={}", lossy.url),
        format!("pds={}", world.url(PDS)),
    ] {
        world.flags.upstream.push(upstream);
    }
    world.flags.sweep_every = Some("1s".to_owned());
    world.begin().await;
    all_connected(&world).await;
    let dids = world.net.truth().dids();
    for did in &dids {
        world.post(did);
    }
    world.until_all_complete().await;
    // From here on all repositories are known, and each of the three has brought an event.
    a_minute_later(&world);
    let (before, rows_before) = (source(&world, &lossy.url).await, live_rows(&world).len());
    assert_eq!(before.missed, 0, "{before:?}");
    lossy.one_in.store(3, Ordering::SeqCst);
    let mut made: Vec<(Did, String)> = Vec::new();
    for _ in 0..5 {
        for did in &dids {
            made.push((did.clone(), world.post(did).rev.to_string()));
        }
    }
    let made_count = made.len() as u64;
    world.until_all_complete().await;
    world
        .until("the lossy one is through", async |world: &World| {
            let now = source(world, &lossy.url).await;
            let lost = lossy.lost.load(Ordering::SeqCst);
            let brought = now.first + now.late - before.first - before.late;
            condition(brought + lost == made_count, &(now, lost, made_count))
        })
        .await;
    let lost = lossy.lost.load(Ordering::SeqCst);
    assert_eq!(lost, made_count / 3);
    let early = source(&world, &lossy.url).await;
    assert_eq!(early.missed, 0, "it may yet come: {early:?}");
    a_minute_later(&world);
    let named = source(&world, &lossy.url).await;
    assert_eq!(named.missed, lost, "{named:?}");
    assert!(named.lossy_since.is_some(), "{named:?}");
    for url in [&relay, &world.url(PDS)] {
        let other = source(&world, url).await;
        assert_eq!(other.missed, 0, "{url}: {other:?}");
        assert_eq!(other.lossy_since, None);
    }
    // Each commit was brought first by one of them, and applied once.
    let rows = live_rows(&world);
    assert_eq!(rows.len(), rows_before + made.len());
    assert!(rows.values().all(|times| *times == 1), "{rows:?}");
    let view = world.mirror().services().store.view();
    for (did, rev) in made {
        let id = view.repo_id(&did).expect("it reads").expect("it is known");
        assert!(rows.contains_key(&(id.0, rev.clone())), "{did} {rev}");
    }
    let text = world.mirror().inspector().metrics().expect("they are told");
    let line = format!(
        "gapless_upstream_missed_total{{upstream=\"{}\"}} {lost}",
        lossy.url
    );
    assert!(text.contains(&line), "{line} is not in\n{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_miss_by_the_cover_has_the_host_swept_and_a_miss_by_another_does_not() {
    let mut world = World::network(relayed(6)).await;
    let relay = world.url(Place::Relay);
    let lossy = LossyRelay::before(&relay).await;
    world.flags.upstream.push(format!("relay={}", lossy.url));
    world.flags.upstream.push(format!("pds={}", world.url(PDS)));
    world.flags.sweep_every = Some("1h".to_owned());
    world.begin().await;
    all_connected(&world).await;
    // No relay has spoken of this one; its host lists it.
    world.until_complete(&world.account(0, 1)).await;
    let (own, far) = (world.account(0, 0), world.account(1, 0));
    world.post(&own);
    world.post(&far);
    world.until_complete(&own).await;
    world.until_complete(&far).await;
    assert_eq!(
        world.answer(&far).await.evidence.via,
        Some(lossy.url.clone())
    );
    // Another relay is added; it covers no repository that has a cover.
    let new = NewUpstream {
        kind: UpstreamKind::Relay,
        url: relay.clone(),
        host: None,
    };
    let mirror = world.mirror().clone();
    let added = tokio::task::spawn_blocking(move || mirror.control().add_upstream(new)).await;
    added.expect("no panic").expect("it is followed");
    all_connected(&world).await;
    for did in [&own, &far] {
        world.post(did);
        world.until_complete(did).await;
    }
    world
        .until("each has brought both", async |world: &World| {
            let (one, two) = (source(world, &lossy.url).await, source(world, &relay).await);
            let brought = two.first + two.late;
            condition(brought == 2 && one.first + one.late >= 2, &(one, two))
        })
        .await;
    a_minute_later(&world);
    let host_of = async |world: &World, did: &Did| {
        let host = world.answer(did).await.host.expect("it lives somewhere");
        let mut hosts = world.mirror().services().hosts.all().into_iter();
        let (id, _) = hosts
            .find(|(_, row)| row.name == host)
            .expect("it is known");
        id
    };
    let (own_host, far_host) = (host_of(&world, &own).await, host_of(&world, &far).await);
    let wants = |world: &World, host| {
        let sources = &world.mirror().services().upstreams.sources;
        sources.wants_sweep(host, Tick(0), MISSED_AFTER)
    };
    lossy.one_in.store(1, Ordering::SeqCst);
    world.post(&own);
    world.until_complete(&own).await;
    a_minute_later(&world);
    assert_eq!(source(&world, &lossy.url).await.missed, 1);
    // The host's own stream covers it: what the relay lost makes nothing incomplete.
    assert!(!wants(&world, own_host) && !wants(&world, far_host));
    world.post(&far);
    world.until_complete(&far).await;
    a_minute_later(&world);
    assert_eq!(source(&world, &lossy.url).await.missed, 2);
    assert!(wants(&world, far_host) && !wants(&world, own_host));
    world.stop().await;
}
