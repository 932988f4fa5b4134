//! Tests frames that cannot be read, in whole or in part: they are kept and counted, and every
//! repository that they may concern is incomplete until it is compared.

use gapless_harness::{PDS, World, condition, network};
use gapless_testnet::Config as NetConfig;
use gapless_testnet::faults::Part;
use gapless_testnet::{Fault, Spec};

fn small() -> NetConfig {
    network(3, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn t25_a_an_event_of_which_only_the_did_can_be_read_doubts_its_repository_alone() {
    let mut world = World::settled(small()).await;
    let (a, b) = (world.did(0), world.did(1));
    let dead = world.metrics().dead_letters.get();
    let heads = world.stall(0, "getLatestCommit", None);
    // Nothing but the event itself tells of it.
    let listing = world.guard("listRepos");
    world.inject(
        Spec::new(Fault::Undecodable { part: Part::Rest })
            .of(&a)
            .times(1),
    );
    world.post(&a);
    assert_eq!(world.fired("undecodable"), 1);
    world.until_caught_up(PDS).await;
    world.assert_complete(&b).await;
    world.until_incomplete(&a, "compare_owed").await;
    world.post(&b);
    world.until_caught_up(PDS).await;
    world.assert_complete(&b).await;
    assert_eq!(world.metrics().dead_letters.get(), dead + 1);
    world.clear(heads).await;
    world.until_all_complete().await;
    world.clear(listing).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t25_b_a_frame_without_a_did_makes_all_repos_incomplete_until_a_sweep() {
    for part in [Part::Payload, Part::Header] {
        let mut world = World::settled(small()).await;
        let (a, b, swept) = (world.did(0), world.did(1), world.swept());
        let dead = world.metrics().dead_letters.get();
        let fetched = world.snapshots().await;
        let listing = world.guard("listRepos");
        world.inject(Spec::new(Fault::Undecodable { part }).of(&a).times(1));
        world.post(&a);
        assert_eq!(world.fired("undecodable"), 1);
        world.until_all_incomplete("unreadable_frame").await;
        world.post(&b);
        world.until_caught_up(PDS).await;
        assert_eq!(world.metrics().dead_letters.get(), dead + 1);
        assert_eq!(world.reasons(&b).await, ["unreadable_frame"], "{part:?}");
        world.clear(listing).await;
        world.until_all_complete().await;
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
    world.inject(Spec::new(undecodable).of(&a).times(MANY));
    for _ in 0..MANY {
        world.inject(Spec::new(Fault::Sync {}).of(&a));
    }
    assert_eq!(world.fired("undecodable"), MANY);
    world.post(&b);
    world.until_caught_up(PDS).await;
    world.until_complete(&b).await;
    assert_eq!(world.metrics().dead_letters.get(), MANY, "all are counted");
    let kept = world
        .mirror()
        .services()
        .store
        .view()
        .dead_letters()
        .count();
    assert_eq!(
        kept as u64,
        gapless_mirror::desk::totals::MAX_DEAD_LETTERS,
        "not all are kept"
    );
    assert_eq!(world.metrics().dials.get(), dials, "one connection");
    // A host that sends so many causes a few requests, and not requests for ever.
    let asked = world.metrics().heads_asked.get();
    world.post(&a);
    world.until_caught_up(PDS).await;
    let answer = world.answer(&a).await;
    assert!(
        answer.complete || answer.reasons.contains(&"compare_owed".to_owned()),
        "{answer:?}"
    );
    assert!(world.metrics().heads_asked.get() <= asked + 8);
    // Ten minutes later one more question is free.
    world.try_now(&a).await;
    world.until_complete(&a).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_cannot_be_read_counts_once_however_often_it_comes() {
    for part in [Part::Rest, Part::Payload] {
        let mut world = World::settled(small()).await;
        let (a, b) = (world.did(0), world.did(1));
        let dead = world.metrics().dead_letters.get();
        world.inject(Spec::new(Fault::Undecodable { part }).of(&a).times(1));
        world.post(&a);
        assert_eq!(world.fired("undecodable"), 1);
        world.until_caught_up(PDS).await;
        world.until_all_complete().await;
        assert_eq!(world.metrics().dead_letters.get(), dead + 1);
        // It is the event at our cursor now: the next connection begins with it.
        let (frames, dials) = (world.metrics().frames.get(), world.metrics().dials.get());
        let (epoch, swept) = (world.epoch(PDS), world.swept());
        world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
        world
            .until("it has come again", async |world: &World| {
                let now = (world.metrics().frames.get(), world.metrics().dials.get());
                condition(now == (frames + 1, dials + 1), &now)
            })
            .await;
        world.post(&b);
        world.until_caught_up(PDS).await;
        for did in world.net.truth().dids() {
            world.assert_complete(&did).await;
        }
        assert_eq!(world.metrics().dead_letters.get(), dead + 1, "{part:?}");
        assert_eq!((world.epoch(PDS), world.swept()), (epoch, swept));
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_about_all_repositories_outlives_a_restart() {
    let mut world = World::settled(small()).await;
    let (a, b) = (world.did(0), world.did(1));
    let listing = world.guard("listRepos");
    let part = Part::Payload;
    world.inject(Spec::new(Fault::Undecodable { part }).of(&a).times(1));
    world.post(&a);
    assert_eq!(world.fired("undecodable"), 1);
    world.until_all_incomplete("unreadable_frame").await;
    world.until_caught_up(PDS).await;
    world.stop().await;
    world.begin().await;
    world.until_caught_up(PDS).await;
    assert_eq!(world.metrics().resets.get(), 0, "nothing else was missed");
    assert_eq!(world.reasons(&b).await, ["unreadable_frame"]);
    world.clear(listing).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_began_before_the_frame_does_not_settle_it() {
    let mut world = World::settled(small()).await;
    let (a, sweeps) = (world.did(0), world.metrics().sweeps.get());
    let first = world.stall(0, "listRepos", None);
    let part = Part::Payload;
    let lost = Spec::new(Fault::Undecodable { part }).of(&a).times(2);
    world.inject(lost);
    world.post(&a);
    world.until_all_incomplete("unreadable_frame").await;
    world.until_fired("stall", 1).await;
    // The sweep for the first one is under way.
    world.post(&a);
    assert_eq!(world.fired("undecodable"), 2);
    world.until_caught_up(PDS).await;
    let second = world.stall(0, "listRepos", None);
    world.clear(first).await;
    world
        .until("it is over", async |world: &World| {
            let now = world.metrics().sweeps.get();
            condition(now > sweeps, &now)
        })
        .await;
    // The host was asked about a itself; the others were listed before the frame.
    for other in [world.did(1), world.did(2)] {
        assert_eq!(world.reasons(&other).await, ["unreadable_frame"], "{other}");
    }
    world.until_fired("stall", 2).await;
    world.clear(second).await;
    world.until_all_complete().await;
    world.stop().await;
}
