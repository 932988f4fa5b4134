//! Tests discovery of the whole network through one relay: quiet repositories, repositories
//! that the relay leaves out, and hosts that the relay does not know.

use gapless_atp::crypto::Curve;
use gapless_harness::{World, condition, network};
use gapless_mirror::api::{HostAnswer, HostsPage, Inspect as _, Status};
use gapless_testnet::{Config as NetConfig, Fault, NewAccount, Place, Spec};

pub(crate) fn relayed(repos: usize, pds: usize) -> NetConfig {
    NetConfig {
        relay: true,
        did_web: false,
        ..network(repos, pds)
    }
}

/// A network, and a mirror of all of it that was told of its relay alone.
pub(crate) async fn whole(config: NetConfig) -> World {
    let mut world = World::network(config).await;
    let relay = world.net.urls().relay.clone().expect("there is one");
    world.flags.upstream.push(format!("relay={relay}"));
    world.flags.network = true;
    world.flags.sweep_every = Some("1s".to_owned());
    world.adjust = |config| config.mirror.discover.every = std::time::Duration::from_secs(1);
    world
}

pub(crate) async fn hosts(world: &World) -> HostsPage {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().hosts(None, 1000, false));
    asked.await.expect("no panic").expect("an answer")
}

pub(crate) async fn status(world: &World) -> Status {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().status());
    asked.await.expect("no panic").expect("an answer")
}

/// What is said of a host of the test network.
pub(crate) async fn host(world: &World, place: Place) -> Option<HostAnswer> {
    let url = world.url(place);
    let page = hosts(world).await;
    page.hosts.into_iter().find(|one| one.host == url)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_quiet_or_left_out_by_the_relay_is_found_by_sweeps_of_hosts() {
    let mut world = whole(relayed(12, 3)).await;
    let silent = world.did(0);
    world.inject(Spec::new(Fault::RelayOmit {}).of(&silent));
    world.begin().await;
    // The relay sends no event after the mirror connects.
    world.until_all_complete().await;
    let made = world.post(&silent);
    world.until_complete(&silent).await;
    let answer = world.answer(&silent).await;
    assert_eq!(answer.last_indexed_rev, Some(made.rev.to_string()));
    let told = status(&world).await.discover;
    assert_eq!(
        (told.scope.as_str(), told.hosts),
        ("network", 3),
        "{told:?}"
    );
    assert_eq!((told.hosts_swept, told.repos_listed), (3, 12), "{told:?}");
    for place in [Place::Pds(0), Place::Pds(1), Place::Pds(2)] {
        let host = host(&world, place).await.expect("it is known");
        assert_eq!(host.known_by, "listed", "{host:?}");
        assert_eq!(host.listed_by, [world.url(Place::Relay)], "{host:?}");
        assert_eq!(host.repos_listed, Some(4), "{host:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_only_a_document_names_is_found_with_all_that_lives_there() {
    // The last host has no repository yet, and the relay will not hear of it.
    let mut world = whole(relayed(2, 3)).await;
    world.inject(Spec::new(Fault::RelayOmit {}).on(Place::Pds(2)));
    let unknown = world.net.create_account(NewAccount {
        host: 2,
        curve: Curve::P256,
        web: false,
        records: 3,
    });
    let unknown = unknown.expect("there is room");
    world.begin().await;
    let moves = world.account(0, 0);
    world.until_complete(&moves).await;
    world
        .until("hosts are listed again", async |world: &World| {
            let listings = world.metrics().host_listings.get();
            condition(listings >= 3, &listings)
        })
        .await;
    assert!(
        host(&world, Place::Pds(2)).await.is_none(),
        "nobody names it"
    );
    assert!(world.repo(&unknown).await.is_none());
    // An account moves there: its document says so.
    world.net.migrate(&moves, 2, false).expect("it moves");
    world.expect("it has no such repository");
    world.until_all_complete().await;
    let found = host(&world, Place::Pds(2)).await.expect("it is known");
    assert_eq!(found.known_by, "document", "{found:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_hosts_are_read_to_their_end_and_again_after_an_error() {
    let mut config = relayed(8, 4);
    // One host on a page.
    config.list_page = 1;
    let mut world = whole(config).await;
    let route = Some("listHosts".to_owned());
    let fails = Fault::HttpError {
        status: 502,
        retry_after: None,
        route,
    };
    // The first page comes, the second does not.
    world.inject(Spec::new(fails).on(Place::Relay).times(1));
    world.expect("listing of hosts was cut short");
    world.begin().await;
    world.until_all_complete().await;
    assert_eq!(world.metrics().host_listing_failures.get(), 1);
    assert_eq!(hosts(&world).await.total, 4);
    world.stop().await;
    // What is known stays, whatever a relay lists.
    let empty = Fault::HttpError {
        status: 503,
        retry_after: None,
        route: Some("listHosts".to_owned()),
    };
    world.inject(Spec::new(empty).on(Place::Relay));
    world.begin().await;
    let did = world.did(0);
    world.post(&did);
    world.until_complete(&did).await;
    world.until_fired("http-error", 2).await;
    assert_eq!(hosts(&world).await.total, 4);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_network_a_relay_brings_only_those_it_speaks_of() {
    let mut world = whole(relayed(6, 2)).await;
    world.flags.network = false;
    world.begin().await;
    let spoken = world.did(0);
    world.until_connected(Place::Relay).await;
    world.post(&spoken);
    world.until_complete(&spoken).await;
    assert!(
        world.repo(&world.did(1)).await.is_none(),
        "it is out of scope"
    );
    assert_eq!(status(&world).await.discover.scope, "upstreams");
    world.stop().await;
}
