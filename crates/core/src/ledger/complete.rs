//! Whether a repository is complete, why not, and as of when (R3).
//!
//! The answer is computed on demand and never stored: when an upstream goes down, all its
//! repositories become incomplete without a write. Anything unset means not complete.

use std::fmt;

use super::account;
use super::cover;
use super::event::Context;
use super::state::{Account, Held, Host, Repo, RepoSweep, SignerKey, UpstreamId};
use super::sweep;
use super::time::Time;

/// Why a repository is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Nothing is held yet.
    NoSnapshot,
    /// A large snapshot is being written.
    Applying,
    /// The disk lost data of the repository, which must be fetched again.
    Damaged,
    /// No followed upstream covers the repository.
    NoCover,
    /// The upstream that covers the repository is down.
    CoverDown,
    /// The upstream's stream was interrupted, and it is not known which events were
    /// missed.
    EpochChanged,
    /// A frame of the upstream could not be read; it may have concerned this repository.
    UnreadableFrame,
    /// The repository has not been compared with its host since something cast doubt on
    /// it.
    NotCompared,
    /// The owner signed a newer commit than the held one.
    NewerCommitKnown,
    /// The host has an older state than the held one.
    HostBehind,
    /// The account is not active.
    Inactive,
    /// The directory must be asked where the repository lives.
    ResolveOwed,
    /// The host must be asked for the repository's head.
    CompareOwed,
    /// The repository must be fetched.
    FetchOwed,
    /// The filter has changed since the repository was fetched.
    FilterChanged,
    /// The repository is larger than `fetch.max_repo_bytes`.
    TooLarge,
}

impl Reason {
    /// The name of the reason in the API. A published name never changes.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NoSnapshot => "no_snapshot",
            Reason::Applying => "applying",
            Reason::Damaged => "damaged",
            Reason::NoCover => "no_cover",
            Reason::CoverDown => "cover_down",
            Reason::EpochChanged => "epoch_changed",
            Reason::UnreadableFrame => "unreadable_frame",
            Reason::NotCompared => "not_compared",
            Reason::NewerCommitKnown => "newer_commit_known",
            Reason::HostBehind => "host_behind",
            Reason::Inactive => "inactive",
            Reason::ResolveOwed => "resolve_owed",
            Reason::CompareOwed => "compare_owed",
            Reason::FetchOwed => "fetch_owed",
            Reason::FilterChanged => "filter_changed",
            Reason::TooLarge => "too_large",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How strong the evidence is that the held copy is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing is held, and the repository's host is not known.
    Unknown,
    /// Nothing is held, but the repository's host is known.
    Listed,
    /// A verified snapshot is held, and every commit since then links to the one before
    /// it.
    Chained,
    /// The root recomputed from the stored keys is the signed root.
    Proven,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Unknown => "unknown",
            Level::Listed => "listed",
            Level::Chained => "chained",
            Level::Proven => "proven",
        }
    }
}

/// What a [`Completeness`] is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    pub level: Level,
    /// The upstream that covers the repository.
    pub via: Option<UpstreamId>,
    pub key: SignerKey,
    pub proven_at: Option<Time>,
    pub swept: Option<RepoSweep>,
}

/// Whether one repository is complete, why not, and as of when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completeness {
    /// Why the repository is not complete; empty if it is complete.
    pub reasons: Vec<Reason>,
    /// The time that the answer describes.
    pub as_of: Option<Time>,
    pub evidence: Evidence,
}

impl Completeness {
    pub fn complete(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Whether a repository is complete, with all reasons and the evidence. `host` is the
/// row of the repository's host.
pub fn completeness(context: Context<'_>, repo: &Repo, host: Option<&Host>) -> Completeness {
    let mut reasons = Vec::new();
    for_each_reason(context, repo, host, |reason| {
        // Several checks may give the same reason.
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
        true
    });
    let via = context.covers.of(repo);
    let heard = via
        .and_then(|id| context.covers.get(id))
        .and_then(|source| source.stream.durable_until());
    let swept = sweep::last_sweep(repo, host);
    let as_of = match (heard, swept) {
        (Some(heard), Some(swept)) => Some(heard.min(swept.at)),
        (heard, swept) => heard.or(swept.map(|swept| swept.at)),
    };
    Completeness {
        reasons,
        as_of,
        evidence: Evidence {
            level: level(repo),
            via,
            key: repo.key,
            proven_at: repo.proven.map(|proven| proven.at),
            swept,
        },
    }
}

/// Whether a repository is complete, without the list of reasons.
pub fn is_complete(context: Context<'_>, repo: &Repo, host: Option<&Host>) -> bool {
    let mut complete = true;
    for_each_reason(context, repo, host, |_| {
        complete = false;
        false
    });
    complete
}

fn level(repo: &Repo) -> Level {
    match (repo.head(), repo.proven) {
        (Some(head), Some(proven)) if proven.rev == head.rev => Level::Proven,
        (Some(_), _) => Level::Chained,
        (None, _) if repo.host.is_some() => Level::Listed,
        (None, _) => Level::Unknown,
    }
}

/// Calls `found` with each reason why a repository is not complete, until `found`
/// returns false.
fn for_each_reason(
    context: Context<'_>,
    repo: &Repo,
    host: Option<&Host>,
    mut found: impl FnMut(Reason) -> bool,
) {
    let checks = [
        held_reason(repo),
        (repo.account != Account::Active).then_some(if account::is_hidden(repo.account) {
            Reason::Inactive
        } else {
            Reason::NotCompared
        }),
        cover_reason(context, repo, host),
        newer_commit_reason(repo),
        repo.behind.map(|_| Reason::HostBehind),
        repo.debt.resolve.map(|_| Reason::ResolveOwed),
        repo.debt.compare.map(|_| Reason::CompareOwed),
        repo.debt.fetch.map(|_| match repo.debt.oversize {
            None => Reason::FetchOwed,
            Some(_) => Reason::TooLarge,
        }),
        (repo.filter != context.settings.filter).then_some(Reason::FilterChanged),
    ];
    for reason in checks.into_iter().flatten() {
        if !found(reason) {
            return;
        }
    }
}

/// The reason that lies in what is held.
fn held_reason(repo: &Repo) -> Option<Reason> {
    match repo.held {
        Held::Nothing => Some(Reason::NoSnapshot),
        Held::Applying { .. } => Some(Reason::Applying),
        Held::Damaged { .. } => Some(Reason::Damaged),
        Held::Exactly(_) => None,
    }
}

/// The reason that lies in the cover: there is none, it is down, or it may have missed
/// something.
fn cover_reason(context: Context<'_>, repo: &Repo, host: Option<&Host>) -> Option<Reason> {
    let covers = context.covers;
    let Some(id) = covers.of(repo) else {
        return Some(Reason::NoCover);
    };
    if !covers.live(id, context.now.time, context.settings) {
        return Some(Reason::CoverDown);
    }
    if !cover::is_marker_valid(repo, covers) {
        return Some(match repo.marker {
            Some(marker) if marker.cover == id => Reason::EpochChanged,
            _ => Reason::NotCompared,
        });
    }
    let unread = covers.get(id).and_then(|source| source.row.unread_at);
    let swept = sweep::last_sweep(repo, host).map(|swept| swept.tick);
    (unread.is_some() && swept <= unread).then_some(Reason::UnreadableFrame)
}

/// The reason that lies in the first rev since reset: a newer commit than the held head
/// is known, or the head was not compared.
fn newer_commit_reason(repo: &Repo) -> Option<Reason> {
    let head = repo.head()?;
    match repo.first_rev_since_reset {
        Some(first) if head.rev >= first => None,
        Some(_) => Some(Reason::NewerCommitKnown),
        None => Some(Reason::NotCompared),
    }
}
