//! Hosts that do not answer, and names that are none.

use gapless::api::{GapsPage, Mirror as _};
use gapless_testnet::{Fault, Place, Spec};

use crate::common::World;
use crate::drive::said;
use crate::network::{host, hosts, relayed, whole};

async fn gaps(world: &World) -> GapsPage {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.gaps(None, 1000));
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
    let down = world.set(Spec::new(broken).on(Place::Pds(1)));
    world.begin().await;
    for number in 0..3 {
        world.complete(&world.account(0, number)).await;
    }
    world
        .until("it is in debt", async |world: &World| {
            let told = host(world, Place::Pds(1)).await;
            let failing = told.as_ref().is_some_and(|one| one.state == "failing");
            said(failing, &told)
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
    world.all_complete().await;
    world
        .until("it is swept", async |world: &World| {
            let told = host(world, Place::Pds(1)).await;
            let swept = told.as_ref().is_some_and(|one| one.state == "swept");
            said(swept, &told)
        })
        .await;
    assert_eq!(gaps(&world).await.hosts_total, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_no_hosts_are_refused_and_counted() {
    let mut world = whole(relayed(4, 2)).await;
    world.set(Spec::new(Fault::RelayJunk {}).on(Place::Relay));
    world.begin().await;
    world.all_complete().await;
    assert!(world.metrics().hosts_refused.get() >= 9);
    let all = hosts(&world).await;
    let names: Vec<&str> = all.hosts.iter().map(|one| one.host.as_str()).collect();
    assert_eq!(all.total, 2, "{names:?}");
    world.stop().await;
}
