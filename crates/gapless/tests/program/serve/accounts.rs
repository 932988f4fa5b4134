//! Tests the answers about repositories that are hidden, unknown or not held yet: every method
//! answers with the state.

use gapless_atp::syntax::Did;
use gapless_harness::{World, condition};
use gapless_testnet::Status;

use crate::serve::served::{Served, mirrored, small};

const BY_DID: [&str; 4] = [
    "sync.getRepo",
    "sync.getRecord",
    "sync.getBlocks",
    "sync.getLatestCommit",
];
const BY_NAME: [&str; 3] = ["repo.getRecord", "repo.listRecords", "repo.describeRepo"];

/// Every method that hands out contents answers with this error.
async fn refused_everywhere(served: &Served, did: &Did, name: &str, words: &str) {
    let cid = "bafyreib2rxk3rybk3aobmv5cjuql3bm2twh4jo5uxgf5kpqcsgz7soitae";
    let more = [
        ("collection", "app.bsky.feed.post"),
        ("rkey", "a"),
        ("cids", cid),
    ];
    let asked = BY_DID.map(|method| ("did", method));
    let asked = asked
        .into_iter()
        .chain(BY_NAME.map(|method| ("repo", method)));
    for (parameter, method) in asked {
        let mut query = vec![(parameter, did.as_str())];
        query.extend(more);
        let told = served.bad(method, &query, name).await;
        assert!(told.contains(words), "{method}: {told}");
    }
}

async fn status(served: &Served, did: &Did) -> serde_json::Value {
    let got = served
        .good("sync.getRepoStatus", &[("did", did.as_str())])
        .await;
    got.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_repositories_answer_with_their_state() {
    let (mut world, served) = mirrored(small(5)).await;
    let shown = status(&served, &world.did(4)).await;
    let rev = world
        .net
        .truth()
        .head(&world.did(4))
        .expect("it exists")
        .rev;
    let did = world.did(4);
    let wanted = serde_json::json!({ "did": did.as_str(), "active": true, "rev": rev.to_string() });
    assert_eq!(shown, wanted);
    for (number, (state, error, word)) in [
        (Status::Deactivated, "RepoDeactivated", "deactivated"),
        (Status::Takendown, "RepoTakendown", "takendown"),
        (Status::Suspended, "RepoSuspended", "suspended"),
        (Status::Deleted, "RepoNotFound", "deleted"),
    ]
    .into_iter()
    .enumerate()
    {
        let did = world.did(number);
        world.net.set_status(&did, state).expect("it is active");
        world.until_incomplete(&did, "inactive").await;
        refused_everywhere(&served, &did, error, did.as_str()).await;
        let told = status(&served, &did).await;
        let wanted = serde_json::json!({ "did": did.as_str(), "active": false, "status": word });
        assert_eq!(told, wanted);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_unknown_is_not_found() {
    let (mut world, served) = mirrored(small(1)).await;
    let unknown = Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").expect("a DID");
    refused_everywhere(&served, &unknown, "RepoNotFound", "not mirrored here").await;
    let query = [("did", unknown.as_str())];
    served
        .bad("sync.getRepoStatus", &query, "RepoNotFound")
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_held_whole_is_never_served() {
    let mut world = World::quiet(small(2)).await;
    let held = world.stall(0, "getRepo", None);
    world.begin().await;
    let served = Served::of(&world).await;
    let did = world.did(0);
    world
        .until("it is known", async |world: &World| {
            let answer = world.repo(&did).await;
            condition(answer.is_some(), &answer)
        })
        .await;
    world.until_incomplete(&did, "no_snapshot").await;
    refused_everywhere(&served, &did, "RepoNotFound", "not fetched yet").await;
    let told = status(&served, &did).await;
    assert_eq!(told["active"], false);
    assert_eq!(told["status"], "desynchronized");
    let listed = served.good("sync.listRepos", &[]).await.json();
    assert_eq!(listed["repos"].as_array().map(Vec::len), Some(0));
    world.clear(held).await;
    world.until_all_complete().await;
    served.good("sync.getRepo", &[("did", did.as_str())]).await;
    world.stop().await;
}
