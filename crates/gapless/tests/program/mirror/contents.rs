//! Tests valid commits with unusual contents.

use gapless_harness::{PDS, World, network, new_path, record};
use gapless_testnet::Config as NetConfig;
use gapless_testnet::{Fault, Spec, Write, encode_record};

fn small() -> NetConfig {
    network(2, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn t31_a_two_keys_with_one_record_are_two_records() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let (one, other) = (new_path(), new_path());
    let create = |path: &str| Write::Create {
        path: path.to_owned(),
        record: record("the same"),
    };
    world.write(&a, &[create(&one), create(&other)]);
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    world.write(&a, &[Write::Delete { path: one }]);
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    // As a snapshot too: the block is in it once.
    let third = new_path();
    world.write(&a, &[create(&third)]);
    let fetched = world.snapshots().await;
    world.too_big(&a);
    world.until_complete(&a).await;
    assert_eq!(world.snapshots().await, fetched + 1);
    let view = world.mirror().services().store.view();
    let id = view.repo_id(&a).expect("it can be read").expect("known");
    for path in [other, third] {
        let found = view.record(id, path.as_bytes()).expect("it can be read");
        assert!(found.is_some(), "{path}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t31_b_a_record_without_a_type_is_kept_as_it_is() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let fetched = world.snapshots().await;
    let json = serde_json::json!({ "text": "of no type" });
    let record = encode_record(&json).expect("it is a record");
    let path = new_path();
    world.write(&a, &[Write::Create { path, record }]);
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    assert_eq!(world.snapshots().await, fetched);
    world.too_big(&a);
    world.until_complete(&a).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t32_an_empty_commit_moves_the_head_alone() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let before = world.answer(&a).await;
    let fetched = world.snapshots().await;
    let made = world.write(&a, &[]);
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    let after = world.answer(&a).await;
    assert_eq!(after.rev, Some(made.rev.to_string()));
    assert_eq!(after.last_firehose_rev, after.rev, "as a live commit");
    assert_eq!(after.data, before.data);
    assert_eq!(world.snapshots().await, fetched);
    // And the next one chains onto it.
    world.post(&a);
    world.until_caught_up(PDS).await;
    world.assert_complete(&a).await;
    assert_eq!(world.snapshots().await, fetched);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_a_proof_is_applied_only_where_it_leads_to_its_root() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    let fetched = world.snapshots().await;
    let held = world.stall(0, "getRepo", Some(&a));
    let legacy = || Spec::new(Fault::Legacy {}).of(&a).times(1);
    world.inject(legacy());
    world.post(&a);
    assert_eq!(world.fired("legacy"), 1);
    world.until_complete(&a).await;
    // The next one stands on a commit that never came.
    let before = world.answer(&a).await.rev;
    world.lose_commit(&a);
    world.inject(legacy());
    world.post(&a);
    assert_eq!(world.fired("legacy"), 2);
    world.until_caught_up(PDS).await;
    let answer = world
        .until_incomplete_for(&a, &["newer_commit_known", "fetch_owed"])
        .await;
    assert_eq!(answer.rev, before, "nothing of it is applied");
    world.clear(held).await;
    world.until_complete(&a).await;
    assert_eq!(world.snapshots().await, fetched + 1);
    world.stop().await;
}
