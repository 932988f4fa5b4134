//! The nodes from the root down to a key, which prove that the key is in the tree, or
//! that it is not.
//!
//! If the key is absent, the nodes go down to the bottom of the tree: some verifiers look
//! for a key below its own height and reject a proof that ends there.

use super::node::{self, Entry};
use super::tree::{Blocks, TreeError};
use crate::cid::Cid;
use crate::limits;

/// The nodes on the way from the root to a key, and the key's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The key's value; `None` if the key is not in the tree.
    pub value: Option<Cid>,
    /// The nodes, top first.
    pub nodes: Vec<(Cid, Vec<u8>)>,
}

/// Goes down from `root` to the place of `key`.
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
