//! Tests the relay of the test network, which merges hosts and does not report what is missing,
//! and its Jetstream, which sends the events as JSON.

mod common;

use std::time::Duration;

use common::*;
use gapless_atp::frame::{Event, decode};
use gapless_testnet::{Config, Fault, Place, Spec, Status, Testnet};
use serde_json::{Value as Json, json};

async fn network() -> (Testnet, String) {
    let testnet = start(Config {
        repos: 6,
        pds: 2,
        records: 5,
        relay: true,
        jetstream: true,
        ..Config::default()
    })
    .await;
    let relay = testnet.urls().relay.clone().unwrap();
    (testnet, relay)
}

fn last(testnet: &Testnet) -> u64 {
    testnet.last_seq(Place::Relay).unwrap()
}

#[tokio::test]
async fn it_merges_all_hosts_under_numbers_of_its_own() {
    let (testnet, relay) = network().await;
    testnet.stir(30);
    let mut consumer = Consumer::connect(&relay, Some(0)).await;
    let frames = consumer.until(last(&testnet)).await;
    let seqs: Vec<u64> = frames.iter().filter_map(|frame| seq_of(frame)).collect();
    assert!(seqs.iter().copied().eq(1..=last(&testnet)));
    let mut held = Fold::new();
    for frame in &frames {
        if let Ok(Event::Commit(event)) = decode(frame) {
            let did = event.repo.parse().unwrap();
            check_commit(&event, &key_of(&testnet, &did).await).unwrap();
            fold(&mut held, &event);
        }
    }
    for did in testnet.truth().dids() {
        let records = testnet.truth().records(&did).unwrap();
        let cids = records.into_iter().map(|(path, (cid, _))| (path, cid));
        assert_eq!(held[did.as_str()], cids.collect());
    }
}

#[tokio::test]
async fn it_never_says_that_a_cursor_is_wrong() {
    let (testnet, relay) = network().await;
    testnet
        .fault(Spec::new(Fault::Window { events: 3 }).on(Place::Relay))
        .unwrap();
    let last = last(&testnet);
    let mut old = Consumer::connect(&relay, Some(1)).await;
    assert_eq!(seq_of(&old.next().await.unwrap()), Some(last - 2));
    let mut future = Consumer::connect(&relay, Some(last + 100)).await;
    assert!(!future.hears(Duration::from_millis(200)).await);
    testnet.stir(1);
    assert_eq!(seq_of(&future.next().await.unwrap()), Some(last + 1));
}

#[tokio::test]
async fn it_lists_what_it_has_heard_of_and_sends_the_rest_to_the_host() {
    let (testnet, relay) = network().await;
    let dids = testnet.truth().dids();
    testnet.set_status(&dids[2], Status::Deactivated).unwrap();
    let (mut cursor, mut listed) = (String::new(), Vec::new());
    loop {
        let url = xrpc(&relay, "listRepos", &format!("limit=2{cursor}"));
        let (_, page) = get_json(&url).await;
        for repo in page["repos"].as_array().unwrap() {
            listed.push(repo["did"].as_str().unwrap().to_owned());
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let active: Vec<&str> = dids
        .iter()
        .filter(|did| **did != dids[2])
        .map(|did| did.as_str())
        .collect();
    assert_eq!(listed, active, "active ones only");

    let did = &dids[4];
    let head = testnet.truth().head(did).unwrap();
    let (status, headers, _) = get(&xrpc(&relay, "getRepo", &did_param(did))).await;
    assert_eq!(status, 302);
    let there = headers["location"].to_str().unwrap();
    assert_eq!(
        there,
        xrpc(&testnet.urls().pds[0], "getRepo", &did_param(did))
    );
    assert_eq!(get(there).await.0, 200);
    let (_, latest) = get_json(&xrpc(&relay, "getLatestCommit", &did_param(did))).await;
    assert_eq!(latest["cid"], head.commit.to_string());
    let (_, status) = get_json(&xrpc(&relay, "getRepoStatus", &did_param(&dids[2]))).await;
    assert_eq!(
        (&status["active"], &status["status"]),
        (&json!(false), &json!("deactivated"))
    );

    let (_, hosts) = get_json(&xrpc(&relay, "listHosts", "")).await;
    let hosts = hosts["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2);
    let hostname = hosts[1]["hostname"].as_str().unwrap();
    assert_eq!(format!("http://{hostname}"), testnet.urls().pds[1]);
    assert_eq!(hosts[1]["seq"], testnet.last_seq(Place::Pds(1)).unwrap());
    let (_, one) = get_json(&xrpc(
        &relay,
        "getHostStatus",
        &format!("hostname={hostname}"),
    ))
    .await;
    assert_eq!(one, hosts[1]);
    let (_, none) = get_json(&xrpc(&relay, "getHostStatus", "hostname=nowhere.test")).await;
    assert_eq!(none["error"], "HostNotFound");

    let by = |collection: &str| {
        xrpc(
            &relay,
            "listReposByCollection",
            &format!("collection={collection}&limit=4"),
        )
    };
    let (_, profiles) = get_json(&by("app.bsky.actor.profile")).await;
    assert_eq!(profiles["repos"].as_array().unwrap().len(), 4);
    assert_eq!(profiles["cursor"], "4");
    let (_, none) = get_json(&by("com.example.nothing")).await;
    assert_eq!(none, json!({ "repos": [] }));
}

#[tokio::test]
async fn a_host_speaks_only_for_its_own_accounts() {
    let (testnet, relay) = network().await;
    let did = testnet.truth().dids()[4].clone();
    let before = last(&testnet);
    testnet.migrate(&did, 1, false).unwrap();
    let mut consumer = Consumer::connect(&relay, Some(before)).await;
    let frames = consumer.until(last(&testnet)).await;
    let kinds: Vec<String> = frames.iter().map(|frame| kind(frame)).collect();
    // The old host's "deactivated" is not passed on.
    assert_eq!(kinds, ["account(active)", "identity", "sync"]);
    let head = testnet.truth().head(&did).unwrap();
    let (_, latest) = get_json(&xrpc(&relay, "getLatestCommit", &did_param(&did))).await;
    assert_eq!(latest["cid"], head.commit.to_string());
    assert_eq!(latest["rev"], head.rev.to_string());
}

fn ws(testnet: &Testnet, query: &str) -> String {
    let base = testnet.urls().jetstream.clone().unwrap();
    format!("{}/subscribe?{query}", base.replace("http://", "ws://"))
}

async fn next_json(consumer: &mut Consumer) -> Json {
    serde_json::from_slice(&consumer.next().await.unwrap()).unwrap()
}

#[tokio::test]
async fn jetstream_tells_every_operation_and_filters() {
    let (testnet, _) = network().await;
    let did = testnet.truth().dids()[4].clone();
    let mut all = Consumer::dial(&ws(&testnet, "cursor=1")).await;
    let first = next_json(&mut all).await;
    assert_eq!(first["kind"], "identity");
    assert_eq!(next_json(&mut all).await["kind"], "account");
    let profile = next_json(&mut all).await;
    assert_eq!(profile["commit"]["operation"], "create");
    assert_eq!(profile["commit"]["collection"], "app.bsky.actor.profile");
    assert_eq!(
        profile["commit"]["record"]["$type"],
        "app.bsky.actor.profile"
    );
    assert!(profile["time_us"].as_u64() > first["time_us"].as_u64());

    // A cursor is a time, and includes the message of that time.
    let time = profile["time_us"].as_u64().unwrap();
    let mut again = Consumer::dial(&ws(&testnet, &format!("cursor={time}"))).await;
    assert_eq!(next_json(&mut again).await, profile);

    let query = format!("wantedDids={did}&wantedCollections=app.bsky.graph.*");
    let mut some = Consumer::dial(&ws(&testnet, &query)).await;
    let path = |name: &str| format!("app.bsky.{name}/a");
    let record = gapless_testnet::encode_record(&json!({ "$type": "x.y.z" })).unwrap();
    for name in ["feed.like", "graph.follow"] {
        let write = gapless_testnet::Write::Create {
            path: path(name),
            record: record.clone(),
        };
        testnet.write(&did, &[write]).unwrap();
    }
    testnet.set_status(&did, Status::Deactivated).unwrap();
    let follow = next_json(&mut some).await;
    assert_eq!(follow["commit"]["collection"], "app.bsky.graph.follow");
    let account = next_json(&mut some).await;
    assert_eq!(account["account"]["status"], "deactivated");

    let refused = tokio_tungstenite::connect_async(ws(&testnet, "cursor=x")).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_cursor_beyond_every_list_gives_an_empty_page() {
    let (testnet, relay) = network().await;
    for (method, query, list) in [
        ("listHosts", "", "hosts"),
        ("listRepos", "", "repos"),
        (
            "listReposByCollection",
            "&collection=app.bsky.feed.post",
            "repos",
        ),
    ] {
        let url = xrpc(&relay, method, &format!("cursor={}{query}", u64::MAX));
        assert_eq!(get_json(&url).await, (200, json!({ list: [] })), "{method}");
    }
    let plc = &testnet.urls().plc;
    let (status, _, body) = get(&format!("{plc}/export?after={}", u64::MAX)).await;
    assert_eq!((status, body.len()), (200, 0));
}

#[tokio::test]
async fn it_omits_what_one_host_says_or_all() {
    let (testnet, _) = network().await;
    let dids = testnet.truth().dids();
    for (host, passed) in [("relay", 0), ("pds0", 1), ("pds1", 1)] {
        let spec = format!("relay-omit=host:{host}").parse::<Spec>().unwrap();
        let id = testnet.fault(spec).unwrap().id.unwrap();
        let (before, fired) = (last(&testnet), testnet.faults().fired("relay-omit"));
        for did in &dids[..2] {
            testnet.write(did, &[]).unwrap();
        }
        assert_eq!(last(&testnet), before + passed, "{host}");
        let fired = testnet.faults().fired("relay-omit") - fired;
        assert_eq!(fired, 2 - passed, "{host}");
        testnet.clear_fault(id);
    }
}

#[tokio::test]
async fn jetstream_may_fall_silent_after_the_handshake() {
    let (testnet, _) = network().await;
    let spec = "dial-silence=after:true,host:jetstream,count:1";
    let spec = spec.parse::<Spec>().unwrap();
    let id = testnet.fault(spec).unwrap().id.unwrap();
    let url = testnet.urls().jetstream.clone().unwrap();
    let url = format!("{}/subscribe?cursor=0", url.replace("http", "ws"));
    let mut silent = Consumer::dial(&url).await;
    assert!(!silent.hears(Duration::from_millis(200)).await);
    assert_eq!(testnet.faults().fired("dial-silence"), 1);
    testnet.clear_fault(id);
    assert_eq!(silent.next().await, None);
    assert!(Consumer::dial(&url).await.next().await.is_some());
}
