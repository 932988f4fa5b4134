//! Decides whether to keep the held state or to adopt the state of a host that is behind
//! (R10b).
//!
//! A host can be behind for ordinary reasons: it was killed after sending a commit that
//! it then lost, or the account wrote on its old host after the export. The held state is
//! newer and signed, but the network continues from the host's older one. The two are
//! never merged. Adopting replaces the state in one batch, logs every change, and begins
//! a new lineage: commits of the abandoned lineage are not applied again.

use super::cover;
use super::debt::{self, DebtKind};
use super::event::{self, Context};
use super::fetch::{self, CheckedHead, Next, Note};
use super::notice::Notice;
use super::settings::{BEHIND_TIMES, OnRollback, Settings};
use super::state::{Behind, DebtReason, Head, Held, NamedHead, Repo, tag};
use super::time::Now;

/// The number of repositories of a host, and of those with which the host is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BehindShare {
    pub repos: u64,
    pub behind: u64,
}

/// Handles a host that named an older head than the newest commit known when it was
/// asked. `share` is `None` if it was not counted.
pub fn host_behind(
    context: Context<'_>,
    repo: &mut Repo,
    note: &Note,
    named: NamedHead,
    share: Option<BehindShare>,
    notices: &mut Vec<Notice>,
) -> Next {
    let now = context.now;
    let settings = context.settings;
    count_behind(now, repo, named, settings, notices);
    let adopt = may_adopt(repo, settings, share) && nothing_newer(repo, note);
    if adopt && repo.head().is_some_and(|head| head.commit == named.commit) {
        accept_host_head(context, repo, note, notices);
        return Next::Done;
    }
    debt::owe(now, repo, DebtKind::Compare, DebtReason::HostBehind);
    debt::postpone(now, repo, now.time.after(settings.sweep_every));
    if adopt {
        Next::Adopt(named)
    } else {
        Next::Done
    }
}

fn count_behind(
    now: Now,
    repo: &mut Repo,
    named: NamedHead,
    settings: &Settings,
    notices: &mut Vec<Notice>,
) {
    match &mut repo.behind {
        Some(behind) if behind.named == named => {
            behind.counted_at = behind.counted_at.min(now.time);
            if now.time.since(behind.counted_at) >= settings.sweep_every {
                behind.times = behind.times.saturating_add(1);
                behind.counted_at = now.time;
            }
        }
        other => {
            notices.push(Notice::HostBehind { named });
            *other = Some(Behind {
                named,
                since: now.time,
                times: 1,
                counted_at: now.time,
            });
        }
    }
}

/// Whether the host's older state may be adopted now. Without a `share`, [`OnRollback::Auto`] never
/// adopts.
pub(crate) fn may_adopt(repo: &Repo, settings: &Settings, share: Option<BehindShare>) -> bool {
    let Some(behind) = &repo.behind else {
        return false;
    };
    if behind.times == ACCEPTED {
        return true;
    }
    if behind.times < BEHIND_TIMES {
        return false;
    }
    match settings.on_rollback {
        OnRollback::Hold => false,
        OnRollback::Adopt => true,
        // A single repository is an accident; a hundredth of a host is not.
        OnRollback::Auto => {
            let few = |share: BehindShare| {
                share.behind <= 1 || share.behind.saturating_mul(100) < share.repos
            };
            share.is_some_and(few) && was_ours(repo, &behind.named)
        }
    }
}

/// Whether a head is the held one, or on the trail of heads before it.
fn was_ours(repo: &Repo, named: &NamedHead) -> bool {
    let now = repo.head().is_some_and(|head| head.commit == named.commit);
    let tag = tag(&named.commit);
    now || repo
        .trail
        .iter()
        .flatten()
        .any(|past| past.rev == named.rev && past.tag == tag)
}

/// Whether the owner is not known to have signed anything after the note: the answer to
/// an earlier question says nothing about a newer commit, and must not give it up.
fn nothing_newer(repo: &Repo, note: &Note) -> bool {
    fetch::newest_known_rev(repo) <= note.known
}

/// Accepts that the host's head is the held one, and gives up newer commits that are known but not
/// held.
pub(crate) fn accept_host_head(
    context: Context<'_>,
    repo: &mut Repo,
    note: &Note,
    notices: &mut Vec<Notice>,
) {
    let Some(head) = repo.head().copied() else {
        return;
    };
    begin_lineage(repo, &head, notices);
    let note = Note {
        lineage: repo.lineage,
        ..*note
    };
    fetch::heads_equal(context, repo, &note);
    pay_adopted(context.now, repo);
}

/// Whether a snapshot is still the one to adopt. Time has passed since the decision, so
/// every condition is checked again.
pub fn is_adoptable(repo: &Repo, note: &Note, named: &NamedHead, snapshot: &CheckedHead) -> bool {
    let same = repo.behind.is_some_and(|behind| behind.named == *named);
    same && repo.host == Some(note.host)
        && repo.lineage == note.lineage
        && nothing_newer(repo, note)
        && snapshot.head.commit == named.commit
}

/// Adopts the host's state, in one batch with the difference.
pub fn adopt_snapshot(
    context: Context<'_>,
    repo: &mut Repo,
    note: &Note,
    snapshot: &CheckedHead,
    notices: &mut Vec<Notice>,
) {
    let now = context.now;
    begin_lineage(repo, &snapshot.head, notices);
    repo.key = snapshot.key;
    repo.filter = note.filter;
    repo.fetched_at = Some(now.time);
    let note = Note {
        lineage: repo.lineage,
        ..*note
    };
    fetch::heads_equal(context, repo, &note);
    pay_adopted(now, repo);
    // A listing in progress was read when another state was held.
    repo.unset_at = repo.unset_at.max(now.tick);
}

fn begin_lineage(repo: &mut Repo, head: &Head, notices: &mut Vec<Notice>) {
    repo.abandoned = repo.abandoned.max(fetch::newest_known_rev(repo));
    repo.lineage += 1;
    repo.held = Held::Exactly(*head);
    repo.last_indexed_rev = Some(head.rev);
    repo.last_firehose_rev = None;
    repo.first_rev_since_reset = Some(head.rev);
    for past in &mut repo.trail {
        if past.is_some_and(|past| past.rev >= head.rev) {
            *past = None;
        }
    }
    repo.behind = None;
    repo.proven = None;
    notices.push(Notice::Adopted { rev: head.rev });
}

/// Pays the debts that exist because the host was behind.
fn pay_adopted(now: Now, repo: &mut Repo) {
    if repo
        .debt
        .compare
        .is_some_and(|owed| owed.why == DebtReason::HostBehind)
    {
        debt::pay(now, repo, DebtKind::Compare, now.tick);
    }
    if repo
        .debt
        .named
        .is_some_and(|named| event::is_abandoned(repo, named.rev))
    {
        debt::pay(now, repo, DebtKind::Fetch, now.tick);
    }
}

/// The value of [`Behind::times`](super::state::Behind) that means that an operator has
/// decided; no host reaches it by counting.
const ACCEPTED: u32 = u32::MAX;

/// Accepts the host's state for an operator, whatever the rules say. The decision holds
/// for the state that the host names now, and for no other.
pub fn accept_rollback(now: Now, repo: &mut Repo) {
    if let Some(behind) = &mut repo.behind {
        behind.times = ACCEPTED;
    }
    debt::owe(now, repo, DebtKind::Compare, DebtReason::Operator);
    cover::unset_marker(now.tick, repo);
}
