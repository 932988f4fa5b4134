//! Tests changes of the wall clock, ahead and back: they make nothing complete, lose nothing
//! and purge nothing too early, and the mirror's clock follows.

use std::time::{Duration, Instant};

use gapless_harness::{PDS, World, condition, listed};
use gapless_testnet::{Fault, Place, Spec, Status};

const DAY: i64 = 24 * 3600;
const GRACE: Duration = Duration::from_secs(5);

/// Starts a settled world that purges after [`GRACE`] and whose clock may be set.
async fn with_clock_to_set() -> World {
    let world = World::settled(listed(2, 1))
        .with(|config| config.mirror.purge_grace = GRACE)
        .await;
    world.expect("the clock was set");
    world
}

fn set_wall(world: &World, ahead_seconds: i64) {
    world.mirror().services().clock.set_wall(ahead_seconds);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_makes_no_lost_upstream_live_again() {
    let mut world = with_clock_to_set().await;
    let (a, epoch) = (world.did(0), world.epoch(PDS));
    let refused = world.inject(Spec::new(Fault::DialError { status: 503 }).on(PDS));
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    world.until_fired("dial-error", 1).await;
    // Longer ago than the grace of a minute; and then, it seems, within it.
    set_wall(&world, 100);
    world.until_all_incomplete("cover_down").await;
    set_wall(&world, 30);
    let answer = world.answer(&a).await;
    assert!(!answer.complete, "{answer:?}");
    world.until_all_incomplete("cover_down").await;
    // It goes on where it was.
    let live = world.post(&a);
    world.clear(refused).await;
    world.until_all_complete().await;
    let answer = world.answer(&a).await;
    assert_eq!(answer.last_firehose_rev, Some(live.rev.to_string()));
    assert_eq!(world.epoch(PDS), epoch, "nothing was missed");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_ran_ahead_is_followed_back_and_connections_are_made_anew() {
    let mut world = with_clock_to_set().await;
    let (a, epoch) = (world.did(0), world.epoch(PDS));
    let clock = world.mirror().services().clock.clone();
    let (dials, real) = (world.metrics().dials.get(), clock.time());
    set_wall(&world, DAY);
    world.post(&a);
    world.until_complete(&a).await;
    assert!(clock.time() >= real.after(Duration::from_secs(DAY as u64)));
    set_wall(&world, 0);
    let patience = Duration::from_secs(3600);
    assert!(clock.time() < real.after(patience), "it has come back");
    world
        .until("it is dialed again", async |world: &World| {
            let now = world.metrics().dials.get();
            condition(now > dials, &now)
        })
        .await;
    let live = world.post(&a);
    world.until_all_complete().await;
    let answer = world.answer(&a).await;
    assert_eq!(answer.last_firehose_rev, Some(live.rev.to_string()));
    assert_eq!(world.epoch(PDS), epoch, "nothing was missed");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_off_by_a_clock_that_ran_ahead_is_tried_when_it_is_back() {
    let mut world = with_clock_to_set().await;
    let a = world.did(0);
    let down = world.inject(Spec::new(Fault::PlcDown {}).on(Place::Plc));
    set_wall(&world, 10 * DAY);
    // Its document is too old by this clock.
    world.post(&a);
    world.until_fired("plc-down", 1).await;
    world.until_incomplete(&a, "resolve_owed").await;
    world.clear(down).await;
    set_wall(&world, 0);
    world.until_complete(&a).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ahead_purges_nothing_before_it_has_kept_step() {
    let mut world = with_clock_to_set().await;
    let a = world.did(0);
    world
        .net
        .set_status(&a, Status::Deleted)
        .expect("it is active");
    world.until_incomplete(&a, "inactive").await;
    set_wall(&world, DAY);
    let set = Instant::now();
    world
        .until("it is purged at last", async |world: &World| {
            let purged = world.metrics().purged.get();
            condition(purged == 1, &purged)
        })
        .await;
    assert!(set.elapsed() >= GRACE, "{:?}", set.elapsed());
    world.stop().await;
}
