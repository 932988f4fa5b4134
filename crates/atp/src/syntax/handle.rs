//! Handles: the readable names of accounts, which are DNS names.
//!
//! A [`Handle`] is kept in lower case. Whether its top-level domain can be registered is
//! not a matter of syntax and is not checked here.

use std::sync::Arc;

use super::domain::{check_domain, ends_in_top_level};
use super::{Excerpt, LabelFault};
use crate::limits::HANDLE_BYTES;

/// A handle in lower case. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(Arc<str>);

/// Why text is not a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not a handle: {fault}")]
pub struct HandleError {
    pub fault: HandleFault,
    pub given: Excerpt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandleFault {
    #[error("it is longer than {HANDLE_BYTES} bytes")]
    TooLong,
    #[error("{0}")]
    Label(LabelFault),
    #[error("it must have at least one dot")]
    OneLabel,
    #[error("the part after the last dot must begin with a letter")]
    TopLevel,
}

/// Checks that text is a handle, in upper or lower case.
pub fn validate(text: &str) -> Result<(), HandleError> {
    check(text.as_bytes()).map_err(|fault| HandleError {
        fault,
        given: Excerpt::of(text),
    })
}

pub(super) fn check(text: &[u8]) -> Result<(), HandleFault> {
    if text.len() > HANDLE_BYTES {
        return Err(HandleFault::TooLong);
    }
    if check_domain(text).map_err(HandleFault::Label)? < 2 {
        return Err(HandleFault::OneLabel);
    }
    if !ends_in_top_level(text) {
        return Err(HandleFault::TopLevel);
    }
    Ok(())
}

impl Handle {
    pub fn parse(text: &str) -> Result<Handle, HandleError> {
        validate(text)?;
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Ok(Handle(text.to_ascii_lowercase().into()));
        }
        Ok(Handle(text.into()))
    }
}

text_name!(Handle, HandleError);
