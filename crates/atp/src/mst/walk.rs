//! Walks a whole tree of blocks in key order and checks every rule.
//!
//! Each node is decoded strictly, and its keys must have its height. Keys must rise over
//! the whole walk; that keeps every subtree between the keys of its parent, and makes a
//! node that is linked twice fail at its first key. Memory is one node per level. There
//! is no recursion.

use std::borrow::Cow;

use super::build::EMPTY_NODE;
use super::node::{self, Entry, NodeError};
use super::tree::{Blocks, TreeError};
use crate::cid::Cid;

/// The size of a tree that was walked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalkStats {
    pub nodes: u64,
    pub keys: u64,
    /// The height of the top node.
    pub height: u32,
}

/// What a walk visits, in pre-order: each node before everything below it, each key
/// before the subtree to its right.
pub enum Visit<'a> {
    /// A node that was decoded. Its heights and its place are checked after this call.
    Node {
        cid: Cid,
        block: &'a [u8],
        values: Values<'a>,
    },
    /// A key. `place` is the place of its value in [`Visit::Node`].
    Key {
        key: &'a [u8],
        value: Cid,
        place: usize,
    },
}

/// The values of a node's entries. Each value has a place that no other value has until
/// the walk leaves the node. A visitor that looks values up should do so here, for all of
/// them at once, and keep the results by place: lookups that do not wait for each other
/// are faster.
pub struct Values<'a> {
    first: usize,
    entries: &'a [Entry],
}

impl Values<'_> {
    /// The place of the first value.
    pub fn first(&self) -> usize {
        self.first
    }

    pub fn iter(&self) -> impl Iterator<Item = &Cid> {
        self.entries.iter().map(|entry| &entry.value)
    }
}

/// A node that is being visited.
struct Open {
    cid: Cid,
    height: u32,
    /// Where the node's parts of the entry and key stacks begin.
    entries_from: usize,
    keys_from: usize,
    next: usize,
}

#[derive(Default)]
struct Walk {
    open: Vec<Open>,
    entries: Vec<Entry>,
    keys: Vec<u8>,
    last_key: Vec<u8>,
    stats: WalkStats,
}

/// Visits every node and every (key, value) pair of the tree `root`, keys in order.
pub fn walk<E: From<TreeError>>(
    root: Cid,
    source: &dyn Blocks,
    mut visit: impl FnMut(Visit<'_>) -> Result<(), E>,
) -> Result<WalkStats, E> {
    if root == super::empty_root() {
        // The one tree whose top node has no keys. Its block must still exist.
        let block = empty_node(root, source)?;
        visit(Visit::Node {
            cid: root,
            block: &block,
            values: Values {
                first: 0,
                entries: &[],
            },
        })?;
        let nodes = 1;
        return Ok(WalkStats {
            nodes,
            ..WalkStats::default()
        });
    }
    let mut walk = Walk::default();
    walk.descend(root, None, source, &mut visit)?;
    while let Some((place, entry, below)) = walk.next_entry()? {
        visit(Visit::Key {
            key: entry.key.of(&walk.keys),
            value: entry.value,
            place,
        })?;
        walk.pass(entry);
        if let Some(right) = entry.right {
            walk.descend(right, below, source, &mut visit)?;
        }
    }
    Ok(walk.stats)
}

/// The keys of a tree in order, for a caller that asks for one at a time. Every rule is
/// checked as in [`walk`]. After an error there are no more keys.
pub struct TreeKeys<S> {
    source: S,
    /// The subtree to descend into before the next key, with the height of its top node.
    below: Option<(Cid, Option<u32>)>,
    walk: Walk,
}

impl<S: Blocks> TreeKeys<S> {
    pub fn new(root: Cid, source: S) -> TreeKeys<S> {
        TreeKeys {
            source,
            below: Some((root, None)),
            walk: Walk::default(),
        }
    }

    /// Returns the next key and its value; `None` after the last key.
    pub fn next_key(&mut self) -> Result<Option<(&[u8], Cid)>, TreeError> {
        let entry = self.next_entry();
        if !matches!(entry, Ok(Some(_))) {
            self.walk.open.clear();
        }
        let value = entry?.map(|entry| entry.value);
        Ok(value.map(|value| (self.walk.last_key.as_slice(), value)))
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, TreeError> {
        if let Some((cid, height)) = self.below.take() {
            if cid == super::empty_root() && self.walk.stats.nodes == 0 {
                empty_node(cid, &self.source)?;
                return Ok(None);
            }
            let mut visit = |_: Visit<'_>| Ok::<_, TreeError>(());
            self.walk.descend(cid, height, &self.source, &mut visit)?;
        }
        let Some((_, entry, below)) = self.walk.next_entry()? else {
            return Ok(None);
        };
        self.walk.pass(entry);
        self.below = entry.right.map(|right| (right, below));
        Ok(Some(entry))
    }
}

/// Reads the one node without keys: the root of a tree without keys.
fn empty_node(root: Cid, source: &dyn Blocks) -> Result<Cow<'_, [u8]>, TreeError> {
    let block = source.block(&root)?;
    let block = block.filter(|block| **block == EMPTY_NODE);
    block.ok_or(TreeError::Missing(root))
}

impl Walk {
    /// Moves to the next entry of the nodes that are open. Returns its place and the height
    /// of the subtree to its right.
    fn next_entry(&mut self) -> Result<Option<(usize, Entry, Option<u32>)>, TreeError> {
        while let Some(top) = self.open.last_mut() {
            let at = top.entries_from + top.next;
            let (cid, below) = (top.cid, top.height.checked_sub(1));
            top.next += 1;
            let Some(entry) = self.entries.get(at).copied() else {
                self.ascend();
                continue;
            };
            let key = entry.key.of(&self.keys);
            if self.stats.keys > 0 && key <= self.last_key.as_slice() {
                let error = NodeError::KeyOrder;
                return Err(TreeError::Malformed { cid, error });
            }
            return Ok(Some((at, entry, below)));
        }
        Ok(None)
    }

    /// Records that the walk has passed an entry.
    fn pass(&mut self, entry: Entry) {
        self.last_key.clear();
        self.last_key.extend_from_slice(entry.key.of(&self.keys));
        self.stats.keys += 1;
    }

    /// Opens a node and its leftmost descendants.
    fn descend<E: From<TreeError>>(
        &mut self,
        cid: Cid,
        mut height: Option<u32>,
        source: &dyn Blocks,
        visit: &mut impl FnMut(Visit<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = Some(cid);
        while let Some(cid) = next {
            let block = source.block(&cid).map_err(TreeError::from)?;
            let block = block.ok_or(TreeError::Missing(cid))?;
            let malformed = |error| TreeError::Malformed { cid, error };
            let (entries_from, keys_from) = (self.entries.len(), self.keys.len());
            let left =
                node::decode(&block, &mut self.keys, &mut self.entries).map_err(malformed)?;
            let entries = &self.entries[entries_from..];
            visit(Visit::Node {
                cid,
                block: &block,
                values: Values {
                    first: entries_from,
                    entries,
                },
            })?;
            let found =
                node::check_heights(&self.keys, entries, left, height).map_err(malformed)?;
            if self.open.is_empty() {
                self.stats.height = found;
            }
            self.stats.nodes += 1;
            self.open.push(Open {
                cid,
                height: found,
                entries_from,
                keys_from,
                next: 0,
            });
            next = left;
            height = found.checked_sub(1);
        }
        Ok(())
    }

    fn ascend(&mut self) {
        if let Some(done) = self.open.pop() {
            self.entries.truncate(done.entries_from);
            self.keys.truncate(done.keys_from);
        }
    }
}
