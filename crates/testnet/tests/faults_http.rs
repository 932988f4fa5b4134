//! Tests what faults do to HTTP answers: errors, silence, trickling, spoiled CARs, short lists,
//! and a directory that is down, limited or behind.

mod common;

use std::time::{Duration, Instant};

use common::*;
use gapless_atp::mst::{NodeError, TreeError};
use gapless_atp::repo::{ImportError, RepoCar};
use gapless_atp::syntax::Did;
use gapless_testnet::{Config, Spec, Testnet};
use tokio::time::timeout;

async fn network() -> (Testnet, Did, String) {
    let testnet = start(Config {
        repos: 4,
        pds: 2,
        records: 60,
        ..Config::default()
    })
    .await;
    let did = testnet.truth().dids()[2].clone();
    let repo = xrpc(&testnet.urls().pds[0], "getRepo", &did_param(&did));
    (testnet, did, repo)
}

fn set(testnet: &Testnet, fault: &str) -> Option<u64> {
    testnet.fault(fault.parse::<Spec>().unwrap()).unwrap().id
}

#[tokio::test]
async fn errors_come_on_their_route_as_often_as_asked() {
    let (testnet, did, repo) = network().await;
    set(
        &testnet,
        "http-error=status:429,retry-after:7,route:getRepo,count:2",
    );
    let latest = xrpc(&testnet.urls().pds[0], "getLatestCommit", &did_param(&did));
    assert_eq!(get(&latest).await.0, 200, "another route");
    for _ in 0..2 {
        let (status, headers, body) = get(&repo).await;
        assert_eq!(
            (status, &headers["retry-after"]),
            (429, &"7".parse().unwrap())
        );
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(json["error"], "RateLimitExceeded");
    }
    assert_eq!(get(&repo).await.0, 200);

    set(&testnet, "http-error=status:502,host:pds0,count:1");
    let (status, _, body) = get(&repo).await;
    assert_eq!(status, 502);
    assert!(serde_json::from_slice::<serde_json::Value>(&body).is_err());
}

#[tokio::test]
async fn stalls_end_in_time_or_when_cleared() {
    let (testnet, _, repo) = network().await;
    set(&testnet, "stall=ms:400,route:getRepo,count:1");
    let start = Instant::now();
    assert_eq!(get(&repo).await.0, 200);
    assert!(start.elapsed() >= Duration::from_millis(400));

    let id = set(&testnet, "stall=route:getRepo").unwrap();
    let asked = tokio::spawn(async move { get(&repo).await.0 });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!asked.is_finished());
    testnet.clear_fault(id);
    assert_eq!(timeout(DEADLINE, asked).await.unwrap().unwrap(), 200);
}

#[tokio::test]
async fn a_trickling_answer_is_whole_in_the_end() {
    let (testnet, _, repo) = network().await;
    let (_, _, car) = get(&repo).await;
    let pace = car.len() * 2;
    set(&testnet, &format!("drip=bytes-per-second:{pace},count:1"));
    let start = Instant::now();
    assert_eq!(get(&repo).await.2, car);
    assert!(start.elapsed() >= Duration::from_millis(400));
}

#[tokio::test]
async fn dials_are_refused_or_lead_to_silence() {
    let (testnet, _, _) = network().await;
    let pds = testnet.urls().pds[0].clone();
    let url = xrpc(&pds.replace("http", "ws"), "subscribeRepos", "cursor=0");
    set(&testnet, "dial-error=status:503,host:pds0,count:1");
    let refused = tokio_tungstenite::connect_async(&url).await;
    match refused {
        Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => {
            assert_eq!(answer.status(), 503);
        }
        other => panic!("{other:?}"),
    }
    let id = set(&testnet, "dial-silence=after:true,host:pds0").unwrap();
    let mut silent = Consumer::connect(&pds, Some(0)).await;
    assert!(!silent.hears(Duration::from_millis(300)).await);
    testnet.clear_fault(id);
    assert_eq!(silent.next().await, None);

    let id = set(&testnet, "dial-silence=host:pds0").unwrap();
    let dial = tokio_tungstenite::connect_async(&url);
    assert!(timeout(Duration::from_millis(300), dial).await.is_err());
    testnet.clear_fault(id);
    assert_eq!(testnet.faults().fired("dial-silence"), 2);
    let mut well = Consumer::connect(&pds, Some(0)).await;
    assert!(well.next().await.is_some());
}

#[tokio::test]
async fn cars_are_spoiled_in_every_way() {
    let (testnet, did, repo) = network().await;
    testnet.write(&did, &[]).unwrap();
    let key = key_of(&testnet, &did).await;
    let head = testnet.truth().head(&did).unwrap();
    for fault in [
        "car-cut",
        "car-minus-node",
        "car-minus-leaf",
        "car-non-canonical",
        "car-other-key",
        "car-old",
    ] {
        set(&testnet, &format!("{fault}=did:{did},count:1"));
        let (status, _, car) = get(&repo).await;
        assert_eq!(status, 200, "{fault}");
        // As a file each of them is fine.
        let read = RepoCar::read(&car).unwrap();
        let signed = read.commit.verify(&key).is_ok();
        let imported = import(&car);
        match (fault, imported) {
            ("car-cut", Err(ImportError::Tree(TreeError::Missing(_)))) => (),
            ("car-cut", Err(ImportError::NoRecord { .. })) => (),
            ("car-minus-node", Err(ImportError::Tree(TreeError::Missing(_)))) => (),
            ("car-minus-leaf", Err(ImportError::NoRecord { .. })) => (),
            ("car-non-canonical", Err(ImportError::Tree(TreeError::Malformed { error, .. }))) => {
                assert_eq!(error, NodeError::Keyless);
            }
            ("car-other-key", Ok(_)) => assert_eq!(read.commit.data, head.data),
            ("car-old", Ok(_)) => assert!(read.commit.rev < head.rev),
            (fault, other) => panic!("{fault}: {other:?}"),
        }
        assert_eq!(signed, fault != "car-other-key", "{fault}");
        let (_, _, honest) = get(&repo).await;
        assert!(import(&honest).is_ok(), "{fault}: once");
    }
}

#[tokio::test]
async fn a_fault_that_finds_nothing_to_spoil_does_not_fire() {
    let (testnet, _, _) = network().await;
    let empty = testnet
        .create_account(gapless_testnet::NewAccount {
            host: 0,
            curve: gapless_atp::crypto::Curve::K256,
            web: false,
            records: 0,
        })
        .unwrap();
    set(&testnet, &format!("car-minus-leaf=did:{empty},count:1"));
    get(&xrpc(&testnet.urls().pds[0], "getRepo", &did_param(&empty))).await;
    assert_eq!(testnet.faults().fired("car-minus-leaf"), 0);
}

#[tokio::test]
async fn lists_are_empty_or_short() {
    let (testnet, _, _) = network().await;
    let url = xrpc(&testnet.urls().pds[0], "listRepos", "limit=1");
    set(&testnet, "list-empty=host:pds0,count:1");
    assert_eq!(get_json(&url).await.1, serde_json::json!({ "repos": [] }));
    set(&testnet, "list-short=keep:1,host:pds0,count:1");
    let (_, short) = get_json(&url).await;
    assert_eq!(short["repos"].as_array().unwrap().len(), 1);
    assert_eq!(short.get("cursor"), None, "and that is all");
    assert_eq!(get_json(&url).await.1["cursor"], "1");
}

#[tokio::test]
async fn the_directory_is_down_limited_or_behind() {
    let (testnet, did, _) = network().await;
    let url = format!("{}/{did}", testnet.urls().plc);
    set(&testnet, "plc-down=count:1");
    assert_eq!(get(&url).await.0, 503);
    set(&testnet, "plc-429=retry-after:5,count:1");
    let (status, headers, _) = get(&url).await;
    assert_eq!(
        (status, &headers["retry-after"]),
        (429, &"5".parse().unwrap())
    );

    let old = key_of(&testnet, &did).await;
    let id = set(&testnet, "plc-stale").unwrap();
    assert_eq!(key_of(&testnet, &did).await, old);
    assert_eq!(
        testnet.faults().fired("plc-stale"),
        0,
        "nothing to hide yet"
    );
    testnet.rotate_key(&did, false).unwrap();
    assert_eq!(key_of(&testnet, &did).await, old);
    assert_eq!(testnet.faults().fired("plc-stale"), 1);
    // The export is as far behind, in both of its forms.
    let exported = async |after: &str| {
        let url = format!("{}/export?count=1000&after={after}", testnet.urls().plc);
        get(&url).await.2.split(|byte| *byte == b'\n').count()
    };
    let stale = (exported("0").await, exported("").await);
    assert_eq!(testnet.faults().fired("plc-stale"), 3);
    testnet.clear_fault(id);
    assert_eq!(
        (stale.0 + 1, stale.1 + 1),
        (exported("0").await, exported("").await)
    );
    set(&testnet, &format!("plc-stale=seq:0,did:{did}"));
    assert_eq!(exported("0").await, stale.0 - 2, "all three of one account");
    testnet.clear_faults(None);
    assert_ne!(key_of(&testnet, &did).await, old);
}
