//! Tests a disk that is full and then has space again: refused work is done later, in order and
//! completely.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::{Account, UpstreamKind};
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_harness::{PDS, World, condition, network, new_path, record};
use gapless_mirror::api::{ApiError, Inspect as _, NewUpstream, Operate as _};
use gapless_mirror::store_io::write;
use gapless_store::change::{Change, ConsumerChange};
use gapless_store::table::log::LogKind;
use gapless_testnet::faults::Part;
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec, Status, Write};

/// The limit on how long an order waits to be refused.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_moves_past_events_of_others_once_there_is_room_again() {
    let mut world = World::network(network(2, 1)).await;
    let (ours, other) = (world.did(0), world.did(1));
    world.name(&[&ours]);
    world.begin().await;
    world.until_complete(&ours).await;
    world.post(&ours);
    world.until_caught_up(PDS).await;
    world.until_complete(&ours).await;
    let hold = world.block_queue().await;
    // The event concerns no repository of the mirror: only the cursor will move.
    world.post(&other);
    world.until_queued(1).await;
    world.fill_disk();
    drop(hold);
    world
        .until("it is refused", async |world: &World| {
            let lack = world.mirror().services().disk.shortage();
            condition(lack.is_some(), &lack)
        })
        .await;
    world.until_none_queued().await;
    world.free_disk();
    world.until_caught_up(PDS).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_was_no_room_for_is_not_overtaken_by_what_there_is_room_for() {
    let mut world = World::settled(NetConfig {
        did_web: false,
        ..network(2, 1)
    })
    .await;
    let did = world.did(0);
    let set = |status| world.net.set_status(&did, status).expect("it is set");
    // Whose account is closed is looked for elsewhere. That has begun, and does not
    // come between.
    let (ms, route) = (None, None);
    let directory = world.inject(Spec::new(Fault::Stall { ms, route }).on(Place::Plc));
    set(Status::Deactivated);
    world.until_fired("stall", 1).await;
    world.until_caught_up(PDS).await;
    let told = world.log_of(&world.did(0)).len();
    world.fill_disk();
    // The store is held while it says that there is no room.
    let hold = world.block_store().await;
    let (again, held) = world.block_store_here();
    let before = world.net.last_seq(PDS).expect("it is there");
    let events = || (world.net.last_seq(PDS).expect("it is there") - before) as usize;
    set(Status::Takendown);
    let first = events();
    world.until_queued(1 + first).await;
    drop(hold);
    held.await.expect("the store is held");
    // The first is refused, and its desk does not know that yet.
    set(Status::Active);
    world.until_queued(events() - first).await;
    world.free_disk();
    drop(again);
    world.clear(directory).await;
    world.until_complete(&did).await;
    world.until_caught_up(PDS).await;
    world.assert_complete(&did).await;
    let [hidden, shown] = [Account::Takendown, Account::Active].map(LogKind::Account);
    // And where it is, since it is shown again.
    assert_eq!(
        world.log_of(&world.did(0))[told..],
        [hidden, shown, LogKind::Repair]
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_tells_of_a_key_before_what_it_signed() {
    let mut world = World::settled(network(2, 1)).await;
    let did = world.did(0);
    let parked = world.metrics().events_parked.get();
    let told = world.log_of(&world.did(0)).len();
    world.inject(Spec::new(Fault::RotateKey { quiet: true }).of(&did));
    world.post(&did);
    world.until_complete(&did).await;
    assert_eq!(world.metrics().events_parked.get(), parked + 1);
    assert_eq!(
        world.log_of(&world.did(0))[told..],
        [LogKind::Identity, LogKind::Live]
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_counted_right_after_a_refusal() {
    let mut world = World::quiet(NetConfig {
        did_web: false,
        ..network(2, 1)
    })
    .await;
    world.adjust = |config| config.mirror.workers = 1;
    world.begin().await;
    world.settle().await;
    let did = world.did(0);
    let counted = |world: &World| {
        let parked = &world.mirror().desks().totals().parked_bytes;
        parked.load(Ordering::Relaxed)
    };
    let held = world.stall(0, "getLatestCommit", Some(&did));
    world.lose_commit(&did);
    world.post(&did);
    world
        .until("it waits", async |world: &World| {
            condition(counted(world) > 0, &counted(world))
        })
        .await;
    world.until_caught_up(PDS).await;
    world.fill_disk();
    let desks = world.mirror().desks().clone();
    let refused = desks.with_repo(&did, |turn| {
        let tx = turn.tx.as_mut().expect("it is known");
        let revs: Vec<_> = tx.parked().keys().copied().collect();
        for rev in revs {
            tx.drop_frame(rev, DropReason::Superseded);
        }
    });
    refused.await.expect_err("there is no room");
    world.free_disk();
    // The desk has others to see to, and lets go of its row.
    for number in 0..20_000 {
        let other = format!("did:web:other{number}.example");
        let other = Did::parse(&other).expect("a DID");
        desks.with_repo(&other, |_| ()).await.expect("it answers");
        assert!(number > 0 || counted(&world) > 0, "it waits still");
    }
    world.clear(held).await;
    world.try_now(&did).await;
    world.until_complete(&did).await;
    assert_eq!(counted(&world), 0, "nothing waits any more");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_waits_for_room_counts_once() {
    let mut world = World::settled(NetConfig {
        did_web: false,
        ..network(2, 1)
    })
    .await;
    let did = world.did(0);
    world.fill_disk();
    let undecodable = Fault::Undecodable { part: Part::Rest };
    world.inject(Spec::new(undecodable).of(&did).times(1));
    let refusals = world.mirror().services().store.refusals();
    world.post(&did);
    world
        .until("it is tried again and again", async |world: &World| {
            let now = world.mirror().services().store.refusals();
            condition(now >= refusals + 3, &now)
        })
        .await;
    world.free_disk();
    world.until_caught_up(PDS).await;
    world.until_complete(&did).await;
    let services = &world.mirror().services();
    let kept = services.store.view().dead_letters().count() as u64;
    assert_eq!(kept, 1);
    assert_eq!(
        world
            .mirror()
            .desks()
            .totals()
            .dead_letters
            .load(Ordering::Relaxed),
        kept
    );
    assert_eq!(world.metrics().dead_letters.get(), kept);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_there_was_no_room_to_follow_is_followed_once_there_is() {
    let mut world = World::network(NetConfig {
        did_web: false,
        ..network(4, 2)
    })
    .await;
    let ours = world.did(0);
    let host = world.net.truth().head(&ours).expect("it exists").host;
    world.name(&[&ours]);
    let (ms, route) = (None, None);
    let plc = world.inject(Spec::new(Fault::Stall { ms, route }).on(Place::Plc));
    world.begin().await;
    world.until_fired("stall", 1).await;
    // As an answer of the directory leaves the row.
    let url = world.net.urls().pds[host].clone();
    let mirror = world.mirror().clone();
    let named = mirror.services().hosts.register(&url).await;
    let id = named.expect("it is written");
    let moved = mirror.desks().with_repo(&ours, move |turn| {
        let now = turn.services.clock.now();
        let tx = turn.tx.as_mut().expect("it is known");
        tx.repo.host = Some(id);
        tx.repo.host_since = now.tick;
        tx.repo.debt = Default::default();
    });
    moved.await.expect("it is written");
    world.fill_disk();
    let refusals = mirror.services().store.refusals();
    mirror.fetcher().addresses.follow_for_tracked(id);
    world
        .until("there is no room", async |world: &World| {
            let now = world.mirror().services().store.refusals();
            condition(now > refusals, &now)
        })
        .await;
    world.free_disk();
    world
        .until("its host is followed", async |world: &World| {
            let followed = world.mirror().services().upstreams.read().iter().count();
            condition(followed == 1, &followed)
        })
        .await;
    world.clear(plc).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_about_upstreams_do_not_wait_for_room() {
    let mut world = World::settled(network(2, 1)).await;
    let url = world.url(PDS);
    world.fill_disk();
    let gone = url.clone();
    let removing = world.ask(move |mirror| mirror.control().remove_upstream(&gone));
    let removed = tokio::time::timeout(SOON, removing).await;
    let refused = removed.expect("at once").expect_err("there is no room");
    assert!(refused.to_string().contains("min_free_disk"), "{refused}");
    assert!(world.upstream(PDS).await.connected, "and nothing was done");
    world.free_disk();
    let gone = url.clone();
    let removed = world
        .ask(move |mirror| mirror.control().remove_upstream(&gone))
        .await;
    let removed = removed.expect("there is room");
    assert!(removed.configured && removed.note.is_some(), "{removed:?}");
    // Its row and its host are there: nothing but the row has to be written.
    world.fill_disk();
    let new = || NewUpstream {
        kind: UpstreamKind::Pds,
        url: url.clone(),
        host: None,
    };
    let again = new();
    let adding = world.ask(move |mirror| mirror.control().add_upstream(again));
    let added = tokio::time::timeout(SOON, adding).await;
    let refused = added.expect("at once").expect_err("there is no room");
    assert!(matches!(refused, ApiError::Unavailable(_)), "{refused:?}");
    world.free_disk();
    let again = new();
    let added = world
        .ask(move |mirror| mirror.control().add_upstream(again))
        .await;
    added.expect("there is room");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_not_held_against_the_hosts_that_are_swept_meanwhile() {
    let mut world = World::quiet(network(3, 1)).await;
    world.flags.sweep_every = Some("1s".to_owned());
    world.begin().await;
    world.settle().await;
    world.fill_disk();
    let failures = world.metrics().sweep_failures.get();
    world
        .until("sweeps fail", async |world: &World| {
            let now = world.metrics().sweep_failures.get();
            condition(now >= failures + 2, &now)
        })
        .await;
    let gaps = world.ask(|mirror| mirror.inspector().gaps(None, 100)).await;
    let gaps = gaps.expect("an answer");
    assert!(gaps.hosts.is_empty(), "{:?}", gaps.hosts);
    for gap in &gaps.gaps {
        assert!(gap.doing.contains("The disk is full"), "{gap:?}");
    }
    world.free_disk();
    world.settle().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_that_holds_the_most_is_overrun_before_writing_stops() {
    let mut world = World::settled(network(2, 1))
        .with(|config| config.mirror.keep_versions = Duration::from_secs(1))
        .await;
    let did = world.did(0);
    let path = new_path();
    for text in ["first", "second"] {
        let (path, record) = (path.clone(), record(text));
        let write = if text == "first" {
            Write::Create { path, record }
        } else {
            Write::Update { path, record }
        };
        world.write(&did, &[write]);
    }
    world.until_complete(&did).await;
    let view = world.mirror().services().store.view();
    let head = view.counters().expect("it can be read").next_seq;
    drop(view);
    let key = |id| ConsumerKey {
        class: ConsumerClass::Recipient,
        id,
        lane: 0,
    };
    for (id, next) in [(1, 1), (2, head)] {
        let consumer = Consumer {
            name: format!("recipient {id}"),
            next,
            holds_from: next,
            registered: When::default(),
            moved: When::default(),
            hold: Hold::Always,
            needs: ConsumerNeeds::LogAndVersions,
            overrun: false,
        };
        let (key, log) = (key(id), None);
        let change = Change {
            consumer: Some(ConsumerChange::Register { key, consumer, log }),
            ..Change::default()
        };
        let store = &world.mirror().services().store;
        write(store, change).await.expect("it is registered");
    }
    world.expect("a consumer of the log is overrun");
    let min_free = world.mirror().services().disk.min_free_bytes();
    world.set_free_bytes(min_free + min_free / 8);
    world
        .until("what it held is gone", async |world: &World| {
            let view = world.mirror().services().store.view();
            let consumers = view.consumers().expect("they can be read");
            let overrun = [1, 2].map(|id| consumers[&key(id)].overrun);
            assert!(!overrun[1], "it holds nothing that could go");
            let left = view.superseded_keys(b"").count();
            condition(overrun[0] && left == 0, &(overrun, left))
        })
        .await;
    world.post(&did);
    world.until_caught_up(PDS).await;
    world.assert_complete(&did).await;
    assert_eq!(
        world.mirror().services().store.refusals(),
        0,
        "writing goes on"
    );
    assert!(world.metrics().consumers_overrun.get() >= 1);
    world.free_disk();
    world.stop().await;
}
