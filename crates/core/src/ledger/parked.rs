//! Which waiting frame goes next? (R4, R7, I14)
//!
//! After every move of the head, and after every answer about where a repository
//! lives, the caller asks [`next_step`] until it says that nothing is to be done. Each
//! parked frame is applied, superseded, or dropped and counted; none is forgotten.

use std::collections::BTreeMap;

use gapless_atp::syntax::Rev;

use super::account;
use super::event;
use super::notice::DropReason;
use super::state::{Parked, PriorState, Repo};

/// The next thing to do with one parked frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkedStep {
    /// The frame follows the held state: apply it with [`apply`].
    Apply(Rev),
    /// The frame carries no proof: apply its operations to the held keys and see
    /// whether they lead to the signed root. If they do, call [`apply`]; if not, call
    /// [`next_step`] again with this rev among `tried`.
    Recompute(Rev),
    /// The frame is of no use any more.
    Drop(Rev, DropReason),
}

/// The next thing to do with the parked frames, lowest rev first. `tried` are
/// revs whose recomputation did not lead to their root.
pub fn next_step(repo: &Repo, parked: &BTreeMap<Rev, Parked>, tried: &[Rev]) -> Option<ParkedStep> {
    for (rev, frame) in parked {
        if repo.floor().is_some_and(|floor| *rev <= floor) {
            return Some(ParkedStep::Drop(*rev, DropReason::Superseded));
        }
        if event::is_abandoned(repo, *rev) {
            return Some(ParkedStep::Drop(*rev, DropReason::Abandoned));
        }
        let here = frame.origin == repo.host;
        if !here || account::is_hidden(repo.account) || frame.before == PriorState::Unjudged {
            continue;
        }
        if event::chains(repo, &frame.head, frame.before) {
            return Some(ParkedStep::Apply(*rev));
        }
        if frame.before == PriorState::Recompute && repo.head().is_some() && !tried.contains(rev) {
            return Some(ParkedStep::Recompute(*rev));
        }
    }
    None
}

/// Applies a parked frame: the head moves as by a live commit. The marker does
/// not: it was raised, or not, when the frame came.
pub fn apply(repo: &mut Repo, frame: &Parked) {
    event::advance_head(repo, &frame.head);
}

/// After the present host's head was fetched, frames of other hosts' lines that
/// it does not include will never be applied.
pub fn foreign_revs(repo: &Repo, parked: &BTreeMap<Rev, Parked>) -> Vec<Rev> {
    parked
        .iter()
        .filter(|(_, frame)| frame.origin != repo.host && frame.before != PriorState::Unjudged)
        .map(|(rev, _)| *rev)
        .collect()
}

/// The frames that nobody could judge when they came. Once the DID is resolved
/// they are verified and decided anew, before any comparison counts.
pub fn unjudged_revs(parked: &BTreeMap<Rev, Parked>) -> Vec<Rev> {
    parked
        .iter()
        .filter(|(_, frame)| frame.before == PriorState::Unjudged)
        .map(|(rev, _)| *rev)
        .collect()
}
