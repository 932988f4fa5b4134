//! Tests records as JSON, and collections page by page.

use gapless_harness::record;
use gapless_testnet::Write;
use serde_json::Value;

use crate::serve::served::{Served, mirrored, small, true_records};

#[tokio::test(flavor = "multi_thread")]
async fn records_are_those_of_the_host() {
    let (mut world, served) = mirrored(small(2)).await;
    let did = world.did(0);
    let host = &world.net.urls().pds[0];
    for (path, cid, _) in true_records(&world, &did) {
        let (collection, rkey) = path.split_once('/').expect("a path");
        let query = [
            ("repo", did.as_str()),
            ("collection", collection),
            ("rkey", rkey),
        ];
        let got = served.good("repo.getRecord", &query).await;
        let theirs = crate::serve::served::path("repo.getRecord", &query);
        let theirs = served.http.get(format!("{host}{theirs}")).send().await;
        let theirs: Value = theirs.expect("it answers").json().await.expect("JSON");
        assert_eq!(got.json(), theirs);
        assert!(got.header("gapless-evidence").starts_with("complete"));
        let named = [query[0], query[1], query[2], ("cid", &cid.to_string())];
        served.good("repo.getRecord", &named).await;
        let other = gapless_atp::cid::Cid::dag_cbor(b"another").to_string();
        let named = [query[0], query[1], query[2], ("cid", other.as_str())];
        served.bad("repo.getRecord", &named, "RecordNotFound").await;
    }
    let query = [
        ("repo", did.as_str()),
        ("collection", "a.b.c"),
        ("rkey", "none"),
    ];
    served.bad("repo.getRecord", &query, "RecordNotFound").await;
    world.stop().await;
}

async fn keys(served: &Served, did: &str, reverse: bool) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = vec![
            ("repo", did),
            ("collection", "com.example.c"),
            ("limit", "3"),
        ];
        query.extend(reverse.then_some(("reverse", "true")));
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = served.good("repo.listRecords", &query).await.json();
        let records = page["records"].as_array().expect("a list");
        assert!(records.len() <= 3);
        for one in records {
            let uri = one["uri"].as_str().expect("text");
            keys.push(uri.rsplit('/').next().expect("a key").to_owned());
            assert_eq!(
                one["value"]["text"],
                format!("com.example.c/{}", keys[keys.len() - 1])
            );
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return keys,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_is_listed_from_either_end() {
    let (mut world, served) = mirrored(small(1)).await;
    let did = world.did(0);
    let mut wanted: Vec<String> = (0..10).map(|number| format!("k{number}")).collect();
    // Names on either side of the collection are not in it.
    let strange = [
        "com.example.c.d/a",
        "com.example.b/z",
        "com.example.c-/a",
        "com.example.d/a",
    ];
    let paths = wanted.iter().map(|key| format!("com.example.c/{key}"));
    let strange = strange
        .iter()
        .filter(|path| gapless_atp::syntax::split_path(path).is_ok());
    for path in paths.chain(strange.map(|path| (*path).to_owned())) {
        let record = record(&path);
        world.write(&did, &[Write::Create { path, record }]);
    }
    world.until_complete(&did).await;
    assert_eq!(keys(&served, did.as_str(), true).await, wanted);
    wanted.reverse();
    assert_eq!(keys(&served, did.as_str(), false).await, wanted);
    world.stop().await;
}
