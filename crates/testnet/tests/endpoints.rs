//! Tests every endpoint of the test network over HTTP: its answers and its refusals.

mod common;

use common::*;
use gapless_atp::car::read_blocks;
use gapless_atp::cbor::{Value, to_json};
use gapless_atp::cid::Cid;
use gapless_atp::identity::{DidDocument, KeyHistory};
use gapless_atp::mst::Tree;
use gapless_atp::repo::{Commit, RepoCar};
use gapless_atp::syntax::Did;
use gapless_testnet::{Config, Status, Testnet, Write};
use serde_json::json;

async fn network() -> (Testnet, Did, String) {
    let testnet = start(Config {
        repos: 6,
        pds: 2,
        relay: true,
        ..Config::default()
    })
    .await;
    // The first accounts are did:web; this one is not.
    let did = testnet.truth().dids()[4].clone();
    let pds = testnet.urls().pds[0].clone();
    (testnet, did, pds)
}

fn post(text: &str) -> Vec<u8> {
    let json = json!({ "$type": "app.bsky.feed.post", "text": text });
    gapless_testnet::encode_record(&json).unwrap()
}

#[tokio::test]
async fn the_directory_knows_who_everyone_is_and_was() {
    let (testnet, did, pds) = network().await;
    let plc = testnet.urls().plc.clone();
    let before = key_of(&testnet, &did).await;
    testnet.rotate_key(&did, false).unwrap();
    let after = key_of(&testnet, &did).await;
    assert_ne!(before, after);

    let (_, _, body) = get(&format!("{plc}/{did}")).await;
    let document = DidDocument::parse(&body, &did).unwrap();
    assert_eq!(document.usable_pds().unwrap().as_str(), pds);
    let (_, data) = get_json(&format!("{plc}/{did}/data")).await;
    assert_eq!(data["verificationMethods"]["atproto"], after.to_did_key());
    assert_eq!(data["services"]["atproto_pds"]["endpoint"], pds.as_str());

    let (_, log) = get_json(&format!("{plc}/{did}/log")).await;
    let log = log.as_array().unwrap();
    assert_eq!(log.len(), 3, "founded, placed, rotated");
    let (_, _, audit) = get(&format!("{plc}/{did}/log/audit")).await;
    KeyHistory::parse(&audit, &did).unwrap();
    let audit: serde_json::Value = serde_json::from_slice(&audit).unwrap();
    for (at, entry) in audit.as_array().unwrap().iter().enumerate() {
        assert_eq!(entry["operation"], log[at]);
        let prev = match at.checked_sub(1) {
            None => serde_json::Value::Null,
            Some(before) => audit[before]["cid"].clone(),
        };
        assert_eq!(entry["operation"]["prev"], prev, "chained by CID");
    }
    let (_, last) = get_json(&format!("{plc}/{did}/log/last")).await;
    assert_eq!(last, log[2]);

    let (status, _) = get_json(&format!("{plc}/did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")).await;
    assert_eq!(status, 404);
    let (status, _) = get_json(&format!("{plc}/did:plc:short")).await;
    assert_eq!(status, 400);
    testnet.tombstone(&did).unwrap();
    let (status, _) = get_json(&format!("{plc}/{did}")).await;
    assert_eq!(status, 410);
}

#[tokio::test]
async fn the_export_pages_through_every_operation() {
    let (testnet, did, _) = network().await;
    testnet.rotate_key(&did, false).unwrap();
    let plc = &testnet.urls().plc;
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let (_, _, body) = get(&format!("{plc}/export?count=3&after={after}")).await;
        let lines = String::from_utf8(body).unwrap();
        if lines.is_empty() {
            break;
        }
        for line in lines.lines() {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            after = entry["seq"].as_u64().unwrap();
            seen.push(entry);
        }
    }
    let plc_accounts = testnet.truth().dids();
    let plc_accounts = plc_accounts.iter().filter(|did| did.web_host().is_none());
    assert_eq!(seen.len(), plc_accounts.count() * 2 + 1);
    assert!(seen.iter().enumerate().all(|(at, it)| it["seq"] == at + 1));

    let time = seen[4]["createdAt"].as_str().unwrap();
    let (_, _, body) = get(&format!("{plc}/export?count=2&after={time}")).await;
    let first: serde_json::Value =
        serde_json::from_str(String::from_utf8(body).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(first["cid"], seen[5]["cid"]);
    assert_eq!(first["seq"], serde_json::Value::Null, "the older form");
    let (status, _) = get_json(&format!("{plc}/export?count=5000")).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_did_web_and_a_handle_are_found_by_host() {
    let (testnet, _, pds) = network().await;
    let did = testnet.truth().dids()[0].clone();
    assert_eq!(did.web_host().unwrap(), pds.replace("http://", ""));
    key_of(&testnet, &did).await;
    let handle = testnet.truth().handle(&did).unwrap();
    let client = reqwest::Client::new();
    let url = format!("{pds}/.well-known/atproto-did");
    let answer = client.get(&url).header("host", &handle).send().await;
    assert_eq!(answer.unwrap().text().await.unwrap(), did.as_str());
    let (status, _, _) = get(&url).await;
    assert_eq!(status, 404);
    let url = format!("{pds}/xrpc/com.atproto.identity.resolveHandle?handle={handle}");
    assert_eq!(get_json(&url).await.1["did"], did.as_str());
}

#[tokio::test]
async fn repositories_are_listed_in_pages_with_their_states() {
    let (testnet, did, pds) = network().await;
    for _ in 0..4 {
        testnet
            .create_account(gapless_testnet::NewAccount {
                host: 0,
                curve: gapless_atp::crypto::Curve::P256,
                web: false,
                records: 0,
            })
            .unwrap();
    }
    testnet.set_status(&did, Status::Takendown).unwrap();
    let gone = testnet.truth().dids()[2].clone();
    let (mut cursor, mut listed) = (String::new(), Vec::new());
    loop {
        let url = xrpc(&pds, "listRepos", &format!("limit=2{cursor}"));
        let (_, page) = get_json(&url).await;
        listed.extend(page["repos"].as_array().unwrap().clone());
        if listed.len() == 2 {
            // An account that is deleted between two pages costs no other.
            testnet.set_status(&gone, Status::Deleted).unwrap();
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let here: Vec<Did> = testnet.truth().dids();
    let here: Vec<&Did> = here
        .iter()
        .enumerate()
        .filter(|(at, _)| at % 2 == 0 || *at >= 6)
        .map(|(_, did)| did)
        .collect();
    assert_eq!(listed.len(), here.len());
    for (entry, wanted) in listed.iter().zip(here) {
        assert_eq!(entry["did"], wanted.as_str());
        let Some(head) = testnet.truth().head(wanted) else {
            assert_eq!(*wanted, gone);
            continue;
        };
        assert_eq!(entry["head"], head.commit.to_string());
        assert_eq!(entry["rev"], head.rev.to_string());
        let is_down = *wanted == did;
        assert_eq!(entry["active"], !is_down);
        let status = entry["status"].as_str();
        assert_eq!(status, is_down.then_some("takendown"));
    }
    for bad in ["limit=0", "limit=1001", "limit=x", "cursor=x"] {
        let (status, json) = get_json(&xrpc(&pds, "listRepos", bad)).await;
        assert_eq!((status, &json["error"]), (400, &json!("InvalidRequest")));
    }
}

#[tokio::test]
async fn states_refuse_by_the_names_of_the_lexicon() {
    let (testnet, did, pds) = network().await;
    for (status, error) in [
        (Status::Deactivated, "RepoDeactivated"),
        (Status::Takendown, "RepoTakendown"),
        (Status::Suspended, "RepoSuspended"),
        (Status::Deleted, "RepoNotFound"),
    ] {
        testnet.set_status(&did, status).unwrap();
        for method in ["getRepo", "getLatestCommit"] {
            let (code, json) = get_json(&xrpc(&pds, method, &did_param(&did))).await;
            assert_eq!((code, json["error"].as_str()), (400, Some(error)));
        }
        let (code, json) = get_json(&xrpc(&pds, "getRepoStatus", &did_param(&did))).await;
        if status == Status::Deleted {
            assert_eq!((code, json["error"].as_str()), (400, Some("RepoNotFound")));
        } else {
            assert_eq!(json["active"], false);
            assert_eq!(json["status"].as_str(), status.word());
            assert!(json.get("rev").is_none());
        }
    }
    for query in ["", "did=alice", "did=did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"] {
        let (code, json) = get_json(&xrpc(&pds, "getRepo", query)).await;
        assert_eq!(code, 400, "{json}");
    }
    let (code, json) = get_json(&xrpc(&pds, "getEverything", "")).await;
    assert_eq!(
        (code, &json["error"]),
        (501, &json!("MethodNotImplemented"))
    );
}

#[tokio::test]
async fn a_diff_since_a_rev_resolves_over_what_was_held_then() {
    let (testnet, did, pds) = network().await;
    let url = xrpc(&pds, "getRepo", &did_param(&did));
    let (_, _, before) = get(&url).await;
    let old = RepoCar::read(&before).unwrap();
    let rev = old.commit.rev;
    for number in 0..30 {
        let path = format!("app.bsky.feed.post/since{number}");
        let record = post(&format!("post {number}"));
        testnet
            .write(&did, &[Write::Create { path, record }])
            .unwrap();
    }
    let path = "app.bsky.feed.post/since3".to_owned();
    testnet.write(&did, &[Write::Delete { path }]).unwrap();

    let (_, _, diff) = get(&format!("{url}&since={rev}")).await;
    let (_, _, whole) = get(&url).await;
    assert!(diff.len() < whole.len());
    let new = RepoCar::read(&diff).unwrap();
    assert_eq!(new.commit_cid, testnet.truth().head(&did).unwrap().commit);
    // Old blocks and new ones together are the whole repository.
    let mut joined = Vec::new();
    gapless_atp::car::write_header(&mut joined, &[new.commit_cid]);
    for car in [&before, &diff] {
        for block in read_blocks(car).unwrap() {
            let (cid, bytes) = block.unwrap();
            gapless_atp::car::write_block(&mut joined, &cid, bytes);
        }
    }
    assert_eq!(import(&joined).unwrap(), import(&whole).unwrap());
    assert!(import(&diff).is_err(), "the diff alone is not whole");

    let (_, _, nothing) = get(&format!("{url}&since={}", new.commit.rev)).await;
    assert_eq!(read_blocks(&nothing).unwrap().count(), 1, "only the commit");
    let (_, _, all) = get(&format!("{url}&since=2222222222222")).await;
    assert_eq!(all, whole);
    let (code, _) = get_json(&format!("{url}&since=yesterday")).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn records_are_proved_present_and_absent() {
    let (testnet, did, pds) = network().await;
    let key = key_of(&testnet, &did).await;
    let records = testnet.truth().records(&did).unwrap();
    let (present, (cid, bytes)) = records.iter().next_back().unwrap();
    for (path, wanted) in [
        (present.as_str(), Some(*cid)),
        ("app.bsky.feed.post/no", None),
    ] {
        let (collection, rkey) = path.split_once('/').unwrap();
        let query = format!("{}&collection={collection}&rkey={rkey}", did_param(&did));
        let (status, _, car) = get(&xrpc(&pds, "getRecord", &query)).await;
        assert_eq!(status, 200);
        let blocks = read_blocks(&car).unwrap().into_map().unwrap();
        let commit = Commit::decode(blocks.get(&blocks.roots()[0]).unwrap()).unwrap();
        commit.verify(&key).unwrap();
        let found = Tree::open(commit.data, &blocks).get(path.as_bytes());
        assert_eq!(found, Ok(wanted), "{path}");
        if let Some(cid) = wanted {
            assert_eq!(blocks.get(&cid), Some(&bytes[..]));
        }
        assert!(blocks.len() < records.len(), "a proof, not the repository");
    }
    let query = format!("{}&collection=posts&rkey=a", did_param(&did));
    assert_eq!(get_json(&xrpc(&pds, "getRecord", &query)).await.0, 400);

    // An account without records proves absence with its empty tree.
    let empty = testnet
        .create_account(gapless_testnet::NewAccount {
            host: 0,
            curve: gapless_atp::crypto::Curve::K256,
            web: false,
            records: 0,
        })
        .unwrap();
    let query = format!("{}&collection=app.bsky.feed.post&rkey=a", did_param(&empty));
    let (_, _, car) = get(&xrpc(&pds, "getRecord", &query)).await;
    assert_eq!(read_blocks(&car).unwrap().count(), 2);
}

#[tokio::test]
async fn blocks_are_given_by_cid() {
    let (testnet, did, pds) = network().await;
    let head = testnet.truth().head(&did).unwrap();
    let query = format!(
        "{}&cids={}&cids={}",
        did_param(&did),
        head.data,
        head.commit
    );
    let (status, _, car) = get(&xrpc(&pds, "getBlocks", &query)).await;
    assert_eq!(status, 200);
    let blocks = read_blocks(&car).unwrap();
    assert!(blocks.roots().is_empty());
    let cids: Vec<Cid> = blocks.map(|block| block.unwrap().0).collect();
    assert_eq!(cids, [head.data, head.commit]);
    let query = format!("{}&cids={}", did_param(&did), Cid::dag_cbor(b"no"));
    let (status, json) = get_json(&xrpc(&pds, "getBlocks", &query)).await;
    assert_eq!((status, &json["error"]), (400, &json!("BlockNotFound")));
}

#[tokio::test]
async fn records_are_shown_as_json() {
    let (testnet, did, pds) = network().await;
    let records = testnet.truth().records(&did).unwrap();
    let repo = |method: &str, query: &str| format!("{pds}/xrpc/com.atproto.repo.{method}?{query}");
    let (_, described) = get_json(&repo("describeRepo", &format!("repo={did}"))).await;
    assert_eq!(described["did"], did.as_str());
    assert_eq!(described["collections"][0], "app.bsky.actor.profile");

    let query = format!("repo={did}&collection=app.bsky.actor.profile&rkey=self");
    let (_, profile) = get_json(&repo("getRecord", &query)).await;
    let (cid, bytes) = &records["app.bsky.actor.profile/self"];
    assert_eq!(profile["cid"], cid.to_string());
    assert_eq!(
        profile["value"],
        to_json(&Value::decode_strict(bytes).unwrap())
    );
    let query = format!("repo={did}&collection=app.bsky.actor.profile&rkey=other");
    let (status, json) = get_json(&repo("getRecord", &query)).await;
    assert_eq!((status, &json["error"]), (400, &json!("RecordNotFound")));

    let likes = || {
        records
            .keys()
            .filter(|path| path.starts_with("app.bsky.feed.like/"))
    };
    for reverse in [false, true] {
        let (mut cursor, mut seen) = (String::new(), Vec::new());
        loop {
            let query = format!(
                "repo={did}&collection=app.bsky.feed.like&limit=2&reverse={reverse}{cursor}"
            );
            let (_, page) = get_json(&repo("listRecords", &query)).await;
            for record in page["records"].as_array().unwrap() {
                seen.push(record["uri"].as_str().unwrap().to_owned());
            }
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let mut wanted: Vec<String> = likes().map(|path| format!("at://{did}/{path}")).collect();
        if !reverse {
            wanted.reverse();
        }
        assert_eq!(seen, wanted);
    }
}

#[tokio::test]
async fn the_host_describes_itself() {
    let (_testnet, _, pds) = network().await;
    let url = format!("{pds}/xrpc/com.atproto.server.describeServer");
    let (_, json) = get_json(&url).await;
    assert_eq!(json["availableUserDomains"][0], ".pds0.test");
    let (_, _, body) = get(&format!("{pds}/")).await;
    assert!(String::from_utf8(body).unwrap().contains("test network"));
    let (status, _, _) = get(&xrpc(&pds, "subscribeRepos", "")).await;
    assert_eq!(status, 426);
    let (status, _) = get_json(&xrpc(&pds, "subscribeRepos", "cursor=x")).await;
    assert_eq!(status, 400);
}
