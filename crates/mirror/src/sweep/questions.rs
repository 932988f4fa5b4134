//! The questions of a sweep: about each repository of a host with few wanted repositories,
//! about suspects that the stream has not explained, and about heads to confirm.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use gapless_atp::syntax::Did;
use gapless_core::ledger::deletion;
use gapless_core::ledger::settings::SUSPECT_PATIENCE;
use gapless_core::ledger::sweep::{self, PageNote, Suspect, SuspectDecision};
use gapless_core::ledger::{HostId, Tick, account};
use gapless_core::repo_tx::answer::AskReason;
use gapless_store::error::StoreError;

use crate::desk::RepoTurn;
use crate::repair::ask_head::AskOutcome;
use crate::store_io::blocking;
use crate::sweep::{SweepError, SweepRun, Sweeper};

/// Concurrent questions to one host.
const CONCURRENT_QUESTIONS: usize = 4;
/// Known repositories up to which a host is asked about each one, if its whole listing is
/// not wanted.
const SMALL_HOST_REPOS: usize = 100;
/// How often suspects are reviewed.
const SUSPECT_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The known repositories of a host that has few.
#[derive(Default)]
pub(crate) struct SmallHost {
    dids: Vec<Did>,
    /// How many of the repositories are not hidden.
    shown: u64,
    /// Repositories that a relay calls deleted.
    awaiting_deletion: Vec<Did>,
}

/// The outcome of a question, and how long the question took.
struct QuestionResult {
    did: Did,
    outcome: AskOutcome,
    took: Duration,
}

impl SmallHost {
    pub(crate) fn is_empty(&self) -> bool {
        self.dids.is_empty()
    }
}

impl SweepRun {
    /// Records the result of a question. Returns whether there was an answer. The error says why
    /// the patience with the host is exhausted.
    fn record_result(&mut self, result: QuestionResult) -> Result<bool, String> {
        let took = result.took / CONCURRENT_QUESTIONS as u32;
        self.cost.took += took;
        if result.outcome == AskOutcome::Vanished {
            self.vanished.push(result.did);
        }
        let answered = matches!(result.outcome, AskOutcome::Answered | AskOutcome::Vanished);
        if result.outcome != AskOutcome::Busy {
            self.patience.question_ended(took, answered)?;
        }
        Ok(answered)
    }
}

impl Sweeper {
    /// Reads the known repositories of a host; `None` if there are more than
    /// [`SMALL_HOST_REPOS`].
    pub(crate) async fn read_small_host(
        &self,
        host: HostId,
    ) -> Result<Option<SmallHost>, StoreError> {
        let store = self.fetcher.services.store.clone();
        let read = move || {
            let view = store.view();
            let mut few = SmallHost::default();
            for id in view.hosted(host) {
                if few.dids.len() > SMALL_HOST_REPOS {
                    return Ok(None);
                }
                if let Some(repo) = view.repo(id?)? {
                    few.shown += u64::from(!account::is_hidden(repo.account));
                    if deletion::awaited_evidence(&repo).is_some() {
                        few.awaiting_deletion.push(repo.did.clone());
                    }
                    few.dids.push(repo.did);
                }
            }
            Ok(Some(few))
        };
        let metrics = &self.fetcher.services.metrics;
        blocking(metrics, "reading the repositories of a host", read).await
    }

    /// Asks about each repository of a host. The host counts as swept only if it has
    /// answered every question.
    pub(crate) async fn ask_each(
        &self,
        sweep: &mut SweepRun,
        few: SmallHost,
    ) -> Result<(), SweepError> {
        (sweep.expected, sweep.awaiting_deletion) = (few.shown, few.awaiting_deletion);
        let mut questions = FuturesUnordered::new();
        let mut dids = few.dids.into_iter();
        loop {
            while questions.len() < CONCURRENT_QUESTIONS
                && let Some(did) = dids.next()
            {
                questions.push(self.ask_when_free(
                    sweep.host,
                    sweep.began.tick,
                    did,
                    AskReason::Sweep,
                    false,
                ));
            }
            let Some(result) = questions.next().await else {
                return Ok(());
            };
            let result = result?;
            let did = result.did.clone();
            if !self.record_result(sweep, result)? {
                sweep.skip(self.unanswered(&did));
            }
            if self.fetcher.services.shutdown.has_begun() {
                return Err(SweepError::shutdown());
            }
        }
    }

    /// Asks one question, after other work for the repository has ended. If `or_owed`, a debt of
    /// the repository ends the wait. Without an answer the repository owes the question, durably,
    /// before this function returns.
    async fn ask_when_free(
        &self,
        host: HostId,
        began: Tick,
        did: Did,
        why: AskReason,
        or_owed: bool,
    ) -> Result<QuestionResult, StoreError> {
        let since = Instant::now();
        let mut begun = since;
        let mut outcome = self.fetcher.ask(&did, host, why).await;
        while outcome == AskOutcome::Busy
            && since.elapsed() < SUSPECT_PATIENCE
            && !(or_owed && self.owes(&did)?)
            && !self.fetcher.services.shutdown.has_begun()
        {
            tokio::time::sleep(SUSPECT_POLL_INTERVAL).await;
            begun = Instant::now();
            outcome = self.fetcher.ask(&did, host, why).await;
        }
        let took = begun.elapsed();
        if matches!(outcome, AskOutcome::Answered | AskOutcome::Vanished) {
            return Ok(QuestionResult { did, outcome, took });
        }
        let change = self
            .fetcher
            .desks
            .with_repo(&did, move |turn: &mut RepoTurn<'_>| {
                let now = turn.services.clock.now();
                if let Some(tx) = turn.tx.as_mut() {
                    sweep::question_unanswered(now, &mut tx.repo, began);
                }
            });
        change.await?;
        Ok(QuestionResult { did, outcome, took })
    }

    /// Records the result of a question. Returns whether there was an answer. An error ends the
    /// sweep, because the host answers too little.
    fn record_result(
        &self,
        sweep: &mut SweepRun,
        result: QuestionResult,
    ) -> Result<bool, SweepError> {
        let did = result.did.clone();
        let heard = sweep.record_result(result);
        heard.map_err(|why| {
            SweepError::Failed(format!("{why}; the last: {}", self.unanswered(&did)))
        })
    }

    /// Describes a question without an answer.
    fn unanswered(&self, did: &Did) -> String {
        match self.fetcher.last_errors.of(did) {
            Some(last) => format!("no answer about {did}: {}", last.error),
            None => format!("no answer about {did}"),
        }
    }

    fn owes(&self, did: &Did) -> Result<bool, StoreError> {
        let found = self.fetcher.services.store.view().repo_by_did(did)?;
        Ok(found.is_some_and(|(_, repo)| !repo.debt.is_empty()))
    }

    /// Asks about suspects that the stream has not explained, and about heads to confirm.
    pub(crate) async fn ask_suspects(&self, sweep: &mut SweepRun) -> Result<(), SweepError> {
        let (host, began) = (sweep.host, sweep.began.tick);
        let mut questions = FuturesUnordered::new();
        let mut waiting = std::mem::take(&mut sweep.suspects);
        let mut confirm = std::mem::take(&mut sweep.confirm).into_iter();
        let mut ready: Vec<(Did, AskReason)> = Vec::new();
        let mut reviewed_at = None::<Instant>;
        loop {
            self.sweeps
                .change(host, |state| state.suspects = waiting.len() as u64);
            if reviewed_at.is_none_or(|at| at.elapsed() >= SUSPECT_POLL_INTERVAL) {
                reviewed_at = Some(Instant::now());
                waiting = self.review_suspects(waiting, &mut ready).await?;
            }
            while questions.len() < CONCURRENT_QUESTIONS {
                let next = ready
                    .pop()
                    .or_else(|| confirm.next().map(|did| (did, AskReason::Sweep)));
                let Some((did, why)) = next else {
                    break;
                };
                questions.push(self.ask_when_free(host, began, did, why, true));
            }
            if questions.is_empty() && waiting.is_empty() {
                return Ok(());
            }
            if self.fetcher.services.shutdown.has_begun() {
                return Err(SweepError::shutdown());
            }
            tokio::select! {
                Some(result) = questions.next() => {
                    // A question without an answer is owed; the others do not wait.
                    self.record_result(sweep, result?)?;
                }
                () = tokio::time::sleep(SUSPECT_POLL_INTERVAL) => {}
            }
        }
    }

    /// Clears suspects that the stream has explained, moves suspects to ask about to
    /// `ready`, and returns the rest.
    async fn review_suspects(
        &self,
        suspects: Vec<(Did, Suspect, Arc<PageNote>)>,
        ready: &mut Vec<(Did, AskReason)>,
    ) -> Result<Vec<(Did, Suspect, Arc<PageNote>)>, StoreError> {
        let services = &self.fetcher.services;
        let mut rest = Vec::new();
        for (did, suspect, page) in suspects {
            let view = services.store.view();
            let durable = match suspect.upto {
                None => None,
                Some(upto) => {
                    let numbering = view.upstream(upto.upstream)?.map(|row| row.numbering);
                    numbering.zip(view.cursor(upto.upstream)?)
                }
            };
            let noted = page.clone();
            let decision = self
                .fetcher
                .desks
                .with_repo(&did, move |turn: &mut RepoTurn<'_>| {
                    let services = turn.services;
                    let tx = turn.tx.as_mut()?;
                    let now = services.clock.now();
                    let repo = &tx.repo;
                    let verdict = services.decide(now, |context| {
                        sweep::review_suspect(context, repo, &suspect, durable)
                    });
                    if verdict == SuspectDecision::Cleared {
                        let repo = &mut tx.repo;
                        services.decide(now, |context| {
                            sweep::suspect_cleared(context, repo, &noted, &suspect)
                        });
                    }
                    Some(verdict)
                });
            match decision.await? {
                None | Some(SuspectDecision::Cleared) => {}
                Some(SuspectDecision::Wait) => rest.push((did, suspect, page)),
                Some(SuspectDecision::Ask) => ready.push((did, AskReason::Suspect(suspect))),
            }
        }
        Ok(rest)
    }
}
