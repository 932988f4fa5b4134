//! What does the word of an unproven source mean? (R6)
//!
//! A Jetstream tells of commits that it does not prove. Its word raises nothing: no
//! head, no marker, no first rev. It makes us ask, within what strangers may make us
//! ask, and what it says is kept as a claim only where the question is owed: then
//! losing a claim loses nothing, and of a repository of which something is held none
//! outlives the question. Where a stream speaks for the repository and can be relied on,
//! that stream brings the commit itself, and nobody asks because of every single one.

use gapless_atp::syntax::Rev;

use super::account;
use super::cover;
use super::debt::{self, What};
use super::event::{self, Context, Origin};
use super::state::{Repo, Why};

/// What is to be done with what was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The host is asked; until then it may be kept as a claim.
    Keep,
    /// The state that is held says what is true.
    Old,
    /// No commit has such a rev yet.
    Future,
    /// Nothing of a hidden repository is kept.
    Hidden,
    /// The stream that speaks for it will bring it.
    Covered,
    /// Strangers have made us ask too often.
    TooMany,
}

/// An unproven source tells of a commit.
pub fn claimed(context: Context<'_>, repo: &mut Repo, origin: Origin, rev: Rev) -> Heard {
    let Context {
        now,
        covers,
        settings,
    } = context;
    event::first_sight(context, repo, origin);
    cover::settle(repo, covers);
    if repo.floor().is_some_and(|floor| rev <= floor) || event::is_abandoned(repo, rev) {
        return Heard::Old;
    }
    if rev.is_future(now.time.0) {
        return Heard::Future;
    }
    if account::is_hidden(repo.account) {
        return Heard::Hidden;
    }
    let relied_on = |cover| covers.live(cover, now.time, settings);
    if repo.cover.is_some_and(relied_on) && cover::valid(repo, covers) {
        return Heard::Covered;
    }
    // Without a cover it is complete in no case: a question may wait for its turn.
    if repo.cover.is_some() && !debt::may_ask(repo, now.time) {
        return Heard::TooMany;
    }
    debt::owe(now, repo, What::Compare, Why::Claimed);
    Heard::Keep
}
