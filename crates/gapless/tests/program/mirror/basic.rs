//! Tests the ordinary case: the mirror fetches a network and follows it.

use gapless_harness::{World, network};

#[tokio::test(flavor = "multi_thread")]
async fn a_network_is_mirrored_and_followed() {
    let mut world = World::start(network(12, 2)).await;
    world.until_all_complete().await;
    world.net.stir(200);
    world.until_all_complete().await;
    world.stop().await;
    world.begin().await;
    world.net.stir(50);
    world.until_all_complete().await;
    world.stop().await;
}
