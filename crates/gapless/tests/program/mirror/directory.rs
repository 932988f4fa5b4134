//! Tests a directory that is down, rate-limited or stale, for a while and under load: known
//! repositories are followed on, unresolved ones wait, and no repository is called complete
//! that is not.

use gapless_atp::crypto::Curve;
use gapless_harness::{PDS, World, condition, network};
use gapless_testnet::{Config as NetConfig, Fault, NewAccount, Place, Spec};

/// Commits per second in the background.
const LOAD: f64 = 60.0;

fn listed() -> NetConfig {
    NetConfig {
        did_web: false,
        ..network(5, 1)
    }
}

/// Under load the directory fails so; then it does not any more.
async fn failing(fault: Fault) {
    let mut world = World::start(listed()).await;
    world.until_all_complete().await;
    let (known, rotated) = (world.did(0), world.did(1));
    let (name, failures) = (fault.name(), world.metrics().resolution_failures.get());
    world.net.set_rate(LOAD).expect("a rate");
    let failing = world.inject(Spec::new(fault).on(Place::Plc));
    // Two who must be asked for: one with a new key, and one who is new.
    let set = world.inject(Spec::new(Fault::RotateKey { quiet: true }).of(&rotated));
    assert_eq!(set.fired, 1);
    let made = world.post(&rotated);
    let new = NewAccount {
        host: 0,
        curve: Curve::P256,
        web: false,
        records: 5,
    };
    let new = world.net.create_account(new).expect("it is new");
    world.until_fired(&name, 2).await;
    world
        .until("it is counted", async |world: &World| {
            let counted = world.metrics().resolution_failures.get();
            condition(counted > failures, &counted)
        })
        .await;
    // Who is known is followed on meanwhile, by the stream.
    let live = world.post(&known);
    world
        .until("known ones go on", async |world: &World| {
            let answer = world.answer(&known).await;
            condition(answer.rev >= Some(live.rev.to_string()), &answer)
        })
        .await;
    let waiting = world.answer(&rotated).await;
    assert!(!waiting.complete, "{waiting:?}");
    assert!(waiting.rev < Some(made.rev.to_string()), "{waiting:?}");
    if let Some(answer) = world.repo(&new).await {
        assert!(!answer.complete, "nobody knows its key: {answer:?}");
    }
    world.net.set_rate(0.0).expect("a rate");
    world.clear(failing).await;
    world.until_all_complete().await;
    world.until_caught_up(PDS).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_down_for_a_while_holds_up_only_who_must_be_asked_for() {
    failing(Fault::PlcDown {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_limits_for_a_while_holds_up_only_who_must_be_asked_for() {
    let retry_after = Some(1);
    failing(Fault::Plc429 { retry_after }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_stale_for_a_while_holds_up_only_who_must_be_asked_for() {
    failing(Fault::PlcStale { seq: None }).await;
}
