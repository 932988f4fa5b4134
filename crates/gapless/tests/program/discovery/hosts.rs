//! Tests how the mirror reports hosts that do not answer, and names that are not hosts.

use gapless_core::ledger::UpstreamKind;
use gapless_harness::{World, condition, network};
use gapless_mirror::api::{
    GapsPage, HostAnswer, Inspect as _, NewUpstream, Operate as _, RepoAnswer,
};
use gapless_testnet::{Fault, Place, Spec};

use crate::discovery::network::{host, hosts, relayed, whole};

async fn gaps(world: &World) -> GapsPage {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().gaps(None, 1000));
    asked.await.expect("no panic").expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_answer_is_listed_with_why_and_found_when_it_comes_back() {
    let mut world = whole(relayed(6, 2)).await;
    let broken = Fault::HttpError {
        status: 503,
        retry_after: None,
        route: None,
    };
    let down = world.inject(Spec::new(broken).on(Place::Pds(1)));
    world.begin().await;
    for number in 0..3 {
        world.until_complete(&world.account(0, number)).await;
    }
    world
        .until("it is in debt", async |world: &World| {
            let told = host(world, Place::Pds(1)).await;
            let failing = told.as_ref().is_some_and(|one| one.state == "failing");
            condition(failing, &told)
        })
        .await;
    let told = host(&world, Place::Pds(1)).await.expect("it is known");
    assert!(
        told.failures > 0 && told.failing_since.is_some(),
        "{told:?}"
    );
    assert!(told.next_try.is_some(), "{told:?}");
    let why = told.error.clone().unwrap_or_default();
    assert!(why.contains("503"), "{told:?}");
    assert_eq!(told.last_sweep, None, "{told:?}");
    let page = gaps(&world).await;
    let gap = page.hosts.iter().find(|gap| gap.host == told.host);
    let gap = gap.expect("it is a gap, too");
    assert!(gap.failures > 0 && gap.next_try.is_some(), "{gap:?}");
    assert_eq!(gap.reasons, ["not_listed", "sweep_failing"], "{gap:?}");
    let all = hosts(&world).await;
    assert_eq!((all.total, all.swept, all.failing), (2, 1, 1), "{all:?}");
    world.clear(down).await;
    world.until_all_complete().await;
    world
        .until("it is swept", async |world: &World| {
            let told = host(world, Place::Pds(1)).await;
            let swept = told.as_ref().is_some_and(|one| one.state == "swept");
            condition(swept, &told)
        })
        .await;
    assert_eq!(gaps(&world).await.hosts_total, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_no_hosts_are_refused_and_counted() {
    let mut world = whole(relayed(4, 2)).await;
    world.inject(Spec::new(Fault::RelayJunk {}).on(Place::Relay));
    world.begin().await;
    world.until_all_complete().await;
    assert!(world.metrics().hosts_refused.get() >= 9);
    let all = hosts(&world).await;
    let names: Vec<&str> = all.hosts.iter().map(|one| one.host.as_str()).collect();
    assert_eq!(all.total, 2, "{names:?}");
    world.stop().await;
}

/// An address without a server.
const TYPO: &str = "http://localhost:1";

async fn known(world: &World, name: &str) -> Option<HostAnswer> {
    let page = hosts(world).await;
    page.hosts.into_iter().find(|one| one.host == name)
}

async fn remove(world: &World, url: &str) {
    let (mirror, url) = (world.mirror().clone(), url.to_owned());
    let removed = tokio::task::spawn_blocking(move || mirror.control().remove_upstream(&url));
    removed.await.expect("no panic").expect("it is removed");
}

async fn until_failing(world: &World, name: &str) -> HostAnswer {
    let mut seen = None;
    world
        .until("its sweeps fail", async |world: &World| {
            seen = known(world, name).await;
            let failing = seen.as_ref().is_some_and(|one| one.state == "failing");
            condition(failing, &seen)
        })
        .await;
    seen.expect("it was seen")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_host_is_shown_as_unreached_and_forgotten_with_its_upstream() {
    let mut world = World::start(network(2, 1)).await;
    world.expect("not connected");
    world.expect("a sweep was cut short");
    world.until_all_complete().await;
    let mirror = world.mirror().clone();
    let typo = NewUpstream {
        kind: UpstreamKind::Pds,
        url: TYPO.to_owned(),
        host: None,
    };
    let added = tokio::task::spawn_blocking(move || mirror.control().add_upstream(typo));
    added.await.expect("no panic").expect("it is followed");
    let told = until_failing(&world, TYPO).await;
    assert!(told.never_reached_since.is_some(), "{told:?}");
    assert_eq!(told.named_by.as_deref(), Some("an operator"), "{told:?}");
    remove(&world, TYPO).await;
    assert_eq!(known(&world, TYPO).await, None);
    world
        .until("no gap is left of it", async |world: &World| {
            let page = gaps(world).await;
            condition(page.hosts_total == 0, &page.hosts)
        })
        .await;
    // A host that has answered and has repositories stays.
    let own = world.url(Place::Pds(0));
    remove(&world, &own).await;
    let left = known(&world, &own).await.expect("it stays");
    assert_eq!(left.never_reached_since, None, "{left:?}");
    assert_eq!(left.known_by, "operator", "{left:?}");
    world.stop().await;
    world.begin().await;
    assert_eq!(known(&world, TYPO).await, None, "durably so");
    assert!(known(&world, &own).await.is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_before_the_end_and_not_forgotten_any_more_is_at_the_next_start() {
    let mut world = World::network(network(2, 1)).await;
    world.expect("not connected");
    world.expect("a sweep was cut short");
    let own = world.url(Place::Pds(0));
    world.flags.upstream = vec![format!("pds={own}"), format!("pds={TYPO}")];
    world.begin().await;
    until_failing(&world, TYPO).await;
    world.until_all_complete().await;
    world.stop().await;
    // Taken out of the configuration, without an order to remove the host.
    world.flags.upstream.pop();
    world.begin().await;
    assert_eq!(known(&world, TYPO).await, None);
    assert!(known(&world, &own).await.is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_which_nothing_is_asked_is_not_swept() {
    let mut world = World::network(network(2, 1)).await;
    world.flags.sweep_every = Some("1s".to_owned());
    let own = world.url(Place::Pds(0));
    world.flags.upstream.push(format!("pds={own}"));
    world.begin().await;
    let named = world
        .mirror()
        .services()
        .hosts
        .register("https://nobody.example");
    named.await.expect("it is named");
    world.until_all_complete().await;
    let before = world.metrics().sweeps.get();
    world
        .until("it had its turn", async |world: &World| {
            let sweeps = world.metrics().sweeps.get();
            condition(sweeps >= before + 5, &sweeps)
        })
        .await;
    let told = known(&world, "https://nobody.example").await;
    let told = told.expect("it is known");
    assert_eq!((told.state.as_str(), &told.last_sweep), ("idle", &None));
    assert_eq!(told.known_by, "operator", "{told:?}");
    assert!(told.never_reached_since.is_some(), "{told:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_followed_as_a_host_is_noticed_and_covers_nothing() {
    let mut world = World::network(relayed(6, 2)).await;
    let relay = world.url(Place::Relay);
    world.flags.upstream.push(format!("pds={relay}"));
    world.expect("a host brings repositories of other hosts");
    world.begin().await;
    world.until_connected(Place::Relay).await;
    let dids = world.net.truth().dids();
    for did in &dids {
        world.post(did);
    }
    world
        .until("it is noticed", async |world: &World| {
            let told = world.upstream(Place::Relay).await;
            condition(told.strays >= Some(3), &told)
        })
        .await;
    // They are fetched, and what it says of them makes none of them complete.
    for did in &dids {
        let made = world.post(did).rev.to_string();
        world
            .until("it is held", async |world: &World| {
                let answer = world.repo(did).await;
                let there = |one: &RepoAnswer| one.rev.as_ref() == Some(&made);
                condition(answer.as_ref().is_some_and(there), &answer)
            })
            .await;
        let answer = world.until_incomplete(did, "no_cover").await;
        assert!(!answer.complete, "{answer:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_some_have_left_is_not_taken_for_a_relay() {
    let mut world = World::start(relayed(12, 2)).await;
    world.expect("it has no such repository");
    world.until_all_complete().await;
    // Four of six move, and the old host lists them still.
    for _ in 0..4 {
        let moves = world.account(0, 0);
        world.net.migrate(&moves, 1, false).expect("it moves");
    }
    world.until_all_complete().await;
    for place in [Place::Pds(0), Place::Pds(1)] {
        let told = world.upstream(place).await;
        assert_eq!(told.strays, None, "{told:?}");
    }
    world.stop().await;
}
