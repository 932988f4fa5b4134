//! The directory's audit log of one DID: what was said about the DID, and when.
//!
//! A commit that was signed before a key change verifies only with the former key, so
//! [`KeyHistory`] has every key that was ever in force. [`AuditLog`] has every entry with
//! its time, to tell older documents from newer ones. Operations that were nullified
//! later do not count; the log keeps them, marked, because other parties may have seen
//! them while they were in force.

use serde_json::Value;

use super::document::PDS_TYPE;
use super::{Endpoint, JsonError, datetime_micros, read_json};
use crate::crypto::PublicKey;
use crate::limits::{AUDIT_LOG_BYTES, AUDIT_LOG_ENTRIES};
use crate::pick::Wanted;
use crate::syntax::{Did, Excerpt};

/// The parts of a log that are read.
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
    // Fields of the oldest operations.
    ("signingKey", Wanted::Word),
    ("service", Wanted::Word),
]);
const SERVICE: Wanted = Wanted::Fields(&[("type", Wanted::Word), ("endpoint", Wanted::Word)]);

/// The signing keys of an account, newest first, without repeats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyHistory {
    pub keys: Vec<PublicKey>,
    /// The number of operations in force whose kind or key could not be read.
    pub unreadable: usize,
}

/// Why a response is not the audit log of the requested DID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditLogError {
    #[error("the audit log of {0} cannot be read: {1}")]
    Json(Did, JsonError),
    #[error("the audit log of {0} is not a JSON array")]
    NotAnArray(Did),
    #[error("entry {1} of the audit log of {0} lacks 'did', 'nullified' or 'operation'")]
    Entry(Did, usize),
    #[error("entry {1} of the audit log of {0} is about {2}")]
    OtherDid(Did, usize, Excerpt),
    #[error("entry {1} of the audit log of {0} has no valid 'createdAt'")]
    Moment(Did, usize),
}

/// Every entry of a DID's log, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditLog {
    pub entries: Vec<AuditEntry>,
}

/// One entry of an [`AuditLog`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// When the directory accepted the operation, in microseconds since 1970.
    pub created_micros: u64,
    /// Whether a later operation nullified this one.
    pub nullified: bool,
    pub said: Said,
}

/// What an operation says about the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The key and the address of the PDS. A value that cannot be used counts as `None`,
    /// as in documents.
    Identity {
        key: Option<PublicKey>,
        pds: Option<Endpoint>,
    },
    Tombstone,
    /// An operation of an unknown kind.
    Unknown,
}

enum Operation<'a> {
    /// The key, as a did:key.
    Key(&'a str),
    /// There is no signing key from here on: a tombstone, or an identity without a key.
    NoKey,
    Unknown,
}

impl KeyHistory {
    /// Parses the response to a request for the audit log of `did`, which lists the
    /// oldest entry first.
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
    /// Parses the response to a request for the audit log of `did`, which lists the
    /// oldest entry first.
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

    /// The entry in force: the last one that was not nullified.
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

/// The address of the PDS in an operation of the oldest kind, which often has no scheme.
/// Documents made from such operations say https.
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
