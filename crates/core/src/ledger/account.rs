//! Decides whether a repository is hidden, shown, or purged (account states, R12).
//!
//! Deactivated, suspended, taken down and deleted accounts hide their repository at once.
//! An `#account` event counts only if it comes from the cover; from any other source it
//! makes Gapless ask the host. A reactivated account is not complete until its head has
//! been compared.
//!
//! A repository is purged only if its present host or the directory calls the account
//! deleted, and only after a grace period: a wiped host never empties its mirror. A
//! deletion that only a relay reports needs more evidence (see [`deletion`]).

use std::time::Duration;

use super::cover;
use super::debt::{self, DebtKind};
use super::deletion;
use super::notice::Notice;
use super::settings::VANISHED_AT_LEAST;
use super::state::{Account, DebtReason, Repo};
use super::time::Now;

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

/// Applies an `#account` event. `host_itself`: the event came from the host's own
/// stream, not through a relay.
pub fn account_event(
    now: Now,
    repo: &mut Repo,
    state: Account,
    from_cover: bool,
    host_itself: bool,
    notices: &mut Vec<Notice>,
) {
    if !from_cover {
        // Unsigned, so only a hint: worth a question while tokens are left.
        if debt::may_ask(repo, now.time) {
            debt::owe(now, repo, DebtKind::Compare, DebtReason::Unauthenticated);
        }
        return;
    }
    if is_hidden(state) && repo.account != state {
        owe_closed(now, repo);
    }
    set_account(now, repo, state, host_itself, notices);
    if state == Account::Deleted && !host_itself {
        deletion::relay_says_deleted(now, repo);
    }
    // An active account may have changed meanwhile; a relay's report must be checked.
    if !is_hidden(state) || !host_itself {
        debt::owe(now, repo, DebtKind::Compare, DebtReason::AccountEvent);
    }
    if is_hidden(state) {
        void_answers(now, repo)
    } else {
        cover::unset_marker(now.tick, repo)
    }
}

/// Sets the state of the account. Only a report by the present host itself or by the directory
/// starts the grace period before a purge.
pub fn set_account(
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
            void_answers(now, repo);
        }
    }
    match (state, host_itself) {
        (Account::Deleted, true) => {
            begin_grace(now, repo);
            repo.hearsay = None;
        }
        (Account::Deleted, false) => {}
        _ => {
            end_grace(repo);
            repo.hearsay = None;
        }
    }
}

/// Begins the grace period before a purge, unless it has begun.
pub(crate) fn begin_grace(now: Now, repo: &mut Repo) {
    if repo.deleted_at.is_none() {
        repo.deleted_at = Some(now.time);
        repo.deleted_lived = Some(now.lived);
    }
}

/// Ends the grace period, because the account is not known to be deleted any more.
pub(crate) fn end_grace(repo: &mut Repo) {
    (repo.deleted_at, repo.deleted_lived) = (None, None);
}

/// Owes a resolve, because the host closed the account: a host does so when an account
/// moves away, and perhaps no other source reports the move. A host that opens and closes
/// accounts at will causes no more questions than other strangers.
pub(crate) fn owe_closed(now: Now, repo: &mut Repo) {
    debt::owe(now, repo, DebtKind::Resolve, DebtReason::Closed);
}

/// Makes answers to earlier questions count for nothing: they neither show the
/// repository again nor vouch for it.
fn void_answers(now: Now, repo: &mut Repo) {
    repo.unset_at = now.tick;
}

/// How much longer than the grace period a deleted repository is kept while a resolve is
/// owed, that is, while it is unknown whether the account moved elsewhere. The PLC
/// directory is not unreachable for that long, but the domain of a did:web may never come
/// back.
pub const UNRESOLVED_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Whether a repository may be purged: it is deleted, and the grace period has passed. A
/// host also closes an account that moves away, so while a resolve is owed the grace
/// period is longer by [`UNRESOLVED_GRACE`]. The grace period is measured in the time lived
/// through, so a wall clock that is set neither ends nor extends it.
pub fn is_purge_due(now: Now, repo: &Repo, grace: Duration) -> bool {
    if repo.account != Account::Deleted || repo.purging {
        return false;
    }
    let grace = match repo.debt.resolve {
        None => grace,
        Some(_) => grace.saturating_add(UNRESOLVED_GRACE),
    };
    let deleted = repo.deleted_at.and(repo.deleted_lived);
    deleted.is_some_and(|deleted| now.lived.since(deleted) >= grace)
}

/// Whether the grace period of a deletion has to begin (again): an earlier version of Gapless noted
/// the deletion without the time lived through, or the store has lost that time.
pub fn lacks_grace(now: Now, repo: &Repo) -> bool {
    let begun = repo.deleted_lived.is_some_and(|lived| lived <= now.lived);
    repo.deleted_at.is_some() && !begun
}

/// Begins the grace period of such a deletion.
pub fn begin_lacking_grace(now: Now, repo: &mut Repo) {
    if lacks_grace(now, repo) {
        repo.deleted_lived = Some(now.lived);
    }
}

/// Resets the row of a repository whose records are purged: nothing is held, and what
/// was known about the held state counts no more.
pub fn purge_row(now: Now, repo: &mut Repo) {
    repo.held = Default::default();
    repo.handle = None;
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
    cover::unset_marker(now.tick, repo);
}

/// Hides a repository whose host no longer lists it, because an operator confirmed the
/// loss. Without this, the next sweep would count the repository as lost once more. The
/// host is still asked, and its answer may show the repository again. Does nothing unless
/// a comparison is owed for [`DebtReason::AccountEvent`].
pub fn confirm_lost(now: Now, repo: &mut Repo, notices: &mut Vec<Notice>) {
    let asked = repo
        .debt
        .compare
        .is_some_and(|owed| owed.why == DebtReason::AccountEvent);
    if asked && !is_hidden(repo.account) {
        set_account(now, repo, Account::NotFound, false, notices);
    }
}

/// Whether `vanished` of a host's `of` repositories are too many for one sweep: then the
/// host is doubted, and none of its repositories is hidden.
pub(crate) fn too_many_vanished(vanished: u64, of: u64) -> bool {
    vanished >= VANISHED_AT_LEAST && vanished.saturating_mul(100) > of
}
