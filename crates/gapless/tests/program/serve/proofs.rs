//! Tests proofs: one record with its proof, present or absent, and blocks by their CIDs.

use std::borrow::Cow;

use gapless_atp::cid::Cid;
use gapless_atp::crypto::PublicKey;
use gapless_atp::mst::{Blocks, SourceError, Tree};
use gapless_atp::repo::Commit;
use gapless_atp::syntax::Did;

use crate::serve::served::{Served, blocks_of, mirrored, small, true_records};
use gapless_harness::World;

/// What a proof brought, and nothing else.
struct Brought(Vec<(Cid, Vec<u8>)>);

impl Blocks for Brought {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        let found = self.0.iter().find(|(one, _)| one == cid);
        Ok(found.map(|(_, block)| Cow::Borrowed(block.as_slice())))
    }
}

/// What a proof proves about a path, and how many blocks it took.
async fn proved(world: &World, served: &Served, did: &Did, path: &str) -> (Option<Cid>, usize) {
    let (collection, rkey) = path.split_once('/').expect("a path");
    let query = [
        ("did", did.as_str()),
        ("collection", collection),
        ("rkey", rkey),
    ];
    let got = served.good("sync.getRecord", &query).await;
    let head = world.net.truth().head(did).expect("it exists");
    assert_eq!(got.header("atproto-repo-rev"), head.rev.to_string());
    let brought = Brought(blocks_of(&got.body));
    let roots = gapless_atp::car::read_blocks(&got.body).expect("a CAR");
    assert_eq!(roots.roots(), [head.commit]);
    let block = brought
        .block(&head.commit)
        .expect("read")
        .expect("it is in it");
    let commit = Commit::decode(&block).expect("a commit");
    let keys = world.net.truth().keys(did).expect("it exists");
    let key = PublicKey::from_did_key(keys.last().expect("one")).expect("a key");
    commit.verify(&key).expect("the owner signed it");
    let value = Tree::open(commit.data, &brought).get(path.as_bytes());
    let value = value.expect("the nodes are enough");
    if let Some(cid) = value {
        assert!(
            brought.block(&cid).expect("read").is_some(),
            "the record is in it"
        );
    }
    (value, brought.0.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn presence_and_absence_are_proved_and_one_tree_answers_all() {
    let config = gapless_testnet::Config {
        records: 300,
        ..small(2)
    };
    let (mut world, served) = mirrored(config).await;
    let did = world.did(0);
    let records = true_records(&world, &did);
    for (path, cid, _) in records.iter().step_by(17) {
        let (value, blocks) = proved(&world, &served, &did, path).await;
        assert_eq!(value, Some(*cid), "{path}");
        assert!(
            blocks < 30,
            "a proof and not the repository: {blocks} blocks"
        );
        let beside = format!("{path}x");
        let (value, _) = proved(&world, &served, &did, &beside).await;
        assert_eq!(value, None, "{beside}");
    }
    let (value, _) = proved(&world, &served, &did, "com.example.never/a").await;
    assert_eq!(value, None);
    assert_eq!(world.metrics().trees_built.get(), 1);
    // A new commit has a tree of its own, and that of the old one is let go of.
    world.post(&did);
    world.until_complete(&did).await;
    let path = world.some_path(&did);
    proved(&world, &served, &did, &path).await;
    assert_eq!(world.metrics().trees_built.get(), 2);
    let serving = world.serving();
    assert_eq!(serving.trees().len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_found_by_their_names() {
    let (mut world, served) = mirrored(small(2)).await;
    let did = world.did(0);
    let car = served.good("sync.getRepo", &[("did", did.as_str())]).await;
    // Paths may share a record: then the CAR of the repository repeats it.
    let mut all: Vec<(Cid, Vec<u8>)> = Vec::new();
    for block in blocks_of(&car.body) {
        if !all.contains(&block) {
            all.push(block);
        }
    }
    let named: Vec<String> = all.iter().map(|(cid, _)| cid.to_string()).collect();
    let mut query = vec![("did", did.as_str())];
    query.extend(named.iter().map(|cid| ("cids", cid.as_str())));
    // One of them twice.
    query.push(("cids", named[0].as_str()));
    let got = served.good("sync.getBlocks", &query).await;
    assert!(blocks_of(&got.body) == all, "commit, nodes and records");
    let read = gapless_atp::car::read_blocks(&got.body).expect("a CAR");
    assert!(read.roots().is_empty());
    let other = Cid::dag_cbor(b"nobody has it").to_string();
    let words = served
        .bad(
            "sync.getBlocks",
            &[("did", did.as_str()), ("cids", &named[0]), ("cids", &other)],
            "BlockNotFound",
        )
        .await;
    assert!(
        words.contains(&other) && !words.contains(&named[0]),
        "{words}"
    );
    // Of another account it is not there.
    let another = world.did(1);
    let query = [("did", another.as_str()), ("cids", named[0].as_str())];
    served.bad("sync.getBlocks", &query, "BlockNotFound").await;
    let many: Vec<(&str, &str)> = std::iter::once(("did", did.as_str()))
        .chain((0..257).map(|_| ("cids", named[0].as_str())))
        .collect();
    let words = served.bad("sync.getBlocks", &many, "InvalidRequest").await;
    assert!(words.contains("256"), "{words}");
    world.stop().await;
}
