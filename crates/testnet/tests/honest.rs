//! Tests that the network is honest without faults: every commit proves itself, and the stream,
//! getRepo and the truth agree.

mod common;

use std::collections::BTreeMap;

use common::*;
use gapless_atp::cid::Cid;
use gapless_atp::crypto::PublicKey;
use gapless_atp::frame::{Event, decode};
use gapless_atp::mst;
use gapless_atp::repo::RepoCar;
use gapless_atp::syntax::Did;
use gapless_testnet::{Config, Place, Testnet};

/// Reads a host's whole stream, checks every commit with keys from documents,
/// and folds it.
async fn follow(testnet: &Testnet, host: usize, held: &mut Fold) -> usize {
    let last = testnet.last_seq(Place::Pds(host)).unwrap();
    let mut consumer = Consumer::connect(&testnet.urls().pds[host], Some(0)).await;
    let mut keys: BTreeMap<String, PublicKey> = BTreeMap::new();
    let mut commits = 0;
    for frame in consumer.until(last).await {
        let Ok(Event::Commit(event)) = decode(&frame) else {
            continue;
        };
        if !keys.contains_key(event.repo) {
            let did = Did::parse(event.repo).unwrap();
            keys.insert(event.repo.to_owned(), key_of(testnet, &did).await);
        }
        check_commit(&event, &keys[event.repo]).unwrap();
        fold(held, &event);
        commits += 1;
    }
    commits
}

#[tokio::test]
async fn every_commit_proves_itself_and_all_views_agree() {
    for legacy_documents in [false, true] {
        let config = Config {
            repos: 12,
            pds: 3,
            records: 60,
            legacy_documents,
            ..Config::default()
        };
        let testnet = start(config).await;
        assert!(testnet.stir(400) > 390);
        let mut held = Fold::new();
        let mut commits = 0;
        for host in 0..3 {
            commits += follow(&testnet, host, &mut held).await;
        }
        assert_eq!(commits as u64, testnet.counts().0);
        let truth = testnet.truth();
        assert_eq!(truth.dids().len(), 12);
        for did in truth.dids() {
            let head = truth.head(&did).unwrap();
            let records = truth.records_at(&did, head.rev).unwrap();
            let cids: BTreeMap<String, Cid> = records
                .iter()
                .map(|(path, (cid, _))| (path.clone(), *cid))
                .collect();
            assert_eq!(held[did.as_str()], cids, "{did}: the stream, folded");
            let keys = cids.iter().map(|(path, cid)| (path.as_bytes(), *cid));
            assert_eq!(mst::root(keys).unwrap(), head.data, "{did}: the root");

            let url = xrpc(&testnet.urls().pds[head.host], "getRepo", &did_param(&did));
            let (status, headers, car) = get(&url).await;
            assert_eq!(status, 200);
            assert_eq!(headers["content-type"], "application/vnd.ipld.car");
            let read = RepoCar::read(&car).unwrap();
            assert_eq!(read.commit_cid, head.commit);
            read.commit.verify(&key_of(&testnet, &did).await).unwrap();
            let imported = import(&car).unwrap();
            assert!(
                imported
                    .iter()
                    .map(|(path, (cid, bytes))| (path, cid, &bytes[..]))
                    .eq(records
                        .iter()
                        .map(|(path, (cid, bytes))| (path, cid, &bytes[..]))),
                "{did}: getRepo"
            );
        }
    }
}

#[tokio::test]
async fn the_truth_knows_every_rev() {
    let testnet = start(Config {
        repos: 4,
        ..Config::default()
    })
    .await;
    testnet.stir(60);
    let truth = testnet.truth();
    let did = &truth.dids()[3];
    let commits = truth.commits(did).unwrap();
    assert!(commits.len() > 5);
    for commit in &commits {
        let records = truth.records_at(did, commit.rev).unwrap();
        let keys = records
            .iter()
            .map(|(path, (cid, _))| (path.as_bytes(), *cid));
        assert_eq!(mst::root(keys).unwrap(), commit.data);
    }
    let unknown = "2222222222222".parse().unwrap();
    assert_eq!(truth.records_at(did, unknown), None);
}

#[tokio::test]
async fn without_history_the_truth_says_so_and_knows_the_head() {
    let testnet = start(Config {
        repos: 5,
        history_repos: 4,
        ..Config::default()
    })
    .await;
    testnet.stir(20);
    let truth = testnet.truth();
    assert!(!truth.keeps_history());
    let did = truth.dids()[3].clone();
    let head = truth.head(&did).unwrap();
    let records = truth.records_at(&did, head.rev).unwrap();
    assert_eq!(Some(&records), truth.records(&did).as_ref());
    assert!(truth.commits(&did).is_none());
    testnet.write(&did, &[]).unwrap();
    assert_eq!(
        truth.records_at(&did, head.rev),
        None,
        "the past is not kept"
    );
    let rollback = format!("rev-rollback=did:{did}").parse().unwrap();
    let error = testnet.fault(rollback).unwrap_err().to_string();
    assert!(error.contains("no history"), "{error}");
}

#[tokio::test]
async fn a_seed_gives_the_same_bytes() {
    let run = async |seed| {
        let testnet = start(Config {
            repos: 8,
            seed,
            did_web: false,
            relay: true,
            ..Config::default()
        })
        .await;
        testnet.stir(50);
        let did = testnet.truth().dids()[0].clone();
        testnet.rotate_key(&did, false).unwrap();
        testnet.migrate(&did, 1, false).unwrap();
        [Place::Pds(0), Place::Pds(1), Place::Relay].map(|place| testnet.frames(place).unwrap())
    };
    let first = run(7).await;
    assert!(first.iter().all(|frames| frames.len() > 40));
    assert!(first == run(7).await, "the same seed, the same events");
    assert!(first != run(8).await, "another seed, other events");
}
