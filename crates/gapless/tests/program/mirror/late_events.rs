//! Tests events that arrive late, with a lower number than events that were read before them.

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_harness::{PDS, World, condition, network};
use gapless_testnet::{Fault, Spec};
use tokio::time::timeout;

const MOMENT: Duration = Duration::from_millis(300);

/// Finds an account whose desk is not that of `did`.
async fn at_another_desk(world: &World, did: &Did) -> Did {
    let _desk = world.block_desk(did).await;
    for number in 1..8 {
        let other = world.did(number);
        let work = world.mirror().desks().with_repo(&other, |_| ());
        if timeout(MOMENT, work).await.is_ok() {
            return other;
        }
    }
    panic!("one of eight is at another desk")
}

/// The number of an event that arrived late is below the cursor, so the stream would not bring
/// the event again if a stop lost it.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_came_late_is_not_lost_by_a_stop() {
    let mut world = World::settled(network(8, 1)).await;
    let late = world.did(0);
    let other = at_another_desk(&world, &late).await;
    world.settle().await;
    let reordered = world.inject(Spec::new(Fault::Reorder {}).of(&late).times(1));
    let lost = world.post(&late);
    world.post(&other);
    world.until_caught_up(PDS).await;
    let desk = world.block_desk(&late).await;
    world.clear(reordered).await;
    world
        .until("the late one is read", async |world: &World| {
            let waiting = world.mirror().desks().queued_items();
            condition(waiting >= 1, &waiting)
        })
        .await;
    world.post(&other);
    world.until_caught_up(PDS).await;
    let mirror = world.mirror.take().expect("it runs");
    let desks = mirror.desks().clone();
    let ending = tokio::spawn(async move { mirror.stop().await });
    // The desk is held until it takes nothing more.
    while timeout(MOMENT, desks.with_repo(&late, |_| ()))
        .await
        .is_err()
    {}
    drop(desk);
    ending.await.expect("no panic").expect("it stops");
    let listing = world.guard("listRepos");
    world.begin().await;
    world
        .until("continuity is shown", async |world: &World| {
            let upstream = world.upstream(PDS).await;
            condition(upstream.open, &upstream)
        })
        .await;
    world.post(&other);
    world.until_caught_up(PDS).await;
    let answer = world.answer(&late).await;
    assert!(
        !answer.complete || answer.rev == Some(lost.rev.to_string()),
        "complete at {:?}, as of {:?}, and the host sent {}, which was read",
        answer.rev,
        answer.as_of,
        lost.rev
    );
    world.clear(listing).await;
    world.settle().await;
    world.stop().await;
}
