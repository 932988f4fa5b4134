//! Who a DID is: which host, which key, and since when.
//!
//! An older document must move nothing. So every answer has a version that grows
//! with the document: 1 when it is first seen; for a did:plc that changed, the
//! moment at which the directory took the operation that made it so, in
//! microseconds, read from its audit log; for a did:web that changed, one more
//! than before, because a did:web has no past. A directory that is behind what
//! is already known, or whose log and document disagree, is told apart and asked
//! again later.

use std::time::Duration;

use gapless_atp::crypto::{Curve, PublicKey};
use gapless_atp::identity::{AuditEntry, AuditLog, DidDocument, KeyHistory, Said};
use gapless_atp::limits::{AUDIT_LOG_BYTES, DID_DOCUMENT_BYTES};
use gapless_atp::syntax::{Did, DidMethod};
use gapless_core::ledger::KeyBytes;
use url::Url;

use super::client::{Answer, Limits, MOST_REDIRECTS, Net, authority, heed, parse, turn};
use super::error::{AskClass, AskError, clean};
use super::guard::Trust;

/// Who is a DID now?
const DOCUMENT: Limits = Limits {
    total: Duration::from_secs(10),
    bytes: DID_DOCUMENT_BYTES as u64,
};
/// Who was it ever?
const LOG: Limits = Limits {
    total: Duration::from_secs(10),
    bytes: AUDIT_LOG_BYTES as u64,
};
/// When a directory that is behind is asked again: replicas lag by less.
const LAG: Duration = Duration::from_secs(30);

/// What the caller already knows of a DID. After a tombstone it knows a version
/// but neither host nor key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Zero if nothing is known.
    pub version: u64,
    pub host: Option<String>,
    pub key: Option<KeyBytes>,
}

/// What a DID's document says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The PDS, in the one spelling that an endpoint has.
    pub host: Option<String>,
    pub key: Option<KeyBytes>,
    /// Grows with every change of the document.
    pub version: u64,
    /// The DID was given up for good.
    pub tombstoned: bool,
    /// Claimed, not confirmed.
    pub handle: Option<String>,
}

/// Why a DID could not be resolved. The caller knows which.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the DID is not known where its document should be")]
    NotFound,
    #[error("the DID's document and the directory's log disagree; it is asked again later")]
    Unsettled,
    #[error("the directory is behind what is known of the DID; it is asked again later")]
    Stale,
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The answer is no document or no log of this DID.
    #[error("{0}")]
    Document(String),
}

impl ResolveError {
    /// When it is worth asking again, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ResolveError::Unsettled | ResolveError::Stale => Some(LAG),
            ResolveError::Ask(error) => error.retry_after,
            ResolveError::NotFound | ResolveError::Document(_) => None,
        }
    }
}

/// A key as the ledger keeps it.
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

/// The key that the ledger kept, if these bytes are one.
pub fn public_key(bytes: &KeyBytes) -> Option<PublicKey> {
    let curve = match bytes.curve {
        0 => Curve::K256,
        1 => Curve::P256,
        _ => return None,
    };
    PublicKey::from_compressed(curve, &bytes.point).ok()
}

impl Net {
    /// Asks who a DID is now.
    pub async fn resolve(&self, did: &Did, known: Known) -> Result<Resolved, ResolveError> {
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
        resolved.version = match (same(&resolved, &known), did.method()) {
            (true, _) => known.version.max(1),
            (false, _) if known.version == 0 => 1,
            (false, DidMethod::Plc) => self.version(did, &resolved, &known).await?,
            (false, DidMethod::Web) => known.version.saturating_add(1),
        };
        Ok(resolved)
    }

    /// A DID's document as it is now, word for word.
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

    /// Every key that a DID ever signed with, newest first. A did:web has no past.
    pub async fn former_keys(&self, did: &Did) -> Result<Vec<PublicKey>, ResolveError> {
        if did.method() == DidMethod::Web {
            return Ok(Vec::new());
        }
        let body = self.audit_log(did).await?;
        let history = KeyHistory::parse(&body, did);
        let history = history.map_err(|error| ResolveError::Document(error.to_string()))?;
        Ok(history.keys)
    }

    /// When a document that differs from the known one came about.
    async fn version(
        &self,
        did: &Did,
        resolved: &Resolved,
        known: &Known,
    ) -> Result<u64, ResolveError> {
        let body = self.audit_log(did).await?;
        let log = AuditLog::parse(&body, did);
        let log = log.map_err(|error| ResolveError::Document(error.to_string()))?;
        settle(&log, resolved, known)
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
        limits: Limits,
    ) -> Result<Answer, ResolveError> {
        let url = parse(&format!("{}/{did}{what}", self.0.plc))?;
        let name = authority(&url);
        let _permit = turn(&self.0.directory, &name).await?;
        let asked = self.get_url(url, Trust::Configured, MOST_REDIRECTS, limits);
        let answer = asked.await?;
        heed(&self.0.directory, &name, answer.status, answer.retry_after);
        Ok(answer)
    }

    async fn ask_web(&self, did: &Did) -> Result<Answer, ResolveError> {
        let url = self.web_url(did)?;
        let name = authority(&url);
        self.check(&url, Trust::Named)?;
        let _permit = turn(&self.0.web_documents, &name).await?;
        // Whoever may redirect a document could speak for the DID: not followed.
        let answer = self.get_url(url, Trust::Named, 0, DOCUMENT).await?;
        let hosts = &self.0.web_documents;
        heed(hosts, &name, answer.status, answer.retry_after);
        Ok(answer)
    }

    /// Where a did:web keeps its document. Only a test network has ports, and
    /// no certificates for them.
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

fn unexpected(did: &Did, answer: &Answer) -> ResolveError {
    let said = clean(&String::from_utf8_lossy(&answer.body));
    let status = answer.status;
    let error = AskError {
        class: AskClass::Http(status),
        retry_after: answer.retry_after,
        message: format!("asked for {did}, its directory answered with {status}: {said}"),
    };
    ResolveError::Ask(error)
}

fn tombstoned(known: &Known) -> Resolved {
    Resolved {
        host: None,
        key: None,
        version: known.version.max(1),
        tombstoned: true,
        handle: None,
    }
}

fn read_document(did: &Did, body: &[u8]) -> Result<Resolved, ResolveError> {
    let document = DidDocument::parse(body, did);
    let document = document.map_err(|error| ResolveError::Document(error.to_string()))?;
    Ok(Resolved {
        host: document.usable_pds().map(|pds| pds.as_str().to_owned()),
        key: document.usable_key().map(key_bytes),
        version: 0,
        tombstoned: false,
        handle: document.handle.map(|handle| handle.as_str().to_owned()),
    })
}

fn same(resolved: &Resolved, known: &Known) -> bool {
    known.version > 0 && resolved.host == known.host && resolved.key == known.key
}

/// The version of a document by the log: the log's last word must be the
/// document, and what we know must have been its word once.
fn settle(log: &AuditLog, resolved: &Resolved, known: &Known) -> Result<u64, ResolveError> {
    let last = log.in_force();
    let last = last.filter(|last| says(last, resolved.host.as_deref(), resolved.key));
    let Some(last) = last else {
        return Err(ResolveError::Unsettled);
    };
    // A first sight has no moment to compare: then only the log tells whether
    // what we know came before. An entry that was nullified did.
    let heard = |entry: &AuditEntry| says(entry, known.host.as_deref(), known.key);
    if known.version == 1 && !log.entries.iter().any(heard) {
        return Err(ResolveError::Stale);
    }
    Ok(last.created_micros)
}

fn says(entry: &AuditEntry, host: Option<&str>, key: Option<KeyBytes>) -> bool {
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
