//! Tests discovery by collection: a repository is found by a listing, which may be outdated, or
//! by a live operation in the collection.

use std::collections::BTreeMap;

use gapless_atp::syntax::Did;
use gapless_harness::{World, condition, new_path};
use gapless_mirror::api::Inspect as _;
use gapless_testnet::{Fault, Place, SetFault, Spec, Write, encode_record};

use crate::discovery::network::{relayed, status};

const THINGS: &str = "com.example.thing";

/// A record in the collection that is looked for.
fn thing() -> Write {
    let key = new_path().replace("app.bsky.feed.post/", "");
    let json = serde_json::json!({ "$type": THINGS, "text": "a thing" });
    Write::Create {
        path: format!("{THINGS}/{key}"),
        record: encode_record(&json).expect("it is a record"),
    }
}

/// A mirror that hears by the relay, and looks for things.
async fn looking(pattern: &str) -> World {
    let mut world = World::network(relayed(8, 2)).await;
    let relay = world.net.urls().relay.clone().expect("there is one");
    world.flags.upstream.push(format!("relay={relay}"));
    world.flags.discover_collection = vec![pattern.to_owned()];
    world.flags.sweep_every = Some("1s".to_owned());
    world.adjust = |config| config.mirror.discover.every = std::time::Duration::from_secs(1);
    world
}

/// Who is tracked, and by what they were found.
async fn found(world: &World) -> BTreeMap<String, String> {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().tracked(None, 1000));
    asked.await.expect("no panic").expect("an answer").found
}

fn only(dids: &[&Did]) -> BTreeMap<String, String> {
    let all = dids.iter().map(|did| (did.to_string(), THINGS.to_owned()));
    all.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_repositories_listed_for_or_writing_to_the_collection_are_found() {
    let mut world = looking(THINGS).await;
    let (listed, live, other) = (world.did(0), world.did(1), world.did(2));
    world.write(&listed, &[thing()]);
    world.begin().await;
    world.until_complete(&listed).await;
    world.until_open(&world.url(Place::Relay)).await;
    // Others write, and that moves the cursor alone.
    world.post(&other);
    world.until_caught_up(Place::Relay).await;
    assert!(world.repo(&other).await.is_none(), "it is out of scope");
    world.write(&live, &[thing()]);
    world.until_complete(&live).await;
    assert_eq!(found(&world).await, only(&[&listed, &live]));
    // From now on all that they write is heard.
    let made = world.post(&live);
    world.until_complete(&live).await;
    let answer = world.answer(&live).await;
    assert_eq!(answer.last_firehose_rev, Some(made.rev.to_string()));
    world.until_caught_up(Place::Relay).await;
    let told = status(&world).await;
    assert_eq!(told.discover.scope, "collections");
    assert_eq!((told.discover.found, told.repos.total), (2, 2), "{told:?}");
    assert_eq!(told.upstreams.len(), 1, "no host needs a stream: {told:?}");
    world.stop().await;
    // Nothing of that is forgotten.
    world.begin().await;
    world.until_complete(&listed).await;
    world.post(&live);
    world.until_complete(&live).await;
    assert_eq!(found(&world).await, only(&[&listed, &live]));
    world.stop().await;
}

/// No listing knows, and the directory is as the fault wants it.
async fn live_only(fault: Fault) -> (World, SetFault) {
    let mut world = looking("com.example.*").await;
    world.begin().await;
    world.until_open(&world.url(Place::Relay)).await;
    // A start goes on from a cursor, if there is one.
    world.post(&world.did(1));
    world.until_caught_up(Place::Relay).await;
    let fault = world.inject(Spec::new(fault).on(Place::Plc));
    (world, fault)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cursor_does_not_pass_who_was_found_before_they_are_tracked() {
    let silence = Fault::Stall {
        ms: None,
        route: None,
    };
    let (mut world, silent) = live_only(silence).await;
    let (did, other) = (world.did(0), world.did(1));
    world.write(&did, &[thing()]);
    let at = world.net.last_seq(Place::Relay).expect("it has events");
    world.until_fired("stall", 1).await;
    world.meanwhile(&other, Place::Relay, 5).await;
    let cursor = world.upstream(Place::Relay).await.cursor;
    assert!(cursor.is_some_and(|cursor| cursor < at), "{cursor:?}, {at}");
    assert_eq!(found(&world).await, BTreeMap::new());
    // A start in between finds it all the same: it is read again.
    world.stop().await;
    world.clear(silent).await;
    world.begin().await;
    world.until_complete(&did).await;
    world.until_caught_up(Place::Relay).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_who_was_listed_before_a_stream_brought_them() {
    let mut world = looking(THINGS).await;
    let (did, other) = (world.did(0), world.did(1));
    world.write(&did, &[thing()]);
    let silence = Fault::Stall {
        ms: None,
        route: None,
    };
    let silent = world.inject(Spec::new(silence).on(Place::Plc));
    world.begin().await;
    world.until_open(&world.url(Place::Relay)).await;
    // The listing has named it: it is being asked about.
    world.until_fired("stall", 1).await;
    world.post(&other);
    world.until_caught_up(Place::Relay).await;
    world.write(&did, &[thing()]);
    let at = world.net.last_seq(Place::Relay).expect("it has events");
    world.meanwhile(&other, Place::Relay, 5).await;
    let cursor = world.upstream(Place::Relay).await.cursor;
    assert!(cursor.is_some_and(|cursor| cursor < at), "{cursor:?}, {at}");
    assert_eq!(found(&world).await, BTreeMap::new());
    world.clear(silent).await;
    world.until_complete(&did).await;
    world.until_caught_up(Place::Relay).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_directory_holds_no_stream_up_and_loses_no_repository() {
    let (mut world, down) = live_only(Fault::PlcDown {}).await;
    let did = world.did(0);
    world.write(&did, &[thing()]);
    world.until_caught_up(Place::Relay).await;
    let by = found(&world).await;
    assert!(by.contains_key(did.as_str()), "it is owed: {by:?}");
    world.clear(down).await;
    world.until_complete(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_listing_the_next_operation_below_a_prefix_finds() {
    let mut world = looking("com.example.*").await;
    let (before, did) = (world.did(0), world.did(1));
    world.write(&before, &[thing()]);
    world.begin().await;
    world.until_open(&world.url(Place::Relay)).await;
    world.write(&did, &[thing()]);
    world.until_complete(&did).await;
    let by = found(&world).await;
    assert_eq!(
        by.get(did.as_str()).map(String::as_str),
        Some("com.example.*")
    );
    assert!(
        world.repo(&before).await.is_none(),
        "no listing knows prefixes"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_and_false_entries_of_a_listing_are_not_kept() {
    let mut world = looking(THINGS).await;
    let has = world.did(0);
    world.write(&has, &[thing()]);
    world.inject(Spec::new(Fault::RelayStale {}).on(Place::Relay));
    world.inject(Spec::new(Fault::RelayJunk {}).on(Place::Relay));
    world.begin().await;
    world.until_complete(&has).await;
    let others = world.net.truth().dids().len() as u64 - 1;
    world
        .until("the others are left again", async |world: &World| {
            let left = world.metrics().found_without.get();
            condition(left == others, &left)
        })
        .await;
    assert_eq!(found(&world).await, only(&[&has]));
    assert!(world.metrics().found_unknown.get() > 0, "nobody's name");
    let unknown = Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").expect("a DID");
    assert!(
        world.repo(&unknown).await.is_none(),
        "no row was made for it"
    );
    // Listed again and again, they are not fetched again.
    let (listings, fetched) = (
        world.metrics().collection_listings.get(),
        world.snapshots().await,
    );
    world
        .until("listed again", async |world: &World| {
            let now = world.metrics().collection_listings.get();
            condition(now >= listings + 2, &now)
        })
        .await;
    assert_eq!(world.snapshots().await, fetched);
    // Who writes a thing after all is found after all.
    let late = world.did(3);
    world.until_open(&world.url(Place::Relay)).await;
    world.write(&late, &[thing()]);
    world.until_complete(&late).await;
    assert_eq!(found(&world).await, only(&[&has, &late]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_listed_falsely_in_one_collection_and_writes_in_another_is_kept() {
    let mut world = looking("com.example.other").await;
    world.flags.discover_collection.push(THINGS.to_owned());
    let has = world.did(0);
    world.write(&has, &[thing()]);
    world.inject(Spec::new(Fault::RelayStale {}).on(Place::Relay));
    world.begin().await;
    world.until_complete(&has).await;
    let others = world.net.truth().dids().len() as u64 - 1;
    // Each of them once for each collection.
    world
        .until("the others are left again", async |world: &World| {
            let left = world.metrics().found_without.get();
            condition(left >= 2 * others, &left)
        })
        .await;
    let by = found(&world).await;
    assert_eq!(by.keys().collect::<Vec<_>>(), [has.as_str()], "{by:?}");
    assert_eq!(world.metrics().found_without.get(), 2 * others);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_tracked_is_not_complete_by_a_stream_that_passes_it_over() {
    let mut world = looking(THINGS).await;
    let did = world.did(0);
    // Held from a time when everything was wanted.
    world.flags.discover_collection.clear();
    world.begin().await;
    world.until_open(&world.url(Place::Relay)).await;
    world.post(&did);
    world.until_complete(&did).await;
    world.stop().await;
    world.flags.discover_collection = vec![THINGS.to_owned()];
    world.begin().await;
    world.until_open(&world.url(Place::Relay)).await;
    world.post(&did);
    world.until_caught_up(Place::Relay).await;
    world.until_incomplete(&did, "no_cover").await;
    world.stop().await;
    // And when everything is wanted again, the stream begins anew.
    world.flags.discover_collection.clear();
    world.expect("a new epoch");
    world.begin().await;
    world.until_complete(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_passed_some_by_begins_anew_whatever_came_in_between() {
    let mut world = looking(THINGS).await;
    let did = world.did(0);
    world.flags.discover_collection.clear();
    world.begin().await;
    world.until_open(&world.url(Place::Relay)).await;
    world.post(&did);
    world.until_complete(&did).await;
    let epoch = world.upstream(Place::Relay).await.epoch;
    world.stop().await;
    world.flags.discover_collection = vec![THINGS.to_owned()];
    world.begin().await;
    world.until_open(&world.url(Place::Relay)).await;
    let narrow = world.upstream(Place::Relay).await.epoch;
    assert_eq!(narrow, epoch, "it goes on where it was");
    world.post(&did);
    world.until_caught_up(Place::Relay).await;
    world.stop().await;
    // Then it is not followed at all.
    world.flags.follow = Some("hosts".to_owned());
    world.begin().await;
    world.stop().await;
    world.flags.follow = None;
    world.flags.discover_collection.clear();
    world.expect("a new epoch");
    world.begin().await;
    world.until_open(&world.url(Place::Relay)).await;
    let now = world.upstream(Place::Relay).await.epoch;
    assert!(
        now > epoch,
        "{now} is {epoch}, and a commit was passed over"
    );
    world.until_complete(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_hosts_are_followed_each_host_of_a_found_one_has_a_stream() {
    let mut world = looking(THINGS).await;
    world.flags.follow = Some("hosts".to_owned());
    let did = world.account(1, 0);
    world.write(&did, &[thing()]);
    world.begin().await;
    world.until_complete(&did).await;
    let upstreams = status(&world).await.upstreams;
    assert_eq!(upstreams.len(), 1, "{upstreams:?}");
    assert_eq!(upstreams[0].url, world.url(Place::Pds(1)));
    assert_eq!(upstreams[0].followed, "for_tracked");
    let made = world.post(&did);
    world.until_complete(&did).await;
    let answer = world.answer(&did).await;
    assert_eq!(answer.last_firehose_rev, Some(made.rev.to_string()));
    assert!(world.repo(&world.account(1, 1)).await.is_none());
    world.stop().await;
}
