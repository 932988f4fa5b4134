//! Generates realistic repositories and commits from a seed.
//!
//! Collections and their shares follow live traffic: more likes than posts, more posts than
//! reposts, more reposts than follows; record keys from the clock; records of about 300
//! bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use gapless_atp::car::{write_block, write_header};
use gapless_atp::cbor::Writer;
use gapless_atp::cid::Cid;
use gapless_atp::crypto::{Curve, SigningKey};
use gapless_atp::frame::{Action, CommitEvent, RawOp, encode_commit};
use gapless_atp::mst::{Blocks, Builder, ClosedNode, SourceError, Tree};
use gapless_atp::repo::{Commit, Export};
use gapless_atp::syntax::Rev;

/// The time at which the corpus was written, in microseconds.
pub(crate) const NOW: u64 = 1_770_000_000_000_000;
const DID: &str = "did:plc:mvofzoyq6ihmq2dlv5tkcnxj";

/// A small random generator with equal results on every machine (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

#[derive(Default)]
struct Nodes(HashMap<Cid, Vec<u8>>);

impl Blocks for Nodes {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(self.0.get(cid).map(|block| Cow::Borrowed(block.as_slice())))
    }
}

/// One repository, which can make commits.
pub(crate) struct Repo {
    pub key: SigningKey,
    pub records: BTreeMap<String, (Cid, Vec<u8>)>,
    pub data: Cid,
    pub rev: Rev,
    nodes: Nodes,
    random: Random,
    clock: u64,
}

/// The frame of a commit, and the head before it.
pub(crate) struct LiveCommit {
    pub frame: Vec<u8>,
    pub before: gapless_atp::verify::Held,
}

impl Repo {
    pub(crate) fn new(records: usize) -> Repo {
        let key = SigningKey::from_seed(Curve::K256, &[42; 32]).expect("a seed in range");
        let mut repo = Repo {
            key,
            records: BTreeMap::new(),
            data: gapless_atp::mst::empty_root(),
            rev: Rev::from_micros(NOW - 1_000_000, 0),
            nodes: Nodes::default(),
            random: Random(records as u64),
            clock: NOW - 200_000_000_000_000,
        };
        while repo.records.len() < records {
            let (path, record) = repo.new_record();
            repo.records.insert(path, (Cid::dag_cbor(&record), record));
        }
        let mut nodes = Nodes::default();
        let mut builder = Builder::new(|node: ClosedNode<'_>| {
            nodes.0.insert(node.cid, node.block.to_vec());
        });
        for (path, (cid, _)) in &repo.records {
            builder.push(path.as_bytes(), *cid).expect("sorted keys");
        }
        repo.data = builder.finish();
        repo.nodes = nodes;
        repo
    }

    fn new_record(&mut self) -> (String, Vec<u8>) {
        let collection = match self.random.below(100) {
            0..55 => "app.bsky.feed.like",
            55..80 => "app.bsky.feed.post",
            80..92 => "app.bsky.feed.repost",
            _ => "app.bsky.graph.follow",
        };
        self.clock += 1 + self.random.below(3_000_000_000);
        let key = Rev::from_micros(self.clock, 11);
        let length = 40 + self.random.below(320) as usize;
        let text: String = (0..length)
            .map(|_| char::from(b'a' + self.random.below(26) as u8))
            .collect();
        let mut writer = Writer::new();
        writer.map(3).text("text").text(&text);
        writer.text("$type").text(collection);
        writer.text("createdAt").text("2026-02-01T12:34:56.789Z");
        (format!("{collection}/{key}"), writer.into_bytes())
    }

    fn some_path(&mut self) -> String {
        let at = self.random.below(self.records.len() as u64) as usize;
        match self.records.keys().nth(at) {
            Some(path) => path.clone(),
            None => unreachable!("the index is below the length"),
        }
    }

    fn sign(&self) -> Vec<u8> {
        let unsigned = Commit::unsigned(DID, self.rev, &self.data, None);
        let signature = self.key.sign(&unsigned);
        Commit::encode(DID, self.rev, &signature, &self.data, None)
    }

    /// Makes one commit of one operation: mostly creates, some deletes, a few
    /// updates.
    pub(crate) fn commit(&mut self) -> LiveCommit {
        let before = gapless_atp::verify::Held {
            rev: self.rev,
            data: self.data,
            commit: Cid::dag_cbor(&self.sign()),
        };
        let (action, path, record) = match self.random.below(100) {
            0..86 => {
                let (path, record) = self.new_record();
                (Action::Create, path, Some(record))
            }
            86..96 => (Action::Delete, self.some_path(), None),
            _ => {
                let path = self.some_path();
                (Action::Update, path, Some(self.new_record().1))
            }
        };
        let cid = record.as_ref().map(|record| Cid::dag_cbor(record));
        let prev = self.records.get(&path).map(|(cid, _)| *cid);
        let mut tree = Tree::open(self.data, &self.nodes);
        let applied = match (action, cid) {
            (Action::Create, Some(cid)) => tree.insert(path.as_bytes(), cid),
            (Action::Update, Some(cid)) => tree.update(path.as_bytes(), cid).map(drop),
            _ => tree.remove(path.as_bytes()).map(drop),
        };
        applied.expect("the whole tree is there");
        let mut new_nodes = Vec::new();
        self.data = tree.finish(&mut |cid, block| new_nodes.push((*cid, block.to_vec())));
        self.nodes.0.extend(new_nodes);
        let mut tree = Tree::open(self.data, &self.nodes);
        tree.cover(path.as_bytes())
            .expect("the whole tree is there");
        let proof: Vec<Cid> = tree.untouched().collect();
        match (cid, &record) {
            (Some(cid), Some(record)) => {
                self.records.insert(path.clone(), (cid, record.clone()));
            }
            _ => {
                self.records.remove(&path);
            }
        }
        self.rev = Rev::from_bits(self.rev.to_bits() + (1 << 10));

        let block = self.sign();
        let commit = Cid::dag_cbor(&block);
        let mut car = Vec::new();
        write_header(&mut car, &[commit]);
        write_block(&mut car, &commit, &block);
        for node in &proof {
            write_block(&mut car, node, &self.nodes.0[node]);
        }
        if let (Some(cid), Some(record)) = (&cid, &record) {
            write_block(&mut car, cid, record);
        }
        let op = RawOp {
            action,
            path: &path,
            cid,
            prev,
        };
        let frame = encode_commit(&CommitEvent {
            seq: 1,
            repo: DID,
            time: "2026-02-01T12:34:56.789Z",
            rev: &self.rev.to_string(),
            since: Some(&before.rev.to_string()),
            commit: Some(commit),
            blocks: &car,
            ops: vec![op],
            too_big: false,
            prev_data: Some(before.data),
        });
        LiveCommit { frame, before }
    }

    /// The whole repository as a CAR.
    pub(crate) fn car(&self) -> Vec<u8> {
        let block = self.sign();
        let keys = self.records.iter();
        let keys = keys.map(|(path, (cid, _))| (path.as_bytes(), *cid));
        let export = Export::plan(&block, keys).expect("its own keys");
        let mut car = Vec::new();
        let mut records = self.records.values();
        export
            .write(
                |_, _| records.next().map(|(_, record)| record.as_slice()),
                &mut |bytes| car.extend_from_slice(bytes),
            )
            .expect("its own records");
        car
    }
}
