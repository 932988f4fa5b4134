//! NSIDs: the names of collections, made of a reversed domain and a name.
//!
//! Case is kept: the name is case-sensitive, and an authority in upper case is unusual
//! but legal.

use std::sync::Arc;

use super::domain::check_domain;
use super::{Excerpt, LabelFault};
use crate::limits::{HANDLE_BYTES, NSID_BYTES};

const NAME_BYTES: usize = 63;

/// An NSID. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nsid(Arc<str>);

/// Why text is not an NSID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not an NSID: {fault}")]
pub struct NsidError {
    pub fault: NsidFault,
    pub given: Excerpt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NsidFault {
    #[error("it is longer than {NSID_BYTES} bytes, or its authority than {HANDLE_BYTES}")]
    TooLong,
    #[error("it must have at least three parts")]
    FewParts,
    #[error("{0}")]
    Label(LabelFault),
    #[error("the first part must begin with a letter")]
    TopLevel,
    #[error("the name after the last dot must be a letter and up to 62 letters and digits")]
    Name,
}

/// Checks that text is an NSID.
pub fn validate(text: &str) -> Result<(), NsidError> {
    check(text.as_bytes()).map_err(|fault| NsidError {
        fault,
        given: Excerpt::of(text),
    })
}

pub(super) fn check(text: &[u8]) -> Result<(), NsidFault> {
    if text.len() > NSID_BYTES {
        return Err(NsidFault::TooLong);
    }
    let last_dot = text
        .iter()
        .rposition(|byte| *byte == b'.')
        .ok_or(NsidFault::FewParts)?;
    let (authority, name) = (&text[..last_dot], &text[last_dot + 1..]);
    if authority.len() > HANDLE_BYTES {
        return Err(NsidFault::TooLong);
    }
    if check_domain(authority).map_err(NsidFault::Label)? < 2 {
        return Err(NsidFault::FewParts);
    }
    if !authority.first().is_some_and(u8::is_ascii_alphabetic) {
        return Err(NsidFault::TopLevel);
    }
    let begins = name.first().is_some_and(u8::is_ascii_alphabetic);
    if !begins || name.len() > NAME_BYTES || !name.iter().all(u8::is_ascii_alphanumeric) {
        return Err(NsidFault::Name);
    }
    Ok(())
}

impl Nsid {
    pub fn parse(text: &str) -> Result<Nsid, NsidError> {
        validate(text)?;
        Ok(Nsid(text.into()))
    }

    /// The reversed domain, as written: `app.bsky.feed` of `app.bsky.feed.post`.
    pub fn authority(&self) -> &str {
        self.split().0
    }

    /// The part after the last dot: `post` of `app.bsky.feed.post`.
    pub fn name(&self) -> &str {
        self.split().1
    }

    fn split(&self) -> (&str, &str) {
        // A parsed NSID always has a dot.
        self.0.rsplit_once('.').unwrap_or(("", &self.0))
    }
}

text_name!(Nsid, NsidError);
