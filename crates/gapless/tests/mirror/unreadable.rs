//! Frames that cannot be read, wholly or in part: kept, counted, and a doubt about
//! whoever they may have been for.

use gapless_testnet::Config as NetConfig;
use gapless_testnet::faults::Part;
use gapless_testnet::{Fault, Spec};

use crate::common::{World, network};
use crate::drive::PDS;

fn small() -> NetConfig {
    network(3, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn t25_a_an_event_of_which_only_the_did_can_be_read_doubts_its_repository_alone() {
    let mut world = World::settled(small()).await;
    let (a, b) = (world.did(0), world.did(1));
    let dead = world.metrics().dead_letters.get();
    let heads = world.hold("getLatestCommit");
    world.set(
        Spec::new(Fault::Undecodable { part: Part::Rest })
            .of(&a)
            .times(1),
    );
    world.post(&a);
    assert_eq!(world.fired("undecodable"), 1);
    world.doubted(&a, &["compare_owed"]).await;
    world.post(&b);
    world.caught_up(PDS).await;
    world.assert_complete(&b).await;
    assert_eq!(world.metrics().dead_letters.get(), dead + 1);
    world.clear(heads);
    world.all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t25_b_a_frame_without_a_did_doubts_everybody_until_a_sweep() {
    for part in [Part::Payload, Part::Header] {
        let mut world = World::settled(small()).await;
        let (a, b, swept) = (world.did(0), world.did(1), world.swept());
        let dead = world.metrics().dead_letters.get();
        let fetched = world.snapshots().await;
        let listing = world.hold("listRepos");
        world.set(Spec::new(Fault::Undecodable { part }).of(&a).times(1));
        world.post(&a);
        assert_eq!(world.fired("undecodable"), 1);
        world.all_doubted(&["unreadable_frame"]).await;
        world.post(&b);
        world.caught_up(PDS).await;
        assert_eq!(world.metrics().dead_letters.get(), dead + 1);
        assert_eq!(world.reasons(&b).await, ["unreadable_frame"], "{part:?}");
        world.clear(listing);
        world.all_complete().await;
        assert!(world.swept() > swept, "brought forward");
        assert_eq!(world.snapshots().await, fetched + 1, "a's");
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t25_c_the_ten_thousandth_frame_that_cannot_be_read_stops_nothing_either() {
    const MANY: u64 = 10_050;
    let mut world = World::settled(NetConfig {
        buffer_events: 100_000,
        ..small()
    })
    .await;
    let (a, b, dials) = (world.did(0), world.did(1), world.metrics().dials.get());
    let undecodable = Fault::Undecodable { part: Part::Rest };
    world.set(Spec::new(undecodable).of(&a).times(MANY));
    for _ in 0..MANY {
        world.set(Spec::new(Fault::Sync {}).of(&a));
    }
    assert_eq!(world.fired("undecodable"), MANY);
    world.post(&b);
    world.caught_up(PDS).await;
    world.complete(&b).await;
    assert_eq!(world.metrics().dead_letters.get(), MANY, "all are counted");
    let kept = world.mirror().shared.store.view().dead_letters().count();
    assert_eq!(
        kept as u64,
        gapless::shared::DEAD_LETTERS,
        "not all are kept"
    );
    assert_eq!(world.metrics().dials.get(), dials, "one connection");
    // Whoever sends so many makes us ask a few times, and not for ever.
    let asked = world.metrics().heads_asked.get();
    world.post(&a);
    world.caught_up(PDS).await;
    let answer = world.answer(&a).await;
    assert!(
        answer.complete || answer.reasons.contains(&"compare_owed".to_owned()),
        "{answer:?}"
    );
    assert!(world.metrics().heads_asked.get() <= asked + 8);
    // Ten minutes later one more question is free.
    world.try_now(&a).await;
    world.complete(&a).await;
    world.stop().await;
}
