//! Lists repositories and their states.
//!
//! A cursor is the local number of a repository. Numbers are never reused and never change,
//! so a listing neither repeats nor omits a repository that existed throughout. A page
//! scans at most [`REPOS_SCANNED_PER_PAGE`] repositories; it may be short or empty and
//! still have a cursor.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Account, RepoId, account};
use serde::Serialize;

use crate::serve::Serving;
use crate::serve::limits::REPOS_SCANNED_PER_PAGE;
use crate::serve::refuse::ServeError;

/// An entry of `listRepos`.
#[derive(Debug, Serialize)]
pub(crate) struct ListReposEntry {
    pub(crate) did: String,
    pub(crate) head: String,
    pub(crate) rev: String,
    pub(crate) active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<&'static str>,
}

/// The output of `listRepos`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ListReposOutput {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
    pub(crate) repos: Vec<ListReposEntry>,
}

/// An entry of `listReposByCollection`.
#[derive(Debug, Serialize)]
pub(crate) struct ListByCollectionEntry {
    pub(crate) did: String,
}

/// The output of `listReposByCollection`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ListByCollectionOutput {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
    pub(crate) repos: Vec<ListByCollectionEntry>,
}

/// The output of `getRepoStatus`.
#[derive(Debug, Serialize)]
pub(crate) struct RepoStatusOutput {
    pub(crate) did: String,
    pub(crate) active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rev: Option<String>,
}

/// The lexicon's word for an account that is not active. A host that does not have the
/// repository says nothing about the account.
fn status_of(account: Account) -> Option<&'static str> {
    match account {
        Account::Unknown | Account::Active | Account::NotFound => None,
        Account::Deactivated => Some("deactivated"),
        Account::Suspended => Some("suspended"),
        Account::Takendown => Some("takendown"),
        Account::Deleted => Some("deleted"),
    }
}

impl Serving {
    pub(crate) fn repo_status(&self, did: &Did) -> Result<RepoStatusOutput, ServeError> {
        let (_, repo) = self.find_repo(&self.services.store.view(), did)?;
        let shown = !account::is_hidden(repo.account);
        let head = repo.head().filter(|_| shown);
        Ok(RepoStatusOutput {
            did: did.to_string(),
            active: head.is_some(),
            status: if shown && head.is_none() {
                // No signed state is held at the moment.
                Some("desynchronized")
            } else {
                status_of(repo.account)
            },
            rev: head.map(|head| head.rev.to_string()),
        })
    }

    /// Lists repositories of which a signed state is held. A hidden repository has the
    /// state of its account.
    pub(crate) fn list_repos(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ListReposOutput, ServeError> {
        let mut page = ListReposOutput::default();
        page.cursor = self.scan_repos(after, |_, repo| {
            if let Some(head) = repo.head() {
                page.repos.push(ListReposEntry {
                    did: repo.did.to_string(),
                    head: head.commit.to_string(),
                    rev: head.rev.to_string(),
                    active: !account::is_hidden(repo.account),
                    status: status_of(repo.account),
                });
            }
            Ok(page.repos.len() < limit)
        })?;
        Ok(page)
    }

    /// Lists repositories that are not hidden and have a record in a collection. Without
    /// an index, this seeks in each repository.
    pub(crate) fn list_by_collection(
        &self,
        collection: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ListByCollectionOutput, ServeError> {
        self.require_keys_of(collection)?;
        let prefix = format!("{collection}/");
        let mut page = ListByCollectionOutput::default();
        page.cursor = self.scan_repos(after, |id, repo| {
            if repo.head().is_some() && !account::is_hidden(repo.account) {
                let view = self.services.store.view();
                let first = view.records_with_prefix(id, prefix.as_bytes()).next();
                // A repository that was fetched for another filter may have records.
                let unknown = repo.filter != self.services.rules.settings.filter;
                if unknown || first.transpose()?.is_some() {
                    let did = repo.did.to_string();
                    page.repos.push(ListByCollectionEntry { did });
                }
            }
            Ok(page.repos.len() < limit)
        })?;
        Ok(page)
    }

    /// Passes repositories to `visit` until that returns false or the limit of one page is
    /// reached. Returns the cursor of the next page, if there may be one.
    fn scan_repos(
        &self,
        after: Option<u64>,
        mut visit: impl FnMut(RepoId, &gapless_core::ledger::Repo) -> Result<bool, ServeError>,
    ) -> Result<Option<String>, ServeError> {
        let from = RepoId(after.map_or(0, |after| after.saturating_add(1)));
        let rows = self.services.store.view().repos(from);
        for (scanned, row) in rows.enumerate() {
            let (id, repo) = row?;
            if !visit(id, &repo)? || scanned + 1 == REPOS_SCANNED_PER_PAGE {
                return Ok(Some(id.0.to_string()));
            }
        }
        Ok(None)
    }

    /// Fails if the filter does not keep the keys of a collection.
    pub(super) fn require_keys_of(&self, collection: &str) -> Result<(), ServeError> {
        use gapless_core::filter::Keep;
        let path = format!("{collection}/");
        match self.services.rules.filter.keep(path.as_bytes()) {
            Keep::Record | Keep::Key => Ok(()),
            Keep::Nothing => Err(ServeError::invalid(format!(
                "{}, and {collection} is none of that",
                self.describe_filter()
            ))),
        }
    }
}
