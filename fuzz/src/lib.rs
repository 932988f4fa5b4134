//! Helpers that the fuzz targets share: keys of known heights, trees, blocks.
//!
//! A fuzzer cannot find keys of a given height or bytes that hash to a CID, so the
//! targets build keys and blocks from the fuzzer's choices instead of reading them from
//! its bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use gapless_atp::cbor::Writer;
use gapless_atp::cid::Cid;
use gapless_atp::mst::{
    Blocks, Builder, Change, ClosedNode, Op, OpAction, SourceError, TreeError, Visit,
    common_prefix, diff, key_height, walk,
};

pub type Keys = BTreeMap<String, Cid>;

/// A source of blocks in memory.
#[derive(Clone, Default, Debug)]
pub struct Store(pub BTreeMap<Cid, Vec<u8>>);

impl Blocks for Store {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(self.0.get(cid).map(|block| Cow::Borrowed(block.as_slice())))
    }
}

impl Store {
    /// Keeps a block under its CID.
    pub fn put(&mut self, block: Vec<u8>) -> Cid {
        let cid = Cid::dag_cbor(&block);
        self.0.insert(cid, block);
        cid
    }
}

/// The heights of the keys to choose from, in key order.
const HEIGHTS: [u32; 32] = [
    0, 0, 1, 0, 0, 2, 0, 1, 0, 0, 3, 0, 1, 0, 0, 2, 0, 0, 1, 0, 0, 4, 0, 1, 0, 0, 2, 0, 1, 0, 0, 5,
];

/// Paths in rising order, of all heights up to five.
pub fn pool() -> &'static [String] {
    static POOL: OnceLock<Vec<String>> = OnceLock::new();
    POOL.get_or_init(|| HEIGHTS.iter().enumerate().map(mine).collect())
}

fn mine((at, height): (usize, &u32)) -> String {
    let mut number = 0u64;
    loop {
        let path = format!("com.example.k{at:02}/{number}");
        if key_height(path.as_bytes()) == *height {
            return path;
        }
        number += 1;
    }
}

/// The path that a byte chooses.
pub fn path(choice: u8) -> &'static str {
    &pool()[usize::from(choice) % HEIGHTS.len()]
}

/// A record whose contents depend on `number`.
pub fn record(number: u8) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.map(1).text("n").uint(number.into());
    writer.into_bytes()
}

pub fn value(number: u8) -> Cid {
    Cid::dag_cbor(&record(number))
}

/// The root and all nodes of the tree with these keys.
pub fn build(keys: &Keys) -> (Cid, Store) {
    let mut store = Store::default();
    let mut builder = Builder::new(|node: ClosedNode<'_>| {
        store.0.insert(node.cid, node.block.to_vec());
    });
    for (key, cid) in keys {
        builder.push(key.as_bytes(), *cid).expect("rising keys");
    }
    let root = builder.finish();
    (root, store)
}

/// The operations that lead from one set of keys to another.
pub fn ops_between<'k>(before: &'k Keys, after: &'k Keys) -> Vec<Op<'k>> {
    let held = before.iter().map(|(key, cid)| (key.as_str(), *cid));
    let wanted = after.iter().map(|(key, cid)| (key.as_str(), *cid));
    let changes = diff(held, wanted).map(|change| match change {
        Change::Create { key, cid } => (key, OpAction::Create { cid }),
        Change::Update { key, cid, prev } => (key, OpAction::Update { cid, prev }),
        Change::Delete { key, prev } => (key, OpAction::Delete { prev }),
    });
    changes.map(|(path, action)| Op { path, action }).collect()
}

/// The keys of a whole tree; an error if the tree is not canonical.
pub fn walked(root: Cid, source: &dyn Blocks) -> Result<BTreeMap<Vec<u8>, Cid>, TreeError> {
    let mut keys = BTreeMap::new();
    walk::<TreeError>(root, source, |met| {
        if let Visit::Key { key, value, .. } = met {
            keys.insert(key.to_vec(), value);
        }
        Ok(())
    })?;
    Ok(keys)
}

/// An entry of a node that the fuzzer invents.
pub struct Entry<'a> {
    pub key: &'a str,
    pub value: Cid,
    pub right: Option<Cid>,
}

/// A node with correct prefixes. Whether its keys belong in it is not checked.
pub fn node(left: Option<Cid>, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.map(2).text("e").array(entries.len());
    let mut before = "";
    for entry in entries {
        let shared = common_prefix(before.as_bytes(), entry.key.as_bytes());
        writer
            .map(4)
            .text("k")
            .bytes(&entry.key.as_bytes()[shared..]);
        writer.text("p").uint(shared as u64);
        writer.text("t").cid_or_null(entry.right.as_ref());
        writer.text("v").cid(&entry.value);
        before = entry.key;
    }
    writer.text("l").cid_or_null(left.as_ref());
    writer.into_bytes()
}

/// A tree of any shape, as a list of choices. Each node may link to nodes made before it.
#[derive(arbitrary::Arbitrary, Debug)]
pub struct Shape {
    pub nodes: Vec<(u8, Vec<(u8, u8)>)>,
}

impl Shape {
    /// Puts the nodes into a store; the last one is the top. Returns its CID and the keys
    /// that can be reached from it, at whatever place.
    pub fn plant(&self, store: &mut Store) -> Option<(Cid, Keys)> {
        let mut made: Vec<(Cid, Keys)> = Vec::new();
        for (left, entries) in self.nodes.iter().take(24) {
            let mut keys = Keys::new();
            let mut link = |choice: u8| {
                let back = usize::from(choice);
                let at = made.len().checked_sub(back).filter(|_| back > 0)?;
                keys.extend(made[at].1.clone());
                Some(made[at].0)
            };
            let left = link(*left);
            let chosen = entries.iter().take(8);
            let chosen = chosen.map(|(key, right)| (*key % HEIGHTS.len() as u8, *right));
            let chosen: BTreeMap<u8, u8> = chosen.collect();
            let mut entries = Vec::new();
            for (key, right) in chosen {
                let right = link(right);
                let (key, value) = (path(key), value(key));
                entries.push(Entry { key, value, right });
            }
            let own = entries.iter().map(|e| (e.key.to_owned(), e.value));
            keys.extend(own);
            made.push((store.put(node(left, &entries)), keys));
        }
        made.pop()
    }
}
