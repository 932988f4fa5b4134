//! The directory's audit log of one DID: what was said of it, and when.
//!
//! A commit signed before a key was changed verifies with the former key only:
//! [`KeyHistory`] has every key that ever counted. [`AuditLog`] has every entry
//! with its moment, to tell an older document from a newer one. Operations that
//! were nullified later count no more; the log keeps them, marked, because
//! somebody may have seen them while they did.

use serde_json::Value;

use super::document::PDS_TYPE;
use super::{Endpoint, JsonError, datetime_micros, read_json};
use crate::crypto::PublicKey;
use crate::limits::{AUDIT_LOG_BYTES, AUDIT_LOG_ENTRIES};
use crate::pick::Wanted;
use crate::syntax::{Did, Excerpt};

/// What is read of a log.
const LOG: Wanted = Wanted::Items(&ENTRY, AUDIT_LOG_ENTRIES);
const ENTRY: Wanted = Wanted::Fields(&[
    ("did", Wanted::Word),
    ("nullified", Wanted::Word),
    ("createdAt", Wanted::Word),
    ("operation", OPERATION),
]);
const OPERATION: Wanted = Wanted::Fields(&[
    ("type", Wanted::Word),
    (
        "verificationMethods",
        Wanted::Fields(&[("atproto", Wanted::Word)]),
    ),
    ("services", Wanted::Fields(&[("atproto_pds", SERVICE)])),
    // Of the oldest operations.
    ("signingKey", Wanted::Word),
    ("service", Wanted::Word),
]);
const SERVICE: Wanted = Wanted::Fields(&[("type", Wanted::Word), ("endpoint", Wanted::Word)]);

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
    #[error("entry {1} of the audit log of {0} does not say when it was made")]
    Moment(Did, usize),
}

/// Every entry of a DID's log, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditLog {
    pub entries: Vec<AuditEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// When the directory took it, in microseconds since 1970.
    pub created_micros: u64,
    /// Undone by a later operation.
    pub nullified: bool,
    pub said: Said,
}

/// What an operation says of the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Keys and addresses that cannot be used count as none, as in documents.
    Identity {
        key: Option<PublicKey>,
        pds: Option<Endpoint>,
    },
    Tombstone,
    /// An operation of a kind that is not known here.
    Unknown,
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
        let entries = read_entries(json, did)?;
        let mut history = KeyHistory::default();
        for (at, entry) in entries.iter().enumerate().rev() {
            let (nullified, operation) = read_entry(entry, at, did)?;
            if !nullified {
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

impl AuditLog {
    /// Reads the answer to a request for the audit log of `did`, oldest first.
    pub fn parse(json: &[u8], did: &Did) -> Result<AuditLog, AuditLogError> {
        let mut log = AuditLog::default();
        for (at, entry) in read_entries(json, did)?.iter().enumerate() {
            let (nullified, operation) = read_entry(entry, at, did)?;
            let moment = entry.get("createdAt").and_then(Value::as_str);
            let moment = moment.and_then(datetime_micros);
            log.entries.push(AuditEntry {
                created_micros: moment.ok_or_else(|| AuditLogError::Moment(did.clone(), at))?,
                nullified,
                said: read_operation(operation),
            });
        }
        Ok(log)
    }

    /// The entry that counts now: the last one that was not nullified.
    pub fn in_force(&self) -> Option<&AuditEntry> {
        self.entries.iter().rev().find(|entry| !entry.nullified)
    }
}

fn read_operation(operation: &Value) -> Said {
    let key = match classify(operation) {
        Operation::Key(did_key) => PublicKey::from_did_key(did_key).ok(),
        Operation::NoKey | Operation::Unknown => None,
    };
    let pds = match operation.get("type").and_then(Value::as_str) {
        Some("plc_operation") => service_endpoint(operation),
        Some("create") => legacy_endpoint(operation),
        Some("plc_tombstone") => return Said::Tombstone,
        _ => return Said::Unknown,
    };
    Said::Identity { key, pds }
}

fn service_endpoint(operation: &Value) -> Option<Endpoint> {
    let service = operation.get("services")?.get("atproto_pds")?;
    if service.get("type").and_then(Value::as_str) != Some(PDS_TYPE) {
        return None;
    }
    Endpoint::parse(service.get("endpoint")?.as_str()?).ok()
}

/// The oldest operations name the host, often without a scheme; documents made
/// of them say https.
fn legacy_endpoint(operation: &Value) -> Option<Endpoint> {
    let service = operation.get("service")?.as_str()?;
    if service.starts_with("http://") || service.starts_with("https://") {
        Endpoint::parse(service).ok()
    } else {
        Endpoint::parse(&format!("https://{service}")).ok()
    }
}

fn read_entries(json: &[u8], did: &Did) -> Result<Vec<Value>, AuditLogError> {
    let log = read_json(json, AUDIT_LOG_BYTES, &LOG);
    match log.map_err(|error| AuditLogError::Json(did.clone(), error))? {
        Value::Array(entries) => Ok(entries),
        _ => Err(AuditLogError::NotAnArray(did.clone())),
    }
}

/// Whether an entry was nullified, and its operation.
fn read_entry<'a>(
    entry: &'a Value,
    at: usize,
    did: &Did,
) -> Result<(bool, &'a Value), AuditLogError> {
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
        (Some(nullified), Some(operation)) => Ok((nullified, operation)),
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
