//! Writes a repository as a CAR: the same bytes for the same repository.
//!
//! Blocks are in the order in which a reader walks them: the commit, then each node
//! before its children and its records, in key order. A reader that keeps only the path
//! to the current node can check such a file as it arrives.
//!
//! [`Export::plan`] takes the keys, builds the tree, and fails if its root is not the one
//! that the commit signs, so an incomplete repository is never written. It holds the
//! tree's nodes ([`SignedTree`]) until they are written.

use std::convert::Infallible;

use super::commit::CommitError;
use super::signed::{Part, SignedTree, SignedTreeError};
use crate::car::{write_block, write_header};
use crate::cid::Cid;
use crate::mst::{BuildError, TreeError};

/// Why a repository cannot be written as a CAR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    #[error("the commit cannot be read: {0}")]
    Commit(#[from] CommitError),
    #[error("the keys do not form a tree: {0}")]
    Keys(#[from] BuildError),
    #[error("the keys hash to {found}, but the commit signs {signed}")]
    OtherRoot { signed: Cid, found: Cid },
    #[error("the tree cannot be walked: {0}")]
    Tree(#[from] TreeError),
    #[error("record {cid} at '{path}' is missing or out of order")]
    Record { path: String, cid: Cid },
}

/// A repository that is ready to be written as a CAR.
pub struct Export(SignedTree);

impl Export {
    /// Builds the tree over `keys`, which must be in rising order, and checks its root.
    pub fn plan<'k>(
        commit_block: &[u8],
        keys: impl IntoIterator<Item = (&'k [u8], Cid)>,
    ) -> Result<Export, ExportError> {
        let keys = keys.into_iter().map(Ok::<_, Infallible>);
        match SignedTree::build(commit_block, keys, |_| true) {
            Ok(tree) => Ok(Export(tree)),
            Err(SignedTreeError::Commit(error)) => Err(error.into()),
            Err(SignedTreeError::Keys(error)) => Err(error.into()),
            Err(SignedTreeError::OtherRoot { signed, found }) => {
                Err(ExportError::OtherRoot { signed, found })
            }
            // Every request for memory is granted above.
            Err(SignedTreeError::Memory) => unreachable!("an export sets no limit on memory"),
            Err(SignedTreeError::Source(never)) => match never {},
        }
    }

    /// Writes the CAR. `record` is asked for the bytes of each record, in key order.
    /// Bytes that do not hash to the CID end the file with an error.
    pub fn write<'r>(
        &self,
        mut record: impl FnMut(&[u8], &Cid) -> Option<&'r [u8]>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ExportError> {
        let mut buffer = Vec::new();
        write_header(&mut buffer, &[self.0.commit_cid()]);
        self.0.each(|part| {
            match part {
                Part::Block(cid, block) => write_block(&mut buffer, &cid, block),
                Part::Record(key, cid) => {
                    let bytes = record(key, &cid).filter(|bytes| cid.matches(bytes));
                    let bytes = bytes.ok_or_else(|| unfit(key, cid))?;
                    write_block(&mut buffer, &cid, bytes);
                }
            }
            out(&buffer);
            buffer.clear();
            Ok(())
        })
    }
}

fn unfit(path: &[u8], cid: Cid) -> ExportError {
    ExportError::Record {
        path: String::from_utf8_lossy(path).into_owned(),
        cid,
    }
}

/// The CAR that proves one record present (with its bytes) or absent (without): the
/// commit, and the nodes on the way to `path`, top first. Fails if `record` is not the
/// one at `path`, or if its bytes do not hash to its CID.
pub fn write_record_proof<'k>(
    commit_block: &[u8],
    keys: impl IntoIterator<Item = (&'k [u8], Cid)>,
    path: &[u8],
    record: Option<(&Cid, &[u8])>,
) -> Result<Vec<u8>, ExportError> {
    let Export(tree) = Export::plan(commit_block, keys)?;
    let way = tree.way_down(path)?;
    let same = way.value == record.map(|(cid, _)| *cid);
    if !same || record.is_some_and(|(cid, bytes)| !cid.matches(bytes)) {
        let cid = way.value.or(record.map(|(cid, _)| *cid));
        return Err(unfit(path, cid.unwrap_or(tree.data())));
    }
    Ok(tree.write_proof(&way, record))
}
