//! The directory of DID documents. The directory may be down, and it may answer with the
//! previous document.

use super::{Fault, Owner, OwnerId, PdsId, World};

/// The content of a DID document. Its version is its index in the owner's documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document {
    pub host: Option<PdsId>,
    pub key: u32,
}

impl Owner {
    /// The newest document.
    pub fn document(&self) -> Document {
        *self.documents.last().expect("an account has a document")
    }
}

impl World {
    /// Resolves a DID to its document and version; `None` if the directory does not
    /// answer.
    pub fn resolve(&mut self, owner: OwnerId) -> Option<(Document, u64)> {
        if self.strikes(Fault::DirectoryFailure) {
            return None;
        }
        let found = &self.owners[owner];
        let newest = found.documents.len() - 1;
        let place = if found.lags {
            newest.saturating_sub(1)
        } else {
            newest
        };
        Some((found.documents[place], place as u64 + 1))
    }

    /// Whether an owner ever held a key.
    pub(crate) fn held_key(&self, owner: OwnerId, key: u32) -> bool {
        self.owners[owner]
            .documents
            .iter()
            .any(|document| document.key == key)
    }
}
