//! Builds small trees, repositories and commits for the tests of this crate.
#![allow(dead_code)] // each test file uses its own part

pub(crate) mod example;
pub(crate) mod raw;
pub(crate) mod values;

use std::borrow::Cow;
use std::collections::BTreeMap;

use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::crypto::{Curve, SigningKey};
use gapless_atp::frame::{Action, CommitEvent, RawOp};
use gapless_atp::mst::{
    Blocks, Builder, Change, ClosedNode, Op, OpAction, SourceError, Tree, apply, diff,
};
use gapless_atp::repo::Commit;
use gapless_atp::syntax::Rev;

/// Blocks in memory.
#[derive(Clone, Default, Debug)]
pub(crate) struct Store(pub BTreeMap<Cid, Vec<u8>>);

impl Blocks for Store {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(self.0.get(cid).map(|block| Cow::Borrowed(block.as_slice())))
    }
}

pub(crate) type Keys = BTreeMap<String, Cid>;

/// All nodes of the tree with these keys, and its root.
pub(crate) fn build(keys: &Keys) -> (Cid, Store) {
    let mut store = Store::default();
    let mut builder = Builder::new(|node: ClosedNode<'_>| {
        store.0.insert(node.cid, node.block.to_vec());
    });
    for (key, cid) in keys {
        builder.push(key.as_bytes(), *cid).unwrap();
    }
    let root = builder.finish();
    (root, store)
}

/// The operations that lead from one key set to another.
pub(crate) fn ops_between<'k>(before: &'k Keys, after: &'k Keys) -> Vec<Op<'k>> {
    let held = before.iter().map(|(key, cid)| (key.as_str(), *cid));
    let wanted = after.iter().map(|(key, cid)| (key.as_str(), *cid));
    diff(held, wanted)
        .map(|change| match change {
            Change::Create { key, cid } => (key, OpAction::Create { cid }),
            Change::Update { key, cid, prev } => (key, OpAction::Update { cid, prev }),
            Change::Delete { key, prev } => (key, OpAction::Delete { prev }),
        })
        .map(|(path, action)| Op { path, action })
        .collect()
}

/// The nodes that a reference producer sends with a commit: for every
/// operation, the way to its path in the new tree and both neighbours.
pub(crate) fn covering(root: Cid, store: &Store, ops: &[Op<'_>]) -> Store {
    let mut tree = Tree::open(root, store);
    for op in ops {
        tree.cover(op.path.as_bytes()).unwrap();
    }
    let cids: Vec<Cid> = tree.untouched().collect();
    Store(
        cids.iter()
            .map(|cid| (*cid, store.0[cid].clone()))
            .collect(),
    )
}

/// A record body that differs with its number.
pub(crate) fn record(number: u64) -> Vec<u8> {
    let mut writer = gapless_atp::cbor::Writer::new();
    writer.map(2).text("n").uint(number);
    writer.text("$type").text("app.bsky.feed.post");
    writer.into_bytes()
}

/// One account that can write commits.
pub(crate) struct Author {
    pub did: String,
    pub key: SigningKey,
    pub clock: u64,
    pub records: BTreeMap<String, Vec<u8>>,
    pub head: Option<Head>,
}

#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub rev: Rev,
    pub data: Cid,
    pub commit: Cid,
    pub block: Vec<u8>,
}

/// A commit event that owns its bytes.
#[derive(Clone)]
pub(crate) struct OwnedCommit {
    pub repo: String,
    pub rev: String,
    pub since: Option<String>,
    pub commit: Cid,
    pub ops: Vec<(Action, String, Option<Cid>, Option<Cid>)>,
    pub blocks: Vec<(Cid, Vec<u8>)>,
    pub prev_data: Option<Cid>,
}

pub(crate) const NOW: u64 = 1_770_000_000_000_000;

impl Author {
    pub(crate) fn new(curve: Curve) -> Author {
        Author {
            did: "did:plc:abcdefghijklmnopqrstuvwx".to_owned(),
            key: SigningKey::from_seed(curve, &[7; 32]).unwrap(),
            clock: NOW - 1_000_000_000,
            records: BTreeMap::new(),
            head: None,
        }
    }

    pub(crate) fn keys(&self) -> Keys {
        let keys = self.records.iter();
        keys.map(|(path, bytes)| (path.clone(), Cid::dag_cbor(bytes)))
            .collect()
    }

    pub(crate) fn sign(&self, rev: Rev, data: &Cid) -> Vec<u8> {
        let unsigned = Commit::unsigned(&self.did, rev, data, None);
        Commit::encode(&self.did, rev, &self.key.sign(&unsigned), data, None)
    }

    /// Writes (path, Some(bytes)) or deletes (path, None).
    pub(crate) fn commit(&mut self, writes: &[(&str, Option<Vec<u8>>)]) -> OwnedCommit {
        let before = self.keys();
        for (path, bytes) in writes {
            match bytes {
                Some(bytes) => self.records.insert((*path).to_owned(), bytes.clone()),
                None => self.records.remove(*path),
            };
        }
        let after = self.keys();
        let ops = ops_between(&before, &after);
        let (_, old_store) = build(&before);
        let (root, store) = build(&after);
        let mut nodes = covering(root, &store, &ops);
        let forward = apply(
            self.head
                .as_ref()
                .map_or_else(gapless_atp::mst::empty_root, |head| head.data),
            &ops,
            &old_store,
            &mut |cid, block| drop(nodes.0.insert(*cid, block.to_vec())),
        );
        assert_eq!(forward, Ok(root), "forward apply and build agree");

        self.clock += 1_000_000;
        let rev = Rev::from_micros(self.clock, 3);
        let block = self.sign(rev, &root);
        let commit = Cid::dag_cbor(&block);
        let mut blocks = vec![(commit, block.clone())];
        blocks.extend(nodes.0);
        for op in &ops {
            if let Some(cid) = op.action.cid() {
                blocks.push((*cid, self.records[op.path].clone()));
            }
        }
        let event = OwnedCommit {
            repo: self.did.clone(),
            rev: rev.to_string(),
            since: self.head.as_ref().map(|head| head.rev.to_string()),
            commit,
            ops: ops.iter().map(owned_op).collect(),
            blocks,
            prev_data: self.head.as_ref().map(|head| head.data),
        };
        let data = root;
        self.head = Some(Head {
            rev,
            data,
            commit,
            block,
        });
        event
    }
}

fn owned_op(op: &Op<'_>) -> (Action, String, Option<Cid>, Option<Cid>) {
    let path = op.path.to_owned();
    match op.action {
        OpAction::Create { cid } => (Action::Create, path, Some(cid), None),
        OpAction::Update { cid, prev } => (Action::Update, path, Some(cid), Some(prev)),
        OpAction::Delete { prev } => (Action::Delete, path, None, Some(prev)),
    }
}

/// Puts blocks into a CAR with one root.
pub(crate) fn car(root: Cid, blocks: &[(Cid, Vec<u8>)]) -> Vec<u8> {
    let mut car = Vec::new();
    write_header(&mut car, &[root]);
    for (cid, block) in blocks {
        write_block(&mut car, cid, block);
    }
    car
}

impl OwnedCommit {
    pub(crate) fn car(&self) -> Vec<u8> {
        car(self.commit, &self.blocks)
    }

    pub(crate) fn event<'a>(&'a self, car: &'a [u8]) -> CommitEvent<'a> {
        CommitEvent {
            seq: 1,
            repo: &self.repo,
            time: "2026-02-01T00:00:00.000Z",
            rev: &self.rev,
            since: self.since.as_deref(),
            commit: Some(self.commit),
            blocks: car,
            ops: self
                .ops
                .iter()
                .map(|(action, path, cid, prev)| RawOp {
                    action: *action,
                    path,
                    cid: *cid,
                    prev: *prev,
                })
                .collect(),
            too_big: false,
            prev_data: self.prev_data,
        }
    }
}
