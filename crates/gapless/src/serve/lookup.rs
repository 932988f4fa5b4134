//! Which repository is meant, and may it be shown?
//!
//! What is handed out is one signed state, whole. A repository that is being fetched,
//! or damaged, or was fetched for another filter, is refused in words that say so; one
//! that is hidden, with its state.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Head, Held, Repo, RepoId, account, cover};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;

use crate::serve::refuse::{self, Refusal};
use crate::serve::{Serving, evidence};

/// One exact state of a repository that may be shown, as of a view.
#[derive(Clone)]
pub struct Exact {
    pub id: RepoId,
    pub did: Did,
    pub head: Head,
    /// What it stands on, for the header of the answer.
    pub evidence: String,
    pub view: ReadView,
}

impl Serving {
    /// A repository in whatever state it is.
    pub fn known(&self, view: &ReadView, did: &Did) -> Result<(RepoId, Repo), Refusal> {
        let found = view.repo_by_did(did)?;
        let found = found.filter(|(_, repo)| !cover::is_bare_name(repo));
        found.ok_or_else(|| {
            Refusal::RepoNotFound(format!("Could not find repo: {did} is not mirrored here"))
        })
    }

    /// A repository that is not hidden, and of which one exact state is held.
    pub fn head(&self, did: &Did) -> Result<Exact, Refusal> {
        let view = self.services.store.view();
        let (id, repo) = self.known(&view, did)?;
        if let Some(refusal) = refuse::hidden(repo.account, did.as_str()) {
            return Err(refusal);
        }
        let head = head_of(&repo)?;
        let evidence = evidence::words(&self.services, &repo);
        Ok(Exact {
            id,
            did: did.clone(),
            head,
            evidence,
            view,
        })
    }

    /// The same, with everything that the filter wants of it.
    pub fn exact(&self, did: &Did) -> Result<Exact, Refusal> {
        let exact = self.head(did)?;
        let repo = exact.view.repo(exact.id)?;
        if repo.is_some_and(|repo| repo.filter == self.services.rules.settings.filter) {
            Ok(exact)
        } else {
            Err(Refusal::RepoNotFound(format!(
                "{did} is being fetched anew, because the mirror keeps other collections than \
             before; ask again later"
            )))
        }
    }

    /// Whether a state may still be sent: the account is not hidden, and the state is
    /// as it was in a newer view, or has moved on (then the older view has it).
    pub(super) fn still(&self, exact: &Exact) -> Result<Still, StoreError> {
        let view = self.services.store.view();
        let Some(repo) = view.repo(exact.id)? else {
            return Ok(Still::Gone);
        };
        if account::is_hidden(repo.account) {
            return Ok(Still::Gone);
        }
        let same = repo.head() == Some(&exact.head);
        Ok(
            if same && repo.filter == self.services.rules.settings.filter {
                Still::Same(view)
            } else {
                Still::Moved
            },
        )
    }

    /// Refuses what a mirror of some collections cannot do.
    pub fn needs_everything(&self) -> Result<(), Refusal> {
        if self.services.rules.filter.wanted.is_empty() {
            Ok(())
        } else {
            Err(Refusal::invalid(format!(
                "{}, so it cannot hand out whole repositories or their blocks; their host can",
                self.keeps_only()
            )))
        }
    }

    /// Refuses what a mirror without all keys cannot do.
    pub fn needs_all_keys(&self) -> Result<(), Refusal> {
        let filter = &self.services.rules.filter;
        if filter.wanted.is_empty() || !filter.wanted_keys_only {
            Ok(())
        } else {
            Err(Refusal::invalid(format!(
                "{} and nothing of the others (keep_keys = \"wanted\"), so it can prove nothing; \
             their host can",
                self.keeps_only()
            )))
        }
    }

    /// What is kept, in words.
    pub fn keeps_only(&self) -> String {
        let wanted = self.services.rules.filter.wanted.iter();
        let wanted: Vec<String> = wanted.map(ToString::to_string).collect();
        format!("this mirror keeps only {}", wanted.join(", "))
    }
}

/// What became of a state that is being sent.
pub(super) enum Still {
    /// It is what is held, and this newer view has it.
    Same(ReadView),
    /// Something newer is held.
    Moved,
    /// It may not be shown any more.
    Gone,
}

fn head_of(repo: &Repo) -> Result<Head, Refusal> {
    let did = &repo.did;
    let why = match &repo.held {
        Held::Exactly(head) => return Ok(*head),
        Held::Nothing => "is known here and not fetched yet",
        Held::Applying { .. } => "is being fetched",
        Held::Damaged { .. } => "was damaged here and is fetched anew",
    };
    Err(Refusal::RepoNotFound(format!(
        "Could not find repo: {did} {why}; ask again later"
    )))
}
