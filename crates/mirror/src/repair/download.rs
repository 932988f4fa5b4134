//! Downloads the CAR of one repository into a [`Spill`], and records the answers that bring
//! no CAR: an account state, an error, or more bytes than `fetch.max_repo_bytes`.

use std::time::Duration;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::debt;
use gapless_core::ledger::fetch::HeadAnswer;
use gapless_net::{AskClass, FetchLimits, GetRepoError};
use gapless_store::error::StoreError;

use crate::repair::fetch_repo::Job;
use crate::repair::spill::{Spill, SpillError, SpillLimits, SpilledCar};
use crate::repair::worker::{Fetcher, RepairError};
use gapless_core::repo_tx::answer::AskReason;

/// Bytes of a CAR that stay in memory. A larger CAR goes to a file.
const CAR_MEMORY_BYTES: usize = 8 << 20;

/// The outcome of a download.
pub(super) enum DownloadOutcome {
    Received(SpilledCar),
    /// The host answered with an account state, which is recorded.
    StateRecorded,
    /// The host answered a request for a difference with a CAR without a commit.
    NothingNew,
    /// The repository moved to another host meanwhile, which is asked next.
    Moved,
}

/// The cause of a failed download.
enum FailureCause {
    Host,
    /// The local disk failed or is full, or too many CARs arrive at once.
    Local,
    /// The repository has more bytes than `fetch.max_repo_bytes`.
    TooLarge,
}

impl Fetcher {
    /// Creates an empty spill with the configured limits.
    pub(super) fn new_spill(&self) -> Spill {
        let limits = SpillLimits::of_car(
            CAR_MEMORY_BYTES,
            self.settings.max_repo_bytes,
            self.services.disk.min_free_bytes(),
        );
        Spill::new(&self.settings.temp, limits).with_index_lease(self.index_budget.lease())
    }

    /// Downloads the repository, or the difference from `since`. A failure is recorded before this
    /// function returns.
    pub(super) async fn download(
        &self,
        job: &Job,
        since: Option<Rev>,
    ) -> Result<DownloadOutcome, RepairError> {
        let did = &job.did;
        let Some(address) = self.address(job.note.host) else {
            self.failed(did, None).await?;
            return Err(RepairError::Failed);
        };
        let mut spill = self.new_spill();
        let mut spill_error = None;
        let mut sink = |bytes: &[u8]| {
            spill.feed(bytes).map_err(|error| {
                let text = error.to_string();
                spill_error = Some(error);
                text
            })
        };
        let limits = FetchLimits {
            bytes: self.settings.max_repo_bytes,
            ..FetchLimits::default()
        };
        let result = tokio::select! {
            result = self.net.get_repo(&address, did, since, &mut sink, &limits) => result,
            () = self.services.schedule.moved_away(did) => {
                tracing::debug!(%did, "the repository moved during its download; its new host is asked");
                return Ok(DownloadOutcome::Moved);
            }
        };
        let (cause, retry_after) = match result {
            Ok(received) => {
                self.services.metrics.fetched_bytes.add(received.bytes);
                match spill.finish() {
                    Ok(car) => return Ok(DownloadOutcome::Received(car)),
                    // An ordinary answer to a request for a difference.
                    Err(error) if since.is_some() && error.has_no_commit() => {
                        return Ok(DownloadOutcome::NothingNew);
                    }
                    Err(error) => (self.note_spill_error(job, &error), None),
                }
            }
            Err(GetRepoError::State(state)) => {
                let answer = HeadAnswer::State(state);
                self.record_answer(did, job.note, answer, AskReason::Debt)
                    .await?;
                return Ok(DownloadOutcome::StateRecorded);
            }
            Err(GetRepoError::Ask(error)) if error.class == AskClass::TooLarge => {
                (FailureCause::TooLarge, None)
            }
            Err(GetRepoError::Ask(error)) => {
                self.refused(did, &error);
                (FailureCause::Host, error.retry_after)
            }
            Err(GetRepoError::Sink(text)) => match &spill_error {
                Some(error) => (self.note_spill_error(job, error), None),
                None => {
                    self.note_failed_here(job, &text);
                    (FailureCause::Local, None)
                }
            },
        };
        self.record_cause(job, cause, retry_after).await
    }

    async fn record_cause(
        &self,
        job: &Job,
        cause: FailureCause,
        retry_after: Option<Duration>,
    ) -> Result<DownloadOutcome, RepairError> {
        match cause {
            FailureCause::Host => {
                self.failed(&job.did, retry_after).await?;
                Err(RepairError::Failed)
            }
            FailureCause::Local => {
                self.failed(&job.did, retry_after).await?;
                Err(RepairError::Local)
            }
            FailureCause::TooLarge => {
                self.put_off_oversized(job).await?;
                Err(RepairError::Local)
            }
        }
    }

    /// Notes why a CAR could not be received, and returns the cause.
    fn note_spill_error(&self, job: &Job, error: &SpillError) -> FailureCause {
        match error {
            SpillError::Bytes(_) => FailureCause::TooLarge,
            local if local.is_ours() => {
                self.note_failed_here(job, &error.to_string());
                FailureCause::Local
            }
            _ => {
                self.refuse(job, error.class(), &error.to_string());
                FailureCause::Host
            }
        }
    }

    /// Puts off a repository with more bytes than `fetch.max_repo_bytes`, which is not its
    /// host's fault.
    async fn put_off_oversized(&self, job: &Job) -> Result<(), StoreError> {
        let limit = self.settings.max_repo_bytes;
        let services = &self.services;
        services.metrics.fetches_too_large.inc();
        tracing::warn!(
            did = %job.did, limit,
            "a repository is larger than fetch.max_repo_bytes; fetched again in a day, or once the limit is raised"
        );
        let error = format!("the repository has more than {limit} bytes, the limit");
        self.note_error(&job.did, error);
        let change = self.desks.with_repo(&job.did, move |turn| {
            let now = turn.services.clock.now();
            if let Some(tx) = turn.tx.as_mut() {
                debt::put_off_oversized(now, &mut tx.repo, limit);
                debt::attempt_failed(now, &mut tx.repo, None);
            }
        });
        change.await
    }
}
