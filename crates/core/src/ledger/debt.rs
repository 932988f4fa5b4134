//! What is owed, and when is it tried next?
//!
//! Every reason carries the tick at which it arose. Work notes the tick at which
//! it began and pays only reasons that are older: one that arises while a fetch
//! is under way outlives it. Reasons that strangers can cause draw on a bucket of
//! tokens, so that forged input, however much, costs a bounded number of
//! requests.

use std::time::Duration;

use super::settings::{
    BACKOFF_FIRST, BACKOFF_LONGEST, OVERSIZE_WAIT, STRANGER_REFILL, STRANGER_TOKENS, WAIT_LONGEST,
};
use super::state::{Bucket, Debt, Held, Named, Oversize, Owed, Repo, Why};
use super::time::{Now, Tick, Time};

/// What can be owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    Resolve,
    Compare,
    Fetch,
}

/// The next thing to do for a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Resolve the DID.
    Resolve,
    /// Ask the host for head and state.
    Compare,
    /// Ask the host for its head, then fetch.
    Fetch,
}

impl Why {
    /// Whether somebody without the owner's key can cause it, or cause it again
    /// and again with what the owner signed once.
    pub fn is_strangers(self) -> bool {
        matches!(
            self,
            Why::Unauthenticated
                | Why::Unresolved
                | Why::Misrouted
                | Why::Abandoned
                | Why::Fork
                | Why::IdentityEvent
                | Why::Closed
                | Why::ListedElsewhere
                | Why::Claimed
        )
    }
}

impl Why {
    /// Whether it is about what is held, and not about which commit: equal heads
    /// do not settle it.
    pub fn is_for_contents(self) -> bool {
        matches!(
            self,
            Why::Operator | Why::FilterChanged | Why::StoreRepaired | Why::Interrupted
        )
    }

    fn outlasts(self, other: Why) -> bool {
        self.is_for_contents() && !other.is_for_contents()
    }
}

impl Debt {
    pub fn is_empty(&self) -> bool {
        self.resolve.is_none() && self.compare.is_none() && self.fetch.is_none()
    }

    /// Whether something is owed and may be tried. Nothing waits longer than
    /// [`WAIT_LONGEST`]: what should was put off by a clock that ran ahead.
    pub fn is_due(&self, now: Time) -> bool {
        !self.is_empty() && !is_ahead(self.due_at(), now)
    }

    /// When it may be tried. A fetch that is put off keeps no question waiting.
    pub fn due_at(&self) -> Time {
        let asks = self.resolve.is_some() || self.compare.is_some();
        match self.oversize {
            Some(oversize) if !asks => self.next_try.max(oversize.until),
            _ => self.next_try,
        }
    }

    /// Whether the fetch is put off, because it was larger than is taken.
    pub fn puts_off(&self, now: Time) -> bool {
        let until = self.oversize.map(|oversize| oversize.until);
        until.is_some_and(|until| is_ahead(until, now))
    }

    /// Whether it was too large when less was taken than so much.
    pub fn is_too_large_for_less_than(&self, limit: u64) -> bool {
        self.oversize.is_some_and(|oversize| oversize.limit < limit)
    }

    fn reasons(&self) -> impl Iterator<Item = Owed> {
        [self.resolve, self.compare, self.fetch]
            .into_iter()
            .flatten()
    }

    fn slot(&mut self, what: What) -> &mut Option<Owed> {
        match what {
            What::Resolve => &mut self.resolve,
            What::Compare => &mut self.compare,
            What::Fetch => &mut self.fetch,
        }
    }
}

/// Whether something is to wait. Nothing waits longer than [`WAIT_LONGEST`].
fn is_ahead(at: Time, now: Time) -> bool {
    at > now && at <= now.after(WAIT_LONGEST)
}

/// Owes something, from now on.
pub fn owe(now: Now, repo: &mut Repo, what: What, why: Why) {
    let ready = match why.is_strangers() {
        true => ready_at(&repo.strangers, now.time),
        false => now.time,
    };
    let debt = &mut repo.debt;
    if debt.is_empty() {
        debt.since = now.time;
        debt.attempts = 0;
        debt.next_try = ready;
    } else if debt.attempts == 0 {
        debt.next_try = debt.next_try.min(ready);
    }
    if why == Why::Operator {
        debt.oversize = None;
    }
    let slot = debt.slot(what);
    let why = match slot {
        // What equal heads do not settle is not hidden behind what they do. The
        // commit that is the new reason is remembered as the first rev, and a
        // busy repository is not fetched for ever.
        Some(old) if what == What::Fetch && old.why.outlasts(why) => return,
        // An owner's reason is not hidden behind a stranger's.
        Some(old) if why.is_strangers() => old.why,
        _ => why,
    };
    *slot = Some(Owed { at: now.tick, why });
}

/// Owes a fetch as the outcome of work that began at `began`, and goes on with
/// that fetch: it is paid like what was owed before. With a commit, reaching
/// that commit pays it too.
pub fn owe_outcome(now: Now, repo: &mut Repo, why: Why, named: Option<Named>, began: Tick) {
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

/// Owes a fetch that is for a certain commit: the newest named one counts.
pub fn owe_commit(now: Now, repo: &mut Repo, why: Why, named: Named) {
    let newer = match (repo.debt.fetch, repo.debt.named) {
        (None, _) => true,
        // Already owed for another reason: reaching a commit does not pay that.
        (Some(_), None) => false,
        (Some(_), Some(old)) => old.rev < named.rev,
    };
    owe(now, repo, What::Fetch, why);
    if newer {
        repo.debt.named = Some(named);
    }
}

/// Owes a fetch for a reason that no commit pays.
pub fn owe_fetch(now: Now, repo: &mut Repo, why: Why) {
    owe(now, repo, What::Fetch, why);
    repo.debt.named = None;
}

/// Owes a fetch in case the batches of a snapshot are not all written. Whichever
/// fetch writes a whole state pays it, this one too.
pub fn owe_interrupted(now: Now, repo: &mut Repo) {
    owe_fetch(now, repo, Why::Interrupted);
    if let Some(owed) = &mut repo.debt.fetch {
        owed.at = Tick::default();
    }
}

/// Pays what was owed before the work began. What arose later stays.
pub fn pay(now: Now, repo: &mut Repo, what: What, began: Tick) {
    let slot = repo.debt.slot(what);
    if slot.is_none_or(|owed| owed.at >= began) {
        return;
    }
    *slot = None;
    if what == What::Fetch {
        (repo.debt.named, repo.debt.oversize) = (None, None);
    }
    tidy(repo);
    if !repo.debt.is_empty() {
        // Something worked: what is left need not wait for the backoff.
        again(now, repo);
    }
}

/// The head moved: a fetch that was for this very commit is paid.
pub fn head_moved(repo: &mut Repo) {
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
        tidy(repo);
    }
}

fn tidy(repo: &mut Repo) {
    if repo.debt.is_empty() {
        repo.debt = Debt::default();
    }
}

/// What to do now, if anything is due.
pub fn plan(now: Time, repo: &Repo) -> Option<Work> {
    let debt = &repo.debt;
    if !debt.is_due(now) {
        return None;
    }
    if debt.resolve.is_some() || repo.host.is_none() {
        return Some(Work::Resolve);
    }
    match debt.fetch {
        // A host that is behind has nothing to fetch until it says otherwise.
        Some(_) if repo.behind.is_none() && !debt.puts_off(now) => Some(Work::Fetch),
        _ => Some(Work::Compare),
    }
}

/// Work begins: it counts as a try, and the next one comes after a wait even if
/// we never hear how this one ended.
pub fn begin(now: Now, repo: &mut Repo) {
    if repo.debt.reasons().all(|owed| owed.why.is_strangers()) {
        take(&mut repo.strangers, now.time);
    }
    repo.debt.attempts = repo.debt.attempts.saturating_add(1);
    repo.debt.next_try = now.time.after(backoff(repo.debt.attempts, now.tick));
}

/// Work failed. The host may have said when to come again.
pub fn failed(now: Now, repo: &mut Repo, retry_after: Option<Duration>) {
    if repo.debt.is_empty() {
        return;
    }
    let wait = backoff(repo.debt.attempts, now.tick).max(retry_after.unwrap_or_default());
    repo.debt.next_try = now.time.after(wait.min(WAIT_LONGEST));
}

/// The repository has more bytes than are taken of one. Its host has done nothing wrong;
/// each try takes as much as is taken at most, so they are rare.
pub fn oversized(now: Now, repo: &mut Repo, limit: u64) {
    if repo.debt.fetch.is_some() {
        repo.debt.oversize = Some(Oversize {
            limit,
            until: now.time.after(OVERSIZE_WAIT),
        });
    }
}

/// So many bytes are taken of one: what was too large for less is tried at once. Returns
/// whether it is such a one.
pub fn takes(now: Now, repo: &mut Repo, limit: u64) -> bool {
    let grown = repo.debt.is_too_large_for_less_than(limit);
    if grown {
        repo.debt.oversize = None;
        again(now, repo);
    }
    grown
}

/// Something was learned: no failure counts any more, and what is left is tried
/// as soon as it may be.
pub fn again(now: Now, repo: &mut Repo) {
    let strangers = repo.debt.reasons().all(|owed| owed.why.is_strangers());
    repo.debt.attempts = 0;
    repo.debt.next_try = match strangers {
        true => ready_at(&repo.strangers, now.time),
        false => now.time,
    };
}

/// The directory has answered: the question that was taken from the bucket for it
/// covers the one to the host that follows. Otherwise whoever makes us resolve
/// again and again would keep us from ever asking the host.
pub fn go_on(now: Now, repo: &mut Repo) {
    if !repo.debt.is_empty() {
        repo.debt.next_try = repo.debt.next_try.min(now.time);
    }
}

/// The owner has moved, and signed it: what strangers said was worth asking about.
/// A move is heard of in several ways, on two hosts, and what was asked because of
/// one must not make the next go unnoticed. The directory takes few entries of a DID
/// in a day; who runs the server of a did:web changes its document as often as he
/// likes, so there it does not count.
pub fn were_right(repo: &mut Repo) {
    repo.strangers = Bucket::default();
}

/// Whether a stranger's reason may make us ask now.
pub fn may_ask(repo: &Repo, now: Time) -> bool {
    ready_at(&repo.strangers, now) <= now
}

/// Not before then.
pub fn postpone(now: Now, repo: &mut Repo, until: Time) {
    let until = until.min(now.time.after(WAIT_LONGEST));
    repo.debt.next_try = repo.debt.next_try.max(until);
}

/// Doubling waits, spread between half and the whole so that many repositories
/// of one host do not come back together.
pub fn backoff(attempts: u32, tick: Tick) -> Duration {
    let doubled = BACKOFF_FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(20));
    let whole = doubled.min(BACKOFF_LONGEST);
    let share = tick.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    whole / 2 + whole.mul_f64(share as f64 / 512.0)
}

/// Tokens that are in use at a time.
fn used(bucket: &Bucket, now: Time) -> u32 {
    let refilled = now.since(bucket.at).as_micros() / STRANGER_REFILL.as_micros();
    bucket
        .used
        .saturating_sub(u32::try_from(refilled).unwrap_or(u32::MAX))
}

fn ready_at(bucket: &Bucket, now: Time) -> Time {
    match used(bucket, now) < STRANGER_TOKENS {
        true => now,
        // Not from a time that a wrong clock gave.
        false => bucket.at.min(now).after(STRANGER_REFILL).max(now),
    }
}

fn take(bucket: &mut Bucket, now: Time) {
    let left = used(bucket, now);
    // What is partly refilled stays partly refilled.
    let at = match left {
        0 => now,
        _ => Time(
            now.0 - now.since(bucket.at).as_micros() as u64 % STRANGER_REFILL.as_micros() as u64,
        ),
    };
    *bucket = Bucket { used: left + 1, at };
}
