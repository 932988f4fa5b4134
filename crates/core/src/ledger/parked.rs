//! Which waiting frame goes next? (R4, R7, I14)
//!
//! After every move of the head, and after every answer about where a repository
//! lives, the caller asks [`next`] until it says that nothing is to be done. Each
//! parked frame is applied, superseded, or dropped and counted; none is forgotten.

use std::collections::BTreeMap;

use gapless_atp::syntax::Rev;

use super::account;
use super::event;
use super::notice::Dropped;
use super::state::{Before, Parked, Repo};

/// What to do with one parked frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It follows what is held: apply it with [`apply`].
    Apply(Rev),
    /// It carries no proof: apply its operations to the held keys and see
    /// whether they lead to the signed root. If so, [`apply`]; if not, say so
    /// by asking again with this rev left out.
    Recompute(Rev),
    /// It is of no use any more.
    Drop(Rev, Dropped),
}

/// The next thing to do with the parked frames, lowest rev first. `tried` are
/// revs whose recomputation did not lead to their root.
pub fn next(repo: &Repo, parked: &BTreeMap<Rev, Parked>, tried: &[Rev]) -> Option<Next> {
    for (rev, frame) in parked {
        if repo.floor().is_some_and(|floor| *rev <= floor) {
            return Some(Next::Drop(*rev, Dropped::Superseded));
        }
        if event::is_abandoned(repo, *rev) {
            return Some(Next::Drop(*rev, Dropped::Abandoned));
        }
        let here = frame.origin == repo.host;
        if !here || account::is_hidden(repo.account) || frame.before == Before::Unjudged {
            continue;
        }
        if event::chains(repo, &frame.head, frame.before) {
            return Some(Next::Apply(*rev));
        }
        if frame.before == Before::Recompute && repo.head().is_some() && !tried.contains(rev) {
            return Some(Next::Recompute(*rev));
        }
    }
    None
}

/// Applies a parked frame: the head moves as by a live commit. The marker does
/// not: it was raised, or not, when the frame came.
pub fn apply(repo: &mut Repo, frame: &Parked) {
    event::advance(repo, &frame.head);
}

/// After the present host's head was fetched, frames of other hosts' lines that
/// it does not include will never be applied.
pub fn foreign(repo: &Repo, parked: &BTreeMap<Rev, Parked>) -> Vec<Rev> {
    parked
        .iter()
        .filter(|(_, frame)| frame.origin != repo.host && frame.before != Before::Unjudged)
        .map(|(rev, _)| *rev)
        .collect()
}

/// The frames that nobody could judge when they came. Once the DID is resolved
/// they are verified and decided anew, before any comparison counts.
pub fn unjudged(parked: &BTreeMap<Rev, Parked>) -> Vec<Rev> {
    parked
        .iter()
        .filter(|(_, frame)| frame.before == Before::Unjudged)
        .map(|(rev, _)| *rev)
        .collect()
}
