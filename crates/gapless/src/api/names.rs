//! The ledger's words as programs know them: lower case, underscores, never
//! changed once published.

use gapless_core::ledger::debt::What;
use gapless_core::ledger::deletion::{self, Awaited};
use gapless_core::ledger::{Account, Followed, Key, Kind, Repo, SweptBy, Why};

pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Pds => "pds",
        Kind::Relay => "relay",
        Kind::Jetstream => "jetstream",
    }
}

/// The kinds that can be followed.
pub fn kind_of(name: &str) -> Option<Kind> {
    match name {
        "pds" => Some(Kind::Pds),
        "relay" => Some(Kind::Relay),
        "jetstream" => Some(Kind::Jetstream),
        _ => None,
    }
}

/// Who wanted an upstream to be followed.
pub fn followed_name(followed: Followed) -> &'static str {
    match followed {
        Followed::No => "no",
        Followed::Configured => "configured",
        Followed::Added => "added",
        Followed::ForTracked => "for_tracked",
        Followed::Discovered => "discovered",
        Followed::Narrowed => "narrowed",
    }
}

pub fn account_name(account: Account) -> &'static str {
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
pub fn account_of(repo: &Repo) -> (&'static str, Option<&'static str>) {
    let awaited = match deletion::awaited(repo) {
        None => return (account_name(repo.account), None),
        Some(Awaited::Answer) => "a relay says that it is deleted; its host is asked",
        Some(Awaited::Sweep) => {
            "a relay says that it is deleted, and its host does not have it; a whole sweep of \
             that host has yet to show that it has not lost others as well"
        }
    };
    ("deleted_unconfirmed", Some(awaited))
}

pub fn key_name(key: Key) -> &'static str {
    match key {
        Key::Present => "present",
        Key::Previous => "previous",
    }
}

pub fn swept_name(by: SweptBy) -> &'static str {
    match by {
        SweptBy::Listing => "listed",
        SweptBy::Head => "head",
    }
}

pub fn owed_name(what: What) -> &'static str {
    match what {
        What::Resolve => "resolve",
        What::Compare => "compare",
        What::Fetch => "fetch",
    }
}

pub fn why_name(why: Why) -> &'static str {
    match why {
        Why::FirstSighting => "first_sighting",
        Why::BrokenChain => "broken_chain",
        Why::Unresolved => "unresolved",
        Why::TooBig => "too_big",
        Why::OtherRoot => "other_root",
        Why::Legacy => "legacy",
        Why::WhileInactive => "while_inactive",
        Why::Unauthenticated => "unauthenticated",
        Why::Fork => "fork",
        Why::Misrouted => "misrouted",
        Why::OtherHost => "other_host",
        Why::Abandoned => "abandoned",
        Why::IdentityEvent => "identity_event",
        Why::Moved => "moved",
        Why::AccountEvent => "account_event",
        Why::ListedElsewhere => "listed_elsewhere",
        Why::ListedNewer => "listed_newer",
        Why::NewerHead => "newer_head",
        Why::HostBehind => "host_behind",
        Why::Interrupted => "interrupted",
        Why::FilterChanged => "filter_changed",
        Why::StoreRepaired => "store_repaired",
        Why::Operator => "operator",
        Why::Closed => "closed",
        Why::Claimed => "claimed",
    }
}
