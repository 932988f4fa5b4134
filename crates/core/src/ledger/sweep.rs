//! Decides what a listing means for the repositories of a host (R12).
//!
//! A sweep reads the pages of a host's own `listRepos` and compares them by commit, never
//! by rev. Equal heads show that nothing was missed, a thousand repositories per request.
//! A different head makes the repository only a *suspect*, because a listing may be stale
//! and may also be ahead of our queue; the host's own answer about the repository
//! decides. A listing alone raises markers and pays no debt.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Did;

use super::account;
use super::cover;
use super::debt::{self, DebtKind};
use super::event::Context;
use super::fetch::{self, Note};
use super::notice::Notice;
use super::settings::{SUSPECT_PATIENCE, Settings};
use super::state::{
    Account, Cursor, DebtReason, Epoch, Held, Host, HostId, HostSweep, NamedHead, Repo, RepoSweep,
    SweepSource, UpstreamId, tag,
};
use super::time::{Now, Tick, Time, micros};

/// What was known before a page was requested: one note for all its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageNote {
    pub host: HostId,
    pub at: Tick,
    time: Time,
    /// The upstreams that may cover repositories of the host and whose epoch was open,
    /// with that epoch.
    epochs: Vec<(UpstreamId, Epoch)>,
}

/// One entry of a page of listRepos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListingEntry {
    pub named: NamedHead,
    pub account: Account,
}

/// The last event of a cover's stream that had been read when a page arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPosition {
    pub upstream: UpstreamId,
    pub numbering: u32,
    pub seq: u64,
}

/// A repository that is listed with another head than the held one, perhaps newer,
/// perhaps stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    pub host: HostId,
    pub listed: NamedHead,
    /// The commit that was held when the page arrived.
    pub held: Option<Cid>,
    /// Whether the listed rev is older than the held one.
    pub older: bool,
    /// The last event that had been read from the cover's stream. Once that event is
    /// durable, the queue no longer explains the difference.
    pub upto: Option<StreamPosition>,
    pub since: Time,
}

/// What an entry of a listing means for its repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingVerdict {
    /// The entry names our head. `confirm`: it is time to ask the host for this
    /// repository's head again.
    Equal { confirm: bool },
    /// The entry names another head: wait, then decide with [`review_suspect`].
    Suspect(Suspect),
    /// A debt is owed now, or was already; or the repository is hidden.
    Owed,
}

/// What to do about a suspect now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspectDecision {
    Wait,
    /// The listed head is ours by now, our head has passed it, or the repository has
    /// moved to another host.
    Cleared,
    /// Ask the host: note, then [`fetch::head_answered`], then [`suspect_answered`].
    Ask,
}

/// Takes the note under which a page is requested.
pub fn take_page_note(context: Context<'_>, host: HostId) -> PageNote {
    let covers = context.covers;
    PageNote {
        host,
        at: context.now.tick,
        time: context.now.time,
        epochs: covers
            .possible_covers(host)
            .filter_map(|(id, _)| covers.open_epoch(id).map(|epoch| (id, epoch)))
            .collect(),
    }
}

impl PageNote {
    /// The note as it holds for one repository.
    fn of(&self, repo: &Repo, settings: &Settings) -> Note {
        let cover = repo.cover.and_then(|cover| {
            let found = self.epochs.iter().find(|(id, _)| *id == cover);
            found.copied()
        });
        Note {
            host: self.host,
            at: self.at,
            time: self.time,
            cover,
            known: fetch::newest_known_rev(repo),
            head: repo.head().copied(),
            lineage: repo.lineage,
            filter: settings.filter,
        }
    }
}

/// Judges one entry of a page that was requested under `note`.
pub fn judge_entry(
    context: Context<'_>,
    repo: &mut Repo,
    note: &PageNote,
    entry: &ListingEntry,
) -> ListingVerdict {
    let Context {
        now,
        covers,
        settings,
    } = context;
    cover::update_cover(repo, covers);
    fetch::owe_filter_change(context, repo);
    if repo.host != Some(note.host) {
        owe_elsewhere(now, repo, entry, settings);
        return ListingVerdict::Owed;
    }
    if account::is_hidden(entry.account) != account::is_hidden(repo.account) {
        debt::owe(now, repo, DebtKind::Compare, DebtReason::AccountEvent);
        return ListingVerdict::Owed;
    }
    if account::is_hidden(repo.account) {
        return ListingVerdict::Owed;
    }
    let Some(head) = repo.head().copied() else {
        if repo.debt.fetch.is_none() {
            debt::owe_fetch(now, repo, DebtReason::FirstSighting);
        }
        // The snapshot in progress may be older than the listed head, so it may not pay
        // all that is owed.
        if applying_commit(repo) != Some(entry.named.commit) {
            debt::owe(now, repo, DebtKind::Compare, DebtReason::ListedNewer);
        }
        return ListingVerdict::Owed;
    };
    let confirm = is_confirm_due(now.time, repo, settings);
    if head.commit == entry.named.commit {
        repo.stale_listing = None;
        listed_head_equal(context, repo, note);
        return ListingVerdict::Equal { confirm };
    }
    // A listed head that is known to be stale says nothing new and proves nothing. It is
    // ignored only if nothing is in doubt.
    let known_stale = repo.stale_listing == Some(tag(&entry.named.commit));
    if known_stale && cover::is_marker_valid(repo, covers) && !unread_since(context, repo) {
        return ListingVerdict::Equal { confirm };
    }
    ListingVerdict::Suspect(Suspect {
        host: note.host,
        listed: entry.named,
        held: Some(head.commit),
        older: entry.named.rev < head.rev,
        upto: stream_position(context, repo),
        since: now.time,
    })
}

/// The commit whose snapshot is being written.
fn applying_commit(repo: &Repo) -> Option<Cid> {
    match &repo.held {
        Held::Applying { target, .. } => Some(target.commit),
        Held::Nothing | Held::Exactly(_) | Held::Damaged { .. } => None,
    }
}

/// Handles a listing by a host that the repository does not live on. A former host may list the
/// repository for ever, and any host can list anything. The DID is therefore resolved only for news
/// and while tokens are left: otherwise such a listing alone could keep the repository from ever
/// being complete. Once per confirm period the DID is resolved without news, because the repository
/// may have moved with an older head than its former host has. That period counts from the last
/// reading of the document: a former host that goes on confirming the head shows nothing about
/// where the repository lives.
fn owe_elsewhere(now: Now, repo: &mut Repo, entry: &ListingEntry, settings: &Settings) {
    let newer = repo.head().is_none_or(|head| entry.named.rev > head.rev);
    let shown = account::is_hidden(repo.account) && !account::is_hidden(entry.account);
    let read = repo.signing.map(|document| document.at);
    let news = newer || shown || is_new_period(now.time, read, repo, settings);
    if repo.host.is_none() || (news && debt::may_ask(repo, now.time)) {
        debt::owe(now, repo, DebtKind::Resolve, DebtReason::ListedElsewhere);
    }
}

/// Whether an unreadable frame came since the host was last asked about the repository.
fn unread_since(context: Context<'_>, repo: &Repo) -> bool {
    let unread = repo
        .cover
        .and_then(|cover| context.covers.get(cover))
        .and_then(|source| source.row.unread_at);
    unread.is_some() && repo.swept.map(|swept| swept.tick) <= unread
}

/// Handles an entry that names the held head. The row changes only if the entry adds
/// evidence.
fn listed_head_equal(context: Context<'_>, repo: &mut Repo, page: &PageNote) {
    let note = page.of(repo, context.settings);
    let before = repo.marker;
    fetch::restore_marker(repo, &note);
    let head_rev = repo.head().map(|head| head.rev);
    let first = repo.first_rev_since_reset;
    repo.first_rev_since_reset = first.or(head_rev);
    if repo.marker != before || first.is_none() {
        fetch::record_sweep(context.now, repo, &note, SweepSource::Listing);
    }
}

fn stream_position(context: Context<'_>, repo: &Repo) -> Option<StreamPosition> {
    let upstream = repo.cover?;
    let source = context.covers.get(upstream)?;
    Some(StreamPosition {
        upstream,
        numbering: source.row.numbering,
        seq: source.stream.read()?.seq,
    })
}

/// Whether the host's own answer is due.
fn is_confirm_due(now: Time, repo: &Repo, settings: &Settings) -> bool {
    is_new_period(now, repo.confirmed_at, repo, settings)
}

/// Whether a confirm period has begun since `last`. Each repository has its own time
/// within the period, so that the questions are spread.
fn is_new_period(now: Time, last: Option<Time>, repo: &Repo, settings: &Settings) -> bool {
    let Some(last) = last else {
        return true;
    };
    let period = micros(settings.confirm_every).max(1);
    let offset = hash_did(&repo.did) % period;
    let slot = |time: Time| time.0.saturating_add(offset) / period;
    slot(now) != slot(last)
}

fn hash_did(did: &Did) -> u64 {
    did.as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// Reviews a suspect. `durable` is the durable cursor of its cover, with the numbering
/// that the cursor belongs to.
pub fn review_suspect(
    context: Context<'_>,
    repo: &Repo,
    suspect: &Suspect,
    durable: Option<(u32, Cursor)>,
) -> SuspectDecision {
    let now = context.now.time;
    let ours = repo.head().map(|head| head.commit);
    if repo.host != Some(suspect.host) || ours == Some(suspect.listed.commit) {
        return SuspectDecision::Cleared;
    }
    if passed_by(context, repo, suspect) {
        return SuspectDecision::Cleared;
    }
    let passed = match (suspect.upto, durable) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(upto), Some((numbering, cursor))) => {
            numbering != upto.numbering || cursor.seq >= upto.seq
        }
    };
    if passed || now.passed(suspect.since, SUSPECT_PATIENCE) {
        SuspectDecision::Ask
    } else {
        SuspectDecision::Wait
    }
}

/// Whether the held head has moved since the page arrived, to a newer rev than the listed one. The
/// head moves by commits that chain and by whole snapshots, so with a valid marker nothing that the
/// page showed can be missing. On a busy host most suspects are of this kind.
fn passed_by(context: Context<'_>, repo: &Repo, suspect: &Suspect) -> bool {
    let newer = repo
        .head()
        .is_some_and(|head| Some(head.commit) != suspect.held && head.rev > suspect.listed.rev);
    newer && cover::is_marker_valid(repo, context.covers) && repo.debt.is_empty()
}

/// Handles a suspect whose listed head is held by now: the entry counts like any entry that names
/// the held head.
pub fn suspect_cleared(context: Context<'_>, repo: &mut Repo, page: &PageNote, suspect: &Suspect) {
    cover::update_cover(repo, context.covers);
    let ours = repo
        .head()
        .is_some_and(|head| head.commit == suspect.listed.commit);
    if ours && repo.host == Some(suspect.host) {
        listed_head_equal(context, repo, page);
    }
}

/// Handles the host's answer about a suspect. If the host's head is the held one, the
/// listed head is stale and will not cause a question again. Without an answer a
/// comparison is owed.
pub fn suspect_answered(now: Now, repo: &mut Repo, suspect: &Suspect, answer: Option<NamedHead>) {
    match answer {
        Some(named) => {
            let ours = repo.head().is_some_and(|head| head.commit == named.commit);
            if ours && suspect.listed.commit != named.commit {
                repo.stale_listing = Some(tag(&suspect.listed.commit));
            }
        }
        None => debt::owe(now, repo, DebtKind::Compare, DebtReason::ListedNewer),
    }
}

/// Owes a comparison for a repository about which the sweep asked the host directly, without
/// getting an answer: the host may have any state. Nothing is added if a comparison became owed
/// since the sweep began, or if the repository is hidden, because the ledger does not vouch for a
/// hidden one.
pub fn question_unanswered(now: Now, repo: &mut Repo, began: Tick) {
    let owed = repo.debt.compare.is_some_and(|owed| owed.at > began);
    if !owed && !account::is_hidden(repo.account) {
        debt::owe(now, repo, DebtKind::Compare, DebtReason::Interrupted);
    }
}

/// Whether a repository that is not listed counts as lost: it lived on the host when the
/// sweep began, and is not hidden. A hidden one was lost before, or has left.
pub fn counts_as_vanished(repo: &Repo, began: Tick) -> bool {
    repo.host_since < began && !account::is_hidden(repo.account)
}

/// Owes a comparison for a repository that the host should have listed and did not.
pub fn owe_absent(now: Now, repo: &mut Repo) {
    if !account::is_hidden(repo.account) {
        debt::owe(now, repo, DebtKind::Compare, DebtReason::AccountEvent);
    }
}

/// Checks, after all pages were read, how many of the host's known repositories were
/// absent. If a host lost too many, hiding is suspended until a whole sweep misses none,
/// or until an operator confirms the loss.
pub fn count_absent(host: &mut Host, absent: u64, of: u64, notices: &mut Vec<Notice>) {
    if account::too_many_vanished(absent, of) && !host.hiding_suspended {
        host.hiding_suspended = true;
        notices.push(Notice::HidingSuspended {
            vanished: absent,
            of,
        });
    }
}

/// Resumes hiding after a whole sweep that missed no repository: there is no loss for an
/// operator to confirm.
pub fn resume_hiding(host: &mut Host) {
    host.hiding_suspended = false;
}

/// Completes the sweep that began at `began`. Every suspect is decided, and every
/// question is answered or owed. The findings describe the time at which the sweep began.
pub fn finish(host: &mut Host, began: Now) {
    host.swept = Some(HostSweep {
        tick: began.tick,
        at: began.time,
    });
}

/// Whether a host is to be swept now: its interval is over, or a possible cover of its
/// repositories lost something that only a sweep can find. While such a cover is about to
/// open, the sweep waits: a sweep before that could not raise a marker to the new epoch
/// and would have to be repeated.
pub fn is_due(context: Context<'_>, id: HostId, host: &Host) -> bool {
    let covers = || context.covers.possible_covers(id).map(|(_, source)| source);
    if covers().any(|source| source.stream.is_opening()) {
        return false;
    }
    let Some(last) = host.swept else {
        return true;
    };
    let lost = covers().any(|source| {
        let since = Some(source.row.reset_at)
            .max(source.row.unread_at)
            .max(source.stream.opened_at());
        since > Some(last.tick)
    });
    lost || context
        .now
        .time
        .passed(last.at, context.settings.sweep_every)
}

/// When the held head was last found to be the host's. A completed sweep counts for every
/// repository that lived on the host and owed nothing.
pub fn last_sweep(repo: &Repo, host: Option<&Host>) -> Option<RepoSweep> {
    let by_host = host
        .and_then(|host| host.swept)
        .filter(|swept| {
            // A sweep that began before concerns another state, or another host.
            let since = repo.host_since.max(repo.unset_at);
            // A listing that is known to be stale says nothing.
            since < swept.tick && repo.debt.is_empty() && repo.stale_listing.is_none()
        })
        .map(|swept| RepoSweep {
            tick: swept.tick,
            at: swept.at,
            by: SweepSource::Listing,
        });
    match (repo.swept, by_host) {
        (Some(own), Some(host)) if own.tick >= host.tick => Some(own),
        (own, host) => host.or(own),
    }
}
