//! Which repositories are there, and in which state?
//!
//! A cursor is the number that a repository has here: numbers are never used twice and
//! never change, so a listing neither repeats nor leaves out what was there all the
//! time. A page looks at a bounded number of repositories; it may be short or empty and
//! have a cursor all the same.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Account, RepoId, account};
use serde::Serialize;

use crate::serve::Serving;
use crate::serve::limits::LOOKED_AT;
use crate::serve::refuse::Refusal;

/// An entry of `listRepos`.
#[derive(Debug, Serialize)]
pub struct Listed {
    pub did: String,
    pub head: String,
    pub rev: String,
    pub active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'static str>,
}

#[derive(Debug, Default, Serialize)]
pub struct ReposPage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    pub repos: Vec<Listed>,
}

/// An entry of `listReposByCollection`.
#[derive(Debug, Serialize)]
pub struct Named {
    pub did: String,
}

#[derive(Debug, Default, Serialize)]
pub struct NamesPage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    pub repos: Vec<Named>,
}

/// The answer of `getRepoStatus`.
#[derive(Debug, Serialize)]
pub struct RepoStatus {
    pub did: String,
    pub active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rev: Option<String>,
}

/// The lexicon's word for an account that is not active; a host that does not have
/// the repository makes no claim.
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
    pub fn repo_status(&self, did: &Did) -> Result<RepoStatus, Refusal> {
        let (_, repo) = self.known(&self.services.store.view(), did)?;
        let shown = !account::is_hidden(repo.account);
        let head = repo.head().filter(|_| shown);
        Ok(RepoStatus {
            did: did.to_string(),
            active: head.is_some(),
            status: if shown && head.is_none() {
                // No exact state is held at the moment.
                Some("desynchronized")
            } else {
                status_of(repo.account)
            },
            rev: head.map(|head| head.rev.to_string()),
        })
    }

    /// Repositories of which a state is held, hidden ones with their state.
    pub fn list_repos(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, Refusal> {
        let mut page = ReposPage::default();
        page.cursor = self.look(after, |_, repo| {
            if let Some(head) = repo.head() {
                page.repos.push(Listed {
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

    /// Repositories that are shown and have a record in a collection: one look into
    /// each, since no index has it.
    pub fn list_by_collection(
        &self,
        collection: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<NamesPage, Refusal> {
        self.needs_keys_of(collection)?;
        let prefix = format!("{collection}/");
        let mut page = NamesPage::default();
        page.cursor = self.look(after, |id, repo| {
            if repo.head().is_some() && !account::is_hidden(repo.account) {
                let view = self.services.store.view();
                let first = view.records_with_prefix(id, prefix.as_bytes()).next();
                // What was fetched for another filter may have some: its host knows.
                let unknown = repo.filter != self.services.rules.settings.filter;
                if unknown || first.transpose()?.is_some() {
                    let did = repo.did.to_string();
                    page.repos.push(Named { did });
                }
            }
            Ok(page.repos.len() < limit)
        })?;
        Ok(page)
    }

    /// Looks at repositories until enough were found or so many were looked at; where
    /// to go on, unless there are no more.
    fn look(
        &self,
        after: Option<u64>,
        mut more: impl FnMut(RepoId, &gapless_core::ledger::Repo) -> Result<bool, Refusal>,
    ) -> Result<Option<String>, Refusal> {
        let from = RepoId(after.map_or(0, |after| after.saturating_add(1)));
        let rows = self.services.store.view().repos(from);
        for (looked, row) in rows.enumerate() {
            let (id, repo) = row?;
            if !more(id, &repo)? || looked + 1 == LOOKED_AT {
                return Ok(Some(id.0.to_string()));
            }
        }
        Ok(None)
    }

    /// Whether the keys of a collection are held.
    pub(super) fn needs_keys_of(&self, collection: &str) -> Result<(), Refusal> {
        use gapless_core::filter::Keep;
        let path = format!("{collection}/");
        match self.services.rules.filter.keep(path.as_bytes()) {
            Keep::Record | Keep::Key => Ok(()),
            Keep::Nothing => Err(Refusal::invalid(format!(
                "{}, and {collection} is none of that",
                self.keeps_only()
            ))),
        }
    }
}
