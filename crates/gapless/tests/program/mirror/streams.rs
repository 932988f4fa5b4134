//! Tests streams of upstreams: resets, cursors, continuity, dials, and events that were read
//! but not written.

use gapless_harness::{PDS, World, condition, network};
use gapless_testnet::Config as NetConfig;
use gapless_testnet::{Fault, Place, SetFault, Spec};

fn small() -> NetConfig {
    network(3, 1)
}

/// The first host ends all subscriptions, and refuses new ones until cleared.
fn cut_off(world: &World, status: u16) -> SetFault {
    let refused = world.inject(Spec::new(Fault::DialError { status }).on(PDS));
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    refused
}

/// The host forgets its past, and says so at the next connection.
fn forget_the_past(world: &World) {
    world.inject(Spec::new(Fault::Window { events: 0 }).on(PDS));
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
}

#[tokio::test(flavor = "multi_thread")]
async fn t06_a_reset_then_silence_is_recovered_by_the_sweep_alone() {
    let mut world = World::settled(small()).await;
    let (a, epoch, log) = (world.did(0), world.epoch(PDS), world.log_next());
    let fetched = world.snapshots().await;
    let listing = world.stall(0, "listRepos", None);
    forget_the_past(&world);
    world.until_epoch_above(PDS, epoch).await;
    assert_eq!(world.fired("window"), 1);
    for did in world.net.truth().dids() {
        assert_eq!(world.reasons(&did).await, ["epoch_changed"], "at once");
    }
    world.until_fired("stall", 1).await;
    world.until_all_incomplete("epoch_changed").await;
    world.clear(listing).await;
    world.until_all_complete().await;
    assert_eq!(world.snapshots().await, fetched, "L2");
    assert_eq!(world.log_next(), log, "nothing had changed");
    // The first event does not undo it.
    world.post(&a);
    world.until_caught_up(PDS).await;
    for did in world.net.truth().dids() {
        world.assert_complete(&did).await;
    }
    assert_eq!(world.snapshots().await, fetched);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t06_b_a_chained_event_after_a_reset_heals_its_own_repository_for_free() {
    let mut world = World::settled(small()).await;
    let (a, b, epoch) = (world.did(0), world.did(1), world.epoch(PDS));
    let fetched = world.snapshots().await;
    let listing = world.guard("listRepos");
    forget_the_past(&world);
    world.until_epoch_above(PDS, epoch).await;
    world.post(&a);
    world.until_complete(&a).await;
    assert_eq!(world.reasons(&b).await, ["epoch_changed"], "not b");
    assert_eq!(world.snapshots().await, fetched);
    world.clear(listing).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t08_info_in_mid_stream_is_a_reset_like_any_other() {
    let mut world = World::settled(small()).await;
    let (a, epoch) = (world.did(0), world.epoch(PDS));
    let (dials, resets) = (world.metrics().dials.get(), world.metrics().resets.get());
    let fetched = world.snapshots().await;
    let listing = world.guard("listRepos");
    // One commit is lost with what the host calls outdated.
    world.lose_commit(&a);
    let (name, message) = ("OutdatedCursor".to_owned(), None);
    world.inject(Spec::new(Fault::Info { name, message }).on(PDS));
    world.until_epoch_above(PDS, epoch).await;
    assert_eq!(world.fired("info"), 1);
    for did in world.net.truth().dids() {
        assert_eq!(world.reasons(&did).await, ["epoch_changed"]);
    }
    world.clear(listing).await;
    world.until_all_complete().await;
    assert_eq!(world.metrics().resets.get(), resets + 1, "one epoch more");
    assert_eq!(world.metrics().dials.get(), dials, "the stream is read on");
    assert_eq!(world.snapshots().await, fetched + 1, "a's");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_a_a_relay_that_skips_in_silence_is_seen_by_its_first_frame() {
    let mut world = World::network(NetConfig {
        relay: true,
        ..small()
    })
    .await;
    let relay = world.net.urls().relay.clone().expect("there is one");
    world.flags.upstream.push(format!("relay={relay}"));
    world.begin().await;
    let dids = world.net.truth().dids();
    // A relay is not asked for repositories that it has not spoken of.
    world
        .until("first sightings", async |world: &World| {
            let connected = world.upstream(Place::Relay).await.connected;
            condition(connected, &connected)
        })
        .await;
    for did in &dids {
        world.post(did);
    }
    world.until_all_complete().await;
    world.until_caught_up(Place::Relay).await;
    let epoch = world.epoch(Place::Relay);
    let refused = world.inject(Spec::new(Fault::DialError { status: 502 }).on(Place::Relay));
    let listing = world.guard("listRepos");
    world.inject(Spec::new(Fault::Disconnect {}).on(Place::Relay));
    world.until_fired("dial-error", 1).await;
    let heads = world.guard("getLatestCommit");
    world.post(&dids[0]);
    world.post(&dids[1]);
    // Only the last of them is still there.
    world.inject(Spec::new(Fault::Window { events: 1 }).on(Place::Relay));
    world.clear(refused).await;
    world.until_epoch_above(Place::Relay, epoch).await;
    world.until_incomplete(&dids[0], "epoch_changed").await;
    world.until_incomplete(&dids[2], "epoch_changed").await;
    world.clear(listing).await;
    world.clear(heads).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_b_nothing_at_our_cursor_for_ten_seconds_is_a_reset() {
    let mut world = World::settled(small()).await;
    let (a, epoch) = (world.did(0), world.epoch(PDS));
    let last = world.net.last_seq(PDS).expect("it is there");
    let listing = world.guard("listRepos");
    let refused = cut_off(&world, 503);
    world.until_fired("dial-error", 1).await;
    world.post(&a);
    // The event at our cursor is gone, and so is what came after it.
    world.inject(Spec::new(Fault::SeqRestart { next: last }).on(PDS));
    world.clear(refused).await;
    world.until_epoch_above(PDS, epoch).await;
    let connected = world.upstream(PDS).await;
    assert!(connected.connected, "{connected:?}");
    world.until_all_incomplete("epoch_changed").await;
    world.clear(listing).await;
    world.until_all_complete().await;
    assert_eq!(world.fired("seq-restart"), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_c_a_jump_in_mid_stream_of_a_pds_is_none() {
    let mut world = World::settled(small()).await;
    let (a, b, epoch) = (world.did(0), world.did(1), world.epoch(PDS));
    let before = world.net.last_seq(PDS).expect("it is there");
    let swept = world.swept();
    // Numbers that no stream will send, and nothing in them that is missed.
    world.inject(
        Spec::new(Fault::Drop { unnumbered: false })
            .of(&b)
            .times(100),
    );
    for _ in 0..100 {
        world.inject(Spec::new(Fault::Sync {}).of(&b));
    }
    assert_eq!(world.fired("drop"), 100);
    world.post(&a);
    assert_eq!(world.net.last_seq(PDS), Some(before + 101));
    world.until_caught_up(PDS).await;
    for did in world.net.truth().dids() {
        world.assert_complete(&did).await;
    }
    assert_eq!(world.epoch(PDS), epoch);
    assert_eq!(world.swept(), swept, "nobody was asked");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t10_the_event_at_our_cursor_comes_again_and_is_applied_once() {
    let mut world = World::settled(small()).await;
    let (a, epoch, swept) = (world.did(0), world.epoch(PDS), world.swept());
    let (applied, fetched) = (
        world.metrics().events_applied.get(),
        world.snapshots().await,
    );
    let (frames, log) = (world.metrics().frames.get(), world.log_next());
    let refused = cut_off(&world, 503);
    world.until_fired("dial-error", 1).await;
    world.post(&a);
    world.clear(refused).await;
    world.until_caught_up(PDS).await;
    for did in world.net.truth().dids() {
        world.assert_complete(&did).await;
    }
    let metrics = world.metrics();
    assert_eq!(metrics.frames.get(), frames + 2, "the old one and the new");
    assert_eq!(metrics.events_applied.get(), applied + 1);
    assert_eq!(world.log_next(), log + 1);
    assert_eq!(world.snapshots().await, fetched);
    assert_eq!((world.epoch(PDS), world.swept()), (epoch, swept));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_a_future_cursor_ends_the_numbering_and_no_loop_begins() {
    let mut world = World::settled(small()).await;
    let (a, b, epoch) = (world.did(0), world.did(1), world.epoch(PDS));
    let before = world.net.last_seq(PDS).expect("it is there");
    let refused = cut_off(&world, 503);
    world.until_fired("dial-error", 1).await;
    world.post(&a);
    // The wiped host does not know a's last commit as an event any more.
    world.inject(Spec::new(Fault::SeqRestart { next: 3 }).on(PDS));
    let resets = world.metrics().resets.get();
    world.clear(refused).await;
    let dials = world.metrics().dials.get();
    world.until_epoch_above(PDS, epoch).await;
    world.until_all_complete().await;
    assert_eq!(
        world.metrics().resets.get(),
        resets + 2,
        "the end of one numbering, and a start without a cursor"
    );
    assert_eq!(world.metrics().dials.get(), dials + 2, "no loop");
    assert_eq!(world.upstream(PDS).await.cursor, None);
    world.post(&b);
    world.until_caught_up(PDS).await;
    world.until_all_complete().await;
    let cursor = world.upstream(PDS).await.cursor;
    assert!(cursor.is_some_and(|cursor| cursor < before), "{cursor:?}");
    assert_eq!(world.metrics().dials.get(), dials + 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t30_a_silent_socket_is_given_up() {
    let mut world = World::settled(small()).await;
    let (a, dials) = (world.did(0), world.metrics().dials.get());
    let listing = world.stall(0, "listRepos", None);
    world.inject(Spec::new(Fault::NoPongs {}).on(PDS));
    world.inject(
        Spec::new(Fault::DialSilence { after: true })
            .on(PDS)
            .times(1),
    );
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    world.until_fired("dial-silence", 1).await;
    // Only the next connection tells of it: the host's own listing is held.
    world.post(&a);
    world.until_incomplete(&a, "epoch_changed").await;
    world.until_complete(&a).await;
    assert!(world.fired("no-pongs") >= 1);
    assert_eq!(world.metrics().dials.get(), dials + 2);
    world.clear(listing).await;
    world.until_all_complete().await;
    world.stop().await;
}

/// A host that refuses to be dialed: nothing is lost, and nothing is fetched.
async fn refused(status: u16, times: u64) {
    let mut world = World::settled(small()).await;
    let (a, epoch) = (world.did(0), world.epoch(PDS));
    let fetched = world.snapshots().await;
    let failures = world.metrics().dial_failures.get();
    let refused = world.inject(Spec::new(Fault::DialError { status }).on(PDS).times(times));
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    world
        .until("it is shown", async |world: &World| {
            let upstream = world.upstream(PDS).await;
            let shown = upstream.error.as_ref();
            let shown = shown.is_some_and(|error| error.contains(&status.to_string()));
            condition(shown && upstream.next_dial.is_some(), &upstream)
        })
        .await;
    world.post(&a);
    world.until_fired("dial-error", times).await;
    world.until_complete(&a).await;
    world.until_all_complete().await;
    let upstream = world.upstream(PDS).await;
    assert_eq!(upstream.error, None);
    assert_eq!(world.metrics().dial_failures.get(), failures + times);
    assert_eq!(world.epoch(PDS), epoch, "the event at our cursor came");
    assert_eq!(world.snapshots().await, fetched);
    assert!(refused.id.is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t33_a_a_dial_that_is_answered_with_503_is_repeated() {
    refused(503, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t33_b_a_dial_that_is_answered_with_429_four_times_is_repeated() {
    refused(429, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t33_c_a_dial_that_is_answered_with_404_is_repeated() {
    refused(404, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t33_d_a_host_that_refuses_longer_than_the_grace_ends_completeness() {
    let mut world = World::quiet(small()).await;
    world.adjust = |config| config.mirror.live_grace = std::time::Duration::from_secs(1);
    world.begin().await;
    world.settle().await;
    let (a, epoch) = (world.did(0), world.epoch(PDS));
    let fetched = world.snapshots().await;
    let refused = cut_off(&world, 503);
    world.until_all_incomplete("cover_down").await;
    world.until_fired("dial-error", 3).await;
    world.post(&a);
    world.clear(refused).await;
    world.until_all_complete().await;
    assert_eq!(world.epoch(PDS), epoch, "nothing was missed");
    assert_eq!(world.snapshots().await, fetched);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t42_numbers_that_are_missing_are_swept_and_not_only_counted() {
    let mut world = World::start(small()).await;
    world.until_all_complete().await;
    let (a, b, epoch) = (world.did(0), world.did(1), world.epoch(PDS));
    let fetched = world.snapshots().await;
    let lost = world.lose_commit(&a);
    // Only others speak from now on.
    world.post(&b);
    world.until_caught_up(PDS).await;
    world.until_complete(&a).await;
    assert_eq!(world.answer(&a).await.rev, Some(lost.rev.to_string()));
    assert_eq!(world.snapshots().await, fetched + 1);
    assert!(world.metrics().suspects.get() >= 1);
    assert_eq!(world.epoch(PDS), epoch, "a jump is no reset");
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t48_an_event_read_before_a_reset_raises_nothing_after_it() {
    let mut world = World::settled(small()).await;
    let (a, epoch) = (world.did(0), world.epoch(PDS));
    let listing = world.guard("listRepos");
    let desk = world.block_desk(&a).await;
    let read_before = world.post(&a);
    let last = world.net.last_seq(PDS);
    world
        .until("it is read", async |world: &World| {
            condition(world.read(PDS) == last, &world.read(PDS))
        })
        .await;
    world.lose_commit(&a);
    let (name, message) = ("OutdatedCursor".to_owned(), None);
    world.inject(Spec::new(Fault::Info { name, message }).on(PDS));
    world.until_epoch_above(PDS, epoch).await;
    assert_eq!(world.fired("info"), 1);
    drop(desk);
    world
        .until("it is written", async |world: &World| {
            let answer = world.answer(&a).await;
            assert!(!answer.complete, "a commit is missing: {answer:?}");
            condition(answer.rev == Some(read_before.rev.to_string()), &answer)
        })
        .await;
    assert_eq!(world.reasons(&a).await, ["epoch_changed"]);
    world.clear(listing).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t49_an_equal_listing_between_two_subscriptions_raises_nothing() {
    // Sweeps go on all the time here.
    let mut world = World::start(small()).await;
    world.until_all_complete().await;
    let (a, b, epoch) = (world.did(0), world.did(1), world.epoch(PDS));
    world.post(&a);
    world.until_caught_up(PDS).await;
    let refused = cut_off(&world, 503);
    world.until_fired("dial-error", 2).await;
    world.inject(Spec::new(Fault::SeqRestart { next: 3 }).on(PDS));
    // One dial is let through, and told about the numbers; the next comes at once, and
    // waits until it is refused.
    let passes = Fault::Stall {
        ms: Some(1),
        route: Some("subscribeRepos".to_owned()),
    };
    world.inject(Spec::new(passes).on(PDS).times(1));
    let held = world.stall(0, "subscribeRepos", None);
    world.clear(refused).await;
    world.until_epoch_above(PDS, epoch).await;
    world.until_fired("stall", 2).await;
    let refused = world.inject(Spec::new(Fault::DialError { status: 503 }).on(PDS));
    world.clear(held).await;
    world.until_fired("dial-error", 3).await;
    let answered = world.epoch(PDS);
    let sweeps = world.metrics().sweeps.get();
    world
        .until("two sweeps", async |world: &World| {
            for did in world.net.truth().dids() {
                let answer = world.answer(&did).await;
                assert!(!answer.complete, "nobody listens: {answer:?}");
            }
            let now = world.metrics().sweeps.get();
            condition(now >= sweeps + 2, &now)
        })
        .await;
    assert_eq!(world.epoch(PDS), answered, "still not connected");
    // What is written now, the next subscription does not bring.
    let listing = world.stall(0, "listRepos", None);
    world.until_fired("stall", 3).await;
    world.post(&a);
    world.clear(refused).await;
    world
        .until("the subscription is in force", async |world: &World| {
            let answer = world.answer(&a).await;
            assert!(!answer.complete, "a commit is missing: {answer:?}");
            let upstream = world.upstream(PDS).await;
            condition(upstream.open, &upstream)
        })
        .await;
    assert_eq!(world.reasons(&a).await, ["epoch_changed"]);
    assert_eq!(world.reasons(&b).await, ["epoch_changed"]);
    world.clear(listing).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t52_a_wiped_host_that_counted_past_our_cursor_is_seen() {
    let mut world = World::settled(small()).await;
    let (a, b, epoch) = (world.did(0), world.did(1), world.epoch(PDS));
    let last = world.net.last_seq(PDS).expect("it is there");
    let listing = world.guard("listRepos");
    let refused = cut_off(&world, 503);
    world.until_fired("dial-error", 1).await;
    let lost = world.post(&a);
    world.inject(Spec::new(Fault::SeqRestart { next: 1 }).on(PDS));
    for _ in 0..last + 5 {
        world.post(&b);
    }
    assert!(world.net.last_seq(PDS) > Some(last), "it counted past us");
    world.clear(refused).await;
    world.until_epoch_above(PDS, epoch).await;
    let answer = world.until_incomplete(&a, "epoch_changed").await;
    assert_ne!(answer.rev, Some(lost.rev.to_string()));
    world.clear(listing).await;
    world.until_all_complete().await;
    assert_eq!(world.fired("seq-restart"), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t60_a_queued_frame_of_the_old_numbering_writes_no_cursor() {
    let mut world = World::settled(small()).await;
    let (a, b, epoch) = (world.did(0), world.did(1), world.epoch(PDS));
    let desk = world.block_desk(&a).await;
    let queued = world.post(&a);
    let last = world.net.last_seq(PDS);
    world
        .until("it is read", async |world: &World| {
            condition(world.read(PDS) == last, &world.read(PDS))
        })
        .await;
    world.inject(Spec::new(Fault::SeqRestart { next: 3 }).on(PDS));
    world.until_epoch_above(PDS, epoch).await;
    drop(desk);
    world
        .until("it is written", async |world: &World| {
            let answer = world.answer(&a).await;
            condition(answer.rev == Some(queued.rev.to_string()), &answer)
        })
        .await;
    // Whatever else is on its way is durable once everything is complete.
    world.until_all_complete().await;
    assert_eq!(
        world.upstream(PDS).await.cursor,
        None,
        "of a past numbering"
    );
    world.post(&b);
    world.until_caught_up(PDS).await;
    let cursor = world.upstream(PDS).await.cursor;
    assert!(cursor < last, "{cursor:?}");
    let resets = world.metrics().resets.get();
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    world.post(&a);
    world.until_caught_up(PDS).await;
    world.until_all_complete().await;
    assert_eq!(world.metrics().resets.get(), resets, "it is the host's own");
    world.stop().await;
}
