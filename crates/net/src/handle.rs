//! Resolves handles by HTTP: at the handle's own domain, which the protocol uses if the DNS
//! ([`super::dns`]) has no answer, or through a service that the operator configured, which
//! uses both. The caller must compare the result with the DID's document: a handle is valid
//! only if the document names it too.

use std::time::Duration;

use gapless_atp::limits::DID_BYTES;
use gapless_atp::syntax::{Did, Handle};
use serde::Deserialize;

use super::client::{
    MOST_REDIRECTS, Net, RequestLimits, acquire_permit, apply_requested_pause, authority, parse,
};
use super::error::{AskClass, AskError};
use super::guard::{BlockedAddress, Trust, check_handle};

/// The limits of one request for a handle.
const HANDLE: RequestLimits = RequestLimits {
    total: Duration::from_secs(10),
    bytes: 2 * DID_BYTES as u64,
};

#[derive(Deserialize)]
struct HandleAnswer {
    did: String,
}

impl Net {
    /// Checks whether a handle may be looked up by the DNS or at its domain.
    pub fn may_be_asked(&self, handle: &Handle) -> Result<(), BlockedAddress> {
        check_handle(handle.as_str(), self.0.allow_private)
    }

    /// The DID that a handle names; `None` if the answer names none.
    pub async fn resolve_handle(
        &self,
        handle: &Handle,
        service: Option<&str>,
    ) -> Result<Option<Did>, AskError> {
        let (url, trust) = match service {
            Some(service) => {
                let method = "xrpc/com.atproto.identity.resolveHandle";
                let url = parse(&format!("{service}/{method}?handle={handle}"))?;
                (url, Trust::Configured)
            }
            None => {
                let url = parse(&format!("https://{handle}/.well-known/atproto-did"))?;
                self.check(&url, Trust::Named)?;
                (url, Trust::Named)
            }
        };
        let name = authority(&url);
        let hosts = match trust {
            Trust::Configured => &self.0.hosts,
            Trust::Named => &self.0.web_documents,
        };
        let _permit = acquire_permit(hosts, &name).await?;
        let answer = self.get_url(url, trust, MOST_REDIRECTS, HANDLE).await?;
        apply_requested_pause(hosts, &name, answer.status, answer.retry_after);
        match (answer.status, service) {
            (200, Some(_)) => {
                let read = serde_json::from_slice::<HandleAnswer>(&answer.body).ok();
                Ok(read.and_then(|read| Did::parse(&read.did).ok()))
            }
            (200, None) => {
                let text = std::str::from_utf8(&answer.body).unwrap_or_default();
                Ok(Did::parse(text.trim()).ok())
            }
            (400 | 404 | 410, _) => Ok(None),
            (status, _) => {
                let what = format!("it answered the request for the handle {handle} with {status}");
                let error = AskError::new(AskClass::Http(status), &name, what);
                Err(error.after(answer.retry_after))
            }
        }
    }
}
