//! Tests filters by collection: wanted records are kept, unwanted ones are only verified, and
//! records that become wanted later are fetched.

use std::process::Command;

use gapless_atp::syntax::Did;
use gapless_harness::{PDS, World, condition, network, new_path, own_accounts, record};
use gapless_mirror::api::Inspect as _;
use gapless_mirror::api::VerifyAnswer;
use gapless_store::engine::{DiskEngine, DiskSettings, Engine, RawBatch};
use gapless_store::table::{Table, meta, wish};
use gapless_testnet::{Config as NetConfig, Fault, Spec, Write, encode_record};

use crate::EXE;

fn small() -> NetConfig {
    network(3, 1)
}

const POSTS: &str = "app.bsky.feed.*";

/// A follow, which the filter does not want.
fn follow() -> Write {
    let name = new_path().replace("app.bsky.feed.post/", "");
    let json = serde_json::json!({ "$type": "app.bsky.graph.follow", "subject": "did:web:x" });
    Write::Create {
        path: format!("app.bsky.graph.follow/{name}"),
        record: encode_record(&json).expect("it is a record"),
    }
}

fn post() -> Write {
    let path = new_path();
    let record = record(&path);
    Write::Create { path, record }
}

/// Records of this repository that are held with their bytes, and without.
fn held(world: &World, did: &Did) -> (usize, usize) {
    let view = world.mirror().services().store.view();
    let id = view.repo_id(did).expect("it can be read").expect("known");
    let records = view.records(id).map(|one| one.expect("it can be read"));
    let (full, keys): (Vec<bool>, Vec<bool>) = records
        .map(|record| record.bytes().is_some())
        .partition(|full| *full);
    (full.len(), keys.len())
}

async fn verified(world: &World, did: &Did) -> VerifyAnswer {
    let (mirror, did) = (world.mirror().clone(), did.clone());
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().verify(&did));
    asked.await.expect("no panic").expect("an answer")
}

/// Commits of all kinds, live; each is complete and as the filter wants it.
async fn live(world: &World, did: &Did) {
    let fetched = world.snapshots().await;
    world.write(did, &[post(), follow()]);
    world.write(did, &[follow()]);
    let unwanted = follow();
    let Write::Create { path, .. } = &unwanted else {
        return;
    };
    let path = path.clone();
    world.write(did, &[unwanted, post()]);
    world.write(did, &[Write::Delete { path }]);
    world.until_caught_up(PDS).await;
    world.assert_complete(did).await;
    assert_eq!(world.snapshots().await, fetched, "all of them chain");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_keeps_what_is_wanted_and_roots_are_still_proven() {
    let mut world = World::quiet(small()).await;
    world.flags.collections = Some(POSTS.to_owned());
    world.begin().await;
    world.settle().await;
    let did = world.did(0);
    let (full, keys) = held(&world, &did);
    assert!(full > 0 && keys > 0, "{full} records, {keys} keys");
    live(&world, &did).await;
    // A snapshot over it, and a commit that can only be recomputed.
    world.too_big(&did);
    world.until_complete(&did).await;
    let fetched = world.snapshots().await;
    world.inject(Spec::new(Fault::Legacy {}).of(&did).times(1));
    world.write(&did, &[post(), follow()]);
    world.until_complete(&did).await;
    assert_eq!(world.fired("legacy"), 1);
    assert_eq!(world.snapshots().await, fetched, "recomputed from all keys");
    for did in world.net.truth().dids() {
        let proof = verified(&world, &did).await;
        assert!(proof.verified, "{proof:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_the_wanted_alone_are_complete_and_say_that_they_prove_less() {
    let mut world = World::quiet(small()).await;
    world.flags.collections = Some(POSTS.to_owned());
    world.flags.keep_keys = Some("wanted".to_owned());
    world.begin().await;
    world.settle().await;
    let did = world.did(0);
    let (full, keys) = held(&world, &did);
    assert!(full > 0 && keys == 0, "{full} records, {keys} keys");
    live(&world, &did).await;
    assert_eq!(held(&world, &did).1, 0);
    world.too_big(&did);
    world.until_complete(&did).await;
    // Nothing can be recomputed: it is fetched, and said.
    let fetched = world.snapshots().await;
    world.inject(Spec::new(Fault::Legacy {}).of(&did).times(1));
    world.write(&did, &[post(), follow()]);
    assert_eq!(world.fired("legacy"), 1);
    world
        .until_incomplete_for(&did, &["newer_commit_known", "fetch_owed"])
        .await;
    // Not more often than every ten minutes; they have passed.
    world.try_now(&did).await;
    world.until_complete(&did).await;
    assert_eq!(world.snapshots().await, fetched + 1);
    let proof = verified(&world, &did).await;
    assert!(!proof.verified && proof.problem.is_some(), "{proof:?}");
    world.until_complete(&did).await;
    world.stop().await;
}

/// Begun with one filter, stopped, and begun with a wider one.
async fn widened(keep_keys: &str, then: Option<&str>, then_keys: &str) {
    let mut world = World::quiet(small()).await;
    world.flags.collections = Some("app.bsky.feed.post".to_owned());
    world.flags.keep_keys = Some(keep_keys.to_owned());
    world.begin().await;
    world.settle().await;
    let dids = world.net.truth().dids();
    let before: Vec<usize> = dids.iter().map(|did| held(&world, did).0).collect();
    world.stop().await;
    world.flags.collections = then.map(str::to_owned);
    world.flags.keep_keys = Some(then_keys.to_owned());
    world.widened = true;
    let fetches = world.stall(0, "getRepo", None);
    world.begin().await;
    for did in &dids {
        world.until_incomplete(did, "filter_changed").await;
    }
    world.until_fired("stall", 1).await;
    world.clear(fetches).await;
    world.settle().await;
    for (did, before) in dids.iter().zip(before) {
        let (full, _) = held(&world, did);
        assert!(full > before, "{did}: {full} records, {before} before");
        world.assert_complete(did).await;
        let proof = verified(&world, did).await;
        assert_eq!(proof.verified, then_keys == "all", "{proof:?}");
    }
    live(&world, &dids[0]).await;
    world.stop().await;
    // The same filter again asks for nothing.
    world.begin().await;
    world.settle().await;
    assert_eq!(world.snapshots().await, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wider_filter_at_a_restart_brings_what_it_wants_more() {
    widened("all", Some("app.bsky.feed.*,app.bsky.graph.*"), "all").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_filter_after_keys_of_the_wanted_alone_brings_all() {
    widened("wanted", None, "all").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wider_filter_with_keys_of_the_wanted_alone_brings_what_it_wants_more() {
    widened("wanted", Some("app.bsky.feed.*"), "wanted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_check_of_held_records_fails_that_check_alone() {
    let net = own_accounts(small());
    let mut world = mirrored_of(net, Some("app.bsky.feed.post")).await;
    let dids = world.net.truth().dids();
    world.stop().await;
    world.flags.collections = None;
    world.widened = true;
    world.expect("a read of the store ended unexpectedly");
    world.expect("the result of a repair could not be written");
    world.inject_panic("filter_check", &dids[0]);
    world.begin().await;
    for did in &dids[1..] {
        world.until_complete(did).await;
    }
    world
        .until("the fault is counted", async |world: &World| {
            let faults = world.metrics().faults.get();
            condition(faults == 1, &faults)
        })
        .await;
    assert!(!world.mirror().services().shutdown.has_begun());
    // The debt stays, counts the failed attempt, and is worked off after its backoff.
    world.until_complete(&dids[0]).await;
    assert_eq!(held(&world, &dids[0]).1, 0, "keys without their records");
    assert_eq!(world.metrics().faults.get(), 1);
    world.stop().await;
}

/// Mirrored with one filter, and stopped.
async fn mirrored(collections: Option<&str>) -> World {
    mirrored_of(small(), collections).await
}

async fn mirrored_of(net: NetConfig, collections: Option<&str>) -> World {
    let mut world = World::quiet(net).await;
    world.flags.collections = collections.map(str::to_owned);
    world.begin().await;
    world.settle().await;
    world.write(&world.did(0), &[follow()]);
    world.until_caught_up(PDS).await;
    world.assert_complete(&world.did(0)).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_is_owed_for_another_reason_brings_what_is_wanted_now() {
    let mut world = mirrored(Some("app.bsky.feed.post")).await;
    let did = world.did(0);
    world.stop().await;
    // It comes before any sweep.
    world.too_big(&did);
    world.flags.collections = None;
    world.widened = true;
    world.begin().await;
    // Every record is compared with the truth.
    world.until_complete(&did).await;
    assert_eq!(held(&world, &did).1, 0, "keys without their records");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_narrower_filter_drops_is_dropped_and_not_held_for_ever() {
    let mut world = mirrored(None).await;
    let did = world.did(0);
    assert!(verified(&world, &did).await.verified);
    let before = held(&world, &did);
    world.stop().await;
    world.flags.collections = Some(POSTS.to_owned());
    world.flags.keep_keys = Some("wanted".to_owned());
    world.widened = true;
    let fetches = world.stall(0, "getRepo", None);
    world.begin().await;
    // Deletions of what is not wanted are not heard of: until it is gone nothing is
    // complete.
    world.until_incomplete(&did, "filter_changed").await;
    world.until_fired("stall", 1).await;
    world.clear(fetches).await;
    world.settle().await;
    assert!(held(&world, &did).0 < before.0);
    let answer = world.answer(&did).await;
    assert_eq!(
        answer.evidence.level, "chained",
        "not what was proven before"
    );
    world.stop().await;
    // Still narrower, and the same again.
    world.flags.collections = Some("app.bsky.feed.like".to_owned());
    world.begin().await;
    world.settle().await;
    assert!(world.snapshots().await > 0);
    world.stop().await;
    world.begin().await;
    world.settle().await;
    assert_eq!(world.snapshots().await, 0);
    world.stop().await;
}

/// A command on the folder of a mirror that does not run, and how it ended.
fn store(world: &World, command: &str) -> (Option<i32>, String) {
    let program = Command::new(EXE)
        .args(["store", command, "--data"])
        .arg(world.folder.path().join("data"))
        .output();
    let output = program.expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_folder_with_keys_of_the_wanted_alone_is_called_sound() {
    let mut world = World::quiet(small()).await;
    world.flags.collections = Some(POSTS.to_owned());
    world.flags.keep_keys = Some("wanted".to_owned());
    world.begin().await;
    world.settle().await;
    world.stop().await;
    let (code, text) = store(&world, "check");
    assert_eq!(code, Some(0), "{text}");
    let all = world.net.truth().dids().len();
    assert!(
        text.contains(&format!("{all} cannot be recomputed")),
        "{text}"
    );
    let (code, text) = store(&world, "repair");
    assert_eq!(code, Some(0), "{text}");
    world.begin().await;
    world.settle().await;
    assert_eq!(world.snapshots().await, 0, "nothing was thrown away");
    world.stop().await;
}

/// Changes rows of a folder by hand, as a disk might.
fn disk_does(world: &World, act: impl FnOnce(&mut RawBatch)) {
    let data = world.folder.path().join("data");
    let folder = data.join(gapless_store::ENGINE_FOLDER);
    let mut engine = DiskEngine::open(&folder, &DiskSettings::default()).expect("it opens");
    let mut batch = RawBatch::default();
    act(&mut batch);
    engine.commit(&batch).expect("it is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_lost_or_spoilt_makes_everything_be_fetched_anew() {
    for lost in [true, false] {
        let mut world = mirrored(Some("app.bsky.feed.post")).await;
        let did = world.did(0);
        world.stop().await;
        disk_does(&world, |batch| {
            if lost {
                batch.delete(Table::Meta, wish::FILTER_KEY);
                batch.delete(Table::Meta, meta::KEY);
            } else {
                batch.put(Table::Meta, wish::FILTER_KEY, vec![1u8, 0xff])
            }
        });
        let (code, text) = store(&world, "check");
        assert_eq!(code, Some(1), "{text}");
        let (code, text) = store(&world, "repair");
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = store(&world, "check");
        assert_eq!(code, Some(0), "{text}");
        // The earlier filter is not known, so more may be wanted now.
        world.flags.collections = None;
        world.widened = true;
        world.begin().await;
        world.settle().await;
        assert_eq!(held(&world, &did).1, 0, "keys without their records");
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_never_held_may_be_deleted_under_another_filter() {
    let mut world = World::quiet(small()).await;
    world.flags.collections = Some("app.bsky.feed.post".to_owned());
    world.flags.keep_keys = Some("wanted".to_owned());
    world.begin().await;
    world.settle().await;
    let did = world.did(0);
    let unwanted = follow();
    let Write::Create { path, .. } = &unwanted else {
        return;
    };
    let path = path.clone();
    world.write(&did, &[unwanted]);
    world.until_caught_up(PDS).await;
    world.assert_complete(&did).await;
    world.stop().await;
    world.flags.collections = None;
    world.flags.keep_keys = Some("all".to_owned());
    world.widened = true;
    let fetches = world.stall(0, "getRepo", None);
    world.begin().await;
    world.until_incomplete(&did, "filter_changed").await;
    world.until_fired("stall", 1).await;
    world.write(&did, &[Write::Delete { path }]);
    world.until_caught_up(PDS).await;
    assert_eq!(world.metrics().refused_changes.get(), 0);
    assert_eq!(world.metrics().dead_letters.get(), 0);
    world.clear(fetches).await;
    world.until_complete(&did).await;
    world.stop().await;
}

/// Bytes of everything in the folder of the frames.
fn frame_bytes(world: &World) -> u64 {
    let folder = world.folder.path().join("data").join("frames");
    let files = std::fs::read_dir(folder).expect("a folder");
    let bytes = files.map(|file| file.and_then(|file| file.metadata()));
    bytes.map(|data| data.expect("a file").len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_no_consumer_is_served_are_not_kept() {
    const A_HEADER: u64 = 48;
    let mut world = World::settled(small()).await;
    let did = world.did(0);
    live(&world, &did).await;
    world.stop().await;
    assert!(frame_bytes(&world) > 1_000, "all that came");
    world.flags.collections = Some(POSTS.to_owned());
    world.begin().await;
    world.until_caught_up(PDS).await;
    assert_eq!(frame_bytes(&world), A_HEADER, "what was there goes");
    let applied = world.metrics().events_applied.get();
    world.write(&did, &[post(), follow()]);
    world.write(&did, &[follow()]);
    world.until_caught_up(PDS).await;
    assert_eq!(world.metrics().events_applied.get(), applied + 2);
    world.stop().await;
    assert_eq!(frame_bytes(&world), A_HEADER, "and none comes");
}
