//! Records as JSON, collections page by page, and handles.

use std::time::Duration;

use gapless::config::Config;
use gapless_testnet::{Fault, Place, Spec, Write};
use serde_json::Value;

use crate::common::World;
use crate::drive::record;
use crate::served::{Served, mirrored, small, true_records};

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
        let theirs = crate::served::path("repo.getRecord", &query);
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
    world.complete(&did).await;
    assert_eq!(keys(&served, did.as_str(), true).await, wanted);
    wanted.reverse();
    assert_eq!(keys(&served, did.as_str(), false).await, wanted);
    world.stop().await;
}

fn resolving(config: &mut Config) {
    config.sweep_every = Duration::from_secs(3600);
}

async fn with_handles() -> (World, Served) {
    let mut world = World::quiet(small(2)).await;
    world.adjust = resolving;
    // The host itself is asked whose a handle is.
    let file = world.folder.path().join("handles.toml");
    let url = world.net.urls().pds[0].clone();
    std::fs::write(&file, format!("[serve]\nhandle_resolver = \"{url}\"\n")).expect("a file");
    world.flags.config = Some(file);
    world.begin().await;
    world.settle().await;
    let served = Served::of(world.mirror()).await;
    (world, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_are_taken_for_dids() {
    let (mut world, served) = with_handles().await;
    let did = world.did(0);
    let handle = world.net.truth().handle(&did).expect("it has one");
    let described = served
        .good("repo.describeRepo", &[("repo", &handle)])
        .await
        .json();
    assert_eq!(described["did"], did.as_str());
    assert_eq!(described["handle"], handle.as_str());
    assert_eq!(described["handleIsCorrect"], true);
    assert_eq!(described["didDoc"]["id"], did.as_str());
    let collections: std::collections::BTreeSet<String> = true_records(&world, &did)
        .into_iter()
        .map(|(path, ..)| path.split('/').next().unwrap_or_default().to_owned())
        .collect();
    let told: Vec<&str> = described["collections"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(
        told,
        collections.iter().map(String::as_str).collect::<Vec<_>>()
    );
    let path = world.some_path(&did);
    let (collection, rkey) = path.split_once('/').expect("a path");
    let query = [
        ("repo", handle.as_str()),
        ("collection", collection),
        ("rkey", rkey),
    ];
    let got = served.good("repo.getRecord", &query).await.json();
    assert_eq!(got["uri"], format!("at://{did}/{path}"));
    // Remembered: the directory need not be there any more.
    let down = world.set(Spec::new(Fault::PlcDown {}).on(Place::Plc));
    world.need_not_fire(down);
    served.good("repo.getRecord", &query).await;
    let words = served
        .bad(
            "repo.describeRepo",
            &[("repo", "nobody.pds0.test")],
            "InvalidRequest",
        )
        .await;
    assert!(
        words.contains("nobody.pds0.test") && words.contains("DID instead"),
        "{words}"
    );
    world.stop().await;
}

/// Without a service the handle's own domain is asked, through the guard.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_cannot_be_resolved_is_refused_in_words() {
    let (mut world, served) = mirrored(small(1)).await;
    let handle = world.net.truth().handle(&world.did(0)).expect("it has one");
    let words = served
        .bad(
            "repo.listRecords",
            &[("repo", &handle), ("collection", "a.b.c")],
            "InvalidRequest",
        )
        .await;
    assert!(words.contains("could not be resolved"), "{words}");
    world.stop().await;
}
