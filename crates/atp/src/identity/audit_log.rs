//! The directory's audit log of one DID: every signing key that ever counted.
//!
//! A commit signed before a key was changed verifies with the former key only.
//! Operations that were nullified later never counted and are left out.

use serde_json::Value;

use super::{JsonError, read_json};
use crate::crypto::PublicKey;
use crate::syntax::{Did, Excerpt};

/// The signing keys of an account, newest first, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyHistory {
    pub keys: Vec<PublicKey>,
    /// Operations in force whose kind or key could not be read.
    pub unreadable: usize,
}

/// Why an answer is not the audit log of the DID that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditLogError {
    #[error("the audit log of {0} cannot be read: {1}")]
    Json(Did, JsonError),
    #[error("the audit log of {0} is not a JSON array")]
    NotAnArray(Did),
    #[error("entry {1} of the audit log of {0} lacks a DID, an operation or whether it counts")]
    Entry(Did, usize),
    #[error("entry {1} of the audit log of {0} is about {2}")]
    OtherDid(Did, usize, Excerpt),
}

enum Operation<'a> {
    /// The key as a did:key.
    Key(&'a str),
    /// No signing key from here on: a tombstone, or an identity without one.
    NoKey,
    Unknown,
}

impl KeyHistory {
    /// Reads the answer to a request for the audit log of `did`, oldest first.
    pub fn parse(json: &[u8], did: &Did) -> Result<KeyHistory, AuditLogError> {
        let value = read_json(json).map_err(|error| AuditLogError::Json(did.clone(), error))?;
        let Value::Array(entries) = &value else {
            return Err(AuditLogError::NotAnArray(did.clone()));
        };
        let mut history = KeyHistory::default();
        for (at, entry) in entries.iter().enumerate().rev() {
            if let Some(operation) = read_entry(entry, at, did)? {
                history.add(classify(operation));
            }
        }
        Ok(history)
    }

    fn add(&mut self, operation: Operation<'_>) {
        let key = match operation {
            Operation::NoKey => return,
            Operation::Key(did_key) => PublicKey::from_did_key(did_key).ok(),
            Operation::Unknown => None,
        };
        match key {
            Some(key) if self.keys.contains(&key) => {}
            Some(key) => self.keys.push(key),
            None => self.unreadable += 1,
        }
    }
}

/// The operation of an entry, or nothing if it was nullified.
fn read_entry<'a>(
    entry: &'a Value,
    at: usize,
    did: &Did,
) -> Result<Option<&'a Value>, AuditLogError> {
    let incomplete = || AuditLogError::Entry(did.clone(), at);
    let subject = entry.get("did").and_then(Value::as_str);
    let subject = subject.ok_or_else(incomplete)?;
    if subject != did.as_str() {
        let found = Excerpt::of(subject);
        return Err(AuditLogError::OtherDid(did.clone(), at, found));
    }
    let nullified = entry.get("nullified").and_then(Value::as_bool);
    let operation = entry.get("operation").filter(|value| value.is_object());
    match (nullified, operation) {
        (Some(true), Some(_)) => Ok(None),
        (Some(false), Some(operation)) => Ok(Some(operation)),
        _ => Err(incomplete()),
    }
}

fn classify(operation: &Value) -> Operation<'_> {
    let key = match operation.get("type").and_then(Value::as_str) {
        Some("plc_operation") => operation
            .get("verificationMethods")
            .and_then(|methods| methods.get("atproto")),
        Some("create") => operation.get("signingKey"),
        Some("plc_tombstone") => None,
        _ => return Operation::Unknown,
    };
    match key {
        None => Operation::NoKey,
        Some(key) => key.as_str().map_or(Operation::Unknown, Operation::Key),
    }
}
