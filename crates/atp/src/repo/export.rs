//! A repository to a CAR: the same bytes for the same repository.
//!
//! Blocks stand in the order in which a reader walks them: the commit, then
//! each node before its children and its records, in key order. A reader that
//! keeps nothing but the way down can check such a file as it arrives.
//!
//! [`Export::plan`] takes the keys, builds the tree and refuses when its root
//! is not the one that the commit signs, so nothing leaves that is not whole.
//! It holds the tree's nodes (about 90 bytes a record) until they are written.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::commit::{Commit, CommitError};
use crate::car::{write_block, write_header};
use crate::cid::Cid;
use crate::mst::{self, BuildError, Builder, ClosedNode, SourceError, TreeError};

/// Why a repository cannot be written as a CAR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    #[error("the commit cannot be read: {0}")]
    Commit(#[from] CommitError),
    #[error("the keys make no tree: {0}")]
    Keys(#[from] BuildError),
    #[error("the keys hash to {found}, the commit signs {signed}")]
    OtherRoot { signed: Cid, found: Cid },
    #[error("the tree cannot be walked: {0}")]
    Tree(#[from] TreeError),
    #[error("record {cid} at '{path}' is missing or out of order")]
    Record { path: String, cid: Cid },
}

/// A repository that is ready to be written.
pub struct Export<'a> {
    commit: Commit<'a>,
    nodes: Nodes,
}

#[derive(Default)]
struct Nodes(HashMap<Cid, Vec<u8>, RandomState>);

impl mst::Blocks for Nodes {
    fn block(&self, cid: &Cid) -> Result<Option<std::borrow::Cow<'_, [u8]>>, SourceError> {
        Ok(self.0.get(cid).map(|block| block.as_slice().into()))
    }
}

impl<'a> Export<'a> {
    /// Builds the tree over `keys`, which must rise, and checks its root.
    pub fn plan<'k>(
        commit_block: &'a [u8],
        keys: impl IntoIterator<Item = (&'k [u8], Cid)>,
    ) -> Result<Export<'a>, ExportError> {
        let commit = Commit::decode(commit_block)?;
        let mut nodes = Nodes::default();
        let mut builder = Builder::new(|node: ClosedNode<'_>| {
            nodes.0.insert(node.cid, node.block.to_vec());
        });
        for (key, value) in keys {
            builder.push(key, value)?;
        }
        let found = builder.finish();
        match commit.data {
            signed if signed == found => Ok(Export { commit, nodes }),
            signed => Err(ExportError::OtherRoot { signed, found }),
        }
    }

    /// Writes the CAR. `record` is asked for the bytes of each record, in key
    /// order; bytes that do not hash to the CID end the file with an error.
    pub fn write<'r>(
        &self,
        mut record: impl FnMut(&[u8], &Cid) -> Option<&'r [u8]>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ExportError> {
        let commit_cid = Cid::dag_cbor(self.commit.block());
        let mut buffer = Vec::new();
        write_header(&mut buffer, &[commit_cid]);
        write_block(&mut buffer, &commit_cid, self.commit.block());
        out(&buffer);
        mst::walk(self.commit.data, &self.nodes, |met| {
            buffer.clear();
            match met {
                mst::Visit::Node { cid, block, .. } => write_block(&mut buffer, &cid, block),
                mst::Visit::Key { key, value, .. } => {
                    let bytes = record(key, &value).filter(|bytes| value.matches(bytes));
                    let bytes = bytes.ok_or_else(|| ExportError::Record {
                        path: String::from_utf8_lossy(key).into_owned(),
                        cid: value,
                    })?;
                    write_block(&mut buffer, &value, bytes);
                }
            }
            out(&buffer);
            Ok(())
        })
        .map(drop)
    }
}

/// The CAR that proves one record present (with its bytes) or absent (without):
/// the commit, and the nodes on the way, top first. A record that is not the one
/// at `path`, or bytes that do not hash to it, are refused.
pub fn write_record_proof<'k>(
    commit_block: &[u8],
    keys: impl IntoIterator<Item = (&'k [u8], Cid)>,
    path: &[u8],
    record: Option<(&Cid, &[u8])>,
) -> Result<Vec<u8>, ExportError> {
    let signed = Commit::decode(commit_block)?.data;
    let mut value = None;
    let keys = keys.into_iter().inspect(|(key, cid)| {
        if *key == path {
            value = Some(*cid);
        }
    });
    let (found, nodes) = mst::record_proof(keys, path)?;
    if signed != found {
        return Err(ExportError::OtherRoot { signed, found });
    }
    let commit_cid = Cid::dag_cbor(commit_block);
    let mut car = Vec::new();
    write_header(&mut car, &[commit_cid]);
    write_block(&mut car, &commit_cid, commit_block);
    for (cid, block) in nodes.iter().rev() {
        write_block(&mut car, cid, block);
    }
    if value != record.map(|(cid, _)| *cid) || record.is_some_and(|(cid, b)| !cid.matches(b)) {
        return Err(ExportError::Record {
            path: String::from_utf8_lossy(path).into_owned(),
            cid: value.or(record.map(|(cid, _)| *cid)).unwrap_or(found),
        });
    }
    if let Some((cid, bytes)) = record {
        write_block(&mut car, cid, bytes);
    }
    Ok(car)
}
