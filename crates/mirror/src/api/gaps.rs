//! Explains why a repository is not complete: what Gapless does about it now, and what
//! a person can do. One table covers all reasons.

use std::borrow::Cow;

use gapless_core::ledger::complete::{Completeness, Reason};
use gapless_core::ledger::{Account, Repo, Time};
use serde::{Deserialize, Serialize};

use crate::api::hosts::HostGap;
use crate::api::reach::Reach;
use crate::api::repo::LastErrorAnswer;
use crate::api::time::timestamp;

/// One repository that is not complete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gap {
    pub did: String,
    /// Reasons that block the others come first.
    pub reasons: Vec<String>,
    /// The time since which the repository has surely been incomplete, never before it was known;
    /// null if no row states it.
    pub since: Option<String>,
    /// What Gapless does about it: a sentence for each reason, in the order of `reasons`.
    pub doing: String,
    /// What a person can do: a sentence for each reason, in the order of `reasons`.
    pub can_do: String,
    /// The last error of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastErrorAnswer>,
}

/// A page of repositories that are not complete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GapsPage {
    pub gaps: Vec<Gap>,
    /// The cursor of the next page; null on the last page.
    pub cursor: Option<u64>,
    /// Hidden repositories that this page leaves out: their owners or hosts want them
    /// hidden.
    #[serde(default)]
    pub hidden: u64,
    /// Hosts whose repositories may not all be known or compared. Only on the first page,
    /// and at most a hundred.
    #[serde(default)]
    pub hosts: Vec<HostGap>,
    #[serde(default)]
    pub hosts_total: u64,
    /// How far the answer reaches. Only on the first page.
    #[serde(default)]
    pub reach: Option<Reach>,
}

/// The first `count` sentences of a text.
pub fn sentences(text: &str, count: usize) -> &str {
    let mut ends = text.match_indices(". ").map(|(at, _)| at + 1);
    let end = count.checked_sub(1).and_then(|before| ends.nth(before));
    end.map_or(text, |end| &text[..end])
}

/// What the advice depends on beside the reasons of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Circumstances {
    pub since: Option<Time>,
    /// Whether the disk is full.
    pub full: bool,
    /// Whether the upstream that covers the repository is connected.
    pub connected: bool,
    /// Whether the last error was a local one and not the fault of the host.
    pub here: bool,
    /// Whether a Jetstream is followed. A Jetstream covers no repository.
    pub jetstream: bool,
}

impl Gap {
    /// The answer about an incomplete repository; `None` if the repository is complete.
    pub fn new(repo: &Repo, answer: &Completeness, known: Circumstances) -> Option<Gap> {
        if answer.complete() {
            return None;
        }
        let mut reasons = answer.reasons.clone();
        reasons.sort_by_key(|reason| rank(*reason));
        // On a full disk nothing else is done, so this advice comes first.
        let full = known.full.then_some(FULL).into_iter();
        let each = reasons
            .iter()
            .map(|reason| advice_for(*reason, repo, known));
        let advice: Vec<Advice> = full.chain(each).collect();
        let texts = |of: fn(&Advice) -> &str| {
            let mut texts: Vec<&str> = Vec::new();
            for text in advice.iter().map(of) {
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            texts.join(" ")
        };
        Some(Gap {
            did: repo.did.to_string(),
            reasons: reasons.iter().map(ToString::to_string).collect(),
            since: known.since.and_then(timestamp),
            doing: texts(|advice| &advice.doing),
            can_do: texts(|advice| &advice.can_do),
            last_error: None,
        })
    }
}

/// The advice about a reason in the given circumstances.
fn advice_for(reason: Reason, repo: &Repo, known: Circumstances) -> Advice {
    let unresolved = repo.host.is_none() && repo.debt.resolve.is_some();
    match reason {
        Reason::Inactive if repo.account == Account::NotFound => VANISHED,
        Reason::NoSnapshot | Reason::NewerCommitKnown | Reason::TooLarge => {
            match repo.debt.oversize {
                Some(oversize) => too_large(oversize.limit),
                None if known.here => FAILED_HERE,
                None => advice(reason),
            }
        }
        Reason::FetchOwed if known.here => FAILED_HERE,
        Reason::CoverDown if known.connected && known.full => FULL,
        Reason::CoverDown if known.connected => BEHIND,
        Reason::NoCover | Reason::ResolveOwed if unresolved => UNRESOLVED,
        Reason::NoCover if known.jetstream => CLAIMED_ONLY,
        reason => advice(reason),
    }
}

/// The order of reasons: first reasons that need an operator, then reasons that block others, and
/// last reasons that clear without any action.
fn rank(reason: Reason) -> u8 {
    match reason {
        Reason::Damaged => 0,
        Reason::HostBehind => 1,
        Reason::TooLarge => 2,
        Reason::Inactive => 3,
        Reason::ResolveOwed => 4,
        Reason::NoCover => 5,
        Reason::CoverDown => 6,
        Reason::Applying => 7,
        Reason::NoSnapshot => 8,
        Reason::NewerCommitKnown => 9,
        Reason::FilterChanged => 10,
        Reason::FetchOwed => 11,
        Reason::CompareOwed => 12,
        Reason::UnreadableFrame => 13,
        Reason::EpochChanged => 14,
        Reason::NotCompared => 15,
    }
}

/// The advice about a reason, one sentence each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// What Gapless does about it now.
    pub doing: Cow<'static, str>,
    /// What a person can do.
    pub can_do: Cow<'static, str>,
}

impl Advice {
    const fn new(doing: &'static str, can_do: &'static str) -> Advice {
        Advice {
            doing: Cow::Borrowed(doing),
            can_do: Cow::Borrowed(can_do),
        }
    }
}

/// The advice for a repository above the size limit.
fn too_large(limit: u64) -> Advice {
    let mut said = advice(Reason::TooLarge);
    said.doing = Cow::Owned(format!(
        "The repository has more than {limit} bytes, the limit when Gapless last fetched it; Gapless \
         tries again once a day, and at once after a start with a higher `fetch.max_repo_bytes`."
    ));
    said
}

/// The repository is inactive because its host does not have it, which neither the owner
/// nor the host has asked for.
const VANISHED: Advice = Advice::new(
    "The host says that it does not have the repository; Gapless hides the repository, and shows it \
     again once a host serves it.",
    "Ask the host's operator or the owner where the repository is now; `gapless resync DID` makes \
     Gapless ask the host again.",
);

/// The disk is full.
const FULL: Advice = Advice::new(
    "The disk is full, so Gapless writes nothing; writing continues as soon as there is space.",
    "Free space on the disk; `gapless status` shows how much is missing.",
);

/// The repository was fetched, and the local disk failed.
const FAILED_HERE: Advice = Advice::new(
    "Gapless downloaded the repository but could not write it to the local disk; the host is not at \
     fault, and Gapless fetches the repository again.",
    "Free space on the disks of `fetch.temp` and of the data folder, or check these disks for faults; \
     the last error of the repository names the cause.",
);

/// The upstream is connected, but its events are not durable yet.
const BEHIND: Advice = Advice::new(
    "The upstream that covers the repository is connected, but Gapless has not verified and written \
     all of the upstream's events yet.",
    "Wait; if this reason stays, `gapless upstream list` shows the lag of the upstream.",
);

/// The host of the repository is unknown.
const UNRESOLVED: Advice = Advice::new(
    "Gapless has not read the repository's DID document yet, so the host is unknown; Gapless requests \
     the document again at growing intervals, and then fetches the repository from the host that \
     the document names.",
    "If the request keeps failing, check the PLC directory, or the owner's domain for did:web; \
     `gapless repo DID` shows the next try.",
);

/// Only a Jetstream brings events of the repository.
const CLAIMED_ONLY: Advice = Advice::new(
    "Only a Jetstream brings changes of the repository, and a Jetstream proves nothing; Gapless \
     compares the repository with its host from time to time.",
    "Follow a relay or the repository's host in addition to the Jetstream: `gapless upstream add relay \
     URL` or `gapless upstream add pds URL`; `gapless repo DID` names the host.",
);

/// The advice for each reason.
pub fn advice(reason: Reason) -> Advice {
    let (doing, can_do) = match reason {
        Reason::NoSnapshot => (
            "Gapless has queued the first fetch of the repository.",
            "Wait; `gapless repo DID` shows the next try and the number of failed tries.",
        ),
        Reason::Applying => (
            "Gapless is writing a large snapshot of the repository, and continues after a restart.",
            "Wait.",
        ),
        Reason::Damaged => (
            "The disk lost records of the repository; Gapless fetches the whole repository again.",
            "Check the disk; with Gapless stopped, `gapless store check` reports further damage.",
        ),
        Reason::NoCover => (
            "No followed upstream brings changes of the repository; Gapless compares the repository with \
             its host from time to time.",
            "Follow the repository's host or a relay: `gapless upstream add pds URL` or `gapless upstream add relay \
             URL`.",
        ),
        Reason::CoverDown => (
            "The upstream that covers the repository is down; Gapless dials the upstream again at growing intervals.",
            "Run `gapless upstream list` to see why the last dial failed.",
        ),
        Reason::EpochChanged => (
            "The stream was interrupted; the next sweep of the host finds changes that Gapless missed.",
            "Wait for the sweep, or fetch the repository now: `gapless resync DID`.",
        ),
        Reason::UnreadableFrame => (
            "Gapless received an unreadable frame that may have been an event of the repository; the next \
             sweep of the host finds the change.",
            "Wait for the sweep; `gapless dead list` shows the frame.",
        ),
        Reason::NotCompared => (
            "Gapless has yet to compare the repository with its host.",
            "Wait for the sweep, or fetch the repository now: `gapless resync DID`.",
        ),
        Reason::NewerCommitKnown => (
            "Gapless knows of a newer commit and fetches the missing changes.",
            "Wait; `gapless repo DID` shows the next try.",
        ),
        Reason::HostBehind => (
            "The host serves an older state than the owner has signed; Gapless keeps the newer state and \
             asks the host again.",
            "Ask the host's operator, or adopt the older state: `gapless resync DID --accept-rollback`.",
        ),
        Reason::Inactive => (
            "The account is not active; Gapless hides the repository, and shows it again once the host \
             reports the account as active.",
            "Nothing; the owner or the host made this decision.",
        ),
        Reason::ResolveOwed => (
            "Gapless requests the repository's DID document.",
            "If the request keeps failing, check the PLC directory, or the owner's domain for did:web.",
        ),
        Reason::CompareOwed => (
            "Gapless asks the host for the repository's newest commit.",
            "If the request keeps failing, check whether the host is up.",
        ),
        Reason::FetchOwed => (
            "Gapless has queued a fetch of the repository.",
            "If the fetch keeps failing, check whether the host is up and whether Gapless exceeds the host's rate \
             limits.",
        ),
        Reason::FilterChanged => (
            "The wanted collections have changed since Gapless fetched the repository; Gapless fetches the \
             repository again.",
            "Wait.",
        ),
        Reason::TooLarge => (
            "The repository is larger than `fetch.max_repo_bytes`; Gapless tries to fetch the repository again once a \
             day.",
            "Raise `fetch.max_repo_bytes` and restart Gapless, or leave the repository incomplete.",
        ),
    };
    Advice::new(doing, can_do)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// All reasons, in the order of the ledger.
    const REASONS: [Reason; 16] = [
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
        Reason::TooLarge,
    ];

    use gapless_atp::syntax::Did;
    use gapless_core::ledger::complete::{Evidence, Level};
    use gapless_core::ledger::{DebtItem, DebtReason, HostId, Oversize, SignerKey, Tick};

    use super::*;

    /// The commands show the first ones only.
    fn one_sentence(said: Advice) {
        for text in [said.doing, said.can_do] {
            assert!(text.ends_with('.'), "{text}");
            assert_eq!(sentences(&text, 1), text);
        }
    }

    fn gap(repo: &Repo, reasons: &[Reason], known: Circumstances) -> Gap {
        let answer = Completeness {
            reasons: reasons.to_vec(),
            as_of: None,
            evidence: Evidence {
                level: Level::Unknown,
                via: None,
                key: SignerKey::Present,
                proven_at: None,
                swept: None,
            },
        };
        Gap::new(repo, &answer, known).expect("it is one")
    }

    fn unresolved() -> Repo {
        let did = Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID");
        let mut repo = Repo::new(did);
        repo.debt.resolve = Some(DebtItem {
            at: Tick(1),
            why: DebtReason::FirstSighting,
        });
        repo
    }

    #[test]
    fn what_stands_in_the_way_comes_first_and_people_read_little() {
        let reasons = [
            Reason::NoSnapshot,
            Reason::NotCompared,
            Reason::NoCover,
            Reason::ResolveOwed,
            Reason::FilterChanged,
        ];
        let mut repo = unresolved();
        let told = gap(&repo, &reasons, Circumstances::default());
        assert_eq!(told.reasons[..2], ["resolve_owed", "no_cover"]);
        assert_eq!(told.reasons.len(), reasons.len());
        assert!(!told.can_do.contains("upstream add"), "{}", told.can_do);
        assert!(told.doing.starts_with(&*UNRESOLVED.doing), "{}", told.doing);
        let short = sentences(&told.doing, 2);
        let expected = [UNRESOLVED.doing, advice(Reason::NoSnapshot).doing];
        assert_eq!(short, expected.join(" "));
        // Where it lives is known: then a stream is what is missing.
        repo.host = Some(HostId(1));
        let told = gap(&repo, &reasons, Circumstances::default());
        assert!(told.can_do.contains("upstream add pds"), "{}", told.can_do);
        assert!(!told.doing.contains("Jetstream"), "{}", told.doing);
        // One that proves nothing is there already.
        let jetstream = Circumstances {
            jetstream: true,
            ..Circumstances::default()
        };
        let told = gap(&repo, &reasons, jetstream);
        for words in [
            "in addition to the Jetstream",
            "add relay URL",
            "add pds URL",
        ] {
            assert!(told.can_do.contains(words), "{}", told.can_do);
        }
        assert!(told.doing.contains("proves nothing"), "{}", told.doing);
    }

    #[test]
    fn a_stream_that_is_connected_is_not_said_to_be_dialed() {
        let repo = unresolved();
        let said = |full, connected| {
            let known = Circumstances {
                since: None,
                full,
                connected,
                here: false,
                jetstream: false,
            };
            gap(&repo, &[Reason::CoverDown], known).doing
        };
        let dialed = advice(Reason::CoverDown).doing;
        assert_eq!(said(false, false), dialed);
        assert_eq!(said(true, true), FULL.doing);
        assert_eq!(said(false, true), BEHIND.doing);
        assert_eq!(said(true, false), format!("{} {dialed}", FULL.doing));
    }

    #[test]
    fn every_reason_has_its_words() {
        for (at, reason) in REASONS.into_iter().enumerate() {
            // The list must be the enum, each reason at its place.
            assert_eq!(reason as usize, at, "{reason}");
            let said = advice(reason);
            one_sentence(said.clone());
            let others = REASONS[..at].iter();
            assert!(
                others
                    .clone()
                    .all(|other| advice(*other).doing != said.doing),
                "{reason} has another's words"
            );
        }
        for said in [
            VANISHED,
            FULL,
            FAILED_HERE,
            BEHIND,
            UNRESOLVED,
            CLAIMED_ONLY,
            too_large(7),
        ] {
            one_sentence(said);
        }
        let places: BTreeSet<u8> = REASONS.into_iter().map(rank).collect();
        assert_eq!(places.len(), REASONS.len(), "each has a place of its own");
        // One more reason in the ledger must come into the list: it is the last.
        assert_eq!(REASONS.len(), Reason::TooLarge as usize + 1);
    }

    #[test]
    fn what_is_too_large_is_said_with_the_limit_and_with_the_key_to_raise() {
        let mut repo = unresolved();
        repo.host = Some(HostId(1));
        repo.debt.fetch = repo.debt.resolve.take();
        let (limit, until) = (8_000_000_000, Time(1));
        repo.debt.oversize = Some(Oversize { limit, until });
        let reasons = [Reason::NoSnapshot, Reason::TooLarge];
        let told = gap(&repo, &reasons, Circumstances::default());
        assert_eq!(told.reasons, ["too_large", "no_snapshot"]);
        assert!(told.doing.contains("8000000000 bytes"), "{}", told.doing);
        assert!(told.can_do.contains("fetch.max_repo_bytes"));
        assert!(!told.can_do.contains("Wait"), "{}", told.can_do);
    }
}
