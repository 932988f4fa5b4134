//! Walks a whole tree of blocks in key order and checks every rule.
//!
//! Each node is decoded strictly, and its keys must have its height. Keys must rise over
//! the whole walk; that keeps every subtree between the keys of its parent, and makes a
//! node that is linked twice fail at its first key. Memory is one node per level. There
//! is no recursion.

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
        let block = source.block(&root).map_err(TreeError::from)?;
        let block = block.filter(|block| **block == EMPTY_NODE);
        let block = block.ok_or(TreeError::Missing(root))?;
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
    while let Some(top) = walk.open.last_mut() {
        let at = top.entries_from + top.next;
        let height = top.height;
        top.next += 1;
        let Some(entry) = walk.entries.get(at).copied() else {
            walk.ascend();
            continue;
        };
        let cid = top.cid;
        let key = entry.key.of(&walk.keys);
        if walk.stats.keys > 0 && key <= walk.last_key.as_slice() {
            let error = NodeError::KeyOrder;
            return Err(TreeError::Malformed { cid, error }.into());
        }
        visit(Visit::Key {
            key,
            value: entry.value,
            place: at,
        })?;
        walk.last_key.clear();
        walk.last_key.extend_from_slice(entry.key.of(&walk.keys));
        walk.stats.keys += 1;
        if let Some(right) = entry.right {
            walk.descend(right, height.checked_sub(1), source, &mut visit)?;
        }
    }
    Ok(walk.stats)
}

impl Walk {
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
