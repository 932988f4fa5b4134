//! Answers about hosts: the state of each host, and hosts whose repositories may not all be
//! known or compared, with what Gapless does about it and what a person can do.

use serde::{Deserialize, Serialize};

/// A host whose repositories may not all be known or compared.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostGap {
    /// The name of the host in DID documents.
    pub host: String,
    pub reasons: Vec<String>,
    /// The earliest known time since which a reason has held.
    pub since: Option<String>,
    /// Why the last sweep of the host failed.
    pub error: Option<String>,
    /// Consecutive failed sweeps since the start.
    #[serde(default)]
    pub failures: u32,
    /// When the next sweep may begin.
    #[serde(default)]
    pub next_try: Option<String>,
    pub doing: String,
    pub can_do: String,
}

/// Why the repositories of a host may not all be known or compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostReason {
    /// The host is followed for all its repositories, and its listing was not read to the
    /// end since it was added or since its stream last missed events.
    NotListed,
    /// The last sweep failed.
    SweepFailing,
}

/// The answer about one known host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostAnswer {
    /// The number of the host, which is never given to another host.
    pub number: u64,
    /// The name of the host in DID documents.
    pub host: String,
    /// How the host is known: configured (an operator follows it), listed (a relay lists it,
    /// or did when it was new), document (a DID document names it), or operator (an operator
    /// named it before and does not follow it now).
    pub known_by: String,
    /// A description of the source that named the host first; null if no source is recorded.
    #[serde(default)]
    pub named_by: Option<String>,
    /// Since when the host is known, if it has never answered any request.
    #[serde(default)]
    pub never_reached_since: Option<String>,
    /// The relays that have listed the host since the start.
    pub listed_by: Vec<String>,
    /// Why a stream of the host is followed; null if none is.
    pub followed: Option<String>,
    /// swept, sweeping, waiting (never swept yet), failing, or idle (never swept, and no
    /// request is sent to it because no known repository lives there).
    pub state: String,
    /// Repositories in the last listing of the host since the start.
    pub repos_listed: Option<u64>,
    /// When the last completed sweep began.
    pub last_sweep: Option<String>,
    pub failing_since: Option<String>,
    /// Consecutive failed sweeps since the start.
    pub failures: u32,
    /// Why the last sweep failed.
    pub error: Option<String>,
    /// When the next sweep may begin, if the last one failed.
    pub next_try: Option<String>,
}

/// A page of hosts, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostsPage {
    pub hosts: Vec<HostAnswer>,
    /// Known hosts in total.
    pub total: u64,
    /// Hosts that were swept.
    pub swept: u64,
    /// Hosts whose last sweep failed.
    pub failing: u64,
    /// New hosts that were refused since the start because a quota is exhausted.
    #[serde(default)]
    pub refused: u64,
    /// The sources of refused hosts.
    #[serde(default)]
    pub refused_by: Vec<NamerAnswer>,
    /// The cursor of the next page: the last number of this page; null on the last page.
    pub cursor: Option<u64>,
}

/// A source that exceeded its quota of new hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NamerAnswer {
    /// The source, in words.
    pub named_by: String,
    /// Known hosts that the source named.
    pub hosts: u64,
    /// How many hosts the source may name.
    pub limit: Option<u64>,
    /// Hosts of the source that were refused since the start.
    pub refused: u64,
}

/// The scope of discovery and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiscoverStatus {
    /// upstreams (and tracked repositories), network, or collections.
    pub scope: String,
    /// The streams that bring events of discovered repositories: relays or hosts.
    pub follow: String,
    pub collections: Vec<String>,
    pub hosts: u64,
    pub hosts_swept: u64,
    pub hosts_failing: u64,
    /// Repositories in the last listings of all hosts since the start.
    pub repos_listed: u64,
    /// Tracked repositories that a collection found.
    pub found: u64,
    /// Candidates that were dropped because too many waited: possible misses until a listing
    /// or their next operation names them again.
    pub found_dropped: u64,
    /// The listings that discovery reads, each with its last result.
    pub listings: Vec<ListingAnswer>,
}

/// A listing of hosts, or of the repositories with records in a collection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListingAnswer {
    pub url: String,
    pub collection: Option<String>,
    /// When the listing was last read to the end.
    pub read_at: Option<String>,
    /// The number of entries in the listing when it was last read to the end.
    pub entries: Option<u64>,
    pub error: Option<String>,
}

impl HostReason {
    /// The name of the reason in the API.
    pub fn name(self) -> &'static str {
        match self {
            HostReason::NotListed => "not_listed",
            HostReason::SweepFailing => "sweep_failing",
        }
    }

    /// What Gapless does about the reason now.
    pub fn what_happens(self) -> &'static str {
        match self {
            HostReason::NotListed => {
                "Gapless has not read the host's whole listing yet, so some of the host's repositories may be unknown."
            }
            HostReason::SweepFailing => "Gapless sweeps the host again, at growing intervals.",
        }
    }

    /// What a person can do about the reason.
    pub fn what_to_do(self) -> &'static str {
        match self {
            HostReason::NotListed => "Wait; `gapless upstream list` shows the last sweep.",
            HostReason::SweepFailing => {
                "Check whether the host is up and answers listRepos and getLatestCommit; if the host is gone, stop following it."
            }
        }
    }
}

impl HostGap {
    pub fn new(host: String, reasons: &[HostReason]) -> HostGap {
        let texts = |of: fn(HostReason) -> &'static str| {
            let texts: Vec<&str> = reasons.iter().map(|reason| of(*reason)).collect();
            texts.join(" ")
        };
        HostGap {
            host,
            reasons: reasons.iter().map(|one| one.name().to_owned()).collect(),
            since: None,
            error: None,
            failures: 0,
            next_try: None,
            doing: texts(HostReason::what_happens),
            can_do: match reasons {
                // For a failing host, waiting is no advice: the last reason decides.
                [.., last] => last.what_to_do().to_owned(),
                [] => String::new(),
            },
        }
    }
}
