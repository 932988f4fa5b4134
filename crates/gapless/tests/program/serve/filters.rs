//! Tests a mirror that keeps only some collections: it says so, and answers from what it holds.

use gapless_harness::{World, record};
use gapless_testnet::{Config as NetConfig, Write};

use crate::serve::served::{Served, blocks_of, small, true_records};

async fn filtered(keys: &str) -> (World, Served) {
    let config = NetConfig {
        records: 0,
        ..small(1)
    };
    let mut world = World::quiet(config).await;
    let did = world.did(0);
    for path in [
        "com.example.kept/a",
        "com.example.kept/b",
        "com.example.other/a",
    ] {
        let (path, record) = (path.to_owned(), record(path));
        world.write(&did, &[Write::Create { path, record }]);
    }
    world.flags.collections = Some("com.example.kept".to_owned());
    world.flags.keep_keys = Some(keys.to_owned());
    world.begin().await;
    world.until_complete(&did).await;
    let served = Served::of(&world).await;
    (world, served)
}

async fn refused(served: &Served, method: &str, query: &[(&str, &str)]) {
    let words = served.bad(method, query, "InvalidRequest").await;
    assert!(
        words.contains("keeps only com.example.kept"),
        "{method}: {words}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_answered_and_the_rest_is_refused_in_words() {
    for keys in ["all", "wanted"] {
        let (mut world, served) = filtered(keys).await;
        let did = world.did(0);
        let did = did.as_str();
        let cid = true_records(&world, &world.did(0))[0].1.to_string();
        refused(&served, "sync.getRepo", &[("did", did)]).await;
        refused(&served, "sync.getBlocks", &[("did", did), ("cids", &cid)]).await;
        let asked = crate::serve::served::path("sync.getRepo", &[("did", did)]);
        let head = served.ask(reqwest::Method::HEAD, &asked).await;
        assert_eq!(head.status, 400);
        let of = |collection| [("did", did), ("collection", collection), ("rkey", "a")];
        refused(&served, "sync.getRecord", &of("com.example.other")).await;
        match keys {
            "all" => {
                let proof = served.good("sync.getRecord", &of("com.example.kept")).await;
                let blocks = blocks_of(&proof.body);
                assert!(blocks.iter().any(|(one, _)| one.to_string() == cid));
            }
            _ => refused(&served, "sync.getRecord", &of("com.example.kept")).await,
        }
        let of = |collection| [("repo", did), ("collection", collection), ("rkey", "a")];
        served.good("repo.getRecord", &of("com.example.kept")).await;
        refused(&served, "repo.getRecord", &of("com.example.other")).await;
        let kept = of("com.example.kept");
        let listed = served.good("repo.listRecords", &kept[..2]).await.json();
        assert_eq!(listed["records"].as_array().map(Vec::len), Some(2));
        refused(&served, "repo.listRecords", &of("com.example.other")[..2]).await;
        let listed = served.good("sync.listRepos", &[]).await.json();
        assert_eq!(listed["repos"].as_array().map(Vec::len), Some(1));
        let by = [("collection", "com.example.kept")];
        let listed = served.good("sync.listReposByCollection", &by).await.json();
        assert_eq!(listed["repos"][0]["did"], did);
        let by = [("collection", "com.example.other")];
        match keys {
            "all" => {
                let listed = served.good("sync.listReposByCollection", &by).await.json();
                assert_eq!(listed["repos"][0]["did"], did, "its keys are held");
            }
            _ => refused(&served, "sync.listReposByCollection", &by).await,
        }
        world.stop().await;
    }
}

/// What was fetched for a narrower filter is not served as if it was everything.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_fetched_for_another_filter_is_not_served() {
    let (mut world, served) = filtered("all").await;
    served.stop().await;
    world.stop().await;
    let held = world.stall(0, "getRepo", None);
    world.flags.collections = None;
    world.widened = true;
    world.begin().await;
    let served = Served::of(&world).await;
    let did = world.did(0);
    world.until_incomplete(&did, "filter_changed").await;
    let words = served
        .bad("sync.getRepo", &[("did", did.as_str())], "RepoNotFound")
        .await;
    assert!(words.contains("other collections"), "{words}");
    let query = [("repo", did.as_str()), ("collection", "com.example.other")];
    served.bad("repo.listRecords", &query, "RepoNotFound").await;
    world.clear(held).await;
    world.until_complete(&did).await;
    let listed = served.good("repo.listRecords", &query).await.json();
    assert_eq!(listed["records"].as_array().map(Vec::len), Some(1));
    served.good("sync.getRepo", &[("did", did.as_str())]).await;
    world.stop().await;
}
