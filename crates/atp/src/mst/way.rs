//! The way from the root down to a key: what proves that the key is there, or
//! that it is not.
//!
//! The way ends at the key, or, without one, at the bottom: some readers look for
//! a key below the height at which it would stand, and find the proof cut short
//! if it ends there.

use super::node::{self, Entry};
use super::tree::{Blocks, TreeError};
use crate::cid::Cid;
use crate::limits;

/// What stands at the end of the way, and the nodes on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The key's value; none when the key is not in the tree.
    pub value: Option<Cid>,
    /// Top first.
    pub nodes: Vec<(Cid, Vec<u8>)>,
}

/// Goes down from `root` to where `key` is, or would be.
pub fn way_down(root: Cid, source: &dyn Blocks, key: &[u8]) -> Result<Way, TreeError> {
    let (mut keys, mut entries) = (Vec::new(), Vec::<Entry>::new());
    let mut way = Way {
        value: None,
        nodes: Vec::new(),
    };
    let mut next = Some(root);
    while let Some(cid) = next {
        if way.nodes.len() > limits::TREE_HEIGHT as usize {
            return Err(TreeError::TooHigh);
        }
        let block = source.block(&cid)?.ok_or(TreeError::Missing(cid))?;
        keys.clear();
        entries.clear();
        let left = node::decode(&block, &mut keys, &mut entries);
        let left = left.map_err(|error| TreeError::Malformed { cid, error })?;
        way.nodes.push((cid, block.into_owned()));
        let found = entries.binary_search_by(|entry| entry.key.of(&keys).cmp(key));
        next = match found {
            Ok(at) => {
                way.value = Some(entries[at].value);
                None
            }
            Err(0) => left,
            Err(at) => entries[at - 1].right,
        };
    }
    Ok(way)
}
