//! Tests the answer of `/ready` about upstreams that have not sent anything yet.

use std::time::Duration;

use gapless_harness::{PDS, World, condition, network};
use gapless_testnet::{Fault, Spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_start_says_what_is_being_connected_and_since_when() {
    let mut world = World::quiet(network(1, 1)).await;
    // So long that nothing can be silent for longer than this.
    world.adjust = |config| config.mirror.ready.max_upstream_age = Duration::from_secs(3600);
    let refused = world.inject(Spec::new(Fault::DialError { status: 503 }).on(PDS));
    world.begin().await;
    world.until_fired("dial-error", 1).await;
    world
        .until("it says so", async |world: &World| {
            let ready = world.ready().await;
            let told = ready.reasons.iter().any(|reason| {
                reason.starts_with("starting: connecting to http")
                    && reason.contains("no frame received since 20")
                    && reason.contains("503")
            });
            condition(told && !ready.ready, &ready)
        })
        .await;
    let ready = world.ready().await;
    let silent = |reason: &String| reason.contains("max_upstream_age");
    assert!(!ready.reasons.iter().any(silent), "{ready:?}");
    world.clear(refused).await;
    world
        .until("it is heard", async |world: &World| {
            let ready = world.ready().await;
            let waits = |reason: &String| reason.contains("connecting");
            condition(!ready.reasons.iter().any(waits), &ready)
        })
        .await;
    world.stop().await;
}
