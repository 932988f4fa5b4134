//! Applies the answers of the directory about a DID, and of a host about a head.

use std::time::Duration;

use super::{RepoEnv, RepoTx, Rules};
use crate::ledger::debt;
use crate::ledger::fetch::{self, HeadAnswer, Next, Note};
use crate::ledger::identity::{self, Document};
use crate::ledger::rollback::BehindShare;
use crate::ledger::sweep::{self, Suspect};
use crate::ledger::{Host, Tick};

/// Why a host is asked for a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskReason {
    /// The question is owed.
    Debt,
    /// A listing names another head.
    Suspect(Suspect),
    /// A sweep asks about this repository directly, because listings do not show enough.
    Sweep,
}

/// A host's answer about a head, and what is known of the host.
#[derive(Debug, Clone)]
pub struct AskedHead {
    /// What was known before the question.
    pub note: Note,
    pub answer: HeadAnswer,
    pub host: Host,
    /// With how many of its repositories the host is behind; `None` if that was not counted.
    pub share: Option<BehindShare>,
    pub why: AskReason,
}

impl RepoTx {
    /// Applies the directory's answer to a request that was made at `asked`: verifies the frames
    /// that could not be verified without the key, then applies the parked frames that follow.
    pub fn resolved<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
        asked: Tick,
        document: &Document,
    ) -> Result<(), E::Error> {
        let old = document.version < self.repo.document;
        self.decide(env, rules, |context, repo, notices| {
            identity::resolved(context.now, repo, context.covers, asked, document, notices);
        });
        if !old {
            if !self.parked.is_empty() {
                self.append_log_entries_first();
            }
            self.judge_again(env, rules)?;
        }
        self.unpark(env, rules)
    }

    /// Applies a host's answer, then the parked frames that follow. Returns what to do next.
    pub fn head_answered<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
        asked: &AskedHead,
    ) -> Result<Next, E::Error> {
        let AskedHead {
            note,
            answer,
            host,
            share,
            why,
        } = asked;
        let next = self.decide(env, rules, |context, repo, notices| {
            let now = context.now;
            let next = fetch::head_answered(context, repo, note, *answer, host, *share, notices);
            if let AskReason::Suspect(suspect) = why
                && let HeadAnswer::Head(named) = answer
            {
                sweep::suspect_answered(now, repo, suspect, Some(*named));
            }
            if *why != AskReason::Debt && matches!(next, Next::Adopt(_)) {
                // The debt was postponed because the host is behind, but the adoption is due now.
                debt::ask_host_next(now, repo);
            }
            next
        });
        self.unpark(env, rules)?;
        Ok(next)
    }

    /// Records that a question, or the work after it, failed. A question that was not owed before
    /// is owed now. The debt is retried with backoff.
    pub fn question_failed<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
        why: &AskReason,
        retry_after: Option<Duration>,
    ) {
        self.decide(env, rules, |context, repo, _| {
            let now = context.now;
            match why {
                AskReason::Debt => {}
                AskReason::Suspect(suspect) => sweep::suspect_answered(now, repo, suspect, None),
                AskReason::Sweep => sweep::question_unanswered(now, repo, now.tick),
            }
            debt::attempt_failed(now, repo, retry_after);
        });
    }
}
