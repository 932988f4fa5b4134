//! A whole tree in memory, as it was built: its nodes in sequence, children before
//! parents.
//!
//! A walk needs nothing but that order: the last child of a node comes directly before
//! the node, and the child before that comes directly before the last child's subtree. So
//! a walk looks up no CID and hashes no key again, but still checks that each link names
//! the node that it leads to. The first lookup by CID builds a map.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use foldhash::fast::RandomState;

use super::build::ClosedNode;
use super::node::{self, Entry};
use super::tree::{Blocks, SourceError, TreeError};
use crate::cid::Cid;

/// Blocks are stored in chunks. Each chunk is twice as large as the one before, up to a
/// bound, so that the many small trees take little memory; a block larger than that has a
/// chunk of its own.
const FIRST_CHUNK_BYTES: usize = 1 << 10;
const CHUNK_BYTES: usize = 256 << 10;
/// The memory that a node takes besides its block: its row, and its entry in the map.
const NODE_BYTES: usize = size_of::<Node>() + size_of::<(Cid, u32)>() + 16;

struct Node {
    cid: Cid,
    chunk: u32,
    start: u32,
    length: u32,
    /// The number of nodes in the subtree, including this one.
    all: u32,
}

/// What a walk through the tree visits: each node before everything below it, each key
/// before the subtree to its right.
pub enum Met<'a> {
    Node { cid: Cid, block: &'a [u8] },
    Key { key: &'a [u8], value: Cid },
}

/// The nodes of one tree.
#[derive(Default)]
pub struct Built {
    chunks: Vec<Vec<u8>>,
    nodes: Vec<Node>,
    /// Height and place of the nodes that have no parent yet.
    orphans: Vec<(u32, u32)>,
    bytes: u64,
    by_cid: OnceLock<HashMap<Cid, u32, RandomState>>,
}

/// A node that is being visited, and where its parts of the stacks begin.
struct Open {
    entries: usize,
    keys: usize,
    children: usize,
    next: usize,
}

#[derive(Default)]
struct Walk {
    open: Vec<Open>,
    entries: Vec<Entry>,
    keys: Vec<u8>,
    /// Children that are still to be visited, the next one last.
    children: Vec<u32>,
}

impl Built {
    /// Adds the next node that a [`super::Builder`] closes. Returns false if the tree has
    /// more or larger nodes than can be numbered.
    pub fn push(&mut self, closed: &ClosedNode<'_>) -> bool {
        let (Ok(place), Ok(length)) = (
            u32::try_from(self.nodes.len()),
            u32::try_from(closed.block.len()),
        ) else {
            return false;
        };
        let mut all = 1;
        while let Some((_, child)) = self.orphans.pop_if(|(height, _)| *height < closed.height) {
            all += self.nodes[child as usize].all;
        }
        self.orphans.push((closed.height, place));
        let room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= closed.block.len();
        if !self.chunks.last().is_some_and(room) {
            let last = self.chunks.last().map_or(0, Vec::capacity);
            let bytes = (2 * last).clamp(FIRST_CHUNK_BYTES, CHUNK_BYTES);
            let bytes = bytes.max(closed.block.len());
            self.chunks.push(Vec::with_capacity(bytes));
            self.bytes += bytes as u64;
        }
        let at = self.chunks.len() - 1;
        let chunk = &mut self.chunks[at];
        self.nodes.push(Node {
            cid: closed.cid,
            chunk: at as u32,
            start: chunk.len() as u32,
            length,
            all,
        });
        chunk.extend_from_slice(closed.block);
        self.bytes += NODE_BYTES as u64;
        true
    }

    /// The approximate memory that the tree takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn block_of(&self, node: &Node) -> &[u8] {
        &self.chunks[node.chunk as usize][node.start as usize..][..node.length as usize]
    }

    /// The block of the node with this CID.
    pub fn node(&self, cid: &Cid) -> Option<&[u8]> {
        let by_cid = self.by_cid.get_or_init(|| {
            let places = 0..self.nodes.len() as u32;
            let cids = self.nodes.iter().map(|node| node.cid);
            cids.zip(places).collect()
        });
        let node = &self.nodes[*by_cid.get(cid)? as usize];
        Some(self.block_of(node))
    }

    /// Visits the whole tree, keys in order.
    pub fn each<E: From<TreeError>>(
        &self,
        mut visit: impl FnMut(Met<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(top) = self.nodes.len().checked_sub(1) else {
            return Ok(());
        };
        let mut walk = Walk::default();
        let mut down = self.open(&mut walk, top as u32, &mut visit)?;
        loop {
            // Open the leftmost nodes first.
            while down && let Some(child) = walk.children.pop() {
                down = self.open(&mut walk, child, &mut visit)?;
            }
            let Some(top) = walk.open.last_mut() else {
                return Ok(());
            };
            let at = top.entries + top.next;
            top.next += 1;
            let Some(entry) = walk.entries.get(at) else {
                let Open { entries, keys, .. } = *top;
                walk.entries.truncate(entries);
                walk.keys.truncate(keys);
                walk.open.pop();
                down = false;
                continue;
            };
            let (key, value) = (entry.key.of(&walk.keys), entry.value);
            visit(Met::Key { key, value })?;
            down = entry.right.is_some() && walk.children.len() > top.children;
        }
    }

    /// Opens a node; returns whether it has a subtree to its left.
    fn open<E: From<TreeError>>(
        &self,
        walk: &mut Walk,
        place: u32,
        visit: &mut impl FnMut(Met<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let node = &self.nodes[place as usize];
        let (cid, block) = (node.cid, self.block_of(node));
        let open = Open {
            entries: walk.entries.len(),
            keys: walk.keys.len(),
            children: walk.children.len(),
            next: 0,
        };
        let left = node::decode(block, &mut walk.keys, &mut walk.entries)
            .map_err(|error| TreeError::Malformed { cid, error })?;
        visit(Met::Node { cid, block })?;
        let rights = walk.entries[open.entries..]
            .iter()
            .rev()
            .filter_map(|entry| entry.right);
        let mut end = place;
        for link in rights.chain(left) {
            let child = end.checked_sub(1).ok_or(TreeError::Missing(link))?;
            let found = &self.nodes[child as usize];
            if found.cid != link {
                return Err(TreeError::Missing(link).into());
            }
            walk.children.push(child);
            end = end.saturating_sub(found.all);
        }
        walk.open.push(open);
        Ok(left.is_some())
    }
}

impl Blocks for Built {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(self.node(cid).map(Cow::Borrowed))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::{Builder, Visit, walk};
    use super::*;

    type Seen = Vec<(Cid, Vec<u8>)>;

    fn built(keys: &BTreeMap<Vec<u8>, Cid>) -> (Cid, Built) {
        let mut built = Built::default();
        let mut builder = Builder::new(|node: ClosedNode<'_>| assert!(built.push(&node)));
        for (key, value) in keys {
            builder.push(key, *value).expect("a key that fits");
        }
        let root = builder.finish();
        (root, built)
    }

    /// What the strict walk sees, by CID, and what ours does.
    fn both(root: Cid, built: &Built) -> (Seen, Seen) {
        let (mut strict, mut ours) = (Vec::new(), Vec::new());
        walk(root, built, |met| {
            strict.push(match met {
                Visit::Node { cid, block, .. } => (cid, block.to_vec()),
                Visit::Key { key, value, .. } => (value, key.to_vec()),
            });
            Ok::<_, TreeError>(())
        })
        .expect("a whole tree");
        built
            .each(|met| {
                ours.push(match met {
                    Met::Node { cid, block } => (cid, block.to_vec()),
                    Met::Key { key, value } => (value, key.to_vec()),
                });
                Ok::<_, TreeError>(())
            })
            .expect("a whole tree");
        (strict, ours)
    }

    #[test]
    fn the_tree_without_keys_is_one_node() {
        let (root, built) = built(&BTreeMap::new());
        let (strict, ours) = both(root, &built);
        assert_eq!((strict.len(), strict), (1, ours));
    }

    #[test]
    fn large_trees_are_walked_as_the_strict_walk_does() {
        let keys = (0..30_000u32).map(|at| {
            let key = format!("app.bsky.feed.post/{:013}", u64::from(at) * 7_919);
            (key.into_bytes(), Cid::dag_cbor(&at.to_be_bytes()))
        });
        let (root, built) = built(&keys.collect());
        assert!(built.chunks.len() > 1, "one chunk shows little");
        let (strict, ours) = both(root, &built);
        assert!(strict == ours);
    }

    #[test]
    fn a_node_that_no_link_names_ends_the_walk() {
        let keys = (0..2_000u32).map(|at| {
            let key = format!("app.bsky.feed.like/{at:08}");
            (key.into_bytes(), Cid::dag_cbor(&at.to_be_bytes()))
        });
        let (_, mut built) = built(&keys.collect());
        built.nodes[3].cid = Cid::dag_cbor(b"another");
        let walked = built.each(|_| Ok::<_, TreeError>(()));
        assert!(matches!(walked, Err(TreeError::Missing(_))), "{walked:?}");
    }

    proptest! {
        #[test]
        fn it_is_walked_as_the_strict_walk_does(
            keys in prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 1..6),
                any::<u32>().prop_map(|value| Cid::dag_cbor(&value.to_be_bytes())),
                0..200,
            ),
        ) {
            let (root, built) = built(&keys);
            let (strict, ours) = both(root, &built);
            prop_assert_eq!(strict, ours);
        }
    }
}
