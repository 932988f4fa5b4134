//! Repository paths: `collection/record-key`, the keys of a repository's tree.
//!
//! A tree may hold keys that are not legal paths, and its root cannot be reproduced
//! without them. Code that walks a tree must therefore keep the key and skip only the
//! record if [`split_path_bytes`] refuses the key.

use super::{Excerpt, NsidFault, RecordKeyFault, nsid, record_key};

/// Why a tree key or the path of an operation is not a legal path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not a record path: {fault}")]
pub struct PathError {
    pub fault: PathFault,
    pub given: Excerpt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    #[error("it has no slash")]
    Slash,
    #[error("the collection is not an NSID: {0}")]
    Collection(NsidFault),
    #[error("the record key is not legal: {0}")]
    RecordKey(RecordKeyFault),
    #[error("it is not text")]
    Text,
}

/// Splits a path into its collection and its record key, and checks both.
pub fn split_path(path: &str) -> Result<(&str, &str), PathError> {
    split(path).map_err(|fault| PathError {
        fault,
        given: Excerpt::of(path),
    })
}

/// Splits the key of a tree entry, which can be any bytes.
pub fn split_path_bytes(path: &[u8]) -> Result<(&str, &str), PathError> {
    let text = std::str::from_utf8(path).map_err(|_| PathError {
        fault: PathFault::Text,
        given: Excerpt::of(path),
    })?;
    split_path(text)
}

fn split(path: &str) -> Result<(&str, &str), PathFault> {
    let (collection, key) = path.split_once('/').ok_or(PathFault::Slash)?;
    nsid::check(collection.as_bytes()).map_err(PathFault::Collection)?;
    record_key::check(key.as_bytes()).map_err(PathFault::RecordKey)?;
    Ok((collection, key))
}
