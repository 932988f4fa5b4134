//! Builds a tree from sorted keys, in one pass.
//!
//! One node per level is open at a time. A node closes when a key of a higher level
//! arrives, and its bytes go to the sink at once, children before parents. Memory does
//! not grow with the number of keys.

use super::node::{common_prefix, key_height};
use crate::cbor::Writer;
use crate::cid::Cid;
use crate::limits;

/// `{e: [], l: null}`: the tree of a repository without records.
pub(super) const EMPTY_NODE: [u8; 7] = [0xa2, 0x61, b'e', 0x80, 0x61, b'l', 0xf6];

/// Why keys do not form a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("keys are not in rising order: '{}' does not come after the previous key", show(.0))]
    Order(Vec<u8>),
    #[error("a key has {0} bytes (1 to {limit} are allowed)", limit = limits::KEY_BYTES)]
    KeyLength(usize),
    #[error("key '{}' needs a tree of more than {} levels", show(.0), limits::TREE_HEIGHT)]
    TooHigh(Vec<u8>),
    #[error("a node would have more than {} entries", limits::NODE_ENTRIES)]
    Entries,
}

fn show(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(80)]).into_owned()
}

/// A finished node, as the sink receives it.
pub struct ClosedNode<'a> {
    pub cid: Cid,
    pub block: &'a [u8],
    pub height: u32,
    /// The keys between which the node lies, both exclusive; `None` at an edge of the
    /// tree.
    pub above: Option<&'a [u8]>,
    pub below: Option<&'a [u8]>,
}

/// The open node of one level.
#[derive(Default)]
struct Level {
    left: Option<Cid>,
    entries: usize,
    /// All entries without the tail of the last one, whose right subtree is not known
    /// yet.
    body: Vec<u8>,
    last_key: Vec<u8>,
    last_value: Option<Cid>,
    last_right: Option<Cid>,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.entries == 0 && self.left.is_none()
    }

    /// Links a finished subtree at the right end.
    fn attach(&mut self, child: Cid) {
        let place = match self.entries {
            0 => &mut self.left,
            _ => &mut self.last_right,
        };
        assert!(place.is_none(), "two subtrees in one place");
        *place = Some(child);
    }

    fn end_entry(&mut self) {
        let Some(value) = self.last_value.take() else {
            return;
        };
        let mut writer = Writer::with(std::mem::take(&mut self.body));
        writer.text("t").cid_or_null(self.last_right.as_ref());
        writer.text("v").cid(&value);
        self.last_right = None;
        self.body = writer.into_bytes();
    }

    fn push(&mut self, key: &[u8], value: Cid) {
        let shared = match self.entries {
            0 => 0,
            _ => common_prefix(&self.last_key, key),
        };
        self.end_entry();
        let mut writer = Writer::with(std::mem::take(&mut self.body));
        writer.map(4).text("k").bytes(&key[shared..]);
        writer.text("p").uint(shared as u64);
        self.body = writer.into_bytes();
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last_value = Some(value);
        self.entries += 1;
    }

    /// Writes the whole node into `block` and empties the level.
    fn close(&mut self, block: &mut Vec<u8>) -> Cid {
        self.end_entry();
        block.clear();
        let mut writer = Writer::with(std::mem::take(block));
        writer.map(2).text("e").array(self.entries);
        writer.verbatim(&self.body).text("l");
        writer.cid_or_null(self.left.as_ref());
        *block = writer.into_bytes();
        self.left = None;
        self.entries = 0;
        self.body.clear();
        Cid::dag_cbor(block)
    }
}

/// Takes keys in rising order and passes finished nodes to a sink.
pub struct Builder<S: FnMut(ClosedNode<'_>)> {
    levels: Vec<Level>,
    last_key: Vec<u8>,
    keys: u64,
    block: Vec<u8>,
    sink: S,
}

impl<S: FnMut(ClosedNode<'_>)> Builder<S> {
    pub fn new(sink: S) -> Builder<S> {
        Builder {
            levels: Vec::new(),
            last_key: Vec::new(),
            keys: 0,
            block: Vec::new(),
            sink,
        }
    }

    pub fn push(&mut self, key: &[u8], value: Cid) -> Result<(), BuildError> {
        self.push_at(key, key_height(key), value)
    }

    /// Adds a key whose [`key_height`] is already known. A wrong height gives another
    /// root.
    pub(crate) fn push_at(
        &mut self,
        key: &[u8],
        height: u32,
        value: Cid,
    ) -> Result<(), BuildError> {
        if key.is_empty() || key.len() > limits::KEY_BYTES {
            return Err(BuildError::KeyLength(key.len()));
        }
        if self.keys > 0 && key <= self.last_key.as_slice() {
            return Err(BuildError::Order(key.to_vec()));
        }
        if height > limits::TREE_HEIGHT {
            return Err(BuildError::TooHigh(key.to_vec()));
        }
        let height = height as usize;
        while self.levels.len() <= height {
            self.levels.push(Level::default());
        }
        self.close_below(height, Some(key));
        let level = &mut self.levels[height];
        if level.entries == limits::NODE_ENTRIES {
            return Err(BuildError::Entries);
        }
        level.push(key, value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.keys += 1;
        Ok(())
    }

    fn close_below(&mut self, height: usize, next: Option<&[u8]>) {
        for at in 0..height {
            if !self.levels[at].is_empty() {
                let cid = self.close_level(at, next);
                self.levels[at + 1].attach(cid);
            }
        }
    }

    fn close_level(&mut self, at: usize, next: Option<&[u8]>) -> Cid {
        let (lower, higher) = self.levels.split_at_mut(at + 1);
        let cid = lower[at].close(&mut self.block);
        // Keys only rise, so the greatest key of the levels above is the last key before
        // this node began.
        let above = higher
            .iter()
            .filter(|level| level.entries > 0)
            .map(|level| level.last_key.as_slice())
            .max();
        (self.sink)(ClosedNode {
            cid,
            block: &self.block,
            height: at as u32,
            above,
            below: next,
        });
        cid
    }

    /// Closes every open node and returns the root.
    pub fn finish(mut self) -> Cid {
        let Some(top) = self.levels.len().checked_sub(1) else {
            let cid = Cid::dag_cbor(&EMPTY_NODE);
            (self.sink)(ClosedNode {
                cid,
                block: &EMPTY_NODE,
                height: 0,
                above: None,
                below: None,
            });
            return cid;
        };
        // A level is only added for a key, so the top one has entries.
        self.close_below(top, None);
        self.close_level(top, None)
    }
}

/// The root of the tree with these keys, which must be in rising order.
pub fn root<'k>(keys: impl IntoIterator<Item = (&'k [u8], Cid)>) -> Result<Cid, BuildError> {
    let mut builder = Builder::new(|_| ());
    for (key, value) in keys {
        builder.push(key, value)?;
    }
    Ok(builder.finish())
}

/// Nodes with their CIDs, in the order in which they were built.
pub type Proof = Vec<(Cid, Vec<u8>)>;

/// The root, and the nodes that prove the presence or absence of `key`, from one pass
/// over all keys. The proof begins with the lowest node.
pub fn record_proof<'k>(
    keys: impl IntoIterator<Item = (&'k [u8], Cid)>,
    key: &[u8],
) -> Result<(Cid, Proof), BuildError> {
    let mut proof = Vec::new();
    let mut builder = Builder::new(|node: ClosedNode<'_>| {
        if node.above.is_none_or(|above| above < key) && node.below.is_none_or(|below| key < below)
        {
            proof.push((node.cid, node.block.to_vec()));
        }
    });
    for (key, value) in keys {
        builder.push(key, value)?;
    }
    let root = builder.finish();
    Ok((root, proof))
}
