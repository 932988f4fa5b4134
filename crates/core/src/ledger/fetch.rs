//! Decides what a head that a host names, or a snapshot, means (R10).
//!
//! The order of the steps makes the answers count. First the cover's epoch and the tick
//! are *noted*, then the host is asked for its head, then the repository is fetched. A
//! snapshot that is the named head or newer raises the marker to the noted epoch:
//! everything before the note is in the snapshot, and everything after the note arrives
//! by the stream. An older snapshot is progress, but the debt stays. If the marker is
//! unset after the note was taken, it stays unset.

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

/// What was known when a piece of work began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    pub host: HostId,
    pub at: Tick,
    /// The wall clock at that tick. The outcome describes this time, however long the
    /// answer takes.
    pub time: Time,
    /// The cover and its epoch, if that epoch was open.
    pub cover: Option<(UpstreamId, Epoch)>,
    /// The newest rev that the owner is known to have signed.
    pub known: Option<Rev>,
    /// The head that was held.
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

/// What to do after a host's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Done,
    /// Fetch the repository, which should be this commit or a newer one.
    Fetch(NamedHead),
    /// Fetch exactly this older commit, to adopt it.
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

/// Takes the note with which work begins, before the first question. `None` if the
/// repository's host is not known.
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
pub(crate) fn newest_known_rev(repo: &Repo) -> Option<Rev> {
    let applying = match &repo.held {
        Held::Applying { target, .. } => Some(target.rev),
        _ => None,
    };
    repo.floor().max(applying).max(repo.first_rev_since_reset)
}

fn note_applies(repo: &Repo, note: &Note) -> bool {
    repo.host == Some(note.host) && repo.lineage == note.lineage
}

/// Whether a named head may be behind what the owner has signed. [`head_answered`] uses
/// the host's share, which is expensive to count, only if this returns true. Commits that
/// were signed after the note do not matter: an answer to an earlier question gives
/// nothing up.
pub fn may_be_behind(note: &Note, named: &NamedHead) -> bool {
    let ours = note.head.filter(|head| head.commit == named.commit);
    // An equal commit counts as equal, whatever rev the host gives it.
    let rev = ours.map_or(named.rev, |head| head.rev);
    let behind = |known| rev < known || (rev == known && ours.is_none());
    note.known.is_some_and(behind)
}

/// Handles a host's answer to the question for a repository's head. A repository that was
/// too large is not fetched again before its wait is over, whatever caused the question.
///
/// `host` is the row of the answering host, and `share` says with how many of its
/// repositories the host is behind. If `share` is `None` because it was not counted, no
/// signed commit is given up.
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

/// Judges a host's answer, as [`head_answered`] describes, without regard to postponed
/// fetches.
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
            // A new lineage has begun since the note: ask the host again.
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
        // The repository was hidden since the note: ask again for what is owed.
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
    // An equal commit counts as equal, whatever rev the host gives it.
    let named = if named.commit == head.commit {
        NamedHead {
            rev: head.rev,
            ..named
        }
    } else {
        named
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
        // A fetch that is owed for the contents is not paid by equal heads.
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

/// Handles an answer by which the host does not serve the repository.
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
        // Perhaps the host was wiped: neither hidden nor complete, until an operator
        // decides.
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

/// Keeps a comparison owed, because the host denies having the repository and is not
/// believed. Only the first try adds a notice.
fn doubt_host(now: Now, repo: &mut Repo, notices: &mut Vec<Notice>) {
    let first = repo.debt.compare.is_none() || repo.debt.attempts <= 1;
    if repo.debt.compare.is_none() {
        debt::owe(now, repo, DebtKind::Compare, DebtReason::AccountEvent);
    }
    if repo.debt.attempts == 0 {
        // A sweep asked: count that as an attempt too.
        debt::begin_attempt(now, repo);
    }
    if first {
        notices.push(Notice::Vanished { hidden: false });
    }
}

/// Owes another comparison if the finished work has not raised the marker to the epoch
/// that is open now, because that epoch began or opened meanwhile. Perhaps no further
/// sweep would show what was missed.
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

/// Handles the host's own answer that its head is the held one. The answer settles
/// everything that was owed at the note, except debts about contents.
pub(crate) fn heads_equal(context: Context<'_>, repo: &mut Repo, note: &Note) {
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

/// Owes a fetch if the repository was fetched under another filter than the present one:
/// wanted keys may be missing, or unwanted ones held.
pub(crate) fn owe_filter_change(context: Context<'_>, repo: &mut Repo) {
    let narrow = repo.held != Held::Nothing && repo.filter != context.settings.filter;
    if narrow && repo.debt.fetch.is_none() {
        // Work that begins at this tick pays the debt.
        let now = context.now;
        debt::owe_outcome(now, repo, DebtReason::FilterChanged, None, now.tick);
    }
}

/// Pays the fetch that is owed for a changed filter without fetching, after a walk over the held
/// state at `commit` found nothing missing that the filter wants. The walk proves this only if all
/// keys are held under the old and the present filter, and if no commit newer than `commit` is
/// known. Returns whether the debt is paid.
pub fn filter_walked(now: Now, repo: &mut Repo, note: &Note, commit: Cid) -> bool {
    let owed = repo.debt.fetch;
    let for_filter =
        owed.is_some_and(|owed| owed.why == DebtReason::FilterChanged && owed.at < note.at);
    let newest = repo.first_rev_since_reset;
    let there = repo
        .head()
        .is_some_and(|head| head.commit == commit && newest <= Some(head.rev));
    let filter = note.filter;
    let told = repo.filter.holds_all_keys() && filter.holds_all_keys();
    if !for_filter || !there || !told {
        return false;
    }
    repo.filter = filter;
    debt::pay(now, repo, DebtKind::Fetch, note.at);
    true
}

/// Remembers that the held head was found to be the host's head, as of the note.
pub(crate) fn record_sweep(now: Now, repo: &mut Repo, note: &Note, by: SweepSource) {
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

/// Raises the marker to the noted epoch, unless the marker was unset after the note.
pub fn restore_marker(repo: &mut Repo, note: &Note) {
    if repo.unset_at < note.at
        && let Some((cover, epoch)) = note.cover
    {
        cover::raise_marker(repo, cover, epoch);
    }
}

/// Decides whether a verified snapshot is written.
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

/// Records the first of several batches of a snapshot: until the last one is written, the
/// held keys form no state.
pub fn begin_snapshot(now: Now, repo: &mut Repo, snapshot: &CheckedHead) {
    let from = repo.floor();
    event::push_trail(repo);
    repo.held = Held::Applying {
        target: snapshot.head,
        from,
    };
    event::raise_first_rev(repo, snapshot.head.rev);
    // An existing debt stays as it is: it may be for something newer.
    if repo.debt.fetch.is_none() {
        debt::owe_interrupted(now, repo);
    }
}

/// Records the last batch of a snapshot, or its only one: the held state is exact again.
/// The caller then looks at the parked frames and calls [`settle_snapshot`].
pub fn finish_snapshot(now: Now, repo: &mut Repo, note: &Note, snapshot: &CheckedHead) {
    event::push_trail(repo);
    repo.held = Held::Exactly(snapshot.head);
    repo.last_indexed_rev = repo.last_indexed_rev.max(Some(snapshot.head.rev));
    repo.key = snapshot.key;
    // The present state has not been recomputed yet.
    repo.proven = None;
    repo.filter = note.filter;
    repo.fetched_at = Some(now.time);
    if note_applies(repo, note) {
        repo.first_rev_since_reset.get_or_insert(snapshot.head.rev);
    }
    debt::pay_reached_commit(repo);
}

/// Decides what a written snapshot is worth, after the parked frames. `named` is the head
/// that the host named before the fetch.
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
    // An equal commit counts as equal, whatever rev the host gives it.
    let named = if named.commit == snapshot.head.commit {
        NamedHead {
            rev: snapshot.head.rev,
            ..*named
        }
    } else {
        *named
    };
    let other = snapshot.head.rev == named.rev && snapshot.head.commit != named.commit;
    if snapshot.head.rev < named.rev || other {
        notices.push(Notice::SnapshotStale);
        return;
    }
    restore_marker(repo, note);
    record_sweep(now, repo, note, SweepSource::Head);
    // A listing that was read before this state was held says nothing about this state.
    repo.unset_at = repo.unset_at.max(now.tick);
    repo.behind = None;
    let reached = repo
        .head()
        .is_some_and(|head| repo.first_rev_since_reset <= Some(head.rev));
    if !reached {
        // A newer commit is known than the host has, so the debt stays and the host is asked again.
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

/// Whether a repository from a file, with every check passed, may be written. An import
/// only moves a repository forward, and never writes one that is hidden.
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

/// Updates the row after an import and the parked frames. The imported snapshot is signed
/// and whole, but nothing shows that it is current: no marker is raised, and the host is
/// asked.
pub fn import_written(context: Context<'_>, repo: &mut Repo) {
    let now = context.now;
    cover::update_cover(repo, context.covers);
    // Questions and listings from before this state was held say nothing about this
    // state.
    repo.unset_at = now.tick.max(repo.unset_at);
    repo.swept = None;
    if repo
        .debt
        .fetch
        .is_some_and(|owed| owed.why == DebtReason::Interrupted)
    {
        // The fetch was owed in case some batches are not written, and all of them are written.
        debt::pay(now, repo, DebtKind::Fetch, now.tick);
    }
    debt::owe(now, repo, DebtKind::Compare, DebtReason::Operator);
}
