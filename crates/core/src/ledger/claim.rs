//! Decides what a commit means that was reported by a source without proofs (R6).
//!
//! A Jetstream reports commits without proving them. Such a report raises no head, no
//! marker and no first rev. It makes Gapless ask the host, within the limit on questions
//! that strangers can cause, and is kept as a claim only if that question is owed. Losing
//! a claim therefore loses nothing, and where something of the repository is held, a
//! claim never outlives its question. If a live stream covers the repository, that stream
//! brings the commit itself, and no question is asked.

use gapless_atp::syntax::Rev;

use super::account;
use super::cover;
use super::debt::{self, DebtKind};
use super::event::{self, Context, Origin};
use super::state::{DebtReason, Repo};

/// What becomes of a commit that an unproven source reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimDecision {
    /// The host is asked; until it answers, the commit may be kept as a claim.
    Keep,
    /// The commit is not newer than the held state.
    Old,
    /// The rev is ahead of the clock.
    Future,
    /// The repository is hidden or being purged, and no claims about it are kept.
    Hidden,
    /// The repository's cover will bring the commit itself.
    Covered,
    /// Strangers have caused too many questions about this repository already.
    TooMany,
}

/// Decides what becomes of a commit that an unproven source reports, and owes a
/// question to the host where the commit may be news.
pub fn claim_event(
    context: Context<'_>,
    repo: &mut Repo,
    origin: Origin,
    rev: Rev,
) -> ClaimDecision {
    let Context {
        now,
        covers,
        settings,
    } = context;
    event::owe_first_sight(context, repo, origin);
    cover::update_cover(repo, covers);
    if repo.floor().is_some_and(|floor| rev <= floor) || event::is_abandoned(repo, rev) {
        return ClaimDecision::Old;
    }
    if rev.is_future(now.time.0) {
        return ClaimDecision::Future;
    }
    if account::is_hidden(repo.account) || repo.purging {
        return ClaimDecision::Hidden;
    }
    let relied_on = |cover| covers.live(cover, now.time, settings);
    if repo.cover.is_some_and(relied_on) && cover::is_marker_valid(repo, covers) {
        return ClaimDecision::Covered;
    }
    // A repository without a cover is not complete anyway, so its question may wait for a token.
    if repo.cover.is_some() && !debt::may_ask(repo, now.time) {
        return ClaimDecision::TooMany;
    }
    debt::owe(now, repo, DebtKind::Compare, DebtReason::Claimed);
    ClaimDecision::Keep
}
