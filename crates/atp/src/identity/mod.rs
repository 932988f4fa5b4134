//! Reads what the DID document and the directory's audit log say about an account.
//!
//! Both are JSON from untrusted servers. Their size is bounded, only the wanted parts are
//! held in memory ([`crate::pick`]), and each is trusted only about its own DID. A
//! document without a key or a PDS is a fact about the account, not an error; an
//! unreadable key carries its reason. The signatures of the directory's operations are
//! not checked here.

mod audit_log;
mod datetime;
mod document;
mod endpoint;

pub use audit_log::{AuditEntry, AuditLog, AuditLogError, KeyHistory, Said};
pub use datetime::datetime_micros;
pub use document::{DidDocument, DocumentError, MethodError};
pub use endpoint::{Endpoint, EndpointError, EndpointFault};

use crate::pick::Wanted;

/// Why bytes are not usable JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("it has {bytes} bytes, more than {most}")]
    TooLarge { bytes: usize, most: usize },
    #[error("it is not readable JSON: {0}")]
    Syntax(String),
}

fn read_json(json: &[u8], most: usize, wanted: &Wanted) -> Result<serde_json::Value, JsonError> {
    if json.len() > most {
        let bytes = json.len();
        return Err(JsonError::TooLarge { bytes, most });
    }
    wanted
        .read(json)
        .map_err(|error| JsonError::Syntax(error.to_string()))
}

#[cfg(test)]
mod tests;
