//! The errors of `/xrpc`, by the names of the lexicons.

use std::time::Duration;

use gapless_core::ledger::Account;
use gapless_store::error::StoreError;

/// An error response. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    RepoNotFound(String),
    #[error("{0}")]
    RepoTakendown(String),
    #[error("{0}")]
    RepoSuspended(String),
    #[error("{0}")]
    RepoDeactivated(String),
    #[error("{0}")]
    RecordNotFound(String),
    #[error("{0}")]
    BlockNotFound(String),
    /// A limit is reached; the client may retry after this time.
    #[error("{0}")]
    Busy(String, Duration),
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Internal(String),
}

impl ServeError {
    pub(crate) fn invalid(words: impl Into<String>) -> ServeError {
        ServeError::Invalid(words.into())
    }

    /// The name of the error, for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ServeError::Invalid(_) => "InvalidRequest",
            ServeError::RepoNotFound(_) => "RepoNotFound",
            ServeError::RepoTakendown(_) => "RepoTakendown",
            ServeError::RepoSuspended(_) => "RepoSuspended",
            ServeError::RepoDeactivated(_) => "RepoDeactivated",
            ServeError::RecordNotFound(_) => "RecordNotFound",
            ServeError::BlockNotFound(_) => "BlockNotFound",
            ServeError::Busy(..) => "NotEnoughResources",
            ServeError::Unavailable(_) => "Unavailable",
            ServeError::Internal(_) => "InternalServerError",
        }
    }

    /// The HTTP status. Every error that a lexicon names has 400, as in the reference PDS.
    pub(crate) fn status(&self) -> u16 {
        match self {
            ServeError::Busy(..) | ServeError::Unavailable(_) => 503,
            ServeError::Internal(_) => 500,
            _ => 400,
        }
    }

    /// The value of Retry-After, if the response has one.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            ServeError::Busy(_, after) => Some(*after),
            _ => None,
        }
    }
}

impl From<StoreError> for ServeError {
    fn from(error: StoreError) -> ServeError {
        if error.is_final() {
            ServeError::Unavailable(error.to_string())
        } else {
            ServeError::Internal(error.to_string())
        }
    }
}

/// The error for a repository that is hidden because of its account's state; `None` if it
/// is not hidden.
pub(crate) fn hidden(account: Account, did: &str) -> Option<ServeError> {
    match account {
        Account::Unknown | Account::Active => None,
        Account::Deactivated => Some(ServeError::RepoDeactivated(format!(
            "Repo has been deactivated: {did}"
        ))),
        Account::Suspended => Some(ServeError::RepoSuspended(format!(
            "Repo has been suspended: {did}"
        ))),
        Account::Takendown => Some(ServeError::RepoTakendown(format!(
            "Repo has been taken down: {did}"
        ))),
        // The lexicons have no error for a deleted account, because a PDS forgets it.
        Account::Deleted => Some(ServeError::RepoNotFound(format!(
            "Repo has been deleted: {did}"
        ))),
        Account::NotFound => Some(ServeError::RepoNotFound(format!(
            "Could not find repo: its host says that it does not have {did}"
        ))),
    }
}
