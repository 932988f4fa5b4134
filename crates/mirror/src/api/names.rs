//! The names of the ledger's states in the API: lower case with underscores, never changed
//! once published.

use gapless_core::ledger::debt::DebtKind;
use gapless_core::ledger::deletion::{self, AwaitedEvidence};
use gapless_core::ledger::{Account, DebtReason, FollowReason, Repo, SignerKey, SweepSource};

/// Why an upstream is followed.
pub(crate) fn followed_name(followed: FollowReason) -> &'static str {
    match followed {
        FollowReason::No => "no",
        FollowReason::Configured => "configured",
        FollowReason::Added => "added",
        FollowReason::ForTracked => "for_tracked",
        FollowReason::Discovered => "discovered",
        FollowReason::Narrowed => "narrowed",
    }
}

pub(crate) fn account_name(account: Account) -> &'static str {
    match account {
        Account::Unknown => "unknown",
        Account::Active => "active",
        Account::Deactivated => "deactivated",
        Account::Suspended => "suspended",
        Account::Takendown => "takendown",
        Account::Deleted => "deleted",
        Account::NotFound => "not_found",
    }
}

/// The state of a repository's account, and what is awaited before it is known.
pub(super) fn account_of(repo: &Repo) -> (&'static str, Option<&'static str>) {
    let awaited = match deletion::awaited_evidence(repo) {
        None => return (account_name(repo.account), None),
        Some(AwaitedEvidence::Answer) => {
            "a relay reports the account as deleted; Gapless asks the host"
        }
        Some(AwaitedEvidence::Sweep) => {
            "a relay reports the account as deleted, and the host does not have the repository; Gapless \
             waits for a whole sweep of the host, which shows whether the host lost other \
             repositories as well"
        }
    };
    ("deleted_unconfirmed", Some(awaited))
}

pub(super) fn key_name(key: SignerKey) -> &'static str {
    match key {
        SignerKey::Present => "present",
        SignerKey::Previous => "previous",
    }
}

pub(super) fn swept_name(by: SweepSource) -> &'static str {
    match by {
        SweepSource::Listing => "listed",
        SweepSource::Head => "head",
    }
}

pub fn owed_name(what: DebtKind) -> &'static str {
    match what {
        DebtKind::Resolve => "resolve",
        DebtKind::Compare => "compare",
        DebtKind::Fetch => "fetch",
    }
}

pub fn why_name(why: DebtReason) -> &'static str {
    match why {
        DebtReason::FirstSighting => "first_sighting",
        DebtReason::BrokenChain => "broken_chain",
        DebtReason::Unresolved => "unresolved",
        DebtReason::TooBig => "too_big",
        DebtReason::OtherRoot => "other_root",
        DebtReason::Legacy => "legacy",
        DebtReason::WhileInactive => "while_inactive",
        DebtReason::Unauthenticated => "unauthenticated",
        DebtReason::Fork => "fork",
        DebtReason::Misrouted => "misrouted",
        DebtReason::OtherHost => "other_host",
        DebtReason::Abandoned => "abandoned",
        DebtReason::IdentityEvent => "identity_event",
        DebtReason::Moved => "moved",
        DebtReason::AccountEvent => "account_event",
        DebtReason::ListedElsewhere => "listed_elsewhere",
        DebtReason::ListedNewer => "listed_newer",
        DebtReason::NewerHead => "newer_head",
        DebtReason::HostBehind => "host_behind",
        DebtReason::Interrupted => "interrupted",
        DebtReason::FilterChanged => "filter_changed",
        DebtReason::StoreRepaired => "store_repaired",
        DebtReason::Operator => "operator",
        DebtReason::Closed => "closed",
        DebtReason::Claimed => "claimed",
    }
}
