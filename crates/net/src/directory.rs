//! Resolves DIDs: host, key, and the version of the document.
//!
//! An older document must not replace a newer one. So every answer has a version that
//! grows with the document:
//! - 1 when the DID is first seen;
//! - for a did:plc that changed, the time in microseconds at which the directory
//!   accepted the operation, read from its audit log;
//! - for a did:web that changed, the previous version plus one, because a did:web has
//!   no history.
//!
//! If the directory is behind what is already known, or if its log and its document
//! disagree, the result is an error of its own, and the caller asks again later.

use std::time::Duration;

use gapless_atp::crypto::{Curve, PublicKey};
use gapless_atp::identity::{AuditEntry, AuditLog, DidDocument, KeyHistory, Said};
use gapless_atp::limits::{AUDIT_LOG_BYTES, DID_DOCUMENT_BYTES};
use gapless_atp::syntax::{Did, DidMethod, Handle};
use gapless_core::ledger::KeyBytes;
use url::Url;

use super::client::{
    MOST_REDIRECTS, Net, RequestLimits, Response, acquire_permit, apply_requested_pause, authority,
    parse,
};
use super::error::{AskClass, AskError, clean};
use super::guard::Trust;

/// The limits of a request for a DID document.
const DOCUMENT: RequestLimits = RequestLimits {
    total: Duration::from_secs(10),
    bytes: DID_DOCUMENT_BYTES as u64,
};
/// The limits of a request for an audit log.
const LOG: RequestLimits = RequestLimits {
    total: Duration::from_secs(10),
    bytes: AUDIT_LOG_BYTES as u64,
};
/// The wait before a directory that is behind is asked again; its replicas lag by less.
const RETRY_STALE_AFTER: Duration = Duration::from_secs(30);

/// What the caller already knows of a DID. After a tombstone, only the version is
/// known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownIdentity {
    /// The version of the last document; zero if nothing is known.
    pub version: u64,
    pub host: Option<String>,
    pub key: Option<KeyBytes>,
}

/// The content of a DID's document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedIdentity {
    /// The URL of the PDS, normalized.
    pub host: Option<String>,
    pub key: Option<KeyBytes>,
    /// Grows with every change of the document.
    pub version: u64,
    /// Whether the DID has a tombstone, that is, was given up for good.
    pub tombstoned: bool,
    /// The handle that the document claims, not verified.
    pub handle: Option<Handle>,
}

/// Why a DID could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the directory or web host of the DID does not know it")]
    NotFound,
    #[error("the DID's document and the directory's log disagree; Gapless asks again later")]
    Unsettled,
    #[error("the directory is behind what is known of the DID; Gapless asks again later")]
    Stale,
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The response is not a valid document or audit log of this DID.
    #[error("{0}")]
    Document(String),
}

impl ResolveError {
    /// How long to wait before another attempt, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ResolveError::Unsettled | ResolveError::Stale => Some(RETRY_STALE_AFTER),
            ResolveError::Ask(error) => error.retry_after,
            ResolveError::NotFound | ResolveError::Document(_) => None,
        }
    }
}

/// Converts a key into the form that the ledger stores.
pub fn key_bytes(key: &PublicKey) -> KeyBytes {
    let curve = match key.curve() {
        Curve::K256 => 0,
        Curve::P256 => 1,
    };
    KeyBytes {
        curve,
        point: key.to_compressed(),
    }
}

/// Converts a key from the form that the ledger stores; `None` if the bytes are not a key.
pub fn public_key(bytes: &KeyBytes) -> Option<PublicKey> {
    let curve = match bytes.curve {
        0 => Curve::K256,
        1 => Curve::P256,
        _ => return None,
    };
    PublicKey::from_compressed(curve, &bytes.point).ok()
}

impl Net {
    /// Resolves a DID to its present host, key and handle.
    pub async fn resolve(
        &self,
        did: &Did,
        known: KnownIdentity,
    ) -> Result<ResolvedIdentity, ResolveError> {
        let answer = match did.method() {
            DidMethod::Plc => self.ask_directory(did, "", DOCUMENT).await?,
            DidMethod::Web => self.ask_web(did).await?,
        };
        match (answer.status, did.method()) {
            (200, _) => (),
            (410, DidMethod::Plc) => return Ok(tombstoned(&known)),
            (404 | 410, _) => return Err(ResolveError::NotFound),
            _ => return Err(unexpected(did, &answer)),
        }
        let mut resolved = read_document(did, &answer.body)?;
        resolved.version = match (is_known(&resolved, &known), did.method()) {
            (true, _) => known.version.max(1),
            (false, _) if known.version == 0 => 1,
            (false, DidMethod::Plc) => self.version(did, &resolved, &known).await?,
            (false, DidMethod::Web) => known.version.saturating_add(1),
        };
        Ok(resolved)
    }

    /// Fetches the present document of a DID, verbatim.
    pub async fn document(&self, did: &Did) -> Result<bytes::Bytes, ResolveError> {
        let answer = match did.method() {
            DidMethod::Plc => self.ask_directory(did, "", DOCUMENT).await?,
            DidMethod::Web => self.ask_web(did).await?,
        };
        match answer.status {
            200 => Ok(answer.body),
            404 | 410 => Err(ResolveError::NotFound),
            _ => Err(unexpected(did, &answer)),
        }
    }

    /// Every signing key that a DID has ever had, newest first. Empty for a did:web, which has
    /// no history.
    pub async fn former_keys(&self, did: &Did) -> Result<Vec<PublicKey>, ResolveError> {
        if did.method() == DidMethod::Web {
            return Ok(Vec::new());
        }
        let body = self.audit_log(did).await?;
        let history = KeyHistory::parse(&body, did);
        let history = history.map_err(|error| ResolveError::Document(error.to_string()))?;
        Ok(history.keys)
    }

    /// The version of a document that differs from the known one, by the audit log.
    async fn version(
        &self,
        did: &Did,
        resolved: &ResolvedIdentity,
        known: &KnownIdentity,
    ) -> Result<u64, ResolveError> {
        let body = self.audit_log(did).await?;
        let log = AuditLog::parse(&body, did);
        let log = log.map_err(|error| ResolveError::Document(error.to_string()))?;
        version_by_log(&log, resolved, known)
    }

    async fn audit_log(&self, did: &Did) -> Result<bytes::Bytes, ResolveError> {
        let answer = self.ask_directory(did, "/log/audit", LOG).await?;
        match answer.status {
            200 => Ok(answer.body),
            404 => Err(ResolveError::NotFound),
            _ => Err(unexpected(did, &answer)),
        }
    }

    async fn ask_directory(
        &self,
        did: &Did,
        what: &str,
        limits: RequestLimits,
    ) -> Result<Response, ResolveError> {
        let url = parse(&format!("{}/{did}{what}", self.0.plc))?;
        let name = authority(&url);
        let _permit = acquire_permit(&self.0.directory, &name).await?;
        let asked = self.get_url(url, Trust::Configured, MOST_REDIRECTS, limits);
        let answer = asked.await?;
        apply_requested_pause(&self.0.directory, &name, answer.status, answer.retry_after);
        Ok(answer)
    }

    async fn ask_web(&self, did: &Did) -> Result<Response, ResolveError> {
        let url = self.web_url(did)?;
        let name = authority(&url);
        self.check(&url, Trust::Named)?;
        let _permit = acquire_permit(&self.0.web_documents, &name).await?;
        // Follow no redirects: the target of one could speak for the DID.
        let answer = self.get_url(url, Trust::Named, 0, DOCUMENT).await?;
        let hosts = &self.0.web_documents;
        apply_requested_pause(hosts, &name, answer.status, answer.retry_after);
        Ok(answer)
    }

    /// The URL of a did:web document. A port occurs only in test networks, where it means
    /// plain HTTP.
    fn web_url(&self, did: &Did) -> Result<Url, AskError> {
        let host = did.web_host().unwrap_or_default();
        let scheme = if self.0.allow_private && host.contains(':') {
            "http"
        } else {
            "https"
        };
        parse(&format!("{scheme}://{host}/.well-known/did.json"))
    }
}

fn unexpected(did: &Did, answer: &Response) -> ResolveError {
    let said = clean(&String::from_utf8_lossy(&answer.body));
    let status = answer.status;
    let error = AskError {
        class: AskClass::Http(status),
        retry_after: answer.retry_after,
        message: format!("the directory answered the request for {did} with {status}: {said}"),
    };
    ResolveError::Ask(error)
}

fn tombstoned(known: &KnownIdentity) -> ResolvedIdentity {
    ResolvedIdentity {
        host: None,
        key: None,
        version: known.version.max(1),
        tombstoned: true,
        handle: None,
    }
}

fn read_document(did: &Did, body: &[u8]) -> Result<ResolvedIdentity, ResolveError> {
    let document = DidDocument::parse(body, did);
    let document = document.map_err(|error| ResolveError::Document(error.to_string()))?;
    Ok(ResolvedIdentity {
        host: document.usable_pds().map(|pds| pds.as_str().to_owned()),
        key: document.usable_key().map(key_bytes),
        version: 0,
        tombstoned: false,
        handle: document.handle,
    })
}

fn is_known(resolved: &ResolvedIdentity, known: &KnownIdentity) -> bool {
    known.version > 0 && resolved.host == known.host && resolved.key == known.key
}

/// The version of a document by the log: the last entry of the log must match the
/// document, and some entry must match what is known.
fn version_by_log(
    log: &AuditLog,
    resolved: &ResolvedIdentity,
    known: &KnownIdentity,
) -> Result<u64, ResolveError> {
    let last = log.in_force();
    let last = last.filter(|last| matches_identity(last, resolved.host.as_deref(), resolved.key));
    let Some(last) = last else {
        return Err(ResolveError::Unsettled);
    };
    // Version 1 is not a time that could be compared, so only the log can show that the
    // known document came before. A nullified entry counts too.
    let heard = |entry: &AuditEntry| matches_identity(entry, known.host.as_deref(), known.key);
    if known.version == 1 && !log.entries.iter().any(heard) {
        return Err(ResolveError::Stale);
    }
    Ok(last.created_micros)
}

fn matches_identity(entry: &AuditEntry, host: Option<&str>, key: Option<KeyBytes>) -> bool {
    let (their_host, their_key) = match &entry.said {
        Said::Identity { key, pds } => (
            pds.as_ref().map(|pds| pds.as_str()),
            key.as_ref().map(key_bytes),
        ),
        Said::Tombstone | Said::Unknown => (None, None),
    };
    their_host == host && their_key == key
}

#[cfg(test)]
mod tests;
