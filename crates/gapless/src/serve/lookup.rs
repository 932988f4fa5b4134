//! Finds a repository and decides whether its state may be served.
//!
//! Only one whole signed state is served. A repository that is being fetched, is damaged,
//! or was fetched for another filter is refused with that reason; a hidden repository is
//! refused with the state of its account.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Head, Held, Repo, RepoId, account, cover};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;

use crate::serve::refuse::{self, ServeError};
use crate::serve::{Serving, evidence};

/// A signed state of a repository that may be served, and a view that has it.
#[derive(Clone)]
pub struct ServedState {
    pub(crate) id: RepoId,
    pub(crate) did: Did,
    pub head: Head,
    /// How well the state is proven, for the header of the response.
    pub(crate) evidence: String,
    pub(crate) view: ReadView,
}

impl Serving {
    /// Finds a repository, whatever its state.
    pub(crate) fn find_repo(
        &self,
        view: &ReadView,
        did: &Did,
    ) -> Result<(RepoId, Repo), ServeError> {
        let found = view.repo_by_did(did)?;
        let found = found.filter(|(_, repo)| !cover::is_bare_name(repo));
        found.ok_or_else(|| {
            ServeError::RepoNotFound(format!("Could not find repo: {did} is not mirrored here"))
        })
    }

    /// The state of a repository that is not hidden and of which a signed state is held.
    pub fn held_state(&self, did: &Did) -> Result<ServedState, ServeError> {
        let view = self.services.store.view();
        let (id, repo) = self.find_repo(&view, did)?;
        if let Some(refusal) = refuse::hidden(repo.account, did.as_str()) {
            return Err(refusal);
        }
        let head = head_of(&repo)?;
        let evidence = evidence::describe(&self.services, &repo);
        Ok(ServedState {
            id,
            did: did.clone(),
            head,
            evidence,
            view,
        })
    }

    /// The state of a repository that is not hidden and of which everything that the filter
    /// wants is held.
    pub(crate) fn served_state(&self, did: &Did) -> Result<ServedState, ServeError> {
        let state = self.held_state(did)?;
        let repo = state.view.repo(state.id)?;
        if repo.is_some_and(|repo| repo.filter == self.services.rules.settings.filter) {
            Ok(state)
        } else {
            Err(ServeError::RepoNotFound(format!(
                "{did} is being fetched anew, because the mirror keeps other collections than \
             before; ask again later"
            )))
        }
    }

    /// Checks whether a state may still be sent, and whether a new view still has it.
    pub(super) fn check_state(&self, state: &ServedState) -> Result<StateCheck, StoreError> {
        let view = self.services.store.view();
        let Some(repo) = view.repo(state.id)? else {
            return Ok(StateCheck::Hidden);
        };
        if account::is_hidden(repo.account) {
            return Ok(StateCheck::Hidden);
        }
        let same = repo.head() == Some(&state.head);
        Ok(
            if same && repo.filter == self.services.rules.settings.filter {
                StateCheck::Current(view)
            } else {
                StateCheck::Superseded
            },
        )
    }

    /// Fails if the mirror keeps only some collections.
    pub(crate) fn require_whole_repos(&self) -> Result<(), ServeError> {
        if self.services.rules.filter.wanted.is_empty() {
            Ok(())
        } else {
            Err(ServeError::invalid(format!(
                "{}, so it cannot hand out whole repositories or their blocks; their host can",
                self.describe_filter()
            )))
        }
    }

    /// Fails if the mirror does not keep all keys.
    pub(crate) fn require_all_keys(&self) -> Result<(), ServeError> {
        let filter = &self.services.rules.filter;
        if filter.wanted.is_empty() || !filter.wanted_keys_only {
            Ok(())
        } else {
            Err(ServeError::invalid(format!(
                "{} and nothing of the others (keep_keys = \"wanted\"), so it can prove nothing; \
             their host can",
                self.describe_filter()
            )))
        }
    }

    /// Describes the filter, for error messages.
    pub(crate) fn describe_filter(&self) -> String {
        let wanted = self.services.rules.filter.wanted.iter();
        let wanted: Vec<String> = wanted.map(ToString::to_string).collect();
        format!("this mirror keeps only {}", wanted.join(", "))
    }
}

/// The result of checking a state that is being sent.
pub(super) enum StateCheck {
    /// The state is still held, and this newer view has it.
    Current(ReadView),
    /// A newer state is held; only the old view has this one.
    Superseded,
    /// The account is hidden now.
    Hidden,
}

fn head_of(repo: &Repo) -> Result<Head, ServeError> {
    let did = &repo.did;
    let why = match &repo.held {
        Held::Exactly(head) => return Ok(*head),
        Held::Nothing => "is known here and not fetched yet",
        Held::Applying { .. } => "is being fetched",
        Held::Damaged { .. } => "was damaged here and is fetched anew",
    };
    Err(ServeError::RepoNotFound(format!(
        "Could not find repo: {did} {why}; ask again later"
    )))
}
