//! Asks a host for the head of a repository: because of a debt, because a listing names another
//! head, or because no listing says enough. The repository's desk processes the answer, and records
//! a missing answer as well.

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::fetch::{self, HeadAnswer, Next, Note};
use gapless_core::ledger::{Account, HostId, account};
use gapless_core::repo_tx::answer::{AskReason, AskedHead};
use gapless_net::{AskClass, AskError, LatestAnswer};
use gapless_store::error::StoreError;

use crate::desk::RepoTurn;
use crate::failpoints;
use crate::repair::reload;
use crate::repair::worker::{Fetcher, RepairError, WorkGuard, take_note};
use crate::schedule::Payee;
use crate::services::Services;

/// The outcome of a question that no debt called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskOutcome {
    /// The host answered and the answer is recorded, or the repository does not live there any
    /// more.
    Answered,
    /// The host does not have the repository, which is shown so far. The answer is not recorded
    /// yet, because the sweep first counts how many other repositories vanished.
    Vanished,
    /// The host did not answer, or its answer could not be recorded.
    Failed,
    /// Another task runs for the repository.
    Busy,
}

impl Fetcher {
    /// Asks the host for its head, and records the answer.
    pub(crate) async fn question(
        &self,
        did: &Did,
        note: Note,
        why: AskReason,
    ) -> Result<Next, RepairError> {
        let Some(told) = self.request_head(did, note, why).await? else {
            return Ok(Next::Done);
        };
        Ok(self.record_answer(did, note, told, why).await?)
    }

    /// Requests the head from the host. Returns `None` if the repository left the host meanwhile. A
    /// missing answer is recorded.
    async fn request_head(
        &self,
        did: &Did,
        note: Note,
        why: AskReason,
    ) -> Result<Option<HeadAnswer>, RepairError> {
        let Some(address) = self.address(note.host) else {
            self.unanswered(did, why, None).await?;
            return Err(RepairError::Failed);
        };
        self.services.metrics.heads_asked.inc();
        let asked = tokio::select! {
            asked = self.net.latest_commit(&address, did) => asked,
            // The repository has moved, so another host must be asked.
            () = self.services.schedule.moved_away(did) => return Ok(None),
        };
        note_reach(&self.services, note.host, asked.as_ref().err()).await?;
        let told = match asked {
            Ok(LatestAnswer::Head(named)) => HeadAnswer::Head(named),
            Ok(LatestAnswer::State(state)) => HeadAnswer::State(state),
            Err(error) => {
                self.refused(did, &error);
                self.unanswered(did, why, error.retry_after).await?;
                return Err(RepairError::Failed);
            }
        };
        failpoints::here("fetch.asked");
        Ok(Some(told))
    }

    pub(crate) fn refused(&self, did: &Did, error: &AskError) {
        self.services.metrics.request_failures.inc();
        self.note_error(did, error);
        tracing::debug!(%did, %error, "the host did not answer; asked again later");
    }

    /// Records the answer of the host, and returns the next step.
    pub(crate) async fn record_answer(
        &self,
        did: &Did,
        note: Note,
        told: HeadAnswer,
        why: AskReason,
    ) -> Result<Next, StoreError> {
        let census = match told {
            HeadAnswer::Head(named) if fetch::may_be_behind(&note, &named) => {
                Some(reload::behind_share(&self.services, note.host).await?)
            }
            _ => None,
        };
        let asked = AskedHead {
            note,
            answer: told,
            host: self.services.hosts.get(note.host).unwrap_or_default(),
            share: census,
            why,
        };
        let next = self.desks.with_repo(did, move |turn| {
            let env = turn.env();
            let Some(tx) = turn.tx.as_mut() else {
                return Ok(Next::Done);
            };
            tx.head_answered(&env, &turn.services.rules, &asked)
        });
        let next = next.await??;
        if next == Next::Done {
            self.last_errors.clear(did);
        }
        Ok(next)
    }

    /// Records that a request failed. The debt stays, and is tried later.
    pub(crate) async fn failed(
        &self,
        did: &Did,
        retry_after: Option<Duration>,
    ) -> Result<(), StoreError> {
        self.unanswered(did, AskReason::Debt, retry_after).await
    }

    /// Records that a question failed. A question that no debt called for becomes a debt, and is
    /// tried later.
    async fn unanswered(
        &self,
        did: &Did,
        why: AskReason,
        retry_after: Option<Duration>,
    ) -> Result<(), StoreError> {
        let change = self.desks.with_repo(did, move |turn| {
            let env = turn.env();
            if let Some(tx) = turn.tx.as_mut() {
                tx.question_failed(&env, &turn.services.rules, &why, retry_after);
            }
        });
        change.await
    }

    /// Asks about one repository although it owes nothing: a suspect, or a head that only a listing
    /// has confirmed. Asks nothing if another task runs for the repository. What the answer calls
    /// for becomes a debt and waits for its turn: a download may take hours, and a sweep does not
    /// wait for it.
    pub(crate) async fn ask(&self, did: &Did, host: HostId, why: AskReason) -> AskOutcome {
        if !self.services.schedule.begin(did, host) {
            return AskOutcome::Busy;
        }
        let _released = WorkGuard(&self.services, did, Payee::Host(host));
        match self.ask_now(did, host, why).await {
            Ok(asked) => asked,
            Err(trouble) => {
                self.handle_result(Some(did), Err(trouble));
                AskOutcome::Failed
            }
        }
    }

    async fn ask_now(
        &self,
        did: &Did,
        host: HostId,
        why: AskReason,
    ) -> Result<AskOutcome, RepairError> {
        let noted = self.desks.with_repo(did, take_note).await?;
        let Some(note) = noted.filter(|note| note.host == host) else {
            // The repository does not live there any more.
            return Ok(AskOutcome::Answered);
        };
        let Some(told) = self.request_head(did, note, why).await? else {
            return Ok(self.has_left(did, host).await?);
        };
        let gone = told == HeadAnswer::State(Account::NotFound);
        if gone && self.is_shown(did)? {
            return Ok(AskOutcome::Vanished);
        }
        self.record_answer(did, note, told, why).await?;
        Ok(AskOutcome::Answered)
    }

    /// Returns the outcome of a question that was called off because the repository left the host.
    /// The question is answered only if the move is durable.
    async fn has_left(&self, did: &Did, host: HostId) -> Result<AskOutcome, StoreError> {
        let lives = self.desks.with_repo(did, |turn: &mut RepoTurn<'_>| {
            let tx = turn.tx.as_ref();
            tx.and_then(|tx| tx.repo.host)
        });
        Ok(if lives.await? == Some(host) {
            AskOutcome::Failed
        } else {
            AskOutcome::Answered
        })
    }

    fn is_shown(&self, did: &Did) -> Result<bool, StoreError> {
        let found = self.services.store.view().repo_by_did(did)?;
        Ok(found.is_some_and(|(_, repo)| !account::is_hidden(repo.account)))
    }
}

/// Notes whether a host answers at all. The repositories of an unreachable host are not tried one
/// by one.
async fn note_reach(
    services: &Services,
    host: HostId,
    error: Option<&AskError>,
) -> Result<(), StoreError> {
    if is_answer(error) {
        services.schedule.reached(host)
    } else {
        services.schedule.unreachable(services.clock.time(), host)
    }
    note_answer(services, host, error).await
}

/// Records that a host has answered, unless the request brought no answer at all.
pub(crate) async fn note_answer(
    services: &Services,
    host: HostId,
    error: Option<&AskError>,
) -> Result<(), StoreError> {
    if !is_answer(error) {
        return Ok(());
    }
    let tick = services.clock.last_tick_now().tick;
    services.hosts.reached(tick, host).await
}

/// Whether the request got any answer, even an error.
fn is_answer(error: Option<&AskError>) -> bool {
    let class = error.map(|error| error.class);
    let none = [AskClass::Unreachable, AskClass::Timeout, AskClass::Refused];
    class.is_none_or(|class| !none.contains(&class))
}
