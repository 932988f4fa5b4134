//! Hidden, shown, or purged? (account states, R12)
//!
//! Deactivated, suspended, taken down and deleted hide a repository at once.
//! `#account` counts from the cover alone; from anyone else it means "ask". An
//! account that comes back is not complete until its head was compared. Purging
//! is for what the present host, or the directory, calls deleted, after a time of
//! grace: a wiped host never empties its mirror. What a relay alone calls deleted
//! waits for more ([`deletion`]).

use std::time::Duration;

use super::cover;
use super::debt::{self, What};
use super::deletion;
use super::notice::Notice;
use super::settings::VANISHED_AT_LEAST;
use super::state::{Account, Repo, Why};
use super::time::{Now, Time};

/// Whether a state hides the repository.
pub fn is_hidden(account: Account) -> bool {
    match account {
        Account::Unknown | Account::Active => false,
        Account::Deactivated
        | Account::Suspended
        | Account::Takendown
        | Account::Deleted
        | Account::NotFound => true,
    }
}

/// `#account` from an upstream. `host_itself`: from the host's own stream, not
/// by way of a relay.
pub fn told(
    now: Now,
    repo: &mut Repo,
    told: Account,
    from_cover: bool,
    host_itself: bool,
    notices: &mut Vec<Notice>,
) {
    if !from_cover {
        // Nobody signed it: a hint, worth a question while there are any left.
        if debt::may_ask(repo, now.time) {
            debt::owe(now, repo, What::Compare, Why::Unauthenticated);
        }
        return;
    }
    if is_hidden(told) && repo.account != told {
        still_there(now, repo);
    }
    become_(now, repo, told, host_itself, notices);
    if told == Account::Deleted && !host_itself {
        deletion::told(now, repo);
    }
    // Active: what did it do meanwhile? Hidden by a relay's word: is it so?
    if !is_hidden(told) || !host_itself {
        debt::owe(now, repo, What::Compare, Why::AccountEvent);
    }
    match is_hidden(told) {
        true => unasked(now, repo),
        false => cover::unset(now.tick, repo),
    }
}

/// The account's state is this. Only the present host's own word starts the time
/// of grace.
pub fn become_(
    now: Now,
    repo: &mut Repo,
    state: Account,
    host_itself: bool,
    notices: &mut Vec<Notice>,
) {
    if repo.account != state {
        notices.push(Notice::Account(state));
        repo.account = state;
        if is_hidden(state) {
            unasked(now, repo);
        }
    }
    match (state, host_itself) {
        (Account::Deleted, true) => {
            repo.deleted_at.get_or_insert(now.time);
            repo.hearsay = None;
        }
        (Account::Deleted, false) => {}
        _ => (repo.deleted_at, repo.hearsay) = (None, None),
    }
}

/// Does it live there at all? A host closes the account of whoever leaves it, and
/// nobody else may tell us where it went. Whoever opens and closes accounts at will
/// makes us ask no more often than other strangers.
pub fn still_there(now: Now, repo: &mut Repo) {
    debt::owe(now, repo, What::Resolve, Why::Closed);
}

/// What was asked before this neither shows it again nor vouches for it.
fn unasked(now: Now, repo: &mut Repo) {
    repo.unset_at = now.tick;
}

/// How much longer a repository is kept when nobody could tell whether it lives
/// elsewhere: no directory is away for so long, but the domain of a did:web may
/// never come back.
pub const UNRESOLVED_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Whether a repository may be purged. A host closes the account of whoever leaves
/// it, so its word counts once the document has been read after it.
pub fn purge_due(now: Time, repo: &Repo, grace: Duration) -> bool {
    let grace = match repo.debt.resolve {
        None => grace,
        Some(_) => grace.saturating_add(UNRESOLVED_GRACE),
    };
    repo.account == Account::Deleted && repo.deleted_at.is_some_and(|at| now >= at.after(grace))
}

/// A purge: what is held is gone, and nothing of it counts any more.
pub fn purged(now: Now, repo: &mut Repo) {
    repo.held = Default::default();
    repo.trail = Default::default();
    repo.behind = None;
    repo.first_rev_since_reset = None;
    repo.last_indexed_rev = None;
    repo.last_firehose_rev = None;
    repo.lineage += 1;
    repo.proven = None;
    repo.swept = None;
    repo.confirmed_at = None;
    repo.stale_listing = None;
    cover::unset(now.tick, repo);
}

/// An operator says that what a host does not list any more is really gone. What
/// is asked about for that is hidden now: as long as it is not, the next sweep
/// would count it as lost once more. The host is asked all the same, and its
/// answer may show it again.
pub fn confirm_lost(now: Now, repo: &mut Repo, notices: &mut Vec<Notice>) {
    let asked = repo
        .debt
        .compare
        .is_some_and(|owed| owed.why == Why::AccountEvent);
    if asked && !is_hidden(repo.account) {
        become_(now, repo, Account::NotFound, false, notices);
    }
}

/// Whether so many repositories of a host vanished in one sweep that the host is
/// to be doubted rather than they.
pub fn too_many_vanished(vanished: u64, of: u64) -> bool {
    vanished >= VANISHED_AT_LEAST && vanished.saturating_mul(100) > of
}
