//! What a DID's document and a directory's audit log say about an account.
//!
//! Both are JSON that a stranger's server sent; they are bounded in bytes, only
//! what is wanted of them is ever held ([`crate::pick`]), and nothing in them is
//! believed beyond what it says about its own DID. A
//! document without a key or a PDS is a fact about the account, not an error;
//! one with a key that cannot be read says why. The signatures of the
//! directory's operations are not checked here.

mod audit_log;
mod datetime;
mod document;
mod endpoint;

pub use audit_log::{AuditEntry, AuditLog, AuditLogError, KeyHistory, Said};
pub use datetime::datetime_micros;
pub use document::{DidDocument, DocumentError, MethodError};
pub use endpoint::{Endpoint, EndpointError, EndpointFault};

use crate::pick::Wanted;

/// Why bytes are not JSON that is worth reading.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("it has {bytes} bytes, more than {most}")]
    TooLarge { bytes: usize, most: usize },
    #[error("it is not JSON that can be read: {0}")]
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
