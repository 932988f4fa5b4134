//! What is held of a repository, as the ground that a difference stands on (R11).
//!
//! `getRepo?since=` brings the blocks that are new. The rest is here: the nodes
//! of the held tree, built again from the held keys in one pass, and the bytes of
//! held records. A tree that would take too much memory is not built, and the
//! whole repository is fetched instead.

use std::cell::Cell;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use gapless_atp::cid::Cid;
use gapless_atp::mst::{Builder, ClosedNode};
use gapless_core::ledger::RepoId;
use gapless_store::error::StoreError;
use gapless_store::read_view::{ReadView, RootError};
use gapless_store::table::record::Record;

/// Bytes that the nodes of a held tree may take: about half a million records.
pub const HELD_TREE_BYTES: usize = 64 << 20;
/// What a node takes besides its block: its CID, and its place in the map.
const NODE_BYTES: usize = 96;

/// The tree over the records that are held, as of one moment.
pub struct HeldTree {
    contents: ReadView,
    repo: RepoId,
    root: Cid,
    nodes: HashMap<Cid, Box<[u8]>, RandomState>,
}

impl HeldTree {
    /// Builds the tree; `None` if its nodes would take more than so many bytes.
    /// Whether its root is the head's is for the caller to compare: if it is not,
    /// the store is damaged.
    pub fn build(
        contents: &ReadView,
        repo: RepoId,
        limit_nodes_bytes: usize,
    ) -> Result<Option<HeldTree>, RootError> {
        let taken = Cell::new(0);
        let mut nodes = HashMap::default();
        let mut builder = Builder::new(|node: ClosedNode<'_>| {
            taken.set(taken.get() + NODE_BYTES + node.block.len());
            nodes.insert(node.cid, Box::from(node.block));
        });
        for record in contents.records(repo) {
            let record = record?;
            builder.push(record.path(), record.cid)?;
            if taken.get() > limit_nodes_bytes {
                return Ok(None);
            }
        }
        let root = builder.finish();
        if taken.get() > limit_nodes_bytes {
            return Ok(None);
        }
        Ok(Some(HeldTree {
            contents: contents.clone(),
            repo,
            root,
            nodes,
        }))
    }

    /// The root of what is held.
    pub fn root(&self) -> Cid {
        self.root
    }

    pub fn repo(&self) -> RepoId {
        self.repo
    }

    /// A node of the held tree.
    pub fn node(&self, cid: &Cid) -> Option<&[u8]> {
        self.nodes.get(cid).map(|block| &**block)
    }

    /// The held records, in the order of the tree.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, StoreError>> + Send + use<> {
        self.contents.records(self.repo)
    }

    /// The bytes of the record at a path, if they are held and are those of this
    /// CID. They are hashed: what the disk has spoilt is not handed on.
    pub fn bytes(&self, path: &[u8], cid: &Cid) -> Result<Option<Vec<u8>>, StoreError> {
        let record = self.contents.record(self.repo, path)?;
        let bytes = record.as_ref().and_then(|record| sound(record, cid));
        Ok(bytes.map(<[u8]>::to_vec))
    }
}

/// The bytes of a record, if they are those of this CID.
pub(crate) fn sound<'r>(record: &'r Record, cid: &Cid) -> Option<&'r [u8]> {
    let same = record.cid == *cid;
    record.bytes().filter(|bytes| same && cid.matches(bytes))
}
