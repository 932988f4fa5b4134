//! AT-URIs: `at://authority[/collection[/record-key]]`.
//!
//! The authority is a DID of any method, or a handle. Queries, fragments and trailing
//! slashes are refused. The text is kept as it was written, including upper case in a
//! handle.

use std::sync::Arc;

use super::{
    Did, DidFault, Excerpt, Handle, HandleFault, NsidFault, RecordKeyFault, did, handle, nsid,
    record_key,
};
use crate::limits::AT_URI_BYTES;

const SCHEME: &str = "at://";

/// An AT-URI. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AtUri(Arc<str>);

/// Why text is not an AT-URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not an AT-URI: {fault}")]
pub struct AtUriError {
    pub fault: AtUriFault,
    pub given: Excerpt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AtUriFault {
    #[error("it must begin with {SCHEME}")]
    Scheme,
    #[error("it is longer than {AT_URI_BYTES} bytes")]
    TooLong,
    #[error("the authority is not a DID: {0}")]
    Did(DidFault),
    #[error("the authority is neither a DID nor a handle: {0}")]
    Handle(HandleFault),
    #[error("the collection is not an NSID: {0}")]
    Collection(NsidFault),
    #[error("the record key is not legal: {0}")]
    RecordKey(RecordKeyFault),
}

impl AtUri {
    pub fn parse(text: &str) -> Result<AtUri, AtUriError> {
        AtUri::validate(text)?;
        Ok(AtUri(text.into()))
    }

    /// Checks text without keeping a copy.
    pub fn validate(text: &str) -> Result<(), AtUriError> {
        check(text).map_err(|fault| AtUriError {
            fault,
            given: Excerpt::of(text),
        })
    }

    /// The authority as written: a DID of any method, or a handle.
    pub fn authority(&self) -> &str {
        split(&self.0).map_or("", |parts| parts.authority)
    }

    pub fn collection(&self) -> Option<&str> {
        split(&self.0)?.collection
    }

    pub fn record_key(&self) -> Option<&str> {
        split(&self.0)?.record_key
    }

    /// The authority, if it is a DID of a supported method.
    pub fn did(&self) -> Option<Did> {
        Did::parse(self.authority()).ok()
    }

    /// The authority, if it is a handle.
    pub fn handle(&self) -> Option<Handle> {
        Handle::parse(self.authority()).ok()
    }
}

struct Parts<'a> {
    authority: &'a str,
    collection: Option<&'a str>,
    record_key: Option<&'a str>,
}

fn split(text: &str) -> Option<Parts<'_>> {
    let mut parts = text.strip_prefix(SCHEME)?.splitn(3, '/');
    Some(Parts {
        authority: parts.next()?,
        collection: parts.next(),
        record_key: parts.next(),
    })
}

fn check(text: &str) -> Result<(), AtUriFault> {
    if text.len() > AT_URI_BYTES {
        return Err(AtUriFault::TooLong);
    }
    let parts = split(text).ok_or(AtUriFault::Scheme)?;
    if parts.authority.starts_with("did:") {
        did::check_syntax(parts.authority).map_err(AtUriFault::Did)?;
    } else {
        handle::check(parts.authority.as_bytes()).map_err(AtUriFault::Handle)?;
    }
    if let Some(collection) = parts.collection {
        nsid::check(collection.as_bytes()).map_err(AtUriFault::Collection)?;
    }
    if let Some(key) = parts.record_key {
        record_key::check(key.as_bytes()).map_err(AtUriFault::RecordKey)?;
    }
    Ok(())
}

text_name!(AtUri, AtUriError);
