//! Roots, recomputed from the keys that are held.

use gapless_atp::cid::Cid;
use gapless_atp::mst::{BuildError, Builder};
use gapless_core::ledger::RepoId;
use gapless_core::repo_tx::ChangedKeys;

use super::ReadView;
use crate::error::StoreError;

/// Why a root could not be computed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RootError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the held keys do not form a tree: {0}")]
    Tree(#[from] BuildError),
}

impl ReadView {
    /// Computes the root of the held records from every key.
    pub fn root(&self, id: RepoId) -> Result<Cid, RootError> {
        self.root_with(id, &ChangedKeys::new())
    }

    /// Computes the root of the held records with some keys changed.
    pub fn root_with(&self, id: RepoId, changed: &ChangedKeys) -> Result<Cid, RootError> {
        let mut builder = Builder::new(|_| {});
        let mut changed = changed.iter().peekable();
        for record in self.records(id) {
            let record = record?;
            let mut replaced = false;
            while let Some((path, cid)) =
                changed.next_if(|(path, _)| path.as_slice() <= record.path())
            {
                replaced |= path.as_slice() == record.path();
                if let Some(cid) = cid {
                    builder.push(path, *cid)?;
                }
            }
            if !replaced {
                builder.push(record.path(), record.cid)?;
            }
        }
        for (path, cid) in changed {
            if let Some(cid) = cid {
                builder.push(path, *cid)?;
            }
        }
        Ok(builder.finish())
    }
}
