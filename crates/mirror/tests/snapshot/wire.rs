//! Tests snapshots that the test network serves over real sockets.

use std::collections::BTreeMap;
use std::time::Duration;

use gapless_atp::crypto::PublicKey;
use gapless_atp::syntax::{Did, Rev};
use gapless_mirror::repair::snapshot::Snapshot;
use gapless_mirror::repair::spill::{Spill, SpillLimits, SpilledCar};
use gapless_testnet::{Config, Fault, Place, Spec, Testnet};

use crate::repo::{BOTH, Mirror, keep_all};

const DEADLINE: Duration = Duration::from_secs(20);

async fn get_repo(testnet: &Testnet, did: &Did, since: Option<Rev>, memory: usize) -> Snapshot {
    let fetched = fetch(testnet, did, since, memory).await;
    Snapshot::check(fetched, did).unwrap()
}

async fn fetch(testnet: &Testnet, did: &Did, since: Option<Rev>, memory: usize) -> SpilledCar {
    // The second to install it is told so; all that counts is that it is there.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let host = testnet.truth().head(did).unwrap().host;
    let since = since.map_or(String::new(), |rev| format!("&since={rev}"));
    // A did:web has a port, and that a percent sign.
    let name = did.as_str().replace('%', "%25");
    let base = &testnet.urls().pds[host];
    let url = format!("{base}/xrpc/com.atproto.sync.getRepo?did={name}{since}");
    let answer = tokio::time::timeout(DEADLINE, reqwest::get(url));
    let mut answer = answer.await.expect("an answer in time").unwrap();
    assert_eq!(answer.status(), 200);
    let folder = tempfile::tempdir().unwrap();
    let limits = SpillLimits {
        memory,
        ..SpillLimits::default()
    };
    let mut spill = Spill::new(folder.path(), limits);
    while let Some(piece) = answer.chunk().await.unwrap() {
        spill.feed(&piece).unwrap();
    }
    spill.finish().unwrap()
}

fn truth(testnet: &Testnet, did: &Did) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let records = testnet.truth().records(did).unwrap().into_iter();
    records
        .map(|(path, (_, bytes))| (path.into_bytes(), Some(bytes.to_vec())))
        .collect()
}

fn key(testnet: &Testnet, did: &Did) -> PublicKey {
    let keys = testnet.truth().keys(did).unwrap();
    PublicKey::from_did_key(keys.last().unwrap()).unwrap()
}

#[tokio::test]
async fn full_and_since_lead_to_the_truth() {
    let config = Config {
        repos: 6,
        records: 150,
        ..Config::default()
    };
    let testnet = Testnet::start(config).await.unwrap();
    let dids = testnet.truth().dids();
    let mirrors: Vec<Mirror> = dids.iter().map(Mirror::of).collect();
    let mut differences = 0;
    for round in 0..6 {
        let memory = BOTH[round % 2];
        for (did, mirror) in dids.iter().zip(&mirrors) {
            let whole = get_repo(&testnet, did, None, memory).await;
            assert!(whole.verify(&key(&testnet, did)));
            assert_eq!(
                whole.head().commit,
                testnet.truth().head(did).unwrap().commit
            );
            let full = Mirror::of(did);
            full.take(&whole, &keep_all, false).unwrap();
            assert_eq!(full.held(), truth(&testnet, did), "{did} in full");

            let since = mirror.row().head().map(|head| head.rev);
            let mut snapshot = get_repo(&testnet, did, since, memory).await;
            if since.is_some() {
                differences += u64::from(snapshot.car().blocks < whole.car().blocks);
                snapshot = snapshot.with_held(mirror.tree());
            }
            mirror.take(&snapshot, &keep_all, false).unwrap();
            assert_eq!(mirror.held(), truth(&testnet, did), "{did} since {since:?}");
        }
        assert!(testnet.stir(120) > 100);
    }
    assert!(differences >= 25, "{differences} answers were differences");
}

#[tokio::test]
async fn what_hosts_spoil_is_refused() {
    let testnet = Testnet::start(Config::default()).await.unwrap();
    let did = testnet.truth().dids()[0].clone();
    let faults = [
        (
            Fault::CarCut {},
            "car-cut",
            &["missing_node", "missing_record"][..],
        ),
        (Fault::CarMinusNode {}, "car-minus-node", &["missing_node"]),
        (
            Fault::CarMinusLeaf {},
            "car-minus-leaf",
            &["missing_record"],
        ),
        (
            Fault::CarNonCanonical {},
            "car-non-canonical",
            &["malformed"],
        ),
    ];
    for (fault, name, classes) in faults {
        let spec = Spec::new(fault).on(Place::Pds(0)).of(&did).times(2);
        testnet.fault(spec).unwrap();
        for memory in BOTH {
            let snapshot = get_repo(&testnet, &did, None, memory).await;
            let error = Mirror::of(&did).compare(&snapshot, &keep_all, false);
            let class = error.unwrap_err().class();
            assert!(classes.contains(&class), "{name}: {class}");
        }
        assert_eq!(testnet.faults().fired(name), 2);
    }
    let snapshot = get_repo(&testnet, &did, None, 0).await;
    assert!(snapshot.walk_whole().is_ok() && snapshot.verify(&key(&testnet, &did)));
}

#[tokio::test]
async fn another_key_is_not_the_owners() {
    let testnet = Testnet::start(Config::default()).await.unwrap();
    let did = testnet.truth().dids()[0].clone();
    let spec = Spec::new(Fault::CarOtherKey {}).on(Place::Pds(0)).of(&did);
    testnet.fault(spec.times(1)).unwrap();
    let forged = get_repo(&testnet, &did, None, 0).await;
    assert_eq!(testnet.faults().fired("car-other-key"), 1);
    assert!(forged.walk_whole().is_ok(), "all of it is there");
    assert!(!forged.verify(&key(&testnet, &did)));
    let honest = get_repo(&testnet, &did, None, 0).await;
    assert!(honest.verify(&key(&testnet, &did)));
}

#[tokio::test]
async fn the_answer_about_another_did() {
    let testnet = Testnet::start(Config::default()).await.unwrap();
    let dids = testnet.truth().dids();
    let fetched = fetch(&testnet, &dids[0], None, 0).await;
    let error = Snapshot::check(fetched, &dids[1]).err().unwrap();
    assert_eq!(error.class(), "other_did");
}
