//! Ask for the whole repository, or for what is new? (R11)
//!
//! `getRepo?since=` saves bytes and proves nothing: a host may leave something
//! out, answer from another rev, or bring nothing at all. So a difference counts
//! only when what is held, with the difference, hashes to the root that the owner
//! signed. Then it is a snapshot like any other. If not, the whole is fetched at
//! once: a host that cannot tell differences has not failed.

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

/// The root that results from applying a difference to the held state.
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

/// What to ask for, at the moment of asking. `adopting`: the host's older state
/// is to be taken over. `tried` is the rev from which a difference was last asked
/// for: from there none is asked for again, or a host that cannot tell them would
/// never be asked for the whole. It need not survive a restart.
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
    // What is damaged or was never kept does not change, so it is in no
    // difference.
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
    match whole {
        true => RepoRequest::InFull,
        false => RepoRequest::Since(head.rev),
    }
}

/// A difference has come, with a commit of this head. The state that it was asked
/// from does not matter any more: only what is held now, and where it leads from
/// there. `None`: it does not even fit what is held.
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
    // Something else may have been written under an older filter meanwhile.
    let narrow = repo.filter != note.filter;
    let leads = recomputed
        .is_some_and(|recomputed| recomputed.over == held.commit && recomputed.root == signed.data);
    match leads && !narrow {
        true => DiffVerdict::Snapshot,
        false => DiffVerdict::InFull,
    }
}
