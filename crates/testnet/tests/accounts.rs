//! Tests changes of accounts in the test network: keys, hosts, states, backups, growth; and the
//! truth through all of them.

mod common;

use common::*;
use gapless_atp::car::read_blocks;
use gapless_atp::frame::{Event, decode};
use gapless_atp::mst::{TreeError, key_height, walk};
use gapless_atp::repo::{Commit, RepoCar};
use gapless_atp::syntax::Did;
use gapless_testnet::{Config, Head, Place, Spec, Status, Testnet, Write};
use serde_json::json;

async fn network() -> (Testnet, Did) {
    let testnet = start(Config {
        repos: 6,
        pds: 2,
        records: 30,
        ..Config::default()
    })
    .await;
    let did = testnet.truth().dids()[2].clone();
    (testnet, did)
}

fn write(testnet: &Testnet, did: &Did, name: &str) {
    let write = Write::Create {
        path: format!("app.bsky.feed.post/{name}"),
        record: gapless_testnet::encode_record(&json!({ "text": name })).unwrap(),
    };
    testnet.write(did, &[write]).unwrap();
}

/// What a host's stream says from a number on.
async fn since(testnet: &Testnet, host: usize, seq: u64) -> Vec<Vec<u8>> {
    let mut consumer = Consumer::connect(&testnet.urls().pds[host], Some(seq)).await;
    let last = testnet.last_seq(Place::Pds(host)).unwrap();
    if last > seq {
        consumer.until(last).await
    } else {
        Vec::new()
    }
}

fn kinds(frames: &[Vec<u8>]) -> Vec<String> {
    frames.iter().map(|frame| kind(frame)).collect()
}

async fn repo_car(testnet: &Testnet, did: &Did) -> Vec<u8> {
    let Head { host, .. } = testnet.truth().head(did).unwrap();
    let url = xrpc(&testnet.urls().pds[host], "getRepo", &did_param(did));
    let (status, _, car) = get(&url).await;
    assert_eq!(status, 200);
    car
}

/// getRepo has what the truth says, signed by the key of the document.
async fn agrees(testnet: &Testnet, did: &Did) {
    let car = repo_car(testnet, did).await;
    let read = RepoCar::read(&car).unwrap();
    read.commit.verify(&key_of(testnet, did).await).unwrap();
    let truth = testnet.truth().records_at(did, read.commit.rev).unwrap();
    let cids: Vec<_> = truth
        .into_iter()
        .map(|(path, (cid, bytes))| (path, (cid, bytes.to_vec())))
        .collect();
    assert!(import(&car).unwrap().into_iter().eq(cids));
}

#[tokio::test]
async fn a_new_key_signs_a_new_commit() {
    let (testnet, did) = network().await;
    let before = testnet.last_seq(Place::Pds(0)).unwrap();
    let old = key_of(&testnet, &did).await;
    testnet.rotate_key(&did, false).unwrap();
    let new = key_of(&testnet, &did).await;
    assert_ne!(old, new);
    let frames = since(&testnet, 0, before).await;
    assert_eq!(kinds(&frames), ["identity", "commit(0)"]);
    let Ok(Event::Commit(event)) = decode(&frames[1]) else {
        panic!("no commit");
    };
    check_commit(&event, &new).unwrap();
    assert!(check_commit(&event, &old).is_err());
    agrees(&testnet, &did).await;
    let keys = testnet.truth().keys(&did).unwrap();
    assert_eq!(keys, [old.to_did_key(), new.to_did_key()]);
}

#[tokio::test]
async fn a_quiet_new_key_leaves_a_head_that_only_the_old_one_verifies() {
    let (testnet, did) = network().await;
    let before = testnet.last_seq(Place::Pds(0)).unwrap();
    let old = key_of(&testnet, &did).await;
    testnet.rotate_key(&did, true).unwrap();
    assert!(since(&testnet, 0, before).await.is_empty());
    let new = key_of(&testnet, &did).await;
    let car = repo_car(&testnet, &did).await;
    let commit = RepoCar::read(&car).unwrap().commit;
    commit.verify(&old).unwrap();
    assert!(commit.verify(&new).is_err());
    write(&testnet, &did, "next");
    agrees(&testnet, &did).await;
}

#[tokio::test]
async fn an_account_moves_there_and_back() {
    let (testnet, did) = network().await;
    write(&testnet, &did, "before");
    let start = [0, 1].map(|host| testnet.last_seq(Place::Pds(host)).unwrap());
    testnet.migrate(&did, 1, false).unwrap();
    let there = since(&testnet, 1, start[1]).await;
    assert_eq!(kinds(&there), ["account(active)", "identity", "sync"]);
    let left = since(&testnet, 0, start[0]).await;
    assert_eq!(kinds(&left), ["account(deactivated)"]);
    let Ok(Event::Sync(sync)) = decode(&there[2]) else {
        panic!("no sync");
    };
    let head = testnet.truth().head(&did).unwrap();
    assert_eq!((head.host, sync.rev), (1, head.rev.to_string().as_str()));
    agrees(&testnet, &did).await;
    // The old host still has its copy, and lists it.
    let (_, old) = get_json(&xrpc(
        &testnet.urls().pds[0],
        "getRepoStatus",
        &did_param(&did),
    ))
    .await;
    assert_eq!(old["status"], "deactivated");

    write(&testnet, &did, "there");
    testnet.migrate(&did, 0, false).unwrap();
    write(&testnet, &did, "back");
    assert_eq!(testnet.truth().head(&did).unwrap().host, 0);
    agrees(&testnet, &did).await;
    assert_eq!(testnet.truth().keys(&did).unwrap().len(), 3);
    let error = testnet.migrate(&did, 0, false).unwrap_err().to_string();
    assert!(error.contains("is already on host 0"), "{error}");
}

#[tokio::test]
async fn an_import_announces_the_old_commit_under_another_rev() {
    let (testnet, did) = network().await;
    let start = testnet.last_seq(Place::Pds(1)).unwrap();
    let old_key = key_of(&testnet, &did).await;
    let old = testnet.truth().head(&did).unwrap();
    testnet.migrate(&did, 1, true).unwrap();
    let frames = since(&testnet, 1, start).await;
    let Ok(Event::Sync(sync)) = decode(&frames[2]) else {
        panic!("{:?}", kinds(&frames));
    };
    let blocks = read_blocks(sync.blocks).unwrap().into_map().unwrap();
    assert_eq!(blocks.roots(), [old.commit]);
    let commit = Commit::decode(blocks.get(&old.commit).unwrap()).unwrap();
    assert_ne!(sync.rev, commit.rev.to_string());
    commit.verify(&old_key).unwrap();
    let new_key = key_of(&testnet, &did).await;
    assert!(commit.verify(&new_key).is_err());
    let head = testnet.truth().head(&did).unwrap();
    assert_eq!(
        (head.rev, head.host_rev.to_string()),
        (old.rev, sync.rev.to_owned())
    );

    // The next commit is honest under the new key.
    let before = testnet.last_seq(Place::Pds(1)).unwrap();
    write(&testnet, &did, "after");
    let next = since(&testnet, 1, before).await;
    let Ok(Event::Commit(event)) = decode(&next[0]) else {
        panic!("{:?}", kinds(&next));
    };
    check_commit(&event, &new_key).unwrap();
    assert_eq!(event.since, Some(sync.rev));
    assert_eq!(event.prev_data, Some(old.data));
    agrees(&testnet, &did).await;
}

#[tokio::test]
async fn states_are_announced_and_undone() {
    let (testnet, did) = network().await;
    let before = testnet.last_seq(Place::Pds(0)).unwrap();
    for status in [
        Status::Deactivated,
        Status::Active,
        Status::Takendown,
        Status::Active,
        Status::Suspended,
    ] {
        testnet.set_status(&did, status).unwrap();
        assert_eq!(testnet.truth().status(&did), Some(status));
    }
    assert!(testnet.write(&did, &[]).is_err(), "not while suspended");
    testnet.set_status(&did, Status::Deleted).unwrap();
    assert_eq!(testnet.truth().status(&did), Some(Status::Deleted));
    assert_eq!(testnet.truth().head(&did), None);
    // Before the deletion forgot them, these were said.
    let other = testnet.truth().dids()[4].clone();
    testnet.set_status(&other, Status::Deactivated).unwrap();
    testnet.set_status(&other, Status::Active).unwrap();
    let frames = since(&testnet, 0, before).await;
    let said = [
        "account(deleted)",
        "account(deactivated)",
        "account(active)",
        "identity",
        "sync",
    ];
    assert_eq!(kinds(&frames), said);
}

#[tokio::test]
async fn a_restored_backup_goes_another_way_and_the_truth_keeps_both() {
    let (testnet, did) = network().await;
    for name in ["one", "two", "three"] {
        write(&testnet, &did, name);
    }
    let lost = testnet.truth().head(&did).unwrap();
    let spec: Spec = format!("rev-rollback=commits:2,did:{did}").parse().unwrap();
    testnet.fault(spec).unwrap();
    let back = testnet.truth().head(&did).unwrap();
    assert!(back.rev < lost.rev);
    agrees(&testnet, &did).await;
    let before = testnet.last_seq(Place::Pds(0)).unwrap();
    write(&testnet, &did, "elsewhere");
    let frames = since(&testnet, 0, before).await;
    let Ok(Event::Commit(event)) = decode(&frames[0]) else {
        panic!("no commit");
    };
    assert_eq!(event.prev_data, Some(back.data));
    check_commit(&event, &key_of(&testnet, &did).await).unwrap();
    agrees(&testnet, &did).await;
    let path = |name: &str| format!("app.bsky.feed.post/{name}");
    let at_lost = testnet.truth().records_at(&did, lost.rev).unwrap();
    assert!(at_lost.contains_key(&path("three")) && !at_lost.contains_key(&path("elsewhere")));
    let now = testnet.truth().records(&did).unwrap();
    assert!(now.contains_key(&path("one")) && !now.contains_key(&path("two")));
}

#[tokio::test]
async fn repositories_grow_wide_and_deep() {
    let (testnet, did) = network().await;
    let spec: Spec = format!("huge-repo=records:3000,did:{did}").parse().unwrap();
    testnet.fault(spec).unwrap();
    assert_eq!(testnet.truth().records(&did).unwrap().len(), 3030);
    agrees(&testnet, &did).await;

    let other = testnet.truth().dids()[4].clone();
    let before = testnet.last_seq(Place::Pds(0)).unwrap();
    let spec: Spec = format!("deep-keys=height:7,keys:3,did:{other}")
        .parse()
        .unwrap();
    testnet.fault(spec).unwrap();
    let records = testnet.truth().records(&other).unwrap();
    let high = records
        .keys()
        .filter(|path| key_height(path.as_bytes()) == 7);
    assert_eq!(high.count(), 3);
    let car = repo_car(&testnet, &other).await;
    let read = RepoCar::read(&car).unwrap();
    let stats = walk::<TreeError>(read.commit.data, read.blocks(), |_| Ok(())).unwrap();
    assert_eq!(stats.height, 7);
    assert!(stats.nodes > 20, "nodes without keys between the levels");
    for frame in since(&testnet, 0, before).await {
        let Ok(Event::Commit(event)) = decode(&frame) else {
            panic!("{}", kind(&frame));
        };
        check_commit(&event, &key_of(&testnet, &other).await).unwrap();
    }
}
