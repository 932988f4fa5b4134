//! Why there is no answer, by the names that the lexicons have for it.

use std::time::Duration;

use gapless_core::ledger::Account;
use gapless_store::error::StoreError;

/// A question that is not answered. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
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
    /// Too many ask at a time; when to come again.
    #[error("{0}")]
    Busy(String, Duration),
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Internal(String),
}

impl Refusal {
    pub fn invalid(words: impl Into<String>) -> Refusal {
        Refusal::Invalid(words.into())
    }

    /// The name that programs branch on.
    pub fn name(&self) -> &'static str {
        match self {
            Refusal::Invalid(_) => "InvalidRequest",
            Refusal::RepoNotFound(_) => "RepoNotFound",
            Refusal::RepoTakendown(_) => "RepoTakendown",
            Refusal::RepoSuspended(_) => "RepoSuspended",
            Refusal::RepoDeactivated(_) => "RepoDeactivated",
            Refusal::RecordNotFound(_) => "RecordNotFound",
            Refusal::BlockNotFound(_) => "BlockNotFound",
            Refusal::Busy(..) => "NotEnoughResources",
            Refusal::Unavailable(_) => "Unavailable",
            Refusal::Internal(_) => "InternalServerError",
        }
    }

    /// Its status: everything that a lexicon names is a 400, as the reference PDS
    /// has it.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Busy(..) | Refusal::Unavailable(_) => 503,
            Refusal::Internal(_) => 500,
            _ => 400,
        }
    }

    /// When it is worth asking again, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Refusal::Busy(_, after) => Some(*after),
            _ => None,
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        if error.is_final() {
            Refusal::Unavailable(error.to_string())
        } else {
            Refusal::Internal(error.to_string())
        }
    }
}

/// What is said of a repository that an account's state hides.
pub fn hidden(account: Account, did: &str) -> Option<Refusal> {
    match account {
        Account::Unknown | Account::Active => None,
        Account::Deactivated => Some(Refusal::RepoDeactivated(format!(
            "Repo has been deactivated: {did}"
        ))),
        Account::Suspended => Some(Refusal::RepoSuspended(format!(
            "Repo has been suspended: {did}"
        ))),
        Account::Takendown => Some(Refusal::RepoTakendown(format!(
            "Repo has been taken down: {did}"
        ))),
        // A PDS forgets the accounts that it deleted, and so do the lexicons.
        Account::Deleted => Some(Refusal::RepoNotFound(format!(
            "Repo has been deleted: {did}"
        ))),
        Account::NotFound => Some(Refusal::RepoNotFound(format!(
            "Could not find repo: its host says that it does not have {did}"
        ))),
    }
}
