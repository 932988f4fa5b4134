//! Tests that hosts that do not answer delay neither other hosts nor the directory.

use gapless_harness::{World, listed, unswept};
use gapless_testnet::{Fault, Spec};

/// Hosts that begin no answer, of four.
const SLOW: usize = 3;
/// Of each, more repositories than are fetched at a time.
const EACH: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn slow_hosts_keep_neither_another_host_nor_the_directory_waiting() {
    let mut world = World::settled(listed(EACH * (SLOW + 1), SLOW + 1))
        .with(|config| {
            unswept(config);
            config.mirror.fetch.concurrency = 8;
            config.mirror.fetch.per_host = 4;
        })
        .await;
    let failures = world.metrics().request_failures.get();
    let stalled: Vec<_> = (0..SLOW)
        .map(|host| world.stall(host, "getRepo", None))
        .collect();
    for number in 0..EACH {
        for host in 0..SLOW {
            world.too_big(&world.account(host, number));
        }
    }
    // Three quarters of the places, which is all that they may take but for one.
    world.until_fired("stall", 6).await;
    let (fetched, rotated) = (world.account(SLOW, 0), world.account(SLOW, 1));
    world.too_big(&fetched);
    let set = world.inject(Spec::new(Fault::RotateKey { quiet: true }).of(&rotated));
    assert_eq!(set.fired, 1);
    world.post(&rotated);
    world.until_complete(&fetched).await;
    world.until_complete(&rotated).await;
    assert_eq!(
        world.metrics().request_failures.get(),
        failures,
        "the slow ones were not waited for"
    );
    assert!(world.fired("stall") < 8, "and left a place to others");
    for one in stalled {
        world.clear(one).await;
    }
    world.until_all_complete().await;
    world.stop().await;
}
