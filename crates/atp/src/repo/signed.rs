//! The tree of a repository, built from its keys and checked against its commit.
//!
//! A [`SignedTree`] holds the nodes, about 90 bytes per record, so that they need not be
//! built again. With it a caller can write the repository, prove a record, and look up
//! nodes by CID. Keys are taken one by one, and none is kept.

use super::commit::{Commit, CommitError};
use crate::car::{write_block, write_header};
use crate::cid::Cid;
use crate::mst::{self, BuildError, Builder, Built, ClosedNode, Met, TreeError, Way, key_height};

/// Why a [`SignedTree`] cannot be built. `E` is the error of the source of the keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignedTreeError<E> {
    #[error("the commit cannot be read: {0}")]
    Commit(#[from] CommitError),
    #[error("the keys do not form a tree: {0}")]
    Keys(#[from] BuildError),
    #[error("the keys hash to {found}, but the commit signs {signed}")]
    OtherRoot { signed: Cid, found: Cid },
    #[error("the nodes of the tree need more memory than is available")]
    Memory,
    #[error("{0}")]
    Source(E),
}

/// One part of a repository, in the order of a CAR.
pub enum Part<'a> {
    /// The commit or a node.
    Block(Cid, &'a [u8]),
    /// The record at a key. The caller has to find its bytes.
    Record(&'a [u8], Cid),
}

/// A commit, and every node of the tree that the commit signs.
pub struct SignedTree {
    commit_cid: Cid,
    commit: Vec<u8>,
    data: Cid,
    nodes: Built,
}

impl SignedTree {
    /// Builds the tree over `keys`, which must be in rising order, and checks its root.
    /// `may_take` is asked whether so many bytes in all may be held; if not, the build
    /// fails with [`SignedTreeError::Memory`].
    pub fn build<K: AsRef<[u8]>, E>(
        commit_block: &[u8],
        keys: impl IntoIterator<Item = Result<(K, Cid), E>>,
        may_take: impl FnMut(u64) -> bool,
    ) -> Result<SignedTree, SignedTreeError<E>> {
        let mut keys = keys.into_iter();
        SignedTree::build_from(commit_block, may_take, |take| {
            keys.try_for_each(|key| {
                let (key, value) = key.map_err(SignedTreeError::Source)?;
                let key = key.as_ref();
                take(key, key_height(key), value)
            })
        })
    }

    /// Builds the tree like [`SignedTree::build`], from keys that `each_key` passes on
    /// one by one with their heights. `each_key` may continue to use each key afterwards.
    pub fn build_from<E>(
        commit_block: &[u8],
        mut may_take: impl FnMut(u64) -> bool,
        each_key: impl FnOnce(
            &mut dyn FnMut(&[u8], u32, Cid) -> Result<(), SignedTreeError<E>>,
        ) -> Result<(), SignedTreeError<E>>,
    ) -> Result<SignedTree, SignedTreeError<E>> {
        let signed = Commit::decode(commit_block)?.data;
        let (mut nodes, mut fits) = (Built::default(), true);
        let taken = std::cell::Cell::new(0);
        let mut builder = Builder::new(|node: ClosedNode<'_>| {
            fits &= nodes.push(&node);
            taken.set(nodes.bytes());
        });
        let mut granted = 0;
        each_key(&mut |key, height, value| {
            builder.push_at(key, height, value)?;
            if taken.get() > granted {
                granted = taken.get();
                if !may_take(granted) {
                    return Err(SignedTreeError::Memory);
                }
            }
            Ok(())
        })?;
        let found = builder.finish();
        if found != signed {
            return Err(SignedTreeError::OtherRoot { signed, found });
        }
        if !fits || !may_take(taken.get()) {
            return Err(SignedTreeError::Memory);
        }
        Ok(SignedTree {
            commit_cid: Cid::dag_cbor(commit_block),
            commit: commit_block.to_vec(),
            data: signed,
            nodes,
        })
    }

    pub fn commit_cid(&self) -> Cid {
        self.commit_cid
    }

    pub fn commit_block(&self) -> &[u8] {
        &self.commit
    }

    /// The root that the commit signs.
    pub fn data(&self) -> Cid {
        self.data
    }

    /// The approximate memory that the tree takes.
    pub fn bytes(&self) -> u64 {
        self.nodes.bytes()
    }

    pub fn node(&self, cid: &Cid) -> Option<&[u8]> {
        self.nodes.node(cid)
    }

    /// Visits the repository in the order of its CAR: the commit, then each node before
    /// its children and its records, in key order. The order is the same for the same
    /// repository.
    pub fn each<E: From<TreeError>>(
        &self,
        mut part: impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        part(Part::Block(self.commit_cid, &self.commit))?;
        self.nodes.each(|met| match met {
            Met::Node { cid, block } => part(Part::Block(cid, block)),
            Met::Key { key, value } => part(Part::Record(key, value)),
        })
    }

    /// The nodes that prove that a key is in the tree, or that it is not.
    pub fn way_down(&self, key: &[u8]) -> Result<Way, TreeError> {
        mst::way_down(self.data, &self.nodes, key)
    }

    /// The CAR of a proof: the commit, the nodes on the way, top first, and the record if
    /// there is one. The caller vouches that the record's bytes hash to its CID.
    pub fn write_proof(&self, way: &Way, record: Option<(&Cid, &[u8])>) -> Vec<u8> {
        let mut car = Vec::new();
        write_header(&mut car, &[self.commit_cid]);
        write_block(&mut car, &self.commit_cid, &self.commit);
        for (cid, block) in &way.nodes {
            write_block(&mut car, cid, block);
        }
        if let Some((cid, bytes)) = record {
            write_block(&mut car, cid, bytes);
        }
        car
    }
}
