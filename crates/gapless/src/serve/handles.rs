//! Whose handle is it? Handles are accepted wherever the lexicons take one. None is
//! stored here: a handle is asked for, of the DNS first and then at its own domain, and
//! counts if the DID's document names it in turn. Answers are remembered for a while, a bounded number of them, and so are
//! failures, for a shorter while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gapless_atp::identity::DidDocument;
use gapless_atp::syntax::{AtIdentifier, Did, Handle};
use gapless_net::{HandleRecords, NameServer, Untold};
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::Semaphore;

use crate::serve::Serving;
use crate::serve::lookup::Exact;
use crate::serve::refuse::Refusal;
use crate::serve::tree_cache::{blocking, turn};

/// How long an answer counts, and a failure.
const REMEMBERED: Duration = Duration::from_secs(600);
const FAILURE_REMEMBERED: Duration = Duration::from_secs(60);
/// Answers that are remembered; then all are forgotten.
const ANSWERS: usize = 10_000;
/// Questions at a time.
const AT_A_TIME: usize = 16;
/// No question takes longer: somebody waits for the answer.
const ASK_WITHIN: Duration = Duration::from_secs(15);
/// What is said of an account without a handle that holds, by convention.
const NO_HANDLE: &str = "handle.invalid";

const TOO_LONG: &str = "no answer came in time";

/// An answer, and since when it is known.
type Known = (Instant, Result<Did, String>);

/// What is known of handles.
pub struct Handles {
    /// The service that is asked; none: the DNS, and the handle's own domain.
    resolver: Option<String>,
    records: HandleRecords,
    known: Mutex<HashMap<Handle, Known>>,
    asking: Arc<Semaphore>,
}

/// The answer of `describeRepo`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Described {
    pub handle: String,
    pub did: String,
    pub did_doc: Json,
    pub collections: Vec<String>,
    pub handle_is_correct: bool,
}

impl Handles {
    pub fn new(resolver: Option<String>, dns: NameServer) -> Handles {
        Handles {
            resolver,
            records: HandleRecords::new(dns),
            known: Mutex::default(),
            asking: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }

    fn recall(&self, handle: &Handle) -> Option<Result<Did, String>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = known.get(handle)?;
        let counts = match answer {
            Ok(_) => REMEMBERED,
            Err(_) => FAILURE_REMEMBERED,
        };
        (at.elapsed() < counts).then(|| answer.clone())
    }

    fn remember(&self, handle: &Handle, answer: Result<Did, String>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ANSWERS {
            known.clear();
        }
        known.insert(handle.clone(), (Instant::now(), answer));
    }
}

impl Serving {
    /// The DID that is meant.
    pub async fn did_of(&self, who: &AtIdentifier) -> Result<Did, Refusal> {
        match who {
            AtIdentifier::Did(did) => Ok(did.clone()),
            AtIdentifier::Handle(handle) => self.did_of_handle(handle).await,
        }
    }

    async fn did_of_handle(&self, handle: &Handle) -> Result<Did, Refusal> {
        let answer = match self.handles.recall(handle) {
            Some(answer) => answer,
            None => {
                let _turn = turn(&self.handles.asking, self.limits.turn).await?;
                let answer = self.resolve_handle(handle).await;
                self.handles.remember(handle, answer.clone());
                answer
            }
        };
        answer.map_err(Refusal::Invalid)
    }

    async fn resolve_handle(&self, handle: &Handle) -> Result<Did, String> {
        let unresolved = |why: &dyn std::fmt::Display| {
            format!("the handle {handle} could not be resolved: {why}; ask with the DID instead")
        };
        let asked = tokio::time::timeout(ASK_WITHIN, self.ask_whose(handle));
        let did = match asked.await.map_err(|_| unresolved(&TOO_LONG))? {
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

    /// The DID that a handle names, not confirmed yet.
    async fn ask_whose(&self, handle: &Handle) -> Result<Option<Did>, String> {
        let net = &self.net;
        if let Some(service) = &self.handles.resolver {
            let told = net.resolve_handle(handle, Some(service)).await;
            return told.map_err(|error| error.to_string());
        }
        net.may_be_asked(handle).map_err(|why| why.to_string())?;
        let untold = match self.handles.records.did_of(handle).await {
            Ok(Some(did)) => return Ok(Some(did)),
            Ok(None) => None,
            Err(Untold::Contradicting) => return Err(Untold::Contradicting.to_string()),
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

    /// A DID's document, as it came and as it was read.
    async fn document(&self, did: &Did) -> Result<(Json, DidDocument), String> {
        let asked = tokio::time::timeout(ASK_WITHIN, self.net.document(did));
        let body = asked.await.map_err(|_| TOO_LONG.to_owned())?;
        let body = body.map_err(|error| error.to_string())?;
        let read = DidDocument::parse(&body, did).map_err(|error| error.to_string())?;
        let json = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        Ok((json, read))
    }

    /// Who a repository is, and which collections it has.
    pub async fn describe(self: &Arc<Self>, did: &Did) -> Result<(Exact, Described), Refusal> {
        let (serving, asked) = (self.clone(), did.clone());
        let found = blocking(move || {
            let exact = serving.exact(&asked)?;
            let collections = serving.collections(&exact)?;
            Ok::<_, Refusal>((exact, collections))
        });
        let (exact, collections) = found.await??;
        let turn = turn(&self.handles.asking, self.limits.turn).await?;
        let (did_doc, document) = self.document(did).await.map_err(|error| {
            Refusal::Unavailable(format!("the document of {did} could not be read: {error}"))
        })?;
        drop(turn);
        let handle_is_correct = match &document.handle {
            Some(handle) => self.did_of_handle(handle).await.as_ref() == Ok(did),
            None => false,
        };
        let handle = document.handle.as_ref();
        let described = Described {
            handle: handle.map_or(NO_HANDLE, Handle::as_str).to_owned(),
            did: did.to_string(),
            did_doc,
            collections,
            handle_is_correct,
        };
        Ok((exact, described))
    }
}
