//! The answer about one repository: what is held, whether it is complete, and the evidence
//! for that.

use gapless_core::ledger::complete::Completeness;
use gapless_core::ledger::debt::DebtKind;
use gapless_core::ledger::{Debt, Host, Repo};
use serde::{Deserialize, Serialize};

use crate::api::names::{account_of, key_name, owed_name, swept_name, why_name};
use crate::api::time::timestamp;
use crate::last_errors::LastError;

/// What is held of a repository, and whether it is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RepoAnswer {
    pub did: String,
    /// The host of the repository, by its DID document.
    pub host: Option<String>,
    pub account: String,
    /// What the account state waits for, if the state is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
    pub rev: Option<String>,
    /// The root that the owner signed.
    pub data: Option<String>,
    pub commit: Option<String>,
    pub complete: bool,
    /// The time that the answer refers to.
    pub as_of: Option<String>,
    /// Why the repository is not complete.
    pub reasons: Vec<String>,
    pub evidence: EvidenceAnswer,
    pub last_indexed_rev: Option<String>,
    pub last_firehose_rev: Option<String>,
    pub first_rev_since_reset: Option<String>,
    /// The number of held records; null in lists, where records are not counted.
    #[serde(default)]
    pub records: Option<u64>,
    /// Unproven claims about newer records; null in lists. Claims are never served as held
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<ClaimsAnswer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debt: Option<DebtAnswer>,
    /// The last error since the start, if the repository is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastErrorAnswer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EvidenceAnswer {
    pub level: String,
    /// The URL of the upstream that covers the repository.
    pub via: Option<String>,
    pub key: String,
    pub proven_at: Option<String>,
    pub swept_at: Option<String>,
    pub swept: Option<String>,
    /// Whether the root can be recomputed from the held keys.
    #[serde(default)]
    pub recomputable: bool,
}

/// The unproven claims about a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClaimsAnswer {
    /// Paths with a claim.
    pub count: u64,
    /// The newest claimed rev.
    pub rev: Option<String>,
    /// The URLs of the upstreams that made the claims.
    pub upstreams: Vec<String>,
}

/// The last error of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LastErrorAnswer {
    pub at: Option<String>,
    pub error: String,
}

impl From<LastError> for LastErrorAnswer {
    fn from(trouble: LastError) -> LastErrorAnswer {
        LastErrorAnswer {
            at: timestamp(trouble.at),
            error: trouble.error,
        }
    }
}

/// The debt of a repository, and when Gapless next tries to settle it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DebtAnswer {
    pub owed: Vec<OwedAnswer>,
    pub since: Option<String>,
    pub attempts: u32,
    pub next_try: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwedAnswer {
    pub what: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReposPage {
    pub repos: Vec<RepoAnswer>,
    /// The cursor of the next page; null on the last page.
    pub cursor: Option<u64>,
}

impl RepoAnswer {
    /// `host` is the row of the repository's host, `via_url` the URL of the
    /// upstream in the answer's evidence.
    pub fn new(
        repo: &Repo,
        answer: &Completeness,
        host: Option<&Host>,
        via_url: Option<String>,
        records: Option<u64>,
    ) -> RepoAnswer {
        let head = repo.head();
        let evidence = &answer.evidence;
        let (account, awaits) = account_of(repo);
        RepoAnswer {
            did: repo.did.to_string(),
            host: host.map(|host| host.name.clone()),
            account: account.to_owned(),
            awaits: awaits.map(str::to_owned),
            rev: head.map(|head| head.rev.to_string()),
            data: head.map(|head| head.data.to_string()),
            commit: head.map(|head| head.commit.to_string()),
            complete: answer.complete(),
            as_of: answer.as_of.and_then(timestamp),
            reasons: answer.reasons.iter().map(ToString::to_string).collect(),
            evidence: EvidenceAnswer {
                level: evidence.level.as_str().to_owned(),
                via: via_url,
                key: key_name(evidence.key).to_owned(),
                proven_at: evidence.proven_at.and_then(timestamp),
                swept_at: evidence.swept.and_then(|swept| timestamp(swept.at)),
                swept: evidence.swept.map(|swept| swept_name(swept.by).to_owned()),
                recomputable: false,
            },
            last_indexed_rev: repo.last_indexed_rev.map(|rev| rev.to_string()),
            last_firehose_rev: repo.last_firehose_rev.map(|rev| rev.to_string()),
            first_rev_since_reset: repo.first_rev_since_reset.map(|rev| rev.to_string()),
            records,
            claims: None,
            debt: DebtAnswer::new(&repo.debt),
            last_error: None,
        }
    }
}

impl DebtAnswer {
    /// The answer about a debt; `None` if nothing is owed.
    pub fn new(debt: &Debt) -> Option<DebtAnswer> {
        let slots = [
            (DebtKind::Resolve, debt.resolve),
            (DebtKind::Compare, debt.compare),
            (DebtKind::Fetch, debt.fetch),
        ];
        let owed: Vec<OwedAnswer> = slots
            .into_iter()
            .filter_map(|(what, owed)| {
                Some(OwedAnswer {
                    what: owed_name(what).to_owned(),
                    why: why_name(owed?.why).to_owned(),
                })
            })
            .collect();
        (!owed.is_empty()).then(|| DebtAnswer {
            owed,
            since: timestamp(debt.since),
            attempts: debt.attempts,
            next_try: timestamp(debt.due_at()),
        })
    }
}

#[cfg(test)]
mod tests {
    use gapless_atp::cid::Cid;
    use gapless_atp::syntax::{Did, Rev};
    use gapless_core::ledger::complete::{Evidence, Level, Reason};
    use gapless_core::ledger::{
        Account, DebtItem, DebtReason, Head, Hearsay, Held, RepoSweep, SignerKey, SweepSource,
        Tick, Time, UpstreamId,
    };

    use super::*;
    use crate::api::{Circumstances, Gap};

    fn repository() -> Repo {
        let did = Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID");
        let mut repo = Repo::new(did);
        repo.account = Account::Active;
        repo.held = Held::Exactly(Head {
            rev: Rev::from_micros(1_700_000_000_000_000, 0),
            data: Cid::dag_cbor(b"data"),
            commit: Cid::dag_cbor(b"commit"),
        });
        repo
    }

    fn answer(reasons: Vec<Reason>) -> Completeness {
        Completeness {
            reasons,
            as_of: Some(Time(1_000_000)),
            evidence: Evidence {
                level: Level::Chained,
                via: Some(UpstreamId(1)),
                key: SignerKey::Previous,
                proven_at: None,
                swept: Some(RepoSweep {
                    tick: Tick(1),
                    at: Time(2_000_000),
                    by: SweepSource::Listing,
                }),
            },
        }
    }

    #[test]
    fn what_the_ledger_knows_is_told_in_its_words() {
        let host = Host {
            name: "pds.example.com".to_owned(),
            ..Host::default()
        };
        let via = Some("https://pds.example.com".to_owned());
        let told = RepoAnswer::new(
            &repository(),
            &answer(Vec::new()),
            Some(&host),
            via,
            Some(3),
        );
        assert!(told.complete && told.reasons.is_empty() && told.debt.is_none());
        assert_eq!(told.account, "active");
        assert_eq!(told.data, Some(Cid::dag_cbor(b"data").to_string()));
        assert_eq!(told.commit, Some(Cid::dag_cbor(b"commit").to_string()));
        assert_eq!(told.as_of.as_deref(), Some("1970-01-01T00:00:01.000000Z"));
        assert_eq!(told.evidence.level, "chained");
        assert_eq!(told.evidence.key, "previous");
        assert_eq!(told.evidence.swept.as_deref(), Some("listed"));
        assert_eq!(
            told.evidence.swept_at.as_deref(),
            Some("1970-01-01T00:00:02.000000Z")
        );
        let known = Circumstances::default();
        assert_eq!(Gap::new(&repository(), &answer(Vec::new()), known), None);
    }

    #[test]
    fn what_is_owed_is_told_with_why_and_since_when() {
        let mut repo = repository();
        repo.debt.fetch = Some(DebtItem {
            at: Tick(3),
            why: DebtReason::BrokenChain,
        });
        repo.debt.since = Time(5_000_000);
        repo.debt.attempts = 2;
        repo.debt.next_try = Time(9_000_000);
        let answer = answer(vec![Reason::NewerCommitKnown, Reason::FetchOwed]);
        let told = RepoAnswer::new(&repo, &answer, None, None, Some(3));
        assert!(!told.complete);
        assert_eq!(told.reasons, ["newer_commit_known", "fetch_owed"]);
        let debt = told.debt.expect("something is owed");
        assert_eq!(debt.owed.len(), 1);
        assert_eq!(
            (debt.owed[0].what.as_str(), debt.owed[0].why.as_str()),
            ("fetch", "broken_chain")
        );
        assert_eq!(
            debt.next_try.as_deref(),
            Some("1970-01-01T00:00:09.000000Z")
        );
        let known = Circumstances {
            since: Some(Time(5_000_000)),
            ..Circumstances::default()
        };
        let gap = Gap::new(&repo, &answer, known).expect("it is not complete");
        assert_eq!(gap.since.as_deref(), Some("1970-01-01T00:00:05.000000Z"));
        assert!(gap.doing.contains("newer commit") && gap.doing.contains("queued"));
        // Only a relay says so: that is told, with what is awaited.
        repo.account = Account::Deleted;
        for (denied, word) in [(false, "asks the host"), (true, "whole sweep")] {
            let told = Tick(7);
            repo.hearsay = Some(Hearsay { told, denied });
            let told = RepoAnswer::new(&repo, &answer, None, None, None);
            assert_eq!(told.account, "deleted_unconfirmed");
            assert!(told.awaits.is_some_and(|awaits| awaits.contains(word)));
        }
        repo.hearsay = None;
        // Its host lost it: that is not its owner's wish.
        repo.account = Account::NotFound;
        let lost = Completeness {
            reasons: vec![Reason::Inactive],
            ..answer
        };
        let gap = Gap::new(&repo, &lost, known).expect("it is not complete");
        assert!(gap.can_do.contains("operator"), "{}", gap.can_do);
    }
}
