//! DIDs: the permanent names of accounts.
//!
//! A [`Did`] is always one whose document can be found: `did:plc` with 24 characters of
//! base32, or `did:web` with a bare host name (a port only as `localhost%3A1234`, for
//! development). Upper case is refused, so that one identity has one text form.
//! [`validate_syntax`] checks the general form of DIDs of any method, for places that
//! merely mention them.

use std::sync::Arc;

use super::domain::{check_domain, ends_in_top_level};
use super::{Excerpt, LabelFault};
use crate::limits::{DID_BYTES, HANDLE_BYTES};

const PLC_PREFIX: &str = "did:plc:";
const WEB_PREFIX: &str = "did:web:";
const PLC_IDENTIFIER_BYTES: usize = 24;

/// A DID of a supported method. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Did(Arc<str>);

/// The methods by which a DID's document can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DidMethod {
    Plc,
    Web,
}

/// Why text is not a DID, or not one that is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not a usable DID: {fault}")]
pub struct DidError {
    pub fault: DidFault,
    pub given: Excerpt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DidFault {
    #[error("it must begin with did:")]
    Prefix,
    #[error("it is longer than {DID_BYTES} bytes")]
    TooLong,
    #[error("the method must be lower-case letters followed by a colon")]
    Method,
    #[error("the identifier is empty or has a character other than letters, digits and ._:%-")]
    Identifier,
    #[error("it must not end with a colon or a percent sign")]
    Ending,
    #[error("only the methods plc and web are supported")]
    Unsupported,
    #[error("did:plc needs exactly {PLC_IDENTIFIER_BYTES} characters of lower-case base32")]
    Plc,
    #[error("did:web needs a host name: {0}")]
    WebLabel(LabelFault),
    #[error("did:web needs a full host name in lower case, without path or port")]
    WebHost,
    #[error("did:web takes a port only as localhost%3A and a number below 65536")]
    WebPort,
}

/// Checks that text is a DID of a supported method.
pub fn validate(text: &str) -> Result<DidMethod, DidError> {
    check(text).map_err(|fault| DidError {
        fault,
        given: Excerpt::of(text),
    })
}

/// Checks that text has the general form of a DID, of any method.
pub fn validate_syntax(text: &str) -> Result<(), DidError> {
    check_syntax(text).map_err(|fault| DidError {
        fault,
        given: Excerpt::of(text),
    })
}

fn check(text: &str) -> Result<DidMethod, DidFault> {
    if let Some(identifier) = text.strip_prefix(PLC_PREFIX) {
        return check_plc(identifier).map(|()| DidMethod::Plc);
    }
    check_syntax(text)?;
    let host = text.strip_prefix(WEB_PREFIX).ok_or(DidFault::Unsupported)?;
    check_web(host).map(|()| DidMethod::Web)
}

fn check_plc(identifier: &str) -> Result<(), DidFault> {
    let base32 = |byte: &u8| matches!(byte, b'a'..=b'z' | b'2'..=b'7');
    let bytes = identifier.as_bytes();
    if bytes.len() == PLC_IDENTIFIER_BYTES && bytes.iter().all(base32) {
        Ok(())
    } else {
        Err(DidFault::Plc)
    }
}

fn check_web(host: &str) -> Result<(), DidFault> {
    if let Some((name, port)) = host.split_once("%3A") {
        // `parse` would accept a sign, but a DID cannot contain one.
        let number = port.parse::<u16>().unwrap_or(0);
        let legal = name == "localhost" && number > 0 && !port.starts_with('0');
        return legal.then_some(()).ok_or(DidFault::WebPort);
    }
    if host == "localhost" {
        return Ok(());
    }
    let bytes = host.as_bytes();
    let outside = |byte: &u8| matches!(byte, b'A'..=b'Z' | b':' | b'%');
    if bytes.len() > HANDLE_BYTES || bytes.iter().any(outside) {
        return Err(DidFault::WebHost);
    }
    let labels = check_domain(bytes).map_err(DidFault::WebLabel)?;
    if labels < 2 || !ends_in_top_level(bytes) {
        return Err(DidFault::WebHost);
    }
    Ok(())
}

pub(super) fn check_syntax(text: &str) -> Result<(), DidFault> {
    let rest = text.strip_prefix("did:").ok_or(DidFault::Prefix)?;
    if text.len() > DID_BYTES {
        return Err(DidFault::TooLong);
    }
    let (method, identifier) = rest.split_once(':').ok_or(DidFault::Method)?;
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Err(DidFault::Method);
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._:%-".contains(&byte);
    if identifier.is_empty() || !identifier.bytes().all(legal) {
        return Err(DidFault::Identifier);
    }
    if identifier.ends_with([':', '%']) {
        return Err(DidFault::Ending);
    }
    Ok(())
}

impl Did {
    pub fn parse(text: &str) -> Result<Did, DidError> {
        validate(text)?;
        Ok(Did(text.into()))
    }

    pub fn method(&self) -> DidMethod {
        if self.0.starts_with(PLC_PREFIX) {
            DidMethod::Plc
        } else {
            DidMethod::Web
        }
    }

    /// The host that a did:web names, with its port if it has one; `None` for other
    /// methods.
    pub fn web_host(&self) -> Option<String> {
        let host = self.0.strip_prefix(WEB_PREFIX)?;
        Some(host.replace("%3A", ":"))
    }
}

text_name!(Did, DidError);
