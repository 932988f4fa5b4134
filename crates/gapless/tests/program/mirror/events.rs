//! Tests events and snapshots that arrive interleaved, late, twice, in the wrong order, or not
//! at all.

use gapless_harness::{PDS, World, condition, network, new_path, record};
use gapless_mirror::api::Operate as _;
use gapless_testnet::Config as NetConfig;
use gapless_testnet::{Fault, NewCommit, Place, SetFault, Spec, Write};

fn small() -> NetConfig {
    network(2, 1)
}

/// Begins a mirror whose first snapshot of the only repository is held back, with
/// the stream in force. The number is for clearing.
async fn first_fetch_held() -> (World, SetFault) {
    let mut world = World::quiet(network(1, 1)).await;
    let held = world.stall(0, "getRepo", Some(&world.did(0)));
    world.begin().await;
    world.until_fired("stall", 1).await;
    world.until_connected(PDS).await;
    (world, held)
}

async fn parked(world: &World, count: u64) {
    world
        .until("it is parked", async |world: &World| {
            let parked = world.metrics().events_parked.get();
            condition(parked >= count, &parked)
        })
        .await;
}

/// The next snapshot is of the state before the last commit.
fn one_commit_ago(world: &World) {
    let old = Fault::CarOld { commits: 1 };
    world.inject(Spec::new(old).on(PDS).of(&world.did(0)).times(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn t01_a_create_during_a_fetch_that_returns_the_rev_before_it_is_not_lost() {
    let (mut world, held) = first_fetch_held().await;
    let a = world.did(0);
    world.post(&a);
    parked(&world, 1).await;
    world.until_incomplete(&a, "no_snapshot").await;
    one_commit_ago(&world);
    world.clear(held).await;
    world.until_complete(&a).await;
    assert_eq!(world.fired("car-old"), 1);
    let metrics = world.metrics();
    assert_eq!(world.snapshots().await, 1, "the event chains onto it");
    assert_eq!(metrics.events_unparked.get(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t02_a_delete_of_a_key_still_unknown_outlives_the_older_snapshot() {
    let (mut world, held) = first_fetch_held().await;
    let a = world.did(0);
    let path = world.some_path(&a);
    world.write(&a, &[Write::Delete { path: path.clone() }]);
    parked(&world, 1).await;
    one_commit_ago(&world);
    world.clear(held).await;
    world.until_complete(&a).await;
    assert_eq!(world.fired("car-old"), 1, "it still had the key");
    let view = world.mirror().services().store.view();
    let id = view.repo_id(&a).expect("it can be read").expect("known");
    let found = view.record(id, path.as_bytes()).expect("it can be read");
    assert!(found.is_none(), "{path} is back");
    assert_eq!(world.snapshots().await, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t03_a_late_update_after_a_newer_snapshot_is_ignored() {
    let mut world = World::start(small()).await;
    world.until_all_complete().await;
    let a = world.did(0);
    let path = world.some_path(&a);
    let update = |text: &str| {
        let (path, record) = (path.clone(), record(text));
        [Write::Update { path, record }]
    };
    world.post(&a);
    world.until_caught_up(PDS).await;
    let before = world.net.last_seq(PDS).expect("it is there");
    let fetched = world.snapshots().await;
    let late = world.inject(Spec::new(Fault::Reorder {}).of(&a).times(1));
    world.write(&a, &update("the older"));
    assert_eq!(world.fired("reorder"), 1, "it waits");
    world.inject(Spec::new(Fault::Drop { unnumbered: false }).of(&a).times(1));
    world.write(&a, &update("the newer"));
    assert_eq!(world.fired("drop"), 1, "never sent");
    // The sweep finds it, and a snapshot brings it.
    world.until_complete(&a).await;
    assert_eq!(world.snapshots().await, fetched + 1);
    let (log, replayed) = (world.log_next(), world.metrics().events_replayed.get());
    world.clear(late).await;
    world
        .until("it is read", async |world: &World| {
            let cursor = world.upstream(PDS).await.cursor;
            condition(cursor == Some(before + 1), &cursor)
        })
        .await;
    world.assert_complete(&a).await;
    assert_eq!(world.metrics().events_replayed.get(), replayed + 1);
    assert_eq!(world.log_next(), log, "nothing was applied");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_delete_recreate_and_the_delete_once_more_leaves_the_record() {
    // The same events come twice: from the host, and later from a relay.
    let mut world = World::quiet(NetConfig {
        relay: true,
        ..small()
    })
    .await;
    let relay = world.net.urls().relay.clone().expect("there is one");
    world.flags.upstream.push(format!("relay={relay}"));
    world.begin().await;
    world.settle().await;
    let a = world.did(0);
    world
        .until("the relay is followed", async |world: &World| {
            let upstream = world.upstream(Place::Relay).await;
            condition(upstream.connected, &upstream)
        })
        .await;
    world.post(&a);
    world.until_caught_up(Place::Relay).await;
    let refused = world.inject(Spec::new(Fault::DialError { status: 502 }).on(Place::Relay));
    world.inject(Spec::new(Fault::Disconnect {}).on(Place::Relay));
    world.until_fired("dial-error", 1).await;
    let path = world.some_path(&a);
    let again = Write::Create {
        path: path.clone(),
        record: record("again"),
    };
    world.write(&a, &[Write::Delete { path: path.clone() }]);
    world.write(&a, &[again]);
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    let (log, replayed) = (world.log_next(), world.metrics().events_replayed.get());
    world.clear(refused).await;
    world.until_caught_up(Place::Relay).await;
    assert_eq!(world.metrics().events_replayed.get(), replayed + 2);
    assert_eq!(world.log_next(), log, "nothing was applied");
    world.assert_complete(&a).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t05_a_reset_during_a_fetch_advances_the_snapshot_and_leaves_it_incomplete() {
    let mut world = World::settled(small()).await;
    let (a, epoch) = (world.did(0), world.epoch(PDS));
    let fetched = world.snapshots().await;
    let held = world.stall(0, "getRepo", Some(&a));
    let made = world.too_big(&a);
    world.until_fired("stall", 1).await;
    let listing = world.guard("listRepos");
    let heads = world.stall(0, "getLatestCommit", Some(&a));
    let (name, message) = ("OutdatedCursor".to_owned(), None);
    world.inject(Spec::new(Fault::Info { name, message }).on(PDS));
    world.until_epoch_above(PDS, epoch).await;
    assert_eq!(world.fired("info"), 1);
    world.clear(held).await;
    world
        .until("the snapshot is progress", async |world: &World| {
            let answer = world.answer(&a).await;
            assert!(!answer.complete, "nobody compared it: {answer:?}");
            let indexed = answer.last_indexed_rev.clone();
            condition(indexed == Some(made.rev.to_string()), &answer)
        })
        .await;
    let owed = ["epoch_changed", "compare_owed"];
    assert_eq!(world.reasons(&a).await, owed);
    // The host's own answer makes it good, before any sweep does.
    world.clear(heads).await;
    world.until_complete(&a).await;
    world.clear(listing).await;
    world.until_all_complete().await;
    assert_eq!(world.snapshots().await, fetched + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t20_too_big_on_a_complete_repository_owes_one_fetch() {
    let mut world = World::settled(small()).await;
    let (a, b) = (world.did(0), world.did(1));
    let fetched = world.snapshots().await;
    let held = world.stall(0, "getRepo", Some(&a));
    let made = world.too_big(&a);
    let answer = world
        .until_incomplete_for(&a, &["newer_commit_known", "fetch_owed"])
        .await;
    let first = answer.first_rev_since_reset;
    assert_eq!(first, Some(made.rev.to_string()), "the signed rev");
    world.assert_complete(&b).await;
    world.until_fired("stall", 1).await;
    world.clear(held).await;
    world.until_complete(&a).await;
    assert_eq!(world.snapshots().await, fetched + 1);
    world.stop().await;
}

/// A put whose event lags behind that of its delete, which says `tooBig`. Fetches
/// are held; the number is for clearing.
fn late_put_of_a_big_delete(world: &World, and: Vec<Write>) -> Lagging {
    let a = world.did(0);
    let held = world.stall(0, "getRepo", Some(&a));
    let path = new_path();
    let put = Write::Create {
        path: path.clone(),
        record: record("for a moment"),
    };
    world.inject(Spec::new(Fault::Reorder {}).of(&a).times(1));
    let put = world.write(&a, &[put]);
    world.inject(Spec::new(Fault::TooBig {}).of(&a).times(1));
    let mut writes = vec![Write::Delete { path }];
    writes.extend(and);
    let delete = world.write(&a, &writes);
    assert_eq!((world.fired("reorder"), world.fired("too-big")), (1, 1));
    Lagging { held, put, delete }
}

struct Lagging {
    held: SetFault,
    put: NewCommit,
    delete: NewCommit,
}

#[tokio::test(flavor = "multi_thread")]
async fn t21_a_a_delete_too_big_to_send_and_a_put_that_lags_end_without_the_record() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let fetched = world.snapshots().await;
    let (path, record) = (new_path(), record("beside it"));
    let lagging = late_put_of_a_big_delete(&world, vec![Write::Create { path, record }]);
    // The put came last; it chains, and something newer is known.
    world
        .until("the put is applied", async |world: &World| {
            let answer = world.answer(&a).await;
            let applied = answer.rev == Some(lagging.put.rev.to_string());
            assert!(!(applied && answer.complete), "no delete: {answer:?}");
            condition(applied, &answer)
        })
        .await;
    world.until_incomplete(&a, "newer_commit_known").await;
    world.until_fired("stall", 1).await;
    world.clear(lagging.held).await;
    world.until_complete(&a).await;
    let rev = world.answer(&a).await.rev;
    assert_eq!(rev, Some(lagging.delete.rev.to_string()));
    assert_eq!(world.snapshots().await, fetched + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t21_b_a_delete_too_big_to_send_that_leads_back_to_our_root_needs_no_snapshot() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let (data, log) = (world.answer(&a).await.data, world.log_next());
    let fetched = world.snapshots().await;
    let lagging = late_put_of_a_big_delete(&world, Vec::new());
    world.need_not_fire(lagging.held);
    world.until_complete(&a).await;
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    let answer = world.answer(&a).await;
    assert_eq!(answer.rev, Some(lagging.delete.rev.to_string()));
    assert_eq!(answer.data, data);
    assert_eq!(world.log_next(), log + 1, "the head alone; the put is old");
    world.clear(lagging.held).await;
    world.settle().await;
    assert_eq!(world.snapshots().await, fetched);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t22_a_a_difference_that_live_commits_have_passed_is_dropped() {
    let mut world = World::start(small()).await;
    world.until_all_complete().await;
    let a = world.did(0);
    let fetched = world.snapshots().await;
    let held = world.stall(0, "getRepo", Some(&a));
    // The sweep asks for a commit whose event lags.
    let late = world.inject(Spec::new(Fault::Reorder {}).of(&a).times(1));
    world.post(&a);
    world.until_fired("stall", 1).await;
    world.clear(late).await;
    assert_eq!(world.fired("reorder"), 1);
    world.post(&a);
    world
        .until("live commits have passed it", async |world: &World| {
            let head = world.net.truth().head(&a).expect("it exists");
            let answer = world.answer(&a).await;
            condition(answer.rev == Some(head.rev.to_string()), &answer)
        })
        .await;
    let log = world.log_next();
    one_commit_ago(&world);
    world.clear(held).await;
    world.until_fired("car-old", 1).await;
    world
        .until("it is discarded", async |world: &World| {
            world.answer(&a).await;
            let discarded = world.metrics().snapshots_discarded.get();
            condition(discarded >= 1, &discarded)
        })
        .await;
    world.until_complete(&a).await;
    assert_eq!(world.log_next(), log, "nothing was undone");
    let written = world.snapshots().await;
    assert_eq!(written, fetched, "and nothing more is fetched");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t22_b_a_whole_older_snapshot_that_comes_last_undoes_nothing() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let held = world.stall(0, "getRepo", Some(&a));
    let (mirror, did) = (world.mirror().clone(), a.clone());
    let asked = tokio::task::spawn_blocking(move || mirror.control().resync(&did, false));
    asked.await.expect("no panic").expect("it is owed");
    world.until_fired("stall", 1).await;
    let made = world.post(&a);
    world.until_caught_up(PDS).await;
    let answer = world.answer(&a).await;
    assert_eq!(answer.rev, Some(made.rev.to_string()), "live, meanwhile");
    let log = world.log_next();
    one_commit_ago(&world);
    world.clear(held).await;
    world
        .until("it is discarded", async |world: &World| {
            world.answer(&a).await;
            let discarded = world.metrics().snapshots_discarded.get();
            condition(discarded >= 1, &discarded)
        })
        .await;
    assert_eq!(world.fired("car-old"), 1);
    assert_eq!(world.log_next(), log, "nothing was undone");
    let answer = world.answer(&a).await;
    assert_eq!(answer.rev, Some(made.rev.to_string()));
    // What the operator wants is still owed, and paid by the next one.
    world.until_complete(&a).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t34_a_gap_between_the_snapshot_and_the_first_live_commit_is_seen() {
    let mut world = World::settled(network(2, 1)).await;
    // Nothing but its snapshot is known of it.
    let a = world.did(1);
    assert_eq!(world.answer(&a).await.last_firehose_rev, None);
    let fetched = world.snapshots().await;
    let held = world.stall(0, "getRepo", Some(&a));
    world.lose_commit(&a);
    world.post(&a);
    world
        .until_incomplete_for(&a, &["newer_commit_known", "fetch_owed"])
        .await;
    world.clear(held).await;
    world.until_complete(&a).await;
    assert_eq!(world.snapshots().await, fetched + 1);
    world.stop().await;
}

/// The chain breaks, and the fetch that would mend it fails so often.
async fn failing(times: u64) {
    let mut world = World::settled(small()).await;
    let (a, b) = (world.did(0), world.did(1));
    let fetched = world.snapshots().await;
    let (status, retry_after) = (500, None);
    let route = Some("getRepo".to_owned());
    let refused = Fault::HttpError {
        status,
        retry_after,
        route,
    };
    world.inject(Spec::new(refused).on(PDS).of(&a).times(times));
    world.lose_commit(&a);
    world.post(&a);
    for failure in 1..=times {
        world.until_fired("http-error", failure).await;
        let owed = world
            .until_incomplete_for(&a, &["newer_commit_known", "fetch_owed"])
            .await;
        let debt = owed.debt.expect("it is owed");
        assert!(u64::from(debt.attempts) <= failure, "{debt:?}");
        world
            .until("the failure is written", async |world: &World| {
                let at_work = world.mirror().services().schedule.at_work();
                condition(at_work == 0, &at_work)
            })
            .await;
        world.try_now(&a).await;
    }
    world.until_complete(&a).await;
    assert_eq!(world.fired("http-error"), times);
    assert_eq!(world.snapshots().await, fetched + 1);
    world.assert_complete(&b).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t35_a_a_fetch_that_fails_once_stays_owed() {
    failing(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t35_b_a_fetch_that_fails_ten_times_stays_owed() {
    failing(10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t41_two_commits_in_the_wrong_order_then_silence_need_no_fetch() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let fetched = world.snapshots().await;
    let parked = world.metrics().events_parked.get();
    // Nothing that is fetched can help.
    let held = world.stall(0, "getRepo", Some(&a));
    world.need_not_fire(held);
    world.inject(Spec::new(Fault::Reorder {}).of(&a).times(1));
    world.post(&a);
    world.post(&a);
    assert_eq!(world.fired("reorder"), 1);
    world.until_complete(&a).await;
    assert_eq!(world.metrics().events_parked.get(), parked + 1);
    world.clear(held).await;
    world.settle().await;
    assert_eq!(world.snapshots().await, fetched);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_laid_over_what_is_held_by_then() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let fetched = world.snapshots().await;
    let held = world.stall(0, "getRepo", Some(&a));
    let (mirror, did) = (world.mirror().clone(), a.clone());
    let asked = tokio::task::spawn_blocking(move || mirror.control().resync(&did, false));
    asked.await.expect("no panic").expect("it is owed");
    world.until_fired("stall", 1).await;
    // The desk is busy: a create comes by the stream, and its delete, of which the
    // stream says nothing, is in the snapshot.
    let desk = world.block_desk(&a).await;
    let waiting = world.mirror().desks().queued_items();
    let path = new_path();
    let create = Write::Create {
        path: path.clone(),
        record: record("for a moment"),
    };
    world.write(&a, &[create]);
    world.until_all_read(PDS).await;
    world
        .until("it waits", async |world: &World| {
            let now = world.mirror().desks().queued_items();
            condition(now == waiting + 1, &now)
        })
        .await;
    world.inject(Spec::new(Fault::Drop { unnumbered: false }).of(&a).times(1));
    let deleted = world.write(&a, &[Write::Delete { path: path.clone() }]);
    assert_eq!(world.fired("drop"), 1);
    world.clear(held).await;
    world
        .until("the snapshot waits behind it", async |world: &World| {
            let now = world.mirror().desks().queued_items();
            condition(now == waiting + 2, &now)
        })
        .await;
    drop(desk);
    world.until_complete(&a).await;
    let answer = world.answer(&a).await;
    assert_eq!(answer.rev, Some(deleted.rev.to_string()));
    let view = world.mirror().services().store.view();
    let id = view.repo_id(&a).expect("it can be read").expect("known");
    let found = view.record(id, path.as_bytes()).expect("it can be read");
    assert!(found.is_none(), "{path} was deleted");
    assert_eq!(world.snapshots().await, fetched + 1);
    world.stop().await;
}
