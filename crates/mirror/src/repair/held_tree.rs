//! The tree of the held records of one repository, to which a difference is applied
//! (R11).
//!
//! `getRepo?since=` brings the blocks that are new. This module provides the rest: the nodes of the
//! held tree, rebuilt from the held keys in one pass, and the bytes of held records. A tree over
//! the memory limit is not built, and the whole repository is fetched instead.

use std::cell::Cell;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use gapless_atp::cid::Cid;
use gapless_atp::mst::{Builder, ClosedNode};
use gapless_core::ledger::RepoId;
use gapless_store::error::StoreError;
use gapless_store::read_view::{ReadView, RootError};
use gapless_store::table::record::Record;

/// Bytes of the nodes of a held tree: about half a million records.
pub const HELD_TREE_BYTES: usize = 64 << 20;
/// Bytes of a node besides its block: its CID and its slot in the map.
const NODE_OVERHEAD_BYTES: usize = 96;

/// The tree of the records that are held, as of one read view.
pub struct HeldTree {
    view: ReadView,
    repo: RepoId,
    root: Cid,
    nodes: HashMap<Cid, Box<[u8]>, RandomState>,
}

impl HeldTree {
    /// Builds the tree; `None` if its nodes take more than `max_bytes`. The caller
    /// compares the root with the head: if they differ, the store is damaged.
    pub fn build(
        view: &ReadView,
        repo: RepoId,
        max_bytes: usize,
    ) -> Result<Option<HeldTree>, RootError> {
        let bytes = Cell::new(0);
        let mut nodes = HashMap::default();
        let mut builder = Builder::new(|node: ClosedNode<'_>| {
            bytes.set(bytes.get() + NODE_OVERHEAD_BYTES + node.block.len());
            nodes.insert(node.cid, Box::from(node.block));
        });
        for record in view.records(repo) {
            let record = record?;
            builder.push(record.path(), record.cid)?;
            if bytes.get() > max_bytes {
                return Ok(None);
            }
        }
        let root = builder.finish();
        if bytes.get() > max_bytes {
            return Ok(None);
        }
        Ok(Some(HeldTree {
            view: view.clone(),
            repo,
            root,
            nodes,
        }))
    }

    /// The root of the held tree.
    pub fn root(&self) -> Cid {
        self.root
    }

    /// Returns the block of a node.
    pub(crate) fn node(&self, cid: &Cid) -> Option<&[u8]> {
        self.nodes.get(cid).map(|block| &**block)
    }

    /// The held records, in the order of the tree.
    pub(crate) fn records(
        &self,
    ) -> impl Iterator<Item = Result<Record, StoreError>> + Send + use<> {
        self.view.records(self.repo)
    }

    /// Returns the bytes of the record at a path, if the bytes are held and hash to this
    /// CID. Bytes that the disk has damaged are not returned.
    pub(crate) fn bytes(&self, path: &[u8], cid: &Cid) -> Result<Option<Vec<u8>>, StoreError> {
        let record = self.view.record(self.repo, path)?;
        let bytes = record
            .as_ref()
            .and_then(|record| verified_bytes(record, cid));
        Ok(bytes.map(<[u8]>::to_vec))
    }
}

/// Returns the bytes of a record, if the bytes hash to this CID.
pub(crate) fn verified_bytes<'r>(record: &'r Record, cid: &Cid) -> Option<&'r [u8]> {
    let same = record.cid == *cid;
    record.bytes().filter(|bytes| same && cid.matches(bytes))
}
