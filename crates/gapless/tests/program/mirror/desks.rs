//! Tests the desks: which events wait there, in which order, how many, and which decisions are
//! taken again. The tests block the store so that events certainly wait.

use futures_util::FutureExt;
use gapless_core::ledger::{Repo, Time};
use gapless_harness::{PDS, World, condition, network, new_path, own_accounts, record};
use gapless_mirror::desk::RepoTurn;
use gapless_store::change::{Change, RepoChange, Subject};
use gapless_store::cursor::EventPosition;
use gapless_store::table::dead::DeadClass;
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec, Status, Write};

/// All repositories at one desk.
async fn one_desk(config: NetConfig) -> World {
    let mut world = World::quiet(config).await;
    world.adjust = |config| config.mirror.workers = 1;
    world.begin().await;
    world.settle().await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_at_a_desk_keeps_its_order() {
    let mut world = one_desk(network(2, 1)).await;
    let (a, b) = (world.did(0), world.did(1));
    let applied = world.metrics().events_applied.get();
    let parked = world.metrics().events_parked.get();
    let store = world.block_store().await;
    let first = world.post(&a);
    world.until_applied(applied + 1).await;
    // It waits until nothing of the repository is on its way to the store.
    let desks = world.mirror().desks().clone();
    let change = desks.with_repo(&a, |turn| {
        let tx = turn.tx.as_ref().expect("it is known");
        tx.repo.head().map(|head| head.rev)
    });
    tokio::pin!(change);
    assert!(change.as_mut().now_or_never().is_none());
    for _ in 0..3 {
        world.post(&a);
    }
    // The same desk has come to it, so it has come to those before it.
    world.post(&b);
    world.until_applied(applied + 2).await;
    drop(store);
    let seen = change.await.expect("it is written");
    assert_eq!(seen, Some(first.rev), "those after it came after it");
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    assert_eq!(world.metrics().events_parked.get(), parked);
    world.stop().await;
}

/// Behind the desk's back the row is another one: what the desk decides on the one
/// that it has at hand is refused.
fn overtake(world: &World, number: usize) {
    let services = &world.mirror().services();
    let did = world.did(number);
    let found = services.store.view().repo_by_did(&did);
    let (id, row) = found.expect("it can be read").expect("it is known");
    let row = Repo {
        lineage: row.lineage + 1,
        ..row
    };
    let change = Change {
        repo: Some(RepoChange::row(Subject::Id(id), row)),
        ..Change::default()
    };
    services.store.submit(change, |answer| {
        answer.expect("it is taken");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_refuses_is_decided_anew_in_its_order() {
    let mut world = one_desk(network(2, 1)).await;
    world.expect("the store refused a change; the desk decides its event again");
    let (a, b) = (world.did(0), world.did(1));
    let fetched = world.snapshots().await;
    let (applied, parked, dead) = (
        world.metrics().events_applied.get(),
        world.metrics().events_parked.get(),
        world.metrics().dead_letters.get(),
    );
    let store = world.block_store().await;
    overtake(&world, 0);
    for _ in 0..3 {
        world.post(&a);
    }
    world.post(&b);
    world.until_applied(applied + 4).await;
    drop(store);
    world.until_caught_up(PDS).await;
    let metrics = world.metrics();
    assert_eq!(metrics.refused_changes.get(), 3, "once each");
    assert_eq!(metrics.events_applied.get(), applied + 7);
    assert_eq!(metrics.events_parked.get(), parked, "each after the other");
    assert_eq!(metrics.dead_letters.get(), dead);
    world.assert_complete(&a).await;
    world.assert_complete(&b).await;
    let row = world.mirror().services().store.view().repo_by_did(&a);
    let (_, row) = row.expect("it can be read").expect("it is known");
    assert_eq!(row.lineage, 1, "on the row that the store has");
    assert_eq!(world.snapshots().await, fetched);
    world.stop().await;
}

/// A reset asks for a sweep, and that comes to nothing.
async fn fails_to_sweep(world: &World) {
    let (swept, failures) = (world.swept(), world.metrics().sweep_failures.get());
    let (name, message) = ("OutdatedCursor".to_owned(), None);
    world.inject(Spec::new(Fault::Info { name, message }).on(PDS));
    world
        .until("the sweep has failed", async |world: &World| {
            let failed = world.metrics().sweep_failures.get();
            condition(failed > failures, &failed)
        })
        .await;
    assert_eq!(world.swept(), swept);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_passed_a_line_over_is_no_sweep() {
    let mut world = one_desk(network(2, 1)).await;
    world.expect("the store refused a change; the desk decides its event again");
    let (a, b) = (world.did(0), world.did(1));
    let applied = world.metrics().events_applied.get();
    let store = world.block_store().await;
    overtake(&world, 0);
    world.post(&a);
    world.post(&b);
    world.until_applied(applied + 2).await;
    // Between the change that is refused and the one that stands on it.
    let (again, held) = world.block_store_here();
    world.post(&a);
    world.until_applied(applied + 3).await;
    drop(store);
    held.await.expect("the store is held");
    world
        .until("the first is refused", async |world: &World| {
            let refused = world.metrics().refused_changes.get();
            condition(refused == 1, &refused)
        })
        .await;
    // The desk knows that its row is wrong, and not yet what is right.
    fails_to_sweep(&world).await;
    drop(again);
    // The next one comes after a rest: commits heal their repositories meanwhile.
    world.post(&a);
    world.post(&b);
    world.until_all_complete().await;
    assert_eq!(world.fired("info"), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_whose_change_the_store_refuses_is_no_sweep() {
    let mut world = one_desk(network(2, 1)).await;
    world.expect("the store refused a change; the desk decides its event again");
    overtake(&world, 0);
    // A line of the listing raises the marker, on a row that is not the store's.
    fails_to_sweep(&world).await;
    assert_eq!(world.metrics().refused_changes.get(), 1);
    // The next one looks at it again, on the right row.
    world.until_all_complete().await;
    assert_eq!(world.fired("info"), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspect_is_asked_about_only_when_the_stream_is_written() {
    let mut world = World::settled(network(4, 2)).await;
    let (a, b) = (world.account(0, 0), world.account(0, 1));
    let (asked, suspects) = (
        world.metrics().heads_asked.get(),
        world.metrics().suspects.get(),
    );
    world.lose_commit(&a);
    // As if it had been read and were on its way to the store.
    let upstream = world.upstream_id(PDS);
    let store = &world.mirror().services().store;
    let row = store.view().upstream(upstream).expect("it can be read");
    let on_its_way = EventPosition {
        upstream,
        numbering: row.expect("it is known").numbering,
        seq: world.net.last_seq(PDS).expect("it has a number"),
        event: [0; 16],
    };
    store.begin(upstream, on_its_way.numbering, on_its_way.seq);
    world.post(&b);
    world.until_all_read(PDS).await;
    let (name, message) = ("OutdatedCursor".to_owned(), None);
    world.inject(Spec::new(Fault::Info { name, message }).on(PDS));
    world
        .until("it is suspect", async |world: &World| {
            let found = world.metrics().suspects.get();
            let upstream = world.upstream(PDS).await;
            condition(found > suspects && upstream.sweep.suspects == 1, &upstream)
        })
        .await;
    let elsewhere = world.account(1, 0);
    world.meanwhile(&elsewhere, Place::Pds(1), 25).await;
    assert_eq!(world.metrics().heads_asked.get(), asked, "it has an excuse");
    let done = Change {
        done: Some(on_its_way),
        ..Change::default()
    };
    world
        .mirror()
        .services()
        .store
        .write(done)
        .expect("it is done");
    world.until_complete(&a).await;
    assert!(world.metrics().heads_asked.get() > asked);
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desk_that_is_behind_makes_its_reader_wait() {
    // A megabyte of room for each desk.
    const EVENTS: usize = 80;
    const RECORD_BYTES: usize = 60_000;
    let mut world = World::quiet(NetConfig {
        did_web: false,
        ..network(4, 2)
    })
    .await;
    world.adjust = |config| config.mirror.workers = 64;
    world.begin().await;
    world.settle().await;
    let (a, elsewhere) = (world.account(0, 0), world.account(1, 0));
    let desk = world.block_desk(&a).await;
    let before = world.read(PDS).expect("something was read");
    for _ in 0..EVENTS {
        let (path, record) = (new_path(), record(&"x".repeat(RECORD_BYTES)));
        world.write(&a, &[Write::Create { path, record }]);
    }
    world
        .until("some of it is read", async |world: &World| {
            let read = world.read(PDS);
            condition(read > Some(before), &read)
        })
        .await;
    world.meanwhile(&elsewhere, Place::Pds(1), 25).await;
    let read = world.read(PDS).expect("something was read") - before;
    assert!(read <= EVENTS as u64 / 2, "{read} of {EVENTS} were read");
    drop(desk);
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    world.stop().await;
}

/// As if the document of a repository had been read so many hours ago.
async fn aged(world: &World, number: usize, hours: u64) {
    let did = world.did(number);
    let change = world.mirror().desks().with_repo(&did, move |turn| {
        let now = turn.services.clock.time();
        let tx = turn.tx.as_mut().expect("it is known");
        let signing = tx.repo.signing.as_mut().expect("it was resolved");
        signing.at = Time(now.0 - hours * 3_600_000_000);
    });
    change.await.expect("it is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_not_looked_up_for_days_is_looked_up_first() {
    let mut world = World::settled(network(2, 1)).await;
    let a = world.did(0);
    let fetched = world.snapshots().await;
    let parked = world.metrics().events_parked.get();
    // After a day it still serves, and is read again.
    for (hours, waited) in [(30, 0), (80, 1)] {
        let resolutions = world.metrics().resolutions.get();
        aged(&world, 0, hours).await;
        let made = world.post(&a);
        world.until_complete(&a).await;
        world
            .until("it is read again", async |world: &World| {
                let now = world.metrics().resolutions.get();
                condition(now > resolutions, &now)
            })
            .await;
        // `snapshots` waits until no repair is running.
        assert_eq!(world.snapshots().await, fetched);
        let answer = world.answer(&a).await;
        assert_eq!(answer.last_firehose_rev, Some(made.rev.to_string()));
        let now = world.metrics().events_parked.get();
        assert_eq!(now, parked + waited, "{hours} hours");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_document_is_not_asked_for_with_every_event_while_the_directory_is_down() {
    const POSTS: u64 = 30;
    let mut world = World::settled(NetConfig {
        did_web: false,
        ..network(2, 1)
    })
    .await;
    let a = world.did(0);
    let resolutions = world.metrics().resolutions.get();
    let failures = world.metrics().resolution_failures.get();
    let down = world.inject(Spec::new(Fault::PlcDown {}).on(Place::Plc));
    aged(&world, 0, 30).await;
    for _ in 0..POSTS {
        world.post(&a);
        world.until_complete(&a).await;
    }
    world.until_fired("plc-down", 1).await;
    let asked = world.metrics().resolutions.get() - resolutions;
    assert!(asked < POSTS / 3, "{asked} times for {POSTS} events");
    // No event is needed to ask again.
    world.clear(down).await;
    world
        .until("it is read again", async |world: &World| {
            let asked = world.metrics().resolutions.get() - resolutions;
            let failed = world.metrics().resolution_failures.get() - failures;
            condition(asked > failed, &(asked, failed))
        })
        .await;
    world.assert_complete(&a).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_causes_a_panic_is_kept_and_the_desk_goes_on() {
    let mut world = one_desk(own_accounts(network(2, 1))).await;
    world.expect("deciding an event ended unexpectedly");
    let (a, b) = (world.did(0), world.did(1));
    let asked = world.metrics().heads_asked.get();
    world.inject_panic_in_event(&a);
    let lost = world.post(&a);
    let live = world.post(&b);
    world.until_caught_up(PDS).await;
    // The same desk has gone on with the others.
    world.assert_complete(&b).await;
    let answer = world.answer(&b).await;
    assert_eq!(answer.last_firehose_rev, Some(live.rev.to_string()));
    // The host is asked, and the next event is one like any other.
    world.until_complete(&a).await;
    let answer = world.answer(&a).await;
    assert_eq!(answer.last_indexed_rev, Some(lost.rev.to_string()));
    assert!(world.metrics().heads_asked.get() > asked);
    let live = world.post(&a);
    world.until_complete(&a).await;
    let answer = world.answer(&a).await;
    assert_eq!(answer.last_firehose_rev, Some(live.rev.to_string()));
    assert_eq!(world.metrics().faults.get(), 1);
    let view = world.mirror().services().store.view();
    let letters: Vec<_> = view.dead_letters().collect();
    let [Ok((_, letter))] = letters.as_slice() else {
        panic!("{letters:?}");
    };
    assert_eq!(letter.class, DeadClass::Refused);
    assert!(letter.error.contains("a fault of Gapless"), "{letter:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_causes_a_panic_is_discarded_and_the_desk_goes_on() {
    let mut world = one_desk(network(2, 1)).await;
    world.expect("deciding about a repository ended unexpectedly");
    let (a, b) = (world.did(0), world.did(1));
    let (desks, asked) = (
        world.mirror().desks().clone(),
        world.metrics().heads_asked.get(),
    );
    let change = desks.with_repo(&a, |turn: &mut RepoTurn<'_>| -> () {
        turn.get_or_create().repo.lineage += 7;
        panic!("a test wants a fault of ours here");
    });
    let error = change.await.expect_err("it has not come to its end");
    assert!(
        !error.is_final() && error.to_string().contains("a fault of Gapless"),
        "{error}"
    );
    assert_eq!(world.metrics().faults.get(), 1);
    // Nothing of it counts, the host is asked, and the same desk goes on.
    let lineage = desks.with_repo(&a, |turn: &mut RepoTurn<'_>| {
        turn.get_or_create().repo.lineage
    });
    assert_eq!(lineage.await.expect("it is a change like any other"), 0);
    let (one, other) = (world.post(&a), world.post(&b));
    for (did, live) in [(&b, other), (&a, one)] {
        world.until_complete(did).await;
        let answer = world.answer(did).await;
        assert_eq!(answer.last_firehose_rev, Some(live.rev.to_string()));
    }
    assert!(world.metrics().heads_asked.get() > asked);
    assert_eq!(world.metrics().faults.get(), 1);
    world.stop().await;
}

/// The document of a repository that its host has closed is read at once, and then
/// once a week.
async fn looked_for(closed: Status, account: &str) {
    let mut world = World::quiet(network(2, 1)).await;
    world.flags.sweep_every = Some("1s".to_owned());
    world.begin().await;
    world.until_all_complete().await;
    let a = world.did(0);
    let asked = |world: &World| world.metrics().resolutions.get();
    let before = asked(&world);
    world.net.set_status(&a, closed).expect("it is active");
    world
        .until("its document is read at once", async |world: &World| {
            let answer = world.answer(&a).await;
            let owed = answer.reasons.iter().any(|one| one == "resolve_owed");
            let read = asked(world) > before && !owed;
            condition(answer.account == account && read, &answer)
        })
        .await;
    // A day is not a week: two sweeps cause no request.
    aged(&world, 0, 30).await;
    let (sweeps, before) = (world.metrics().sweeps.get(), asked(&world));
    world
        .until("two sweeps", async |world: &World| {
            let now = world.metrics().sweeps.get();
            condition(now >= sweeps + 2, &now)
        })
        .await;
    assert_eq!(asked(&world), before);
    aged(&world, 0, 8 * 24).await;
    world
        .until("its document is read again", async |world: &World| {
            condition(asked(world) > before, &asked(world))
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_repository_is_looked_for_elsewhere_once_a_week() {
    looked_for(Status::Deactivated, "deactivated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlisted_deleted_repository_is_looked_for_elsewhere_too() {
    looked_for(Status::Deleted, "deleted").await;
}
