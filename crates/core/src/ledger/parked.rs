//! Decides which parked frame goes next (R4, R7, I14).
//!
//! After every move of the head, and after every answer about where a repository lives,
//! the caller calls [`next_step`] until it returns `None`. Each parked frame is applied,
//! superseded, or dropped and counted; none is forgotten.

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

/// The next step for the parked frames, lowest rev first; `None` if there is nothing to
/// do. `tried` are revs whose recomputation did not lead to the signed root.
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

/// Applies a parked frame: the head moves as for a live commit. The marker stays; whether
/// to raise it was decided when the frame arrived.
pub fn apply(repo: &mut Repo, frame: &Parked) {
    event::advance_head(repo, &frame.head);
}

/// The parked frames that came from other hosts than the present one. Once the present
/// host's head has been fetched, frames that it does not include will never be applied.
pub fn foreign_revs(repo: &Repo, parked: &BTreeMap<Rev, Parked>) -> Vec<Rev> {
    parked
        .iter()
        .filter(|(_, frame)| frame.origin != repo.host && frame.before != PriorState::Unjudged)
        .map(|(rev, _)| *rev)
        .collect()
}

/// The parked frames that could not be verified when they arrived. Once the DID is
/// resolved, the caller verifies each and decides about it anew, before any comparison
/// counts.
pub fn unjudged_revs(parked: &BTreeMap<Rev, Parked>) -> Vec<Rev> {
    parked
        .iter()
        .filter(|(_, frame)| frame.before == PriorState::Unjudged)
        .map(|(rev, _)| *rev)
        .collect()
}
