//! Tests discovery with a stream for each host of the network instead of the relay's stream.

use gapless_harness::{World, condition};
use gapless_mirror::api::UpstreamAnswer;
use gapless_testnet::{Fault, Place, Spec};

use crate::discovery::network::{host, relayed, status, whole};

const HOSTS: [Place; 3] = [Place::Pds(0), Place::Pds(1), Place::Pds(2)];

async fn upstreams(world: &World) -> Vec<UpstreamAnswer> {
    status(world).await.upstreams
}

/// Waits until each host has a stream that is open.
async fn all_open(world: &World) {
    world
        .until("every host is followed", async |world: &World| {
            let all = upstreams(world).await;
            let open = all.iter().filter(|one| one.open).count();
            condition(open == HOSTS.len(), &all)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_host_has_a_stream_and_the_relay_none() {
    let mut world = whole(relayed(9, 3)).await;
    world.flags.follow = Some("hosts".to_owned());
    world.begin().await;
    all_open(&world).await;
    world.until_all_complete().await;
    let all = upstreams(&world).await;
    assert!(
        all.iter().all(|one| one.followed == "discovered"),
        "{all:?}"
    );
    assert!(all.iter().all(|one| one.kind == "pds"), "{all:?}");
    // What the relay leaves out does not matter any more.
    let did = world.did(0);
    let guard = world.inject(Spec::new(Fault::RelayOmit {}).on(Place::Relay));
    let made = world.post(&did);
    world.clear(guard).await;
    world.until_complete(&did).await;
    let answer = world.answer(&did).await;
    assert_eq!(answer.last_firehose_rev, Some(made.rev.to_string()));
    let told = host(&world, Place::Pds(0)).await.expect("it is known");
    assert_eq!(told.followed.as_deref(), Some("discovered"), "{told:?}");
    // A start goes on from the cursors, with no new epoch.
    for place in HOSTS {
        let did = match place {
            Place::Pds(index) => world.account(index, 0),
            other => panic!("{other}"),
        };
        world.post(&did);
        world.until_caught_up(place).await;
    }
    let epochs: Vec<u64> = HOSTS.iter().map(|place| world.epoch(*place)).collect();
    world.stop().await;
    world.begin().await;
    all_open(&world).await;
    let again: Vec<u64> = HOSTS.iter().map(|place| world.epoch(*place)).collect();
    assert_eq!(again, epochs);
    world.until_all_complete().await;
    // And back to the relay: hosts are followed no more.
    world.stop().await;
    world.flags.follow = None;
    world.begin().await;
    world.until_all_complete().await;
    let all = upstreams(&world).await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].kind, "relay");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_hosts_are_followed_than_the_limit_and_the_others_are_not_complete() {
    let mut world = whole(relayed(6, 3)).await;
    world.flags.follow = Some("hosts".to_owned());
    world.adjust = |config| {
        config.mirror.discover.max_streams = 2;
        config.mirror.discover.every = std::time::Duration::from_secs(1);
    };
    world.expect("more hosts are known than discover.max_streams allows");
    world.begin().await;
    world
        .until("all are swept", async |world: &World| {
            let told = status(world).await.discover;
            condition(told.hosts_swept == 3, &told)
        })
        .await;
    world
        .until("two are followed", async |world: &World| {
            let all = upstreams(world).await;
            condition(all.len() == 2 && all.iter().all(|one| one.open), &all)
        })
        .await;
    let followed = upstreams(&world).await;
    for place in HOSTS {
        let Place::Pds(index) = place else { continue };
        let did = world.account(index, 0);
        let is_followed = followed.iter().any(|one| one.url == world.url(place));
        if is_followed {
            world.until_complete(&did).await
        } else {
            world.until_incomplete(&did, "no_cover").await;
        }
    }
    world.stop().await;
}
