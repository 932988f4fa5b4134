//! Resolves handles, which are accepted wherever the lexicons take one. Gapless stores no
//! handles: it asks the DNS first and then the handle's own domain, and accepts the DID if
//! its document names the handle in turn. At most [`CACHED_HANDLES`] answers are cached:
//! DIDs for [`DID_CACHED_FOR`], failures for [`FAILURE_CACHED_FOR`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless_atp::identity::DidDocument;
use gapless_atp::syntax::{AtIdentifier, Did, Handle};
use gapless_net::{DnsLookupError, HandleRecords, NameServer};
use quick_cache::sync::Cache;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::Semaphore;

use crate::serve::Serving;
use crate::serve::lookup::ServedState;
use crate::serve::refuse::ServeError;
use crate::serve::tree_cache::{acquire_permit, run_blocking};

/// How long a DID and a failure are cached.
const DID_CACHED_FOR: Duration = Duration::from_secs(600);
const FAILURE_CACHED_FOR: Duration = Duration::from_secs(60);
/// Answers that are cached.
const CACHED_HANDLES: usize = 10_000;
/// Lookups that run at the same time.
const CONCURRENT_LOOKUPS: usize = 16;
/// The time limit of a lookup, for which a client waits.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);
/// Stands for a missing or unconfirmed handle, by convention.
const NO_HANDLE: &str = "handle.invalid";

const TOO_LONG: &str = "no answer came in time";

/// A cached answer, and when it was cached.
type CachedHandle = (Instant, Result<Did, String>);

/// Resolves handles and caches the answers.
pub(crate) struct HandleResolver {
    /// The service that resolves handles; `None` asks the DNS and the handle's own domain.
    resolver: Option<String>,
    records: HandleRecords,
    cache: Cache<Handle, CachedHandle>,
    lookups: Arc<Semaphore>,
}

/// The output of `describeRepo`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeRepoOutput {
    pub(crate) handle: String,
    pub(crate) did: String,
    pub(crate) did_doc: Json,
    pub(crate) collections: Vec<String>,
    pub(crate) handle_is_correct: bool,
}

impl HandleResolver {
    pub(crate) fn new(resolver: Option<String>, dns: NameServer) -> HandleResolver {
        HandleResolver {
            resolver,
            records: HandleRecords::new(dns),
            cache: Cache::new(CACHED_HANDLES),
            lookups: Arc::new(Semaphore::new(CONCURRENT_LOOKUPS)),
        }
    }

    fn cached(&self, handle: &Handle) -> Option<Result<Did, String>> {
        let (at, answer) = self.cache.get(handle)?;
        let counts = match answer {
            Ok(_) => DID_CACHED_FOR,
            Err(_) => FAILURE_CACHED_FOR,
        };
        (at.elapsed() < counts).then_some(answer)
    }

    fn cache_answer(&self, handle: &Handle, answer: Result<Did, String>) {
        self.cache.insert(handle.clone(), (Instant::now(), answer));
    }
}

impl Serving {
    /// The DID of a DID or handle.
    pub(crate) async fn did_of(&self, who: &AtIdentifier) -> Result<Did, ServeError> {
        match who {
            AtIdentifier::Did(did) => Ok(did.clone()),
            AtIdentifier::Handle(handle) => self.did_of_handle(handle).await,
        }
    }

    async fn did_of_handle(&self, handle: &Handle) -> Result<Did, ServeError> {
        let answer = match self.handles.cached(handle) {
            Some(answer) => answer,
            None => {
                let _permit = acquire_permit(&self.handles.lookups, self.limits.turn).await?;
                let answer = self.resolve_handle(handle).await;
                self.handles.cache_answer(handle, answer.clone());
                answer
            }
        };
        answer.map_err(ServeError::Invalid)
    }

    async fn resolve_handle(&self, handle: &Handle) -> Result<Did, String> {
        let unresolved = |why: &dyn std::fmt::Display| {
            format!("the handle {handle} could not be resolved: {why}; ask with the DID instead")
        };
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, self.look_up_did(handle));
        let did = match lookup.await.map_err(|_| unresolved(&TOO_LONG))? {
            Ok(Some(did)) => did,
            Ok(None) => return Err(unresolved(&"it names no DID")),
            Err(error) => return Err(unresolved(&error)),
        };
        let (_, document) = self
            .document(&did)
            .await
            .map_err(|error| unresolved(&error))?;
        if document.handle.as_ref() == Some(handle) {
            Ok(did)
        } else {
            Err(unresolved(&format!(
                "it names {did}, whose document does not name it"
            )))
        }
    }

    /// The DID that a handle names, not yet confirmed by its document.
    async fn look_up_did(&self, handle: &Handle) -> Result<Option<Did>, String> {
        let net = &self.net;
        if let Some(service) = &self.handles.resolver {
            let told = net.resolve_handle(handle, Some(service)).await;
            return told.map_err(|error| error.to_string());
        }
        net.may_be_asked(handle).map_err(|why| why.to_string())?;
        let untold = match self.handles.records.did_of(handle).await {
            Ok(Some(did)) => return Ok(Some(did)),
            Ok(None) => None,
            Err(DnsLookupError::Contradicting) => {
                return Err(DnsLookupError::Contradicting.to_string());
            }
            Err(failed) => Some(failed),
        };
        match (net.resolve_handle(handle, None).await, untold) {
            (Ok(Some(did)), _) => Ok(Some(did)),
            (Ok(None), None) => Ok(None),
            (Ok(None), Some(failed)) => Err(format!("its domain names no DID, and {failed}")),
            (Err(error), None) => Err(error.to_string()),
            (Err(error), Some(failed)) => Err(format!("{error}, and {failed}")),
        }
    }

    /// A DID's document, as received and parsed.
    async fn document(&self, did: &Did) -> Result<(Json, DidDocument), String> {
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, self.net.document(did));
        let body = lookup.await.map_err(|_| TOO_LONG.to_owned())?;
        let body = body.map_err(|error| error.to_string())?;
        let read = DidDocument::parse(&body, did).map_err(|error| error.to_string())?;
        let json = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        Ok((json, read))
    }

    /// Describes a repository: its identity and its collections.
    pub(crate) async fn describe(
        self: &Arc<Self>,
        did: &Did,
    ) -> Result<(ServedState, DescribeRepoOutput), ServeError> {
        let (serving, asked) = (self.clone(), did.clone());
        let found = run_blocking(move || {
            let state = serving.served_state(&asked)?;
            let collections = serving.collections(&state)?;
            Ok::<_, ServeError>((state, collections))
        });
        let (state, collections) = found.await??;
        let permit = acquire_permit(&self.handles.lookups, self.limits.turn).await?;
        let (did_doc, document) = self.document(did).await.map_err(|error| {
            ServeError::Unavailable(format!("the document of {did} could not be read: {error}"))
        })?;
        drop(permit);
        let handle_is_correct = match &document.handle {
            Some(handle) => self.did_of_handle(handle).await.as_ref() == Ok(did),
            None => false,
        };
        let handle = document.handle.as_ref();
        let described = DescribeRepoOutput {
            handle: handle.map_or(NO_HANDLE, Handle::as_str).to_owned(),
            did: did.to_string(),
            did_doc,
            collections,
            handle_is_correct,
        };
        Ok((state, described))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: usize) -> Handle {
        Handle::parse(&format!("name{number}.example.com")).expect("a handle")
    }

    #[test]
    fn a_full_cache_of_answers_forgets_one_at_a_time() {
        let handles = HandleResolver::new(None, NameServer::Off);
        let did = Did::parse("did:web:example.com").expect("a DID");
        for number in 0..CACHED_HANDLES + 10 {
            handles.cache_answer(&handle(number), Ok(did.clone()));
            assert_eq!(handles.cached(&handle(number)), Some(Ok(did.clone())));
        }
        assert!(handles.cache.len() <= CACHED_HANDLES);
        let kept =
            (0..CACHED_HANDLES + 10).filter(|number| handles.cached(&handle(*number)).is_some());
        assert!(kept.count() > CACHED_HANDLES * 9 / 10);
    }
}
