//! Tests every fault of the catalogue: it counts 0 before its moment and 1 at it, can be set by
//! flag, and acts only in its scope.

mod common;

use std::time::Duration;

use common::*;
use gapless_atp::syntax::Did;
use gapless_testnet::faults::CATALOGUE;
use gapless_testnet::{Config, Spec, Status, Testnet};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

/// What makes a fault's moment come.
#[derive(Clone, Copy)]
enum Moment {
    /// It happens when it is set.
    AtOnce,
    /// So, but to an account that has moved away before.
    AtOnceMoved,
    /// So, but to an account that was deleted before.
    AtOnceDeleted,
    Commit,
    Status,
    Ping,
    Dial,
    GetRepo,
    GetRepoSince,
    ListRepos,
    ListHosts,
    ListByCollection,
    Directory,
}

/// A fault as a flag, and its moment. `DID` stands for an account on pds0.
const TABLE: &[(&str, Moment)] = &[
    ("drop=did:DID,count:1", Moment::Commit),
    ("duplicate=did:DID,count:1", Moment::Commit),
    ("delay=ms:1,did:DID,count:1", Moment::Commit),
    ("reorder=did:DID,count:1", Moment::Commit),
    ("lost-account=did:DID,count:1", Moment::Status),
    ("too-big=did:DID,count:1", Moment::Commit),
    ("legacy=did:DID,count:1", Moment::Commit),
    ("wrong-signature=did:DID,count:1", Moment::Commit),
    ("omit-op=did:DID,count:1", Moment::Commit),
    ("undecodable=part:header,did:DID,count:1", Moment::Commit),
    ("envelope-rev=did:DID,count:1", Moment::Commit),
    ("no-pongs=host:pds0,count:1", Moment::Ping),
    ("dial-error=status:502,host:pds0,count:1", Moment::Dial),
    ("dial-silence=host:pds0,count:1", Moment::Dial),
    (
        "http-error=status:429,retry-after:1,route:getRepo,count:1",
        Moment::GetRepo,
    ),
    ("stall=ms:1,route:getRepo,count:1", Moment::GetRepo),
    (
        "drip=bytes-per-second:1000000,did:DID,count:1",
        Moment::GetRepo,
    ),
    ("car-cut=did:DID,count:1", Moment::GetRepo),
    ("car-minus-node=did:DID,count:1", Moment::GetRepo),
    ("car-minus-leaf=did:DID,count:1", Moment::GetRepo),
    ("car-non-canonical=did:DID,count:1", Moment::GetRepo),
    ("car-other-key=did:DID,count:1", Moment::GetRepo),
    ("car-old=commits:1,did:DID,count:1", Moment::GetRepo),
    ("since-empty=did:DID,count:1", Moment::GetRepoSince),
    ("list-empty=host:pds0,count:1", Moment::ListRepos),
    ("list-short=keep:1,host:pds0,count:1", Moment::ListRepos),
    ("list-stale=did:DID,count:1", Moment::ListRepos),
    ("plc-down=count:1", Moment::Directory),
    ("plc-429=retry-after:3,count:1", Moment::Directory),
    ("plc-stale=seq:1,did:DID,count:1", Moment::Directory),
    ("relay-omit=did:DID,count:1", Moment::Commit),
    ("relay-gap=did:DID,count:1", Moment::Commit),
    ("relay-junk=count:1", Moment::ListHosts),
    ("relay-stale=count:1", Moment::ListByCollection),
    ("window=events:100,host:pds0", Moment::AtOnce),
    ("seq-restart=host:pds0", Moment::AtOnce),
    ("disconnect=host:pds0", Moment::AtOnce),
    ("sync=did:DID", Moment::AtOnce),
    ("info=name:Hello,host:pds0", Moment::AtOnce),
    ("forged-rev=did:DID", Moment::AtOnce),
    ("rev-rollback=commits:1,did:DID", Moment::AtOnce),
    ("rotate-key=did:DID", Moment::AtOnce),
    ("migrate=to:1,did:DID", Moment::AtOnce),
    ("ghost=did:DID", Moment::AtOnceMoved),
    ("late-write=did:DID", Moment::AtOnceMoved),
    ("dead-write=text:x,did:DID", Moment::AtOnceDeleted),
    ("account=state:suspended,did:DID", Moment::AtOnce),
    ("huge-repo=records:500,did:DID", Moment::AtOnce),
    ("deep-keys=height:4,keys:2,did:DID", Moment::AtOnce),
    ("relay-rollback=events:5", Moment::AtOnce),
];

async fn come(testnet: &Testnet, did: &Did, moment: Moment) {
    let pds = &testnet.urls().pds[0];
    match moment {
        Moment::AtOnce | Moment::AtOnceMoved | Moment::AtOnceDeleted => (),
        Moment::Commit => {
            let record = serde_json::json!({ "$type": "app.bsky.feed.post", "text": "x" });
            let write = gapless_testnet::Write::Create {
                path: "app.bsky.feed.post/moment".to_owned(),
                record: gapless_testnet::encode_record(&record).unwrap(),
            };
            testnet.write(did, &[write]).unwrap();
        }
        Moment::Status => testnet.set_status(did, Status::Suspended).unwrap(),
        Moment::Ping => {
            let mut consumer = Consumer::connect(pds, None).await;
            consumer.send(Message::Ping("hello".into())).await;
            assert!(!consumer.hears(Duration::from_millis(200)).await);
        }
        Moment::Dial => {
            let url = xrpc(&pds.replace("http", "ws"), "subscribeRepos", "");
            let dial = tokio_tungstenite::connect_async(url);
            let dialled = timeout(Duration::from_millis(300), dial).await;
            assert!(!matches!(dialled, Ok(Ok(_))), "the dial fails");
        }
        Moment::GetRepo => {
            get(&xrpc(pds, "getRepo", &did_param(did))).await;
        }
        Moment::GetRepoSince => {
            let since = testnet.truth().head(did).unwrap().rev;
            let query = format!("{}&since={since}", did_param(did));
            get(&xrpc(pds, "getRepo", &query)).await;
        }
        Moment::ListRepos => {
            get(&xrpc(pds, "listRepos", "")).await;
        }
        Moment::ListHosts => {
            let relay = testnet.urls().relay.clone().unwrap();
            get(&xrpc(&relay, "listHosts", "")).await;
        }
        Moment::ListByCollection => {
            let relay = testnet.urls().relay.clone().unwrap();
            let query = "collection=com.example.none";
            get(&xrpc(&relay, "listReposByCollection", query)).await;
        }
        Moment::Directory => {
            get(&format!("{}/{did}", testnet.urls().plc)).await;
        }
    }
}

#[tokio::test]
async fn every_fault_fires_at_its_moment_and_counts() {
    let tested: Vec<&str> = TABLE
        .iter()
        .map(|(flag, _)| flag.split('=').next().unwrap())
        .collect();
    let known: Vec<&str> = CATALOGUE.iter().map(|(name, _)| *name).collect();
    assert_eq!(tested, known, "the table has every fault");
    for (flag, moment) in TABLE {
        let name = flag.split('=').next().unwrap();
        let testnet = start(Config {
            repos: 4,
            pds: 2,
            records: 10,
            relay: true,
            ..Config::default()
        })
        .await;
        let did = testnet.truth().dids()[2].clone();
        let spec: Spec = flag.replace("DID", did.as_str()).parse().unwrap();
        assert_eq!(testnet.faults().fired(name), 0, "{flag}");
        if matches!(moment, Moment::AtOnceMoved) {
            testnet.migrate(&did, 1, false).unwrap();
        }
        if matches!(moment, Moment::AtOnceDeleted) {
            testnet.set_status(&did, Status::Deleted).unwrap();
        }
        let set = testnet.fault(spec).unwrap();
        let at_once = matches!(
            moment,
            Moment::AtOnce | Moment::AtOnceMoved | Moment::AtOnceDeleted
        );
        assert_eq!(set.id.is_none(), at_once, "{flag}");
        assert_eq!(testnet.faults().fired(name), u64::from(at_once), "{flag}");
        // Someone else's moment is not its moment.
        let other = testnet.truth().dids()[1].clone();
        let moment_of_other = testnet.write(&other, &[]);
        assert!(moment_of_other.is_ok());
        assert_eq!(testnet.faults().fired(name), u64::from(at_once), "{flag}");
        come(&testnet, &did, *moment).await;
        assert_eq!(testnet.faults().fired(name), 1, "{flag}");
        let report = testnet.faults().report();
        let others = report["fired"].as_object().unwrap().iter();
        let others = others.filter(|(other, _)| *other != name);
        assert!(others.into_iter().all(|(_, count)| *count == 0), "{report}");
    }
}

#[tokio::test]
async fn faults_can_be_set_from_the_start_and_bad_ones_are_refused() {
    let fault = |text: &str| text.parse::<Spec>().unwrap();
    let testnet = start(Config {
        repos: 2,
        pds: 1,
        faults: vec![fault("list-empty"), fault("window=events:1")],
        ..Config::default()
    })
    .await;
    assert_eq!(testnet.faults().fired("window"), 1);
    let url = xrpc(&testnet.urls().pds[0], "listRepos", "");
    assert_eq!(get_json(&url).await.1, serde_json::json!({ "repos": [] }));
    testnet.clear_faults(Some("list-empty"));
    let (_, json) = get_json(&url).await;
    assert_eq!(json["repos"].as_array().unwrap().len(), 2);

    for (text, says) in [
        ("drop=host:pds7", "there is no PDS 7"),
        ("relay-rollback", "there is no relay"),
        ("window=events:1,host:plc", "cannot fire on plc"),
        ("list-empty=host:plc", "cannot fire on plc"),
        ("relay-gap=host:pds0", "cannot fire on pds0"),
        ("drop=host:relay", "cannot fire on relay"),
        ("relay-omit", "there is no relay"),
        ("no-pongs=host:jetstream", "there is no Jetstream"),
        ("window=events:999999999", "events must be 0 to"),
        ("list-short=keep:999999999", "keep must be 0 to"),
        ("car-old=commits:999999999", "commits must be 0 to"),
        ("http-error=status:99", "status must be 400 to 599"),
        ("rev-rollback=commits:99", "cannot go back 99 commits"),
        ("migrate=to:5", "there is no PDS 5"),
        (
            "sync=did:did:plc:aaaaaaaaaaaaaaaaaaaaaaaa",
            "is not an account",
        ),
    ] {
        let error = testnet.fault(fault(text)).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}
