//! Tests the listing methods: every repository appears once, page by page, with its state.

use std::collections::BTreeSet;

use gapless_harness::record;
use gapless_testnet::{Status, Write};
use serde_json::Value;

use crate::serve::served::{Served, mirrored, small};

/// All entries, a few at a time.
async fn all(served: &Served, method: &str, query: &[(&str, &str)]) -> Vec<Value> {
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = query.to_vec();
        query.push(("limit", "2"));
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = served.good(method, &query).await.json();
        let repos = page["repos"].as_array().expect("a list").clone();
        assert!(repos.len() <= 2);
        found.extend(repos);
        match page["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return found,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_repository_is_listed_once_with_its_head() {
    let (mut world, served) = mirrored(small(7)).await;
    let hidden = world.did(3);
    world
        .net
        .set_status(&hidden, Status::Deactivated)
        .expect("it is active");
    world.until_incomplete(&hidden, "inactive").await;
    let listed = all(&served, "sync.listRepos", &[]).await;
    assert_eq!(listed.len(), 7);
    for did in world.net.truth().dids() {
        let mut ours = listed.iter().filter(|one| one["did"] == did.as_str());
        let (Some(one), None) = (ours.next(), ours.next()) else {
            panic!("{did} is listed once: {listed:?}");
        };
        let head = world.net.truth().head(&did).expect("it exists");
        assert_eq!(one["head"], head.commit.to_string());
        assert_eq!(one["rev"], head.rev.to_string());
        assert_eq!(one["active"], did != hidden);
        let status = (did == hidden).then_some("deactivated");
        assert_eq!(one["status"].as_str(), status);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_found_by_collection() {
    let (mut world, served) = mirrored(small(5)).await;
    let mut wanted = BTreeSet::new();
    for number in [0, 2, 3, 4] {
        let did = world.did(number);
        let path = "com.example.rare/a".to_owned();
        let record = record(&path);
        world.write(&did, &[Write::Create { path, record }]);
        // A name that begins like it is not it.
        let path = "com.example.rarer/a".to_owned();
        let record = gapless_harness::record(&path);
        world.write(
            &world.did(1),
            &[Write::Create {
                path: path + &number.to_string(),
                record,
            }],
        );
        wanted.insert(did.to_string());
    }
    world.until_all_complete().await;
    let hidden = world.did(4);
    world
        .net
        .set_status(&hidden, Status::Takendown)
        .expect("it is active");
    world.until_incomplete(&hidden, "inactive").await;
    wanted.remove(hidden.as_str());
    let query = [("collection", "com.example.rare")];
    let found = all(&served, "sync.listReposByCollection", &query).await;
    assert_eq!(found.len(), wanted.len());
    let found: BTreeSet<String> = found
        .iter()
        .map(|one| one["did"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(found, wanted);
    world.stop().await;
}

/// Many names that nothing is held of, before one that is: a page has an end all the
/// same, and the next one goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_looks_at_so_many_and_goes_on() {
    use gapless_core::ledger::{Repo, RepoId};
    let (mut world, served) = mirrored(small(1)).await;
    let before = served.good("sync.listRepos", &[]).await.json();
    assert_eq!(before["cursor"], Value::Null);
    let desks = world.mirror().desks().clone();
    let names = (0..5_100).map(|number| format!("did:web:n{number}.example"));
    let changes = names.map(|name| {
        let desks = desks.clone();
        async move {
            let did = gapless_atp::syntax::Did::parse(&name).expect("a DID");
            let change = desks.with_repo(&did, |turn| {
                let repo: &mut Repo = &mut turn.get_or_create().repo;
                repo.tracked = true;
            });
            change.await.expect("it is written");
        }
    });
    futures_util::future::join_all(changes).await;
    let page = served.good("sync.listRepos", &[]).await.json();
    assert_eq!(page["repos"].as_array().map(Vec::len), Some(1));
    let cursor = page["cursor"]
        .as_str()
        .expect("there may be more")
        .to_owned();
    let last = world
        .mirror()
        .services()
        .store
        .view()
        .repos(RepoId(0))
        .count() as u64;
    assert!(cursor.parse::<u64>().expect("a number") < last);
    let rest = served
        .good("sync.listRepos", &[("cursor", &cursor)])
        .await
        .json();
    assert_eq!(rest["repos"].as_array().map(Vec::len), Some(0));
    assert_eq!(rest["cursor"], Value::Null);
    world.stop().await;
}
