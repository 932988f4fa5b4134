//! Decides whether to request a whole repository or only a difference (R11).
//!
//! `getRepo?since=` saves bytes and proves nothing: a host may omit something, answer
//! from another rev, or send nothing at all. A difference therefore counts only if the
//! held state with the difference applied hashes to the root that the owner signed. Then
//! it is a snapshot like any other. Otherwise the whole repository is fetched at once:
//! a host that cannot compute differences has not failed.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;

use super::fetch::Note;
use super::settings::Settings;
use super::state::{Head, Repo};

/// What a `getRepo` request asks the host for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepoRequest {
    /// The whole repository.
    InFull,
    /// The difference since the held head, which has this rev.
    Since(Rev),
}

/// The root that results from applying a difference to the held state, if the difference
/// fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecomputedRoot {
    /// The commit whose state was held when the root was recomputed.
    pub over: Cid,
    pub root: Cid,
}

/// What to do with a difference that a host sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffVerdict {
    /// The difference leads to the signed root: continue with
    /// [`super::fetch::judge_snapshot`].
    Snapshot,
    /// Live commits have passed the difference: there is nothing to write.
    Passed,
    /// The difference does not lead to the signed root: request the whole repository
    /// at once, and do not count a failure of the host.
    InFull,
}

/// Decides what to request, at the moment of the request. `adopting`: whether the host's
/// older state is to be adopted. `tried`: the rev since which a difference was last
/// requested. No second difference is requested since that rev; otherwise a host that
/// cannot compute differences would never be asked for the whole repository. `tried` need
/// not survive a restart.
pub fn choose_request(
    settings: &Settings,
    repo: &Repo,
    note: &Note,
    adopting: bool,
    tried: Option<Rev>,
) -> RepoRequest {
    let Some(head) = repo.head() else {
        return RepoRequest::InFull;
    };
    // Damaged keys, and keys that were never kept, are not part of any difference.
    let for_contents = repo
        .debt
        .fetch
        .is_some_and(|owed| owed.why.concerns_contents());
    let narrow = repo.filter != note.filter;
    let whole = adopting
        || for_contents
        || narrow
        // Without all keys no root can be recomputed.
        || settings.wanted_keys_only
        || tried == Some(head.rev);
    if whole {
        RepoRequest::InFull
    } else {
        RepoRequest::Since(head.rev)
    }
}

/// Judges a difference that arrived with a commit of the head `signed`. Only the state
/// that is held now and the root that it leads to matter; the state since which the
/// difference was requested does not. `recomputed` is `None` if the difference does not
/// fit the held state.
pub fn judge_difference(
    repo: &Repo,
    note: &Note,
    signed: &Head,
    recomputed: Option<RecomputedRoot>,
) -> DiffVerdict {
    let Some(held) = repo.head() else {
        return DiffVerdict::InFull;
    };
    if signed.rev < held.rev {
        return DiffVerdict::Passed;
    }
    // Another writer may have written under an older filter meanwhile.
    let narrow = repo.filter != note.filter;
    let leads = recomputed
        .is_some_and(|recomputed| recomputed.over == held.commit && recomputed.root == signed.data);
    if leads && !narrow {
        DiffVerdict::Snapshot
    } else {
        DiffVerdict::InFull
    }
}
