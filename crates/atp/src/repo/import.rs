//! Reads a whole repository from a CAR and checks everything but the signature.
//!
//! [`RepoCar::read`] hashes every block and decodes the commit. [`RepoCar::records`]
//! walks the tree and visits every record in key order. If the walk succeeds, the records
//! are exactly those that hash to the root in the commit. [`Commit::verify`] checks
//! whether the commit is the owner's.

use super::commit::{Commit, CommitError};
use crate::car::{BlockMap, CarError, read_blocks};
use crate::cid::Cid;
use crate::mst::{TreeError, Visit, WalkStats, walk};

/// Why a CAR is not a whole, canonical repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("the CAR cannot be read: {0}")]
    Car(#[from] CarError),
    #[error("the CAR names {0} roots (it must name one, the commit)")]
    Roots(usize),
    #[error("the root {0} of the CAR is not named as DAG-CBOR")]
    Codec(Cid),
    #[error("the CAR lacks its root, the commit {0}")]
    NoCommit(Cid),
    #[error("the root of the CAR is not a commit: {0}")]
    Commit(#[from] CommitError),
    #[error("the tree is not whole or not canonical: {0}")]
    Tree(#[from] TreeError),
    #[error("the record {cid} at '{path}' is missing")]
    NoRecord { path: String, cid: Cid },
}

/// A repository in a CAR that has not been walked yet.
pub struct RepoCar<'a> {
    pub commit_cid: Cid,
    pub commit: Commit<'a>,
    blocks: BlockMap<'a>,
}

impl<'a> RepoCar<'a> {
    pub fn read(car: &'a [u8]) -> Result<RepoCar<'a>, ImportError> {
        let blocks = read_blocks(car)?.into_map()?;
        // The first root is the commit. Other roots are legal and have no meaning here.
        let [commit_cid, ..] = *blocks.roots() else {
            return Err(ImportError::Roots(0));
        };
        if !commit_cid.is_dag_cbor() {
            return Err(ImportError::Codec(commit_cid));
        }
        let block = blocks
            .get(&commit_cid)
            .ok_or(ImportError::NoCommit(commit_cid))?;
        Ok(RepoCar {
            commit_cid,
            commit: Commit::decode(block)?,
            blocks,
        })
    }

    pub fn blocks(&self) -> &BlockMap<'a> {
        &self.blocks
    }

    /// Visits every record as (path, CID, bytes) in key order. Paths are raw keys: a tree
    /// may hold keys that are not legal paths, and needs them for its root.
    pub fn records<E: From<ImportError>>(
        &self,
        mut visit: impl FnMut(&[u8], Cid, &'a [u8]) -> Result<(), E>,
    ) -> Result<WalkStats, E> {
        let mut found: Vec<Option<&'a [u8]>> = Vec::new();
        walk(self.commit.data, &self.blocks, |met| match met {
            Visit::Node { values, .. } => {
                found.truncate(values.first());
                found.extend(values.iter().map(|cid| self.blocks.get(cid)));
                Ok(())
            }
            Visit::Key { key, value, place } => match found[place] {
                Some(record) => visit(key, value, record).map_err(Stop),
                None => {
                    let path = String::from_utf8_lossy(key).into_owned();
                    let cid = value;
                    Err(Stop(ImportError::NoRecord { path, cid }.into()))
                }
            },
        })
        .map_err(|stop| stop.0)
    }
}

/// Carries an error of the visitor, or of the walk, out of the walk.
struct Stop<E>(E);

impl<E: From<ImportError>> From<TreeError> for Stop<E> {
    fn from(error: TreeError) -> Stop<E> {
        Stop(ImportError::Tree(error).into())
    }
}
