//! Why a repository is not complete, in words: what is done about it now, and
//! what a person can do. One table for all reasons.

use gapless_core::ledger::complete::{Answer, Reason};
use gapless_core::ledger::{Account, Repo, Time};
use serde::{Deserialize, Serialize};

use super::hosts::HostGap;
use super::repo::TroubleAnswer;
use super::time::timestamp;

/// One repository that is not complete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gap {
    pub did: String,
    pub reasons: Vec<String>,
    /// Since when, at least, and never before it was known here; null when nothing
    /// that is written down tells.
    pub since: Option<String>,
    pub doing: String,
    pub can_do: String,
    /// Why the last try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<TroubleAnswer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GapsPage {
    pub gaps: Vec<Gap>,
    /// Where the next page begins; null on the last one.
    pub cursor: Option<u64>,
    /// Hidden ones that were passed over on this page: as their owners, or their
    /// hosts, want them.
    #[serde(default)]
    pub hidden: u64,
    /// Hosts whose repositories may not all be known, or compared. On the first
    /// page alone, and not more than a hundred of them.
    #[serde(default)]
    pub hosts: Vec<HostGap>,
    #[serde(default)]
    pub hosts_total: u64,
}

impl Gap {
    /// None when the repository is complete.
    pub fn new(repo: &Repo, answer: &Answer, since: Option<Time>) -> Option<Gap> {
        if answer.complete() {
            return None;
        }
        let texts = |of: fn(Advice) -> &'static str| {
            let mut texts: Vec<&str> = Vec::new();
            for reason in &answer.reasons {
                let text = of(match (reason, repo.account) {
                    (Reason::Inactive, Account::NotFound) => VANISHED,
                    _ => advice(*reason),
                });
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            texts.join(" ")
        };
        Some(Gap {
            did: repo.did.to_string(),
            reasons: answer.reasons.iter().map(ToString::to_string).collect(),
            since: since.and_then(timestamp),
            doing: texts(|advice| advice.doing),
            can_do: texts(|advice| advice.can_do),
            last_error: None,
        })
    }
}

/// What is said about a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// What Gapless does about it now.
    pub doing: &'static str,
    /// What a person can do.
    pub can_do: &'static str,
}

/// Inactive because its host does not have it: that is nobody's wish.
const VANISHED: Advice = Advice {
    doing: "Its host says that it does not have it; it is hidden, and shown again once it is back.",
    can_do: "Ask the host's operator, or the owner where it has gone; `gapless resync DID` asks again.",
};

/// All reasons, in the order in which they are named.
pub const REASONS: [Reason; 15] = [
    Reason::NoSnapshot,
    Reason::Applying,
    Reason::Damaged,
    Reason::NoCover,
    Reason::CoverDown,
    Reason::EpochChanged,
    Reason::UnreadableFrame,
    Reason::NotCompared,
    Reason::NewerCommitKnown,
    Reason::HostBehind,
    Reason::Inactive,
    Reason::ResolveOwed,
    Reason::CompareOwed,
    Reason::FetchOwed,
    Reason::FilterChanged,
];

/// The table.
pub fn advice(reason: Reason) -> Advice {
    let (doing, can_do) = match reason {
        Reason::NoSnapshot => (
            "Its first snapshot is queued.",
            "Wait; `gapless repo DID` shows the next try and how often it failed.",
        ),
        Reason::Applying => (
            "A large snapshot is being written; it goes on after a restart.",
            "Wait.",
        ),
        Reason::Damaged => (
            "The disk lost records of it; it is fetched again in full.",
            "Look after the disk; `gapless store check` tells what else is gone.",
        ),
        Reason::NoCover => (
            "Nothing that is followed tells of its changes; it is only compared now and then.",
            "Follow its host or a relay: `gapless upstream add pds URL`.",
        ),
        Reason::CoverDown => (
            "The upstream that speaks for it is dialled again and again, ever more slowly.",
            "`gapless upstream list` shows why the last dial failed.",
        ),
        Reason::EpochChanged => (
            "The stream was interrupted; the next sweep of its host shows what was missed.",
            "Wait for the sweep, or ask at once: `gapless resync DID`.",
        ),
        Reason::UnreadableFrame => (
            "A frame that nobody could read may have been its; the next sweep decides.",
            "Wait for the sweep; the frame is among the dead letters.",
        ),
        Reason::NotCompared => (
            "It waits to be compared with its host.",
            "Wait for the sweep, or ask at once: `gapless resync DID`.",
        ),
        Reason::NewerCommitKnown => (
            "A newer commit is known; what lies between is fetched.",
            "Wait; `gapless repo DID` shows the next try.",
        ),
        Reason::HostBehind => (
            "Its host serves an older state than was signed; ours is held and the host asked again.",
            "Ask the host's operator; to take over the older state: `gapless resync DID --accept-rollback`.",
        ),
        Reason::Inactive => (
            "The account is not active: it is hidden, and shown again once its host says so.",
            "Nothing; this is the owner's or the host's decision.",
        ),
        Reason::ResolveOwed => (
            "Its DID document is asked for.",
            "If that keeps failing, check the directory, or the owner's domain for did:web.",
        ),
        Reason::CompareOwed => (
            "Its host is asked for the newest commit.",
            "If that keeps failing, check whether the host is up.",
        ),
        Reason::FetchOwed => (
            "It is queued to be fetched.",
            "If that keeps failing, check whether the host is up and within its rate limits.",
        ),
        Reason::FilterChanged => (
            "Other collections are wanted than when it was fetched; it is fetched again.",
            "Wait.",
        ),
    };
    Advice { doing, can_do }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_words() {
        for (at, reason) in REASONS.into_iter().enumerate() {
            // The list must be the enum, each reason at its place.
            assert_eq!(reason as usize, at, "{reason}");
            let said = advice(reason);
            assert!(
                said.doing.ends_with('.') && said.can_do.ends_with('.'),
                "{reason}"
            );
            let others = REASONS[..at].iter();
            assert!(
                others
                    .clone()
                    .all(|other| advice(*other).doing != said.doing),
                "{reason} has another's words"
            );
        }
        // One more reason in the ledger must come into the list: it is the last.
        assert_eq!(REASONS.len(), Reason::FilterChanged as usize + 1);
    }
}
