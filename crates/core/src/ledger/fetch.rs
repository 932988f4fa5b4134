//! What does a named head, or a snapshot, mean? (R10)
//!
//! The order of the questions is what makes the answers count. First the cover's
//! epoch and the tick are *noted*, then the host is asked for its head, then the
//! repository is fetched. A snapshot that is the named head, or newer, raises the
//! marker to the noted epoch: everything before the note is in it, everything
//! after the note comes by the stream. An older one is progress, and the debt
//! stays. Whatever unset the marker after the note keeps it unset.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;

use super::account;
use super::cover;
use super::debt::{self, DebtKind};
use super::deletion;
use super::event::{self, Context};
use super::notice::Notice;
use super::rollback;
use super::state::{
    Account, DebtReason, Epoch, FilterGen, Head, Held, Host, HostId, NamedHead, Repo, RepoSweep,
    SignerKey, SweepSource, UpstreamId,
};
use super::time::{Now, Tick, Time};

/// What was known when the work began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    pub host: HostId,
    pub at: Tick,
    /// The wall clock then: what is found out is about this time, however long
    /// the answer takes.
    pub time: Time,
    /// The cover and its epoch, if that was open.
    pub cover: Option<(UpstreamId, Epoch)>,
    /// The newest rev that the owner is known to have signed.
    pub known: Option<Rev>,
    /// What was held.
    pub head: Option<Head>,
    pub lineage: u32,
    pub filter: FilterGen,
}

/// A host's answer to the question for a repository's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadAnswer {
    /// The repository is active, and this is its head.
    Head(NamedHead),
    /// The host does not serve the repository, because its account has this state.
    State(Account),
}

/// What to do after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Done,
    /// Fetch the repository, which should be this commit or a newer one.
    Fetch(NamedHead),
    /// Fetch exactly this older commit, to take it over.
    Adopt(NamedHead),
}

/// The head of a snapshot that passed every check, and the key that signed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedHead {
    pub head: Head,
    pub key: SignerKey,
}

/// Whether a verified snapshot is written or discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotDecision {
    Write,
    Discard,
}

/// Notes what is known, before the first question.
pub fn take_note(context: Context<'_>, repo: &mut Repo) -> Option<Note> {
    let Context {
        now,
        covers,
        settings,
    } = context;
    cover::update_cover(repo, covers);
    owe_filter_change(context, repo);
    let host = repo.host?;
    let cover = repo
        .cover
        .and_then(|id| covers.open_epoch(id).map(|epoch| (id, epoch)));
    Some(Note {
        host,
        at: now.tick,
        time: now.time,
        cover,
        known: newest_known_rev(repo),
        head: repo.head().copied(),
        lineage: repo.lineage,
        filter: settings.filter,
    })
}

/// The newest rev that the owner is known to have signed.
pub fn newest_known_rev(repo: &Repo) -> Option<Rev> {
    let applying = match &repo.held {
        Held::Applying { target, .. } => Some(target.rev),
        _ => None,
    };
    repo.floor().max(applying).max(repo.first_rev_since_reset)
}

fn note_applies(repo: &Repo, note: &Note) -> bool {
    repo.host == Some(note.host) && repo.lineage == note.lineage
}

/// Whether a named head may be behind what the owner has signed: only then does
/// [`head_answered`] use the host's share, which is expensive to count. What is signed after
/// the note does not matter: an earlier answer gives nothing up.
pub fn may_be_behind(note: &Note, named: &NamedHead) -> bool {
    let ours = note.head.filter(|head| head.commit == named.commit);
    // An equal commit is equal, whatever rev the host gives it.
    let rev = ours.map_or(named.rev, |head| head.rev);
    let behind = |known| rev < known || (rev == known && ours.is_none());
    note.known.is_some_and(behind)
}

/// The host answered: see [`judge_answer`]. What is too large is not fetched again so soon,
/// whatever made us ask.
pub fn head_answered(
    context: Context<'_>,
    repo: &mut Repo,
    note: &Note,
    told: HeadAnswer,
    host: &Host,
    share: Option<rollback::BehindShare>,
    notices: &mut Vec<Notice>,
) -> Next {
    match judge_answer(context, repo, note, told, host, share, notices) {
        Next::Fetch(_) if repo.debt.puts_off(context.now.time) => Next::Done,
        next => next,
    }
}

/// The host answered. `host` is its row; the census says how many repositories it
/// has, and with how many of them it is behind. Where it was not taken, nothing
/// that is signed is given up.
fn judge_answer(
    context: Context<'_>,
    repo: &mut Repo,
    note: &Note,
    told: HeadAnswer,
    host: &Host,
    share: Option<rollback::BehindShare>,
    notices: &mut Vec<Notice>,
) -> Next {
    let now = context.now;
    cover::update_cover(repo, context.covers);
    if !note_applies(repo, note) {
        if repo.host == Some(note.host) {
            // Overtaken by a new lineage: what the host says now is asked again.
            debt::owe(now, repo, DebtKind::Compare, DebtReason::HostBehind);
        }
        return Next::Done;
    }
    let named = match told {
        HeadAnswer::State(state) => {
            host_hides(now, repo, note, state, host, notices);
            return Next::Done;
        }
        HeadAnswer::Head(named) => named,
    };
    if account::is_hidden(repo.account) && repo.unset_at >= note.at {
        // It was hidden since we asked: what is owed is asked again.
        debt::retry_soon(now, repo);
        return Next::Done;
    }
    if repo.account != Account::Active {
        account::set_account(now, repo, Account::Active, true, notices);
    }
    let Some(head) = repo.head().copied() else {
        if repo.floor().is_some_and(|floor| named.rev < floor) {
            return rollback::host_behind(context, repo, note, named, share, notices);
        }
        debt::owe_outcome(now, repo, reason_without_head(repo), None, note.at);
        debt::pay(now, repo, DebtKind::Compare, note.at);
        return Next::Fetch(named);
    };
    // An equal commit is equal, whatever rev the host gives it.
    let named = match named.commit == head.commit {
        true => NamedHead {
            rev: head.rev,
            ..named
        },
        false => named,
    };
    let ahead = note.known.is_some_and(|known| {
        named.rev < known
            || (named.rev == known && head.rev == known && named.commit != head.commit)
    });
    if ahead {
        return rollback::host_behind(context, repo, note, named, share, notices);
    }
    if named.commit == head.commit {
        heads_equal(context, repo, note);
        // Owed for the contents: equal heads do not pay that.
        return match repo.debt.fetch {
            Some(_) => Next::Fetch(named),
            None => Next::Done,
        };
    }
    if named.rev <= head.rev {
        // Live commits have passed the answer: ask again.
        debt::retry_soon(now, repo);
        owe_missed_epoch(context, repo);
        return Next::Done;
    }
    repo.behind = None;
    debt::owe_outcome(now, repo, DebtReason::NewerHead, Some(named), note.at);
    debt::pay(now, repo, DebtKind::Compare, note.at);
    Next::Fetch(named)
}

fn reason_without_head(repo: &Repo) -> DebtReason {
    match (repo.debt.fetch, &repo.held) {
        (Some(owed), _) => owed.why,
        (None, Held::Applying { .. }) => DebtReason::Interrupted,
        (None, Held::Damaged { .. }) => DebtReason::StoreRepaired,
        (None, Held::Nothing | Held::Exactly(_)) => DebtReason::FirstSighting,
    }
}

/// The host says that the repository is not to be had.
fn host_hides(
    now: Now,
    repo: &mut Repo,
    note: &Note,
    state: Account,
    host: &Host,
    notices: &mut Vec<Notice>,
) {
    if state == Account::NotFound && deletion::host_denies(repo, note.at) {
        debt::pay(now, repo, DebtKind::Compare, note.at);
        debt::pay(now, repo, DebtKind::Fetch, note.at);
        return;
    }
    if state == Account::NotFound && host.hiding_suspended {
        // A wiped host: neither hidden nor complete, until somebody decides.
        doubt_host(now, repo, notices);
        return;
    }
    if state == Account::NotFound && repo.account != state {
        notices.push(Notice::Vanished { hidden: true });
    }
    if account::is_hidden(state) && repo.account != state {
        account::owe_closed(now, repo);
    }
    account::set_account(now, repo, state, true, notices);
    if account::is_hidden(state) {
        debt::pay(now, repo, DebtKind::Compare, note.at);
        debt::pay(now, repo, DebtKind::Fetch, note.at);
    }
}

/// The host does not have it, and is not believed. It stays owed; the first try
/// tells of it.
fn doubt_host(now: Now, repo: &mut Repo, notices: &mut Vec<Notice>) {
    let first = repo.debt.compare.is_none() || repo.debt.attempts <= 1;
    if repo.debt.compare.is_none() {
        debt::owe(now, repo, DebtKind::Compare, DebtReason::AccountEvent);
    }
    if repo.debt.attempts == 0 {
        // Asked by a sweep: this was a try as well.
        debt::begin_attempt(now, repo);
    }
    if first {
        notices.push(Notice::Vanished { hidden: false });
    }
}

/// The work is done, and has not raised the marker to the epoch that is open now:
/// that one began, or opened, meanwhile. No sweep may be left to tell what was
/// missed, so the host is asked once more.
fn owe_missed_epoch(context: Context<'_>, repo: &mut Repo) {
    let covers = context.covers;
    let open = repo.cover.and_then(|id| covers.open_epoch(id)).is_some();
    if open && !cover::is_marker_valid(repo, covers) && repo.debt.compare.is_none() {
        debt::owe(
            context.now,
            repo,
            DebtKind::Compare,
            DebtReason::Interrupted,
        );
    }
}

/// The host's own answer: its head is ours. Everything that was owed by the note
/// is settled, but for what is about contents.
pub fn heads_equal(context: Context<'_>, repo: &mut Repo, note: &Note) {
    let now = context.now;
    let Some(head) = repo.head().copied() else {
        return;
    };
    repo.behind = None;
    record_sweep(now, repo, note, SweepSource::Head);
    restore_marker(repo, note);
    repo.first_rev_since_reset.get_or_insert(head.rev);
    debt::pay(now, repo, DebtKind::Compare, note.at);
    let for_contents = repo
        .debt
        .fetch
        .is_some_and(|owed| owed.why.concerns_contents());
    if !for_contents && repo.first_rev_since_reset <= Some(head.rev) {
        debt::pay(now, repo, DebtKind::Fetch, note.at);
    }
}

/// Another filter than the one that a repository was fetched under: what it now
/// wants is not held, or what it does not want is.
pub fn owe_filter_change(context: Context<'_>, repo: &mut Repo) {
    let narrow = repo.held != Held::Nothing && repo.filter != context.settings.filter;
    if narrow && repo.debt.fetch.is_none() {
        // What begins at this very moment pays it.
        let now = context.now;
        debt::owe_outcome(now, repo, DebtReason::FilterChanged, None, now.tick);
    }
}

/// What is held was walked at this head, and nothing that the filter wants is missing:
/// what was owed for another filter is paid without a fetch. Only where all keys are
/// held, under the old filter and under this one, can that be told. Returns whether it
/// is so.
pub fn filter_walked(now: Now, repo: &mut Repo, note: &Note, commit: Cid) -> bool {
    let owed = repo.debt.fetch;
    let for_filter =
        owed.is_some_and(|owed| owed.why == DebtReason::FilterChanged && owed.at < note.at);
    let there = repo.head().is_some_and(|head| head.commit == commit);
    let filter = note.filter;
    let told = repo.filter.holds_all_keys() && filter.holds_all_keys();
    if !for_filter || !there || !told {
        return false;
    }
    repo.filter = filter;
    debt::pay(now, repo, DebtKind::Fetch, note.at);
    true
}

/// Remembers that our head was found to be the host's, as of the note.
pub fn record_sweep(now: Now, repo: &mut Repo, note: &Note, by: SweepSource) {
    if repo.swept.is_none_or(|swept| swept.tick < note.at) {
        repo.swept = Some(RepoSweep {
            tick: note.at,
            at: note.time,
            by,
        });
    }
    if by == SweepSource::Head {
        repo.confirmed_at = Some(now.time);
    }
}

/// Raises the marker to the noted epoch, unless it was unset since.
pub fn restore_marker(repo: &mut Repo, note: &Note) {
    if repo.unset_at < note.at
        && let Some((cover, epoch)) = note.cover
    {
        cover::raise_marker(repo, cover, epoch);
    }
}

/// Whether a verified snapshot is to be written.
pub fn judge_snapshot(
    context: Context<'_>,
    repo: &mut Repo,
    note: &Note,
    snapshot: &CheckedHead,
    notices: &mut Vec<Notice>,
) -> SnapshotDecision {
    let now = context.now;
    let rev = snapshot.head.rev;
    let passed = match &repo.held {
        Held::Nothing => false,
        Held::Exactly(held) if held.rev == rev => held.commit != snapshot.head.commit,
        Held::Exactly(held) => rev < held.rev,
        Held::Applying { from, .. } | Held::Damaged { from } => from.is_some_and(|from| rev < from),
    };
    if !note_applies(repo, note) || passed || rev.is_future(now.time.0) {
        notices.push(Notice::SnapshotDiscarded);
        return SnapshotDecision::Discard;
    }
    SnapshotDecision::Write
}

/// The first of several batches: until the last one, what is held is no state.
pub fn begin_snapshot(now: Now, repo: &mut Repo, snapshot: &CheckedHead) {
    let from = repo.floor();
    event::push_trail(repo);
    repo.held = Held::Applying {
        target: snapshot.head,
        from,
    };
    event::raise_first_rev(repo, snapshot.head.rev);
    // What is owed already stays as it is: it may be for something newer.
    if repo.debt.fetch.is_none() {
        debt::owe_interrupted(now, repo);
    }
}

/// The last batch, or the only one: the state is exact again. Then look at the
/// parked frames, then [`settle_snapshot`].
pub fn finish_snapshot(now: Now, repo: &mut Repo, note: &Note, snapshot: &CheckedHead) {
    event::push_trail(repo);
    repo.held = Held::Exactly(snapshot.head);
    repo.last_indexed_rev = repo.last_indexed_rev.max(Some(snapshot.head.rev));
    repo.key = snapshot.key;
    // Nobody has recomputed what is held now.
    repo.proven = None;
    repo.filter = note.filter;
    repo.fetched_at = Some(now.time);
    if note_applies(repo, note) {
        repo.first_rev_since_reset.get_or_insert(snapshot.head.rev);
    }
    debt::pay_reached_commit(repo);
}

/// After the parked frames: what is the snapshot worth? `named` is the head that
/// the host named before it was fetched.
pub fn settle_snapshot(
    context: Context<'_>,
    repo: &mut Repo,
    note: &Note,
    named: &NamedHead,
    snapshot: &CheckedHead,
    notices: &mut Vec<Notice>,
) {
    let now = context.now;
    cover::update_cover(repo, context.covers);
    if !note_applies(repo, note) {
        return;
    }
    // An equal commit is equal, whatever rev the host gives it.
    let named = match named.commit == snapshot.head.commit {
        true => NamedHead {
            rev: snapshot.head.rev,
            ..*named
        },
        false => *named,
    };
    let other = snapshot.head.rev == named.rev && snapshot.head.commit != named.commit;
    if snapshot.head.rev < named.rev || other {
        notices.push(Notice::SnapshotStale);
        return;
    }
    restore_marker(repo, note);
    record_sweep(now, repo, note, SweepSource::Head);
    // What a listing said before this state was held was not about it.
    repo.unset_at = repo.unset_at.max(now.tick);
    repo.behind = None;
    let reached = repo
        .head()
        .is_some_and(|head| repo.first_rev_since_reset <= Some(head.rev));
    if !reached {
        // A newer commit is known than the host has: it is asked again.
        return;
    }
    debt::pay(now, repo, DebtKind::Compare, note.at);
    debt::pay(now, repo, DebtKind::Fetch, note.at);
    owe_missed_epoch(context, repo);
}

/// Why a repository that an operator imports from a file is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportRefusal {
    /// The account is not active.
    Hidden,
    /// This commit is already held.
    Held,
    /// A newer commit is held, or another commit with the same rev.
    Older,
    /// The rev is ahead of the clock.
    Future,
    /// The commit belongs to an abandoned lineage.
    Abandoned,
    /// A snapshot of the repository is being written.
    BeingWritten,
}

/// Whether a repository that somebody brought, with every check passed, may be
/// written: only forward, and never where the owner or the host wants nothing shown.
pub fn may_import(now: Now, repo: &Repo, head: &Head) -> Result<(), ImportRefusal> {
    if account::is_hidden(repo.account) {
        return Err(ImportRefusal::Hidden);
    }
    if head.rev.is_future(now.time.0) {
        return Err(ImportRefusal::Future);
    }
    if event::is_abandoned(repo, head.rev) {
        return Err(ImportRefusal::Abandoned);
    }
    match &repo.held {
        Held::Nothing => Ok(()),
        Held::Exactly(held) if held.commit == head.commit => Err(ImportRefusal::Held),
        Held::Exactly(held) if head.rev <= held.rev => Err(ImportRefusal::Older),
        Held::Exactly(_) => Ok(()),
        Held::Applying { .. } => Err(ImportRefusal::BeingWritten),
        Held::Damaged { from } if from.is_some_and(|from| head.rev < from) => {
            Err(ImportRefusal::Older)
        }
        Held::Damaged { .. } => Ok(()),
    }
}

/// After the parked frames of an imported snapshot. It is signed and whole, and says
/// nothing about being current: no marker is raised, and the host is asked.
pub fn import_written(context: Context<'_>, repo: &mut Repo) {
    let now = context.now;
    cover::update_cover(repo, context.covers);
    // What was asked or listed before this state was held was not about it.
    repo.unset_at = now.tick.max(repo.unset_at);
    repo.swept = None;
    if repo
        .debt
        .fetch
        .is_some_and(|owed| owed.why == DebtReason::Interrupted)
    {
        // Owed in case not all of it is written, and all of it is.
        debt::pay(now, repo, DebtKind::Fetch, now.tick);
    }
    debt::owe(now, repo, DebtKind::Compare, DebtReason::Operator);
}
