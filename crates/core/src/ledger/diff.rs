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

/// What the host is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    InFull,
    /// What is new since our head, which has this rev.
    Since(Rev),
}

/// The root over what was held and a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recomputed {
    /// The commit whose state was held when it was recomputed.
    pub over: Cid,
    pub root: Cid,
}

/// What a difference is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It leads to the signed root: on to [`super::fetch::consider`].
    Snapshot,
    /// Live commits have passed it: there is nothing to write.
    Passed,
    /// It leads nowhere: ask in full, at once, and hold it against nobody.
    InFull,
}

/// What to ask for, at the moment of asking. `adopting`: the host's older state
/// is to be taken over. `tried` is the rev from which a difference was last asked
/// for: from there none is asked for again, or a host that cannot tell them would
/// never be asked for the whole. It need not survive a restart.
pub fn ask(
    settings: &Settings,
    repo: &Repo,
    note: &Note,
    adopting: bool,
    tried: Option<Rev>,
) -> Ask {
    let Some(head) = repo.head() else {
        return Ask::InFull;
    };
    // What is damaged or was never kept does not change, so it is in no
    // difference.
    let for_contents = repo
        .debt
        .fetch
        .is_some_and(|owed| owed.why.is_for_contents());
    let narrow = repo.filter != note.filter;
    let whole = adopting
        || for_contents
        || narrow
        // Without all keys no root can be recomputed.
        || settings.wanted_keys_only
        || tried == Some(head.rev);
    match whole {
        true => Ask::InFull,
        false => Ask::Since(head.rev),
    }
}

/// A difference has come, with a commit of this head. The state that it was asked
/// from does not matter any more: only what is held now, and where it leads from
/// there. `None`: it does not even fit what is held.
pub fn answered(
    repo: &Repo,
    note: &Note,
    signed: &Head,
    recomputed: Option<Recomputed>,
) -> Verdict {
    let Some(held) = repo.head() else {
        return Verdict::InFull;
    };
    if signed.rev < held.rev {
        return Verdict::Passed;
    }
    // Something else may have been written under an older filter meanwhile.
    let narrow = repo.filter != note.filter;
    let leads = recomputed
        .is_some_and(|recomputed| recomputed.over == held.commit && recomputed.root == signed.data);
    match leads && !narrow {
        true => Verdict::Snapshot,
        false => Verdict::InFull,
    }
}
