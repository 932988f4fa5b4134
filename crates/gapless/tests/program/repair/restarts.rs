//! Tests what the mirror remembers over restarts and changes of its configuration: the
//! schedule, parked frames, the list of tracked repositories, filters.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gapless::config;
use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::{DebtReason, UpstreamKind};
use gapless_harness::{World, listed, swept, unswept};
use gapless_mirror::Mirror;
use gapless_mirror::api::{Inspect as _, Operate as _, timestamp};
use gapless_store::change::{Change, WishChange};
use gapless_testnet::{Fault, Place, Spec};

/// Debts are read from the store while others are paid: what the schedule says of a
/// repository may be older than its row.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_schedule_believes_to_be_owed_and_is_not_is_forgotten() {
    let mut world = World::settled(listed(3, 1)).with(unswept).await;
    let did = world.account(0, 0);
    let services = world.mirror().services().clone();
    world
        .until("nothing is owed", async |world: &World| {
            let owed = world.mirror().services().schedule.len();
            (owed == 0).then_some(()).ok_or(format!("{owed}"))
        })
        .await;
    let resolved = world.metrics().resolutions.get();
    let now = services.clock.now();
    let mut stale = world.row(&did);
    debt::owe(now, &mut stale, DebtKind::Compare, DebtReason::Operator);
    services.schedule.note(now.time, &stale);
    let mut unheard = gapless_core::ledger::Repo::new(
        Did::parse("did:plc:zzzzzzzzzzzzzzzzzzzzzzzz").expect("a DID"),
    );
    debt::owe(
        now,
        &mut unheard,
        DebtKind::Resolve,
        DebtReason::FirstSighting,
    );
    services.schedule.note(now.time, &unheard);
    world
        .until("it is forgotten", async |world: &World| {
            let owed = world.mirror().services().schedule.len();
            (owed == 0).then_some(()).ok_or(format!("{owed}"))
        })
        .await;
    let asked = world.metrics().resolutions.get() - resolved;
    assert!(asked <= 2, "the directory was asked {asked} times");
    world.stop().await;
}

/// Without room on the disk the program says so, or waits where it can be stopped;
/// it does not hang before it has begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_room_on_the_disk_comes_to_an_end() {
    let mut world = World::settled(listed(3, 1)).with(unswept).await;
    world.expect("nothing is written until there is room on the disk");
    world.stop().await;
    let loaded = config::load(&world.flags, &[], std::path::Path::new("/nonexistent"));
    let mut config = loaded.expect("it is valid").config;
    config.mirror.min_free_disk = u64::MAX;
    let start = Mirror::start(config.mirror.clone(), true);
    let started = tokio::time::timeout(Duration::from_secs(20), start).await;
    let started = started.expect("it comes to an end, one way or another");
    if let Ok(mirror) = started {
        let _ = mirror.stop().await;
    }
}

/// Bytes of parked frames, as the store has them.
fn parked_in_store(world: &World) -> u64 {
    let view = world.mirror().services().store.view();
    let parked = view.parked_repos().expect("it can be read");
    parked.into_values().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_wait_are_counted_once_after_a_restart() {
    let mut world = World::settled(listed(3, 1)).with(unswept).await;
    let did = world.account(0, 0);
    let refused = Fault::HttpError {
        status: 503,
        retry_after: None,
        route: Some("getRepo".to_owned()),
    };
    let stalled = world.inject(Spec::new(refused).on(Place::Pds(0)));
    world.lose_commit(&did);
    world.post(&did);
    world.until_incomplete(&did, "fetch_owed").await;
    world.stop().await;
    world.begin().await;
    world.post(&did);
    world
        .until("two frames wait", async |world: &World| {
            let parked = world.metrics().events_parked.get();
            (parked >= 1).then_some(()).ok_or(format!("{parked}"))
        })
        .await;
    world
        .until("the cursor passes", async |world: &World| {
            let (cursor, last) = (world.cursor(0), world.net.last_seq(Place::Pds(0)));
            (cursor == last).then_some(()).ok_or(format!("{cursor:?}"))
        })
        .await;
    let counted = world
        .mirror()
        .desks()
        .totals()
        .parked_bytes
        .load(Ordering::SeqCst);
    assert_eq!(counted, parked_in_store(&world));
    world.clear(stalled).await;
    world.until_all_complete().await;
    world.stop().await;
}

/// "Complete as of" is the time of the page, not the end of the sweep: what the host did in
/// between was not compared.
#[tokio::test(flavor = "multi_thread")]
async fn as_of_is_not_later_than_what_was_looked_at() {
    let mut world = World::settled(listed(5, 1)).with(swept).await;
    let did = world.account(0, 1);
    world.drip(0, "listRepos", 200);
    world.until_fired("drip", 1).await;
    // The page is made, and on its way.
    let sweeps = world.metrics().sweeps.get();
    world.lose_commit(&did);
    let omitted = timestamp(world.mirror().services().clock.time()).expect("a year of four digits");
    let seen = AtomicBool::new(false);
    world
        .until("the sweep has ended", async |world: &World| {
            let answer = world.answer(&did).await;
            let head = world
                .net
                .truth()
                .head(&did)
                .map(|head| head.rev.to_string());
            if world.metrics().sweeps.get() == sweeps + 1 && answer.complete && answer.rev != head {
                seen.store(true, Ordering::SeqCst);
                let as_of = answer.as_of.clone().expect("a time");
                assert!(
                    as_of < omitted,
                    "complete as of {as_of}, and it was old since {omitted}"
                );
            }
            (world.metrics().sweeps.get() > sweeps)
                .then_some(())
                .ok_or("not yet".to_owned())
        })
        .await;
    assert!(seen.load(Ordering::SeqCst), "there was such a moment");
    world.until_complete(&did).await;
    world.stop().await;
}

/// Keys that were never asked for are not lost: until a widened filter has been
/// fetched, there is nothing to recompute, and nothing is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_was_widened_and_not_fetched_yet_is_no_damage() {
    let mut world = World::network(listed(3, 1)).await;
    world
        .flags
        .upstream
        .push(format!("pds={}", world.host_url(0)));
    world.flags.collections = Some("app.bsky.feed.post".to_owned());
    world.flags.keep_keys = Some("wanted".to_owned());
    world.adjust = unswept;
    world.begin().await;
    let did = world.account(0, 0);
    world
        .until("it is complete", async |world: &World| {
            let answer = world.repo(&did).await;
            let complete = answer.as_ref().is_some_and(|answer| answer.complete);
            complete.then_some(()).ok_or(format!("{answer:?}"))
        })
        .await;
    world.stop().await;
    world.flags.keep_keys = None;
    world.flags.collections = None;
    world.widened = true;
    let stalled = world.stall(0, "getRepo", None);
    world.need_not_fire(stalled);
    world.begin().await;
    let (mirror, asked) = (world.mirror().clone(), did.clone());
    let verified = tokio::task::spawn_blocking(move || mirror.inspector().verify(&asked));
    let verified = verified.await.expect("no panic").expect("an answer");
    assert!(
        verified.computed.is_none(),
        "nothing can be recomputed yet: {verified:?}"
    );
    assert_eq!(world.metrics().damaged.get(), 0);
    world.clear(stalled).await;
    world
        .until("it is fetched anew", async |world: &World| {
            let answer = world.repo(&did).await;
            let complete = answer.as_ref().is_some_and(|answer| answer.complete);
            complete.then_some(()).ok_or(format!("{answer:?}"))
        })
        .await;
    world.answer(&did).await;
    world.stop().await;
}

/// A mirror that tracks one repository, and another one of the same host.
async fn one_tracked() -> (World, Did) {
    let mut world = World::network(listed(3, 1)).await;
    let (tracked, other) = (world.account(0, 0), world.account(0, 1));
    world.name(&[&tracked]);
    world.adjust = unswept;
    world.begin().await;
    world.until_complete(&tracked).await;
    (world, other)
}

/// `track add` writes twice. A crash in between must not leave a row that says it
/// is tracked while its events are passed over: then it would be called complete
/// by a stream that is not read for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_tracked_is_on_the_list_before_its_row_says_so() {
    let (mut world, half) = one_tracked().await;
    // Its desk is held: the row cannot be written.
    let (hold, held) = std::sync::mpsc::sync_channel::<()>(1);
    let (desks, did) = (world.mirror().desks().clone(), half.clone());
    let holding = tokio::spawn(async move {
        let work = desks.with_repo(&did, move |_| {
            let _ = held.recv();
        });
        work.await
    });
    let (mirror, did) = (world.mirror().clone(), half.clone());
    let tracking = tokio::task::spawn_blocking(move || mirror.control().track(&[did]));
    let until = Instant::now() + Duration::from_secs(10);
    let listed = loop {
        let view = world.mirror().services().store.view();
        let on_it = view
            .tracked()
            .any(|row| row.expect("it can be read").0 == half);
        if on_it || Instant::now() > until {
            break on_it;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    drop(hold);
    holding.await.expect("no panic").expect("it ends");
    tracking.await.expect("no panic").expect("it is tracked");
    assert!(listed, "the row would have been written first");
    world.until_complete(&half).await;
    world.stop().await;
}

/// And what is on the list has a row after the next start, whatever happened.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_the_list_is_begun_at_the_next_start() {
    let (mut world, half) = one_tracked().await;
    let services = world.mirror().services().clone();
    let change = Change {
        wish: Some(WishChange::Track(half.clone(), services.clock.time())),
        ..Change::default()
    };
    let written = gapless_mirror::store_io::write(&services.store, change);
    written.await.expect("it is written");
    drop(services);
    world.stop().await;
    world.begin().await;
    world.until_complete(&half).await;
    world.stop().await;
}

/// A stream that was followed for one repository alone has passed over the others'
/// events. Followed for all again, it cannot vouch for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_read_for_some_alone_begins_anew_for_all() {
    let mut world = World::settled(listed(110, 1)).with(unswept).await;
    let (tracked, other) = (world.account(0, 0), world.account(0, 1));
    // A cursor to go on from.
    world.post(&tracked);
    world.until_complete(&tracked).await;
    world
        .until("nothing is owed", async |world: &World| {
            let schedule = &world.mirror().services().schedule;
            let left = (schedule.len(), schedule.at_work());
            (left == (0, 0)).then_some(()).ok_or(format!("{left:?}"))
        })
        .await;
    let stalled = world.stall(0, "listRepos", None);
    world.need_not_fire(stalled);
    let (mirror, url) = (world.mirror().clone(), world.host_url(0));
    let did = tracked.clone();
    let done = tokio::task::spawn_blocking(move || {
        mirror
            .control()
            .remove_upstream(&url)
            .expect("it is followed");
        mirror.control().track(&[did]).expect("it is tracked");
    });
    done.await.expect("no panic");
    world.until_open(&world.host_url(0)).await;
    world.post(&other);
    world.post(&tracked);
    world
        .until("the cursor passes", async |world: &World| {
            let (cursor, last) = (world.cursor(0), world.net.last_seq(Place::Pds(0)));
            (cursor == last).then_some(()).ok_or(format!("{cursor:?}"))
        })
        .await;
    world.add(UpstreamKind::Pds, world.host_url(0), None).await;
    world.until_open(&world.host_url(0)).await;
    world.never_stale(&other).await;
    world.clear(stalled).await;
    world.until_complete_never_stale(&other).await;
    world.stop().await;
}
