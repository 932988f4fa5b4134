//! Decides whether an event is applied, parked, refused, or owes work (R4, R5, R6, R8,
//! R9).
//!
//! An event concerns one repository and arrives verified as far as possible. It is
//! applied only if it leads from the held root to the next signed one. A commit that the
//! owner signed and that cannot be applied shows that something newer exists: it is
//! parked, the first rev since reset rises, and a fetch is owed. Input that the owner did
//! not sign raises nothing; it only makes Gapless ask.

use std::collections::BTreeMap;

use gapless_atp::mst::empty_root;
use gapless_atp::syntax::Rev;

use super::account;
use super::cover::{self, Covers};
use super::debt::{self, DebtKind};
use super::notice::{DropReason, Notice};
use super::settings::{
    LEGACY_FETCH_EVERY, PARKED_BYTES, PARKED_BYTES_IN_ALL, PARKED_FRAMES, Settings, UNJUDGED_BYTES,
    UNJUDGED_BYTES_IN_ALL,
};
use super::state::{
    Account, DebtReason, Epoch, Head, Held, HostId, NamedHead, Parked, PastHead, PriorState, Repo,
    TRAIL_HEADS, UpstreamId, UpstreamKind, tag,
};
use super::time::Now;

/// Where an event was read. The origin travels through queues with its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub upstream: UpstreamId,
    /// The epoch that the event may raise a marker to; `None` if no epoch was open when
    /// it was read.
    pub epoch: Option<Epoch>,
}

/// One event of one repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A commit or a `#sync` that the owner signed.
    Signed {
        head: Head,
        before: PriorState,
        bytes: u32,
    },
    /// The event proves nothing but that it arrived: its signature is bad, or its payload
    /// cannot be decoded.
    Unsigned,
    /// The event cannot be verified, because the DID could not be resolved. `claimed` is
    /// the head that the event names.
    Unresolved { claimed: Head, bytes: u32 },
    /// `#identity`.
    Identity,
    /// `#account`.
    Account(Account),
}

/// What is parked already, of one repository and of all repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParkedTotals {
    pub frames: u32,
    pub bytes: u64,
    pub bytes_in_all: u64,
    /// What the frame that is parked under this event's rev proves, if there is one.
    pub same_rev: Option<PriorState>,
}

/// What the caller does with the event's operations or frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write the operations; the row names the commit as the head. Then look at the
    /// parked frames (see [`super::parked`]).
    Apply,
    /// Keep the frame.
    Park(Parked),
    /// Write nothing but the row, and that only if it changed.
    Pass,
}

/// The inputs that every decision about a repository uses.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Now,
    pub covers: &'a Covers,
    pub settings: &'a Settings,
}

/// Decides about one event and updates the repository's row.
pub fn decide(
    context: Context<'_>,
    repo: &mut Repo,
    origin: Origin,
    event: &Event,
    totals: &ParkedTotals,
    notices: &mut Vec<Notice>,
) -> Decision {
    let Context { now, covers, .. } = context;
    owe_first_sight(context, repo, origin);
    cover::update_cover(repo, covers);
    let from_cover = repo.cover == Some(origin.upstream);
    // Without a resolved DID the host is not known, so the event is not misrouted.
    let lives_nowhere = repo.host.is_none() && matches!(event, Event::Unresolved { .. });
    if let Some(host) = covers.host_of(origin.upstream)
        && repo.host != Some(host)
        && !lives_nowhere
    {
        return decide_misrouted(context, repo, host, event, totals, notices);
    }
    match event {
        Event::Signed {
            head,
            before,
            bytes,
        } => {
            if head.rev.is_future(now.time.0) {
                return decide_unauthenticated(now, repo, from_cover, notices);
            }
            decide_signed(
                context, repo, origin, head, *before, *bytes, totals, notices,
            )
        }
        Event::Unsigned => decide_unauthenticated(now, repo, from_cover, notices),
        Event::Unresolved { claimed, bytes } => {
            notices.push(Notice::Unresolved);
            if !ask_about(now, repo, from_cover, DebtReason::Unresolved) {
                return Decision::Pass;
            }
            debt::owe(now, repo, DebtKind::Resolve, DebtReason::Unresolved);
            let parked = Parked {
                head: *claimed,
                before: PriorState::Unjudged,
                origin: covers.host_of(origin.upstream).or(repo.host),
                bytes: *bytes,
            };
            park(repo, parked, totals, notices)
        }
        Event::Identity => {
            if is_heard(now, repo, from_cover) {
                debt::owe(now, repo, DebtKind::Resolve, DebtReason::IdentityEvent);
            }
            Decision::Pass
        }
        Event::Account(told) => {
            let host_itself = covers.host_of(origin.upstream).is_some();
            account::account_event(now, repo, *told, from_cover, host_itself, notices);
            Decision::Pass
        }
    }
}

/// Makes a repository known at its first event: a fetch is owed, and a relay that sent
/// the event is remembered.
pub(super) fn owe_first_sight(context: Context<'_>, repo: &mut Repo, origin: Origin) {
    let source = context.covers.get(origin.upstream);
    if repo.relay.is_none() && source.is_some_and(|source| source.row.kind == UpstreamKind::Relay) {
        repo.relay = Some(origin.upstream);
    }
    if repo.held == Held::Nothing && repo.account == Account::Unknown && repo.debt.is_empty() {
        debt::owe_fetch(context.now, repo, DebtReason::FirstSighting);
    }
}

/// Decides about an event from the stream of a host that the repository, as far as is
/// known, does not live on. The directory is asked. A signed and newer commit still shows
/// that something is missing.
fn decide_misrouted(
    context: Context<'_>,
    repo: &mut Repo,
    host: HostId,
    event: &Event,
    totals: &ParkedTotals,
    notices: &mut Vec<Notice>,
) -> Decision {
    let now = context.now;
    notices.push(Notice::Misrouted);
    let newer = match event {
        Event::Signed { head, .. } => {
            repo.floor().is_none_or(|floor| head.rev > floor)
                && !head.rev.is_future(now.time.0)
                && !is_abandoned(repo, head.rev)
        }
        _ => false,
    };
    // A host closes the account of an owner who leaves. That the account is not there is
    // no news, and must not use up a token.
    let gone_there = matches!(event, Event::Account(told) if account::is_hidden(*told));
    if newer || (!gone_there && debt::may_ask(repo, now.time)) {
        debt::owe(now, repo, DebtKind::Resolve, DebtReason::Misrouted);
    }
    let Event::Signed {
        head,
        before,
        bytes,
    } = event
    else {
        return Decision::Pass;
    };
    if !newer {
        return Decision::Pass;
    }
    raise_first_rev(repo, head.rev);
    debt::owe_commit(now, repo, DebtReason::OtherHost, named_head(head));
    let parked = Parked {
        head: *head,
        before: *before,
        origin: Some(host),
        bytes: *bytes,
    };
    park(repo, parked, totals, notices)
}

fn decide_unauthenticated(
    now: Now,
    repo: &mut Repo,
    from_cover: bool,
    notices: &mut Vec<Notice>,
) -> Decision {
    notices.push(Notice::Unauthenticated);
    ask_about(now, repo, from_cover, DebtReason::Unauthenticated);
    Decision::Pass
}

/// Whether an event counts. From a source other than the cover it is a hint, worth a
/// question only while tokens are left: otherwise a flood of hints would keep
/// repositories incomplete.
fn is_heard(now: Now, repo: &Repo, from_cover: bool) -> bool {
    from_cover || debt::may_ask(repo, now.time)
}

/// Owes a comparison for input that may not be signed by the owner. Returns false if the
/// input is ignored.
fn ask_about(now: Now, repo: &mut Repo, from_cover: bool, why: DebtReason) -> bool {
    let heard = is_heard(now, repo, from_cover);
    if heard {
        debt::owe(now, repo, DebtKind::Compare, why);
    }
    if from_cover {
        // The input came in place of an event that may have been missed.
        cover::unset_marker(now.tick, repo);
    }
    heard
}

#[expect(
    clippy::too_many_arguments,
    reason = "the parts of one event and its surroundings"
)]
fn decide_signed(
    context: Context<'_>,
    repo: &mut Repo,
    origin: Origin,
    head: &Head,
    before: PriorState,
    bytes: u32,
    totals: &ParkedTotals,
    notices: &mut Vec<Notice>,
) -> Decision {
    let now = context.now;
    let from_cover = repo.cover == Some(origin.upstream);
    if let Some(floor) = repo.floor()
        && head.rev <= floor
    {
        let fork = repo
            .head()
            .is_some_and(|held| held.rev == head.rev && held.commit != head.commit);
        if fork {
            notices.push(Notice::Fork { rev: head.rev });
            if is_heard(now, repo, from_cover) {
                debt::owe(now, repo, DebtKind::Compare, DebtReason::Fork);
            }
        }
        return Decision::Pass;
    }
    if is_abandoned(repo, head.rev) {
        notices.push(Notice::Abandoned { rev: head.rev });
        if is_heard(now, repo, from_cover) {
            debt::owe(now, repo, DebtKind::Compare, DebtReason::Abandoned);
        }
        return Decision::Pass;
    }
    let applies = chains(repo, head, before) && !account::is_hidden(repo.account);
    if applies {
        advance_head(repo, head);
    } else {
        raise_first_rev(repo, head.rev);
    }
    if let Some(epoch) = origin.epoch {
        cover::raise_marker(repo, origin.upstream, epoch);
    }
    if applies {
        return Decision::Apply;
    }
    owe_unchained(context, repo, head, before);
    let parked = Parked {
        head: *head,
        before,
        origin: context.covers.host_of(origin.upstream).or(repo.host),
        bytes,
    };
    park(repo, parked, totals, notices)
}

/// Owes a fetch for a commit that does not chain.
fn owe_unchained(context: Context<'_>, repo: &mut Repo, head: &Head, before: PriorState) {
    let now = context.now;
    let why = match before {
        _ if account::is_hidden(repo.account) => DebtReason::WhileInactive,
        PriorState::Recompute => DebtReason::Legacy,
        PriorState::Untold => DebtReason::OtherRoot,
        PriorState::Root(_) | PriorState::Unjudged => DebtReason::BrokenChain,
    };
    debt::owe_commit(now, repo, why, named_head(head));
    // Without this wait, every commit of such a host would cause a fetch.
    if why == DebtReason::Legacy
        && context.settings.wanted_keys_only
        && let Some(last) = repo.fetched_at
    {
        debt::postpone(now, repo, last.after(LEGACY_FETCH_EVERY));
    }
}

/// Whether a signed commit directly follows the held state.
pub fn chains(repo: &Repo, head: &Head, before: PriorState) -> bool {
    if repo.purging {
        // The records of before are still being deleted.
        return false;
    }
    match (&repo.held, before) {
        (Held::Exactly(held), PriorState::Root(root)) => root == held.data,
        // The owner signed the held root again, under a newer rev.
        (Held::Exactly(held), PriorState::Untold) => head.data == held.data,
        // The operations of such a commit are the whole repository.
        (Held::Nothing, PriorState::Root(root)) => root == empty_root(),
        (Held::Nothing, PriorState::Untold) => false,
        (Held::Applying { .. } | Held::Damaged { .. }, _) => false,
        (_, PriorState::Recompute | PriorState::Unjudged) => false,
    }
}

/// Moves the head to a live commit.
pub(crate) fn advance_head(repo: &mut Repo, head: &Head) {
    push_trail(repo);
    repo.held = Held::Exactly(*head);
    repo.last_firehose_rev = repo.last_firehose_rev.max(Some(head.rev));
    repo.first_rev_since_reset.get_or_insert(head.rev);
    repo.key = Default::default();
    debt::pay_reached_commit(repo);
}

/// Puts the present head on the trail, before another one replaces it.
pub(crate) fn push_trail(repo: &mut Repo) {
    if let Held::Exactly(old) = repo.held {
        repo.trail.rotate_right(1);
        repo.trail[0] = Some(PastHead {
            rev: old.rev,
            tag: tag(&old.commit),
        });
        debug_assert_eq!(repo.trail.len(), TRAIL_HEADS);
    }
}

/// Records that the owner signed a commit of this rev. While the head is below it, the
/// repository is not complete.
pub(crate) fn raise_first_rev(repo: &mut Repo, rev: Rev) {
    repo.first_rev_since_reset = repo.first_rev_since_reset.max(Some(rev));
}

fn named_head(head: &Head) -> NamedHead {
    NamedHead {
        rev: head.rev,
        commit: head.commit,
    }
}

/// Whether a rev belongs to an abandoned lineage.
pub(crate) fn is_abandoned(repo: &Repo, rev: Rev) -> bool {
    repo.abandoned.is_some_and(|last| rev <= last)
}

fn park(repo: &Repo, parked: Parked, totals: &ParkedTotals, notices: &mut Vec<Notice>) -> Decision {
    let rev = parked.head.rev;
    let mut drop = |why| {
        notices.push(Notice::ParkedDropped { rev, why });
        Decision::Pass
    };
    match (totals.same_rev, parked.before) {
        // A signed frame replaces an unjudged one, never the other way round.
        (None, _) => {}
        (Some(PriorState::Unjudged), before) if before != PriorState::Unjudged => {}
        (Some(_), _) => return drop(DropReason::SameRev),
    }
    if repo.floor().is_some_and(|floor| rev <= floor) {
        return drop(DropReason::Superseded);
    }
    let bytes = u64::from(parked.bytes);
    let (most, most_in_all) = match parked.before {
        PriorState::Unjudged => (UNJUDGED_BYTES, UNJUDGED_BYTES_IN_ALL),
        _ => (PARKED_BYTES, PARKED_BYTES_IN_ALL),
    };
    let full = totals.frames >= PARKED_FRAMES
        || totals.bytes.saturating_add(bytes) > most
        || totals.bytes_in_all.saturating_add(bytes) > most_in_all;
    if full {
        return drop(DropReason::NoRoom);
    }
    Decision::Park(parked)
}

/// Sums up what is parked of one repository, for a decision about an event of `rev`.
pub(crate) fn parked_totals(
    parked: &BTreeMap<Rev, Parked>,
    rev: Rev,
    bytes_in_all: u64,
) -> ParkedTotals {
    ParkedTotals {
        frames: u32::try_from(parked.len()).unwrap_or(u32::MAX),
        bytes: parked.values().map(|frame| u64::from(frame.bytes)).sum(),
        bytes_in_all,
        same_rev: parked.get(&rev).map(|frame| frame.before),
    }
}
