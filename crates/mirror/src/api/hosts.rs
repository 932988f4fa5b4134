//! Hosts whose repositories may not all be known, or compared: why, what is done
//! about it now, and what a person can do.

use serde::{Deserialize, Serialize};

/// One such host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostGap {
    /// As DID documents name it.
    pub host: String,
    pub reasons: Vec<String>,
    /// Since when, at least.
    pub since: Option<String>,
    /// Why its last sweep failed.
    pub error: Option<String>,
    /// How often in a row sweeps failed, since we run, and when the next one may begin.
    #[serde(default)]
    pub failures: u32,
    #[serde(default)]
    pub next_try: Option<String>,
    pub doing: String,
    pub can_do: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostReason {
    /// It is followed for all that lives there, and its listing was not read
    /// through since it is, or since its stream last missed something.
    NotListed,
    /// The last sweep did not go through.
    SweepFailing,
}

/// One host that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostAnswer {
    /// Its number here, which is never given to another.
    pub number: u64,
    /// As DID documents name it.
    pub host: String,
    /// How we know it: configured (an operator wants it followed), listed (a relay does,
    /// or did when it was new), document (of a DID), or operator (one named it once, and
    /// does not follow it now).
    pub known_by: String,
    /// Who named it first, in words; null if that was not written down.
    #[serde(default)]
    pub named_by: Option<String>,
    /// Since when it is known, if it has never answered since, to anything.
    #[serde(default)]
    pub never_reached_since: Option<String>,
    /// The relays that list it, since we run.
    pub listed_by: Vec<String>,
    /// Why a stream of its own is followed; null when none is.
    pub followed: Option<String>,
    /// swept, sweeping, waiting (never swept yet), failing, or idle (never swept, and
    /// nothing is asked of it: nobody whom we know lives there).
    pub state: String,
    /// Repositories that its last listing had, since we run.
    pub repos_listed: Option<u64>,
    /// When the last sweep that went through began.
    pub last_sweep: Option<String>,
    pub failing_since: Option<String>,
    /// Sweeps in a row that failed, since we run.
    pub failures: u32,
    /// Why the last one failed.
    pub error: Option<String>,
    /// When it is tried again, if it fails.
    pub next_try: Option<String>,
}

/// Hosts, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostsPage {
    pub hosts: Vec<HostAnswer>,
    /// All that are known; and of these, how many were swept, and how many fail.
    pub total: u64,
    pub swept: u64,
    pub failing: u64,
    /// Names of new hosts that were refused since the start, because whoever named them
    /// has named too many, or because too many are known; and who that was.
    #[serde(default)]
    pub refused: u64,
    #[serde(default)]
    pub refused_by: Vec<NamerAnswer>,
    /// The last number of this page, when there are more.
    pub cursor: Option<u64>,
}

/// Somebody who named more hosts than they may.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NamerAnswer {
    /// In words.
    pub named_by: String,
    /// Hosts that are known by them.
    pub hosts: u64,
    /// How many they may name.
    pub limit: Option<u64>,
    /// How often they were refused since the start.
    pub refused: u64,
}

/// What is in scope, and how far it is found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiscoverStatus {
    /// upstreams (and what is tracked), network, or collections.
    pub scope: String,
    /// Whose streams bring what is found: relays or hosts.
    pub follow: String,
    pub collections: Vec<String>,
    pub hosts: u64,
    pub hosts_swept: u64,
    pub hosts_failing: u64,
    /// Repositories that the last listings of all hosts had, since we run.
    pub repos_listed: u64,
    /// Tracked repositories that were found by a collection.
    pub found: u64,
    /// Names that were passed over since too many waited: possible misses, until a
    /// listing, or their next operation, brings them again.
    pub found_dropped: u64,
    /// Which listings are asked for, and how they went.
    pub listings: Vec<ListingAnswer>,
}

/// A listing of hosts, or of who has records in a collection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListingAnswer {
    pub url: String,
    pub collection: Option<String>,
    /// When it was last read to its end, and how many entries it had.
    pub read_at: Option<String>,
    pub entries: Option<u64>,
    pub error: Option<String>,
}

impl HostReason {
    pub fn name(self) -> &'static str {
        match self {
            HostReason::NotListed => "not_listed",
            HostReason::SweepFailing => "sweep_failing",
        }
    }

    /// What Gapless does about it now.
    pub fn doing(self) -> &'static str {
        match self {
            HostReason::NotListed => {
                "Its listing has not been read yet: what lives there may not all be known."
            }
            HostReason::SweepFailing => "It is swept again and again, ever more slowly.",
        }
    }

    /// What a person can do.
    pub fn can_do(self) -> &'static str {
        match self {
            HostReason::NotListed => "Wait; `gapless upstream list` shows the last sweep.",
            HostReason::SweepFailing => {
                "Check whether the host is up, and answers listRepos and getLatestCommit; if it has gone, stop following it."
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
            doing: texts(HostReason::doing),
            can_do: match reasons {
                // Waiting is no advice for what fails.
                [.., last] => last.can_do().to_owned(),
                [] => String::new(),
            },
        }
    }
}
