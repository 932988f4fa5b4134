//! What is owed for a repository, and when it is tried next.
//!
//! Each reason carries the tick at which it arose. Work notes the tick at which it began
//! and pays only older reasons, so a reason that arises during a fetch outlives that
//! fetch. Reasons that strangers can cause draw on a token bucket: any amount of forged
//! input causes a bounded number of requests.

use std::time::Duration;

use super::settings::{
    BACKOFF_FIRST, BACKOFF_LONGEST, OVERSIZE_WAIT, STRANGER_REFILL, STRANGER_TOKENS, WAIT_LONGEST,
};
use super::state::{Debt, DebtItem, DebtReason, Held, NamedHead, Oversize, Repo, TokenBucket};
use super::time::{Now, Tick, Time};

/// The three things that a repository's [`Debt`] can contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DebtKind {
    Resolve,
    Compare,
    Fetch,
}

/// The next thing to do for a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Resolve the DID: read its document.
    Resolve,
    /// Ask the host for the repository's head and the account's state.
    Compare,
    /// Ask the host for the repository's head, then fetch the repository.
    Fetch,
}

impl DebtReason {
    /// Whether a party without the owner's key can cause the reason, or cause it
    /// repeatedly by replaying what the owner signed once.
    pub fn is_strangers(self) -> bool {
        matches!(
            self,
            DebtReason::Unauthenticated
                | DebtReason::Unresolved
                | DebtReason::Misrouted
                | DebtReason::Abandoned
                | DebtReason::Fork
                | DebtReason::IdentityEvent
                | DebtReason::Closed
                | DebtReason::ListedElsewhere
                | DebtReason::Claimed
        )
    }
}

impl DebtReason {
    /// Whether the reason concerns the contents of the held state, and not which commit
    /// is held: equal heads do not settle it.
    pub fn concerns_contents(self) -> bool {
        matches!(
            self,
            DebtReason::Operator
                | DebtReason::FilterChanged
                | DebtReason::StoreRepaired
                | DebtReason::Interrupted
        )
    }

    fn outlasts(self, other: DebtReason) -> bool {
        self.concerns_contents() && !other.concerns_contents()
    }
}

impl Debt {
    pub fn is_empty(&self) -> bool {
        self.resolve.is_none() && self.compare.is_none() && self.fetch.is_none()
    }

    /// Whether something is owed and may be tried at `now`. A wait that would end more
    /// than [`WAIT_LONGEST`] from now counts as over: it was set by a clock that ran
    /// ahead.
    pub fn is_due(&self, now: Time) -> bool {
        !self.is_empty() && !is_ahead(self.due_at(), now)
    }

    /// When the debt may be tried. A postponed fetch does not delay a resolve or a
    /// comparison.
    pub fn due_at(&self) -> Time {
        let asks = self.resolve.is_some() || self.compare.is_some();
        match self.oversize {
            Some(oversize) if !asks => self.next_try.max(oversize.until),
            _ => self.next_try,
        }
    }

    /// Whether the fetch is postponed because the repository is larger than the limit.
    pub(crate) fn puts_off(&self, now: Time) -> bool {
        let until = self.oversize.map(|oversize| oversize.until);
        until.is_some_and(|until| is_ahead(until, now))
    }

    /// Whether the repository was found too large under a lower limit than `limit` bytes.
    pub fn is_too_large_for_less_than(&self, limit: u64) -> bool {
        self.oversize.is_some_and(|oversize| oversize.limit < limit)
    }

    fn reasons(&self) -> impl Iterator<Item = DebtItem> {
        [self.resolve, self.compare, self.fetch]
            .into_iter()
            .flatten()
    }

    fn slot(&mut self, what: DebtKind) -> &mut Option<DebtItem> {
        match what {
            DebtKind::Resolve => &mut self.resolve,
            DebtKind::Compare => &mut self.compare,
            DebtKind::Fetch => &mut self.fetch,
        }
    }
}

/// Whether `at` is still ahead. A time more than [`WAIT_LONGEST`] ahead is not: a wrong
/// clock set it.
fn is_ahead(at: Time, now: Time) -> bool {
    at > now && at <= now.after(WAIT_LONGEST)
}

/// Owes something from now on. A debt that only strangers caused is due when a token is
/// ready.
pub fn owe(now: Now, repo: &mut Repo, what: DebtKind, why: DebtReason) {
    let ready = if why.is_strangers() {
        token_ready_at(&repo.strangers, now.time)
    } else {
        now.time
    };
    let debt = &mut repo.debt;
    if debt.is_empty() {
        debt.since = now.time;
        debt.attempts = 0;
        debt.next_try = ready;
    } else if debt.attempts == 0 {
        debt.next_try = debt.next_try.min(ready);
    }
    if why == DebtReason::Operator {
        debt.oversize = None;
    }
    let slot = debt.slot(what);
    let why = match slot {
        // A reason that equal heads do not settle is kept. The commit of the new reason
        // is remembered as the first rev, and a busy repository is not fetched for ever.
        Some(old) if what == DebtKind::Fetch && old.why.outlasts(why) => return,
        // An owner's reason is not replaced by a stranger's.
        Some(old) if why.is_strangers() => old.why,
        _ => why,
    };
    *slot = Some(DebtItem { at: now.tick, why });
}

/// Owes a fetch as the outcome of work that began at `began` and continues with that
/// fetch: the fetch pays the debt like one that was owed before. If `named` is given,
/// reaching that commit pays the debt too.
pub(crate) fn owe_outcome(
    now: Now,
    repo: &mut Repo,
    why: DebtReason,
    named: Option<NamedHead>,
    began: Tick,
) {
    let before = repo.debt.fetch.map(|owed| owed.at);
    match named {
        Some(named) => owe_commit(now, repo, why, named),
        None => owe_fetch(now, repo, why),
    }
    if let Some(owed) = &mut repo.debt.fetch {
        owed.at = before
            .unwrap_or_default()
            .max(Tick(began.0.saturating_sub(1)));
    }
}

/// Owes a fetch for a certain commit. Of several named commits the newest one counts.
pub(crate) fn owe_commit(now: Now, repo: &mut Repo, why: DebtReason, named: NamedHead) {
    let newer = match (repo.debt.fetch, repo.debt.named) {
        (None, _) => true,
        // A fetch is owed for another reason, which reaching a commit does not pay.
        (Some(_), None) => false,
        (Some(_), Some(old)) => old.rev < named.rev,
    };
    owe(now, repo, DebtKind::Fetch, why);
    if newer {
        repo.debt.named = Some(named);
    }
}

/// Owes a fetch for a reason that no commit pays.
pub fn owe_fetch(now: Now, repo: &mut Repo, why: DebtReason) {
    owe(now, repo, DebtKind::Fetch, why);
    repo.debt.named = None;
}

/// Owes a fetch in case the batches of a snapshot are not all written. Any fetch that
/// writes a whole state pays it, including the current one.
pub(crate) fn owe_interrupted(now: Now, repo: &mut Repo) {
    owe_fetch(now, repo, DebtReason::Interrupted);
    if let Some(owed) = &mut repo.debt.fetch {
        owed.at = Tick::default();
    }
}

/// Pays what was owed before the work began. A reason that arose at `began` or later
/// stays.
pub fn pay(now: Now, repo: &mut Repo, what: DebtKind, began: Tick) {
    let slot = repo.debt.slot(what);
    if slot.is_none_or(|owed| owed.at >= began) {
        return;
    }
    *slot = None;
    if what == DebtKind::Fetch {
        (repo.debt.named, repo.debt.oversize) = (None, None);
    }
    clear_if_empty(repo);
    if !repo.debt.is_empty() {
        // The attempt succeeded: what is left need not wait for the backoff.
        retry_soon(now, repo);
    }
}

/// Pays the fetch if it was owed for the commit that is held now. Called after every
/// move of the head.
pub(crate) fn pay_reached_commit(repo: &mut Repo) {
    let Held::Exactly(head) = repo.held else {
        return;
    };
    if repo
        .debt
        .named
        .is_some_and(|named| named.commit == head.commit)
    {
        repo.debt.fetch = None;
        (repo.debt.named, repo.debt.oversize) = (None, None);
        clear_if_empty(repo);
    }
}

/// Resets the debt of a repository that owes nothing any more, with its attempts and
/// times.
fn clear_if_empty(repo: &mut Repo) {
    if repo.debt.is_empty() {
        repo.debt = Debt::default();
    }
}

/// The work to do for a repository now, if any is due.
pub fn plan_work(now: Time, repo: &Repo) -> Option<Work> {
    let debt = &repo.debt;
    if !debt.is_due(now) {
        return None;
    }
    if debt.resolve.is_some() || repo.host.is_none() {
        return Some(Work::Resolve);
    }
    match debt.fetch {
        // A host that is behind has nothing to fetch until it names a newer head.
        Some(_) if repo.behind.is_none() && !debt.puts_off(now) => Some(Work::Fetch),
        _ => Some(Work::Compare),
    }
}

/// Counts an attempt to work off the debt, and schedules the next one with backoff, in
/// case the outcome of this attempt is never reported.
pub fn begin_attempt(now: Now, repo: &mut Repo) {
    if repo.debt.reasons().all(|owed| owed.why.is_strangers()) {
        take_token(&mut repo.strangers, now.time);
    }
    repo.debt.attempts = repo.debt.attempts.saturating_add(1);
    repo.debt.next_try = now.time.after(backoff(repo.debt.attempts, now.tick));
}

/// Schedules the next attempt after a failure, with backoff, and not before
/// `retry_after` if the host has sent that.
pub fn attempt_failed(now: Now, repo: &mut Repo, retry_after: Option<Duration>) {
    if repo.debt.is_empty() {
        return;
    }
    let wait = backoff(repo.debt.attempts, now.tick).max(retry_after.unwrap_or_default());
    repo.debt.next_try = now.time.after(wait.min(WAIT_LONGEST));
}

/// Puts off the fetch of a repository that has more than `limit` bytes, by
/// [`OVERSIZE_WAIT`]. Each attempt downloads up to the limit, so attempts are rare. It
/// is not a failure of the host.
pub fn put_off_oversized(now: Now, repo: &mut Repo, limit: u64) {
    if repo.debt.fetch.is_some() {
        repo.debt.oversize = Some(Oversize {
            limit,
            until: now.time.after(OVERSIZE_WAIT),
        });
    }
}

/// Retries a fetch at once that was put off under a lower limit than `limit` bytes.
/// Returns whether there was such a fetch.
pub fn retry_if_limit_raised(now: Now, repo: &mut Repo, limit: u64) -> bool {
    let grown = repo.debt.is_too_large_for_less_than(limit);
    if grown {
        repo.debt.oversize = None;
        retry_soon(now, repo);
    }
    grown
}

/// Forgets past failures, because something was learned, and makes what is left of the
/// debt due: now, or when a token is ready if only strangers caused it.
pub fn retry_soon(now: Now, repo: &mut Repo) {
    let strangers = repo.debt.reasons().all(|owed| owed.why.is_strangers());
    repo.debt.attempts = 0;
    repo.debt.next_try = if strangers {
        token_ready_at(&repo.strangers, now.time)
    } else {
        now.time
    };
}

/// Makes what is left of the debt due now, without another token, so that the host is
/// asked next. The token that was taken for the question to the directory covers the
/// question to the host: otherwise a stranger who causes one resolve after another
/// could keep the mirror from ever asking the host.
pub(crate) fn ask_host_next(now: Now, repo: &mut Repo) {
    if !repo.debt.is_empty() {
        repo.debt.next_try = repo.debt.next_try.min(now.time);
    }
}

/// Refills the bucket for strangers, because the directory confirmed a move that the
/// owner signed. A move is reported in several ways, by two hosts, and the questions
/// that the first report caused must not make the mirror ignore the next one. The
/// directory accepts few operations per DID and day, which bounds the refills. The
/// server of a did:web can change its document at any time, so callers do not refill
/// for a did:web.
pub(crate) fn refill_strangers(repo: &mut Repo) {
    repo.strangers = TokenBucket::default();
}

/// Whether a token is left, so that a reason caused by strangers may cause a question
/// now.
pub fn may_ask(repo: &Repo, now: Time) -> bool {
    token_ready_at(&repo.strangers, now) <= now
}

/// Delays the next try to `until`, by at most [`WAIT_LONGEST`].
pub(crate) fn postpone(now: Now, repo: &mut Repo, until: Time) {
    let until = until.min(now.time.after(WAIT_LONGEST));
    repo.debt.next_try = repo.debt.next_try.max(until);
}

/// The wait before the next attempt. The wait doubles with each attempt, up to
/// [`BACKOFF_LONGEST`], and is spread between half of that and the whole by `tick`, so
/// that the repositories of one host do not all retry together.
pub fn backoff(attempts: u32, tick: Tick) -> Duration {
    let doubled = BACKOFF_FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(20));
    let whole = doubled.min(BACKOFF_LONGEST);
    let share = tick.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    whole / 2 + whole.mul_f64(share as f64 / 512.0)
}

/// The number of tokens that are taken and not refilled at `now`.
fn tokens_used(bucket: &TokenBucket, now: Time) -> u32 {
    let refilled = now.since(bucket.at).as_micros() / STRANGER_REFILL.as_micros();
    bucket
        .used
        .saturating_sub(u32::try_from(refilled).unwrap_or(u32::MAX))
}

/// When the next token can be taken; `now` if one is left.
fn token_ready_at(bucket: &TokenBucket, now: Time) -> Time {
    if tokens_used(bucket, now) < STRANGER_TOKENS {
        now
    } else {
        // A wrong clock may have set a time that is ahead.
        bucket.at.min(now).after(STRANGER_REFILL).max(now)
    }
}

/// Takes one token. A partial refill is kept.
fn take_token(bucket: &mut TokenBucket, now: Time) {
    let left = tokens_used(bucket, now);
    // Keep the part of a refill that has already passed.
    let at = match left {
        0 => now,
        _ => Time(
            now.0 - now.since(bucket.at).as_micros() as u64 % STRANGER_REFILL.as_micros() as u64,
        ),
    };
    *bucket = TokenBucket { used: left + 1, at };
}
