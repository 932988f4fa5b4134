//! A partial tree, of which only some nodes are available.
//!
//! Nodes are read from a [`Blocks`] source when an operation first needs them; the others
//! stay links. An operation that needs a node which the source does not have fails with
//! [`TreeError::Missing`], which does not say whether the tree is right. Unchanged nodes
//! keep their CID and are never encoded again.
//!
//! After an error the tree may be partly changed: open a new one.
//!
//! Depth, and with it recursion, is bounded by [`limits::TREE_HEIGHT`].

use std::borrow::Cow;
use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::build::EMPTY_NODE;
use super::node::{self, Entry, NodeError, Span, common_prefix, key_height};
use crate::cbor::Writer;
use crate::cid::Cid;
use crate::limits;

/// A source of nodes. An implementation vouches that each block hashes to its CID.
pub trait Blocks {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError>;
}

/// A source failed, for example with a disk error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read block: {0}")]
pub struct SourceError(pub String);

/// Why an operation on a tree failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    #[error("node {0} is needed but missing")]
    Missing(Cid),
    #[error("node {cid}: {error}")]
    Malformed { cid: Cid, error: NodeError },
    #[error("key already exists")]
    Exists,
    #[error("key does not exist")]
    NotFound,
    #[error("key has {0} bytes (1 to {limit} are allowed)", limit = limits::KEY_BYTES)]
    KeyLength(usize),
    #[error("key needs a tree of more than {} levels", limits::TREE_HEIGHT)]
    TooHigh,
    #[error("keys of the tree have more than {} bytes", limits::TREE_KEY_BYTES)]
    KeyBytes,
    #[error("a node would have more than {} entries", limits::NODE_ENTRIES)]
    Entries,
    #[error("a subtree next to the key holds keys that belong on the other side of it")]
    Side,
    #[error(transparent)]
    Source(#[from] SourceError),
}

type NodeId = usize;

#[derive(Debug, Clone, Copy)]
enum Child {
    None,
    Stub(Cid),
    Loaded(NodeId),
}

impl From<Option<Cid>> for Child {
    fn from(link: Option<Cid>) -> Child {
        link.map_or(Child::None, Child::Stub)
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    key: Span,
    value: Cid,
    right: Child,
}

#[derive(Debug)]
struct Node {
    /// The CID under which the node was read; `None` once it is changed.
    cid: Option<Cid>,
    height: u32,
    left: Child,
    slots: Vec<Slot>,
}

impl Node {
    /// The child in gap `at`: to the left of slot `at` and to the right of the slot
    /// before it.
    fn gap(&self, at: usize) -> Child {
        match at.checked_sub(1) {
            None => self.left,
            Some(before) => self.slots[before].right,
        }
    }

    fn set_gap(&mut self, at: usize, child: Child) {
        match at.checked_sub(1) {
            None => self.left = child,
            Some(before) => self.slots[before].right = child,
        }
    }

    fn is_void(&self) -> bool {
        self.slots.is_empty() && matches!(self.left, Child::None)
    }
}

/// A partial tree over a source of nodes.
pub struct Tree<'s> {
    source: &'s dyn Blocks,
    nodes: Vec<Node>,
    keys: Vec<u8>,
    /// Every node that was read. A canonical tree links no node twice; a node that is
    /// linked twice would be read again through every link.
    read: HashSet<Cid, RandomState>,
    root: Child,
    scratch: Vec<Entry>,
}

impl<'s> Tree<'s> {
    /// Opens the tree with the root `root`. Nothing is read yet.
    pub fn open(root: Cid, source: &'s dyn Blocks) -> Tree<'s> {
        let root = if root == super::empty_root() {
            Child::None
        } else {
            Child::Stub(root)
        };
        Tree {
            source,
            nodes: Vec::new(),
            keys: Vec::new(),
            read: HashSet::default(),
            root,
            scratch: Vec::new(),
        }
    }

    /// The value of a key, or `None` if the key is provably not in the tree.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Cid>, TreeError> {
        let key_height = checked_height(key)?;
        let Some(mut id) = self.load_root()? else {
            return Ok(None);
        };
        loop {
            match self.locate(id, key) {
                Ok(at) => return Ok(Some(self.nodes[id].slots[at].value)),
                Err(_) if self.nodes[id].height <= key_height => return Ok(None),
                Err(at) => match self.load_gap(id, at)? {
                    Some(child) => id = child,
                    None => return Ok(None),
                },
            }
        }
    }

    /// Adds a key that is not in the tree.
    pub fn insert(&mut self, key: &[u8], value: Cid) -> Result<(), TreeError> {
        let height = checked_height(key)?;
        let Some(top) = self.load_root()? else {
            self.root = self.single(key, value, height)?;
            return Ok(());
        };
        let top_height = self.nodes[top].height;
        if height > top_height {
            let (left, right) = self.split(Child::Loaded(top), None, key)?;
            let left = self.lift(left, top_height, height - 1);
            let right = self.lift(right, top_height, height - 1);
            let key = self.keep(key)?;
            let slots = vec![Slot { key, value, right }];
            self.root = self.add(height, left, slots);
            return Ok(());
        }
        let mut id = top;
        loop {
            self.nodes[id].cid = None;
            let Err(at) = self.locate(id, key) else {
                return Err(TreeError::Exists);
            };
            let here = self.nodes[id].height;
            if here == height {
                let (left, right) = self.split(self.nodes[id].gap(at), here.checked_sub(1), key)?;
                // A node with more entries could not be read again, so it is not written.
                if self.nodes[id].slots.len() == limits::NODE_ENTRIES {
                    return Err(TreeError::Entries);
                }
                let key = self.keep(key)?;
                self.nodes[id].set_gap(at, left);
                self.nodes[id].slots.insert(at, Slot { key, value, right });
                return Ok(());
            }
            match self.load_gap(id, at)? {
                Some(child) => id = child,
                None => {
                    let single = self.single(key, value, height)?;
                    let lifted = self.lift(single, height, here - 1);
                    self.nodes[id].set_gap(at, lifted);
                    return Ok(());
                }
            }
        }
    }

    /// Changes the value of a key and returns the previous one.
    pub fn update(&mut self, key: &[u8], value: Cid) -> Result<Cid, TreeError> {
        let path = self.path_to(key)?;
        for (id, _) in &path {
            self.nodes[*id].cid = None;
        }
        let (id, at) = path[path.len() - 1];
        Ok(std::mem::replace(
            &mut self.nodes[id].slots[at].value,
            value,
        ))
    }

    /// Removes a key and returns its value. The nodes next to the key on both sides are
    /// read even where joining them would not require it: a subtree on the wrong side of
    /// the key, or at the wrong height below it, would vanish in the join, and a tree
    /// that is not canonical would undo to one that is.
    pub fn remove(&mut self, key: &[u8]) -> Result<Cid, TreeError> {
        let path = self.path_to(key)?;
        for (id, _) in &path {
            self.nodes[*id].cid = None;
        }
        let (id, at) = path[path.len() - 1];
        let low = self.load_edge(id, at, usize::MAX)?;
        let high = self.load_edge(id, at + 1, 0)?;
        if low.is_some_and(|low| low.of(&self.keys) >= key)
            || high.is_some_and(|high| high.of(&self.keys) <= key)
        {
            return Err(TreeError::Side);
        }
        let below = self.nodes[id].height.checked_sub(1);
        let (left, right) = (self.nodes[id].gap(at), self.nodes[id].gap(at + 1));
        let merged = self.merge(left, right, below)?;
        let slot = self.nodes[id].slots.remove(at);
        self.nodes[id].set_gap(at, merged);
        for pair in path.windows(2).rev() {
            let [(parent, gap), (child, _)] = pair else {
                break;
            };
            if !self.nodes[*child].is_void() {
                break;
            }
            self.nodes[*parent].set_gap(*gap, Child::None);
        }
        self.strip_top()?;
        Ok(slot.value)
    }

    /// Reads the nodes that a verifier needs to undo an operation on `key`: the path to
    /// the key, and the nodes next to it on both sides.
    pub fn cover(&mut self, key: &[u8]) -> Result<(), TreeError> {
        let mut next = self.load_root()?;
        while let Some(id) = next {
            match self.locate(id, key) {
                Ok(at) => {
                    self.load_edge(id, at, usize::MAX)?;
                    self.load_edge(id, at + 1, 0)?;
                    return Ok(());
                }
                Err(at) => next = self.load_gap(id, at)?,
            }
        }
        Ok(())
    }

    /// Reads the child in a gap and its outermost descendants on one side (0 or
    /// `usize::MAX`); returns the outermost key.
    fn load_edge(
        &mut self,
        id: NodeId,
        gap: usize,
        side: usize,
    ) -> Result<Option<Span>, TreeError> {
        let mut outermost = None;
        let mut next = self.load_gap(id, gap)?;
        while let Some(id) = next {
            let slots = &self.nodes[id].slots;
            let slot = if side == 0 {
                slots.first()
            } else {
                slots.last()
            };
            // No node is void, so the lowest node of an edge has keys.
            outermost = slot.map(|slot| slot.key);
            next = self.load_gap(id, side.min(slots.len()))?;
        }
        Ok(outermost)
    }

    /// The CIDs of all nodes that were read and not changed.
    pub fn untouched(&self) -> impl Iterator<Item = Cid> {
        self.nodes.iter().filter_map(|node| node.cid)
    }

    /// The root. Every changed node goes to the sink, children first.
    pub fn finish(&mut self, sink: &mut dyn FnMut(&Cid, &[u8])) -> Cid {
        let root = self.root;
        self.encode(root, sink).unwrap_or_else(|| {
            let cid = Cid::dag_cbor(&EMPTY_NODE);
            sink(&cid, &EMPTY_NODE);
            cid
        })
    }

    // --- reading -----------------------------------------------------------

    fn load_root(&mut self) -> Result<Option<NodeId>, TreeError> {
        let root = self.load(self.root, None)?;
        if let Some(id) = root {
            self.root = Child::Loaded(id);
        }
        Ok(root)
    }

    fn load_gap(&mut self, id: NodeId, at: usize) -> Result<Option<NodeId>, TreeError> {
        let below = self.nodes[id].height.checked_sub(1);
        match self.nodes[id].gap(at) {
            Child::None => Ok(None),
            Child::Loaded(child) => Ok(Some(child)),
            stub @ Child::Stub(_) => {
                let child = self.load(stub, below)?;
                if let Some(child) = child {
                    self.nodes[id].set_gap(at, Child::Loaded(child));
                }
                Ok(child)
            }
        }
    }

    fn load(&mut self, child: Child, height: Option<u32>) -> Result<Option<NodeId>, TreeError> {
        let cid = match child {
            Child::None => return Ok(None),
            Child::Loaded(id) => return Ok(Some(id)),
            Child::Stub(cid) => cid,
        };
        let block = self.source.block(&cid)?.ok_or(TreeError::Missing(cid))?;
        let malformed = |error| TreeError::Malformed { cid, error };
        if !self.read.insert(cid) {
            return Err(malformed(NodeError::Twice));
        }
        self.scratch.clear();
        let left = node::decode(&block, &mut self.keys, &mut self.scratch).map_err(malformed)?;
        let height =
            node::check_heights(&self.keys, &self.scratch, left, height).map_err(malformed)?;
        if self.keys.len() > limits::TREE_KEY_BYTES {
            return Err(TreeError::KeyBytes);
        }
        let slots = self.scratch.iter().map(|entry| Slot {
            key: entry.key,
            value: entry.value,
            right: entry.right.into(),
        });
        self.nodes.push(Node {
            cid: Some(cid),
            height,
            left: left.into(),
            slots: slots.collect(),
        });
        Ok(Some(self.nodes.len() - 1))
    }

    /// The slot that holds `key`, or the gap in which it would be.
    fn locate(&self, id: NodeId, key: &[u8]) -> Result<usize, usize> {
        self.nodes[id]
            .slots
            .binary_search_by(|slot| slot.key.of(&self.keys).cmp(key))
    }

    /// The nodes from the top to the one that holds `key`: each with the gap that was
    /// taken, the last with the slot of the key.
    fn path_to(&mut self, key: &[u8]) -> Result<Vec<(NodeId, usize)>, TreeError> {
        let key_height = checked_height(key)?;
        let mut path = Vec::with_capacity(8);
        let mut next = self.load_root()?;
        while let Some(id) = next {
            match self.locate(id, key) {
                Ok(at) => {
                    path.push((id, at));
                    return Ok(path);
                }
                Err(_) if self.nodes[id].height <= key_height => break,
                Err(at) => {
                    path.push((id, at));
                    next = self.load_gap(id, at)?;
                }
            }
        }
        Err(TreeError::NotFound)
    }

    // --- changing ----------------------------------------------------------

    fn add(&mut self, height: u32, left: Child, slots: Vec<Slot>) -> Child {
        self.nodes.push(Node {
            cid: None,
            height,
            left,
            slots,
        });
        Child::Loaded(self.nodes.len() - 1)
    }

    fn keep(&mut self, key: &[u8]) -> Result<Span, TreeError> {
        Span::push(&mut self.keys, key).ok_or(TreeError::KeyBytes)
    }

    fn single(&mut self, key: &[u8], value: Cid, height: u32) -> Result<Child, TreeError> {
        let key = self.keep(key)?;
        let right = Child::None;
        Ok(self.add(height, Child::None, vec![Slot { key, value, right }]))
    }

    /// Wraps a subtree in nodes without keys up to height `to`.
    fn lift(&mut self, mut child: Child, from: u32, to: u32) -> Child {
        if matches!(child, Child::None) {
            return child;
        }
        for height in from + 1..=to {
            child = self.add(height, child, Vec::new());
        }
        child
    }

    /// Splits a subtree at a key that is not in it.
    fn split(
        &mut self,
        child: Child,
        height: Option<u32>,
        key: &[u8],
    ) -> Result<(Child, Child), TreeError> {
        let Some(id) = self.load(child, height)? else {
            return Ok((Child::None, Child::None));
        };
        let Err(at) = self.locate(id, key) else {
            return Err(TreeError::Exists);
        };
        let here = self.nodes[id].height;
        // Store the loaded node in its place, so that no node is read twice: a hostile
        // tree would make the reading expensive.
        self.load_gap(id, at)?;
        let (low, high) = self.split(self.nodes[id].gap(at), here.checked_sub(1), key)?;
        let whole = Child::Loaded(id);
        // If one side is empty, the other takes the node as it is, unchanged.
        if at == 0 && matches!(low, Child::None) {
            return Ok((Child::None, whole));
        }
        if at == self.nodes[id].slots.len() && matches!(high, Child::None) {
            return Ok((whole, Child::None));
        }
        let slots = self.nodes[id].slots.split_off(at);
        self.nodes[id].set_gap(at, low);
        self.nodes[id].cid = None;
        let right = self.add(here, high, slots);
        Ok((whole, right))
    }

    /// Joins two neighbouring subtrees of equal height.
    fn merge(
        &mut self,
        left: Child,
        right: Child,
        height: Option<u32>,
    ) -> Result<Child, TreeError> {
        let (left, right) = match (left, right) {
            (Child::None, other) | (other, Child::None) => return Ok(other),
            both => both,
        };
        let (Some(left), Some(right)) = (self.load(left, height)?, self.load(right, height)?)
        else {
            unreachable!("a child that is not None loads or fails");
        };
        let end = self.nodes[left].slots.len();
        if end + self.nodes[right].slots.len() > limits::NODE_ENTRIES {
            return Err(TreeError::Entries);
        }
        let below = self.nodes[left].height.checked_sub(1);
        let middle = self.merge(self.nodes[left].gap(end), self.nodes[right].left, below)?;
        let mut slots = std::mem::take(&mut self.nodes[right].slots);
        let node = &mut self.nodes[left];
        node.set_gap(end, middle);
        node.slots.append(&mut slots);
        node.cid = None;
        Ok(Child::Loaded(left))
    }

    /// Drops top nodes that have no keys left. The node below each is already loaded,
    /// because it lies on an edge of the removed key.
    fn strip_top(&mut self) -> Result<(), TreeError> {
        while let Child::Loaded(id) = self.root
            && self.nodes[id].slots.is_empty()
        {
            self.load_gap(id, 0)?;
            self.root = self.nodes[id].left;
        }
        Ok(())
    }

    // --- writing -----------------------------------------------------------

    fn encode(&mut self, child: Child, sink: &mut dyn FnMut(&Cid, &[u8])) -> Option<Cid> {
        let id = match child {
            Child::None => return None,
            Child::Stub(cid) => return Some(cid),
            Child::Loaded(id) => id,
        };
        if let Some(cid) = self.nodes[id].cid {
            return Some(cid);
        }
        let left = self.encode(self.nodes[id].left, sink);
        let count = self.nodes[id].slots.len();
        let mut writer = Writer::with(Vec::with_capacity(64 + 128 * count));
        writer.map(2).text("e").array(count);
        let mut previous: Option<Span> = None;
        for at in 0..count {
            let Slot { key, value, right } = self.nodes[id].slots[at];
            let right = self.encode(right, sink);
            let key_bytes = key.of(&self.keys);
            let shared = previous.map_or(0, |span| common_prefix(span.of(&self.keys), key_bytes));
            writer.map(4).text("k").bytes(&key_bytes[shared..]);
            writer.text("p").uint(shared as u64);
            writer.text("t").cid_or_null(right.as_ref());
            writer.text("v").cid(&value);
            previous = Some(key);
        }
        writer.text("l").cid_or_null(left.as_ref());
        let block = writer.into_bytes();
        let cid = Cid::dag_cbor(&block);
        sink(&cid, &block);
        self.nodes[id].cid = Some(cid);
        Some(cid)
    }
}

fn checked_height(key: &[u8]) -> Result<u32, TreeError> {
    if key.is_empty() || key.len() > limits::KEY_BYTES {
        return Err(TreeError::KeyLength(key.len()));
    }
    match key_height(key) {
        height if height > limits::TREE_HEIGHT => Err(TreeError::TooHigh),
        height => Ok(height),
    }
}
