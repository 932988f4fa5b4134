//! Recomputes the roots of repositories from the held records: one, or all.

use std::sync::Arc;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Did;
use gapless_core::ledger::{Head, Held, Repo, RepoId, RootProof, damage};
use gapless_store::error::StoreError;
use gapless_store::read_view::{ReadView, RootError};
use gapless_store::scan::scan;
use gapless_store::table::record::Record;
use tokio::runtime::Handle;

use crate::api::{ApiError, Verdict, VerifyAnswer, VerifyProgress, VerifyReport};
use crate::desk::{Desks, RepoTurn};
use crate::inspect::repo::holds_all_keys;
use crate::services::Services;
use gapless_core::filter::Keep;

/// Mismatches that a report lists.
const MAX_MISMATCHES: usize = 100;
/// How many repositories are verified between two reports of progress.
const PROGRESS_EVERY: u64 = 16;
/// Repositories that are read from one view.
const REPOS_PER_VIEW: usize = 256;

/// Recomputes roots, and records each result at the desk of its repository.
pub(crate) struct Prover {
    services: Arc<Services>,
    desks: Arc<Desks>,
    /// Waits for a desk's reply on a thread that may block.
    handle: Handle,
}

impl Prover {
    pub(crate) fn new(services: Arc<Services>, desks: Arc<Desks>, handle: Handle) -> Prover {
        Prover {
            services,
            desks,
            handle,
        }
    }

    /// Recomputes the root of a repository and records the result.
    pub(crate) fn prove(&self, id: RepoId, repo: &Repo) -> Result<VerifyAnswer, ApiError> {
        let mut answer = VerifyAnswer {
            did: repo.did.to_string(),
            ..VerifyAnswer::default()
        };
        let Some(head) = repo.head().copied() else {
            answer.problem =
                Some("no exact state is held yet, so there is no root to recompute".to_owned());
            return Ok(answer);
        };
        answer.rev = Some(head.rev.to_string());
        answer.expected = Some(head.data.to_string());
        if !holds_all_keys(&self.services) {
            answer.verdict = Verdict::NotRecomputable;
            answer.problem = Some(
                "only the keys of wanted collections are held (--keep-keys wanted): the root cannot be recomputed without a fetch".to_owned(),
            );
            return Ok(answer);
        }
        if repo.filter != self.services.rules.settings.filter {
            answer.problem = Some(
                "the repository was fetched under another filter; Gapless fetches it again, and the root can be recomputed then".to_owned(),
            );
            return Ok(answer);
        }
        let view = self.services.store.view();
        // The view may be newer than the row that was given.
        let now_held = view.repo(id)?.map(|repo| repo.held);
        if now_held != Some(Held::Exactly(head)) {
            answer.verdict = Verdict::Moved;
            answer.problem =
                Some("the repository changed during the verification; verify it again".to_owned());
            return Ok(answer);
        }
        let (records, root) = self.recompute(&view, id, &repo.did)?;
        answer.records = records;
        answer.computed = root.map(|root| root.to_string());
        answer.verified = root == Some(head.data);
        answer.verdict = if answer.verified {
            Verdict::Proven
        } else {
            Verdict::Mismatch
        };
        self.services.metrics.proven.inc();
        if !answer.verified {
            self.services.metrics.damaged.inc();
            tracing::error!(did = %repo.did, "the held keys do not hash to the signed root; Gapless fetches the repository again");
            answer.problem = Some(
                "the held keys do not hash to the signed root: the repository is no longer complete, and Gapless fetches it again".to_owned(),
            );
        }
        let written = self.note_proof(&repo.did, head, answer.verified);
        self.handle.block_on(written)?;
        Ok(answer)
    }

    /// Records the result of a proof, if the repository still has that head.
    async fn note_proof(&self, did: &Did, head: Head, verified: bool) -> Result<(), StoreError> {
        let change = self.desks.with_repo(did, move |turn: &mut RepoTurn<'_>| {
            let now = turn.services.clock.now();
            let Some(tx) = turn.tx.as_mut() else {
                return;
            };
            if tx.repo.head() != Some(&head) {
                return;
            }
            if verified {
                tx.repo.proven = Some(RootProof {
                    rev: head.rev,
                    at: now.time,
                });
            } else {
                damage::distrust(now, &mut tx.repo, &head);
            }
        });
        change.await
    }

    /// Recomputes the roots of all repositories; `of` is about their number. `progress` returns
    /// whether to continue.
    pub(crate) fn prove_all(
        &self,
        of: u64,
        progress: &dyn Fn(VerifyProgress) -> bool,
    ) -> Result<VerifyReport, ApiError> {
        let mut report = VerifyReport::default();
        // Rows are collected first, because proving takes long: no view of the rows is open
        // meanwhile.
        let read = |from: &RepoId| {
            let rows = self.services.store.view().repos(*from);
            rows.take(REPOS_PER_VIEW).collect::<Vec<_>>().into_iter()
        };
        for row in scan(REPOS_PER_VIEW, RepoId(0), read, |(id, _)| RepoId(id.0 + 1)) {
            let (id, repo) = row?;
            report.repos += 1;
            let mut answer = self.prove(id, &repo)?;
            if matches!(answer.verdict, Verdict::Nothing | Verdict::Moved)
                && let Some(newer) = self.services.store.view().repo(id)?
            {
                // The repository changed while others were verified.
                answer = self.prove(id, &newer)?;
            }
            match answer.verdict {
                Verdict::Proven => report.proven += 1,
                Verdict::Mismatch => {
                    report.mismatches += 1;
                    if report.found.len() < MAX_MISMATCHES {
                        report.found.push(answer);
                    }
                }
                Verdict::NotRecomputable => report.not_recomputable += 1,
                Verdict::Nothing | Verdict::Moved => report.skipped += 1,
            }
            let told = VerifyProgress {
                done: report.repos,
                of: of.max(report.repos),
                mismatches: report.mismatches,
            };
            if report.repos.is_multiple_of(PROGRESS_EVERY) && !progress(told) {
                report.stopped = true;
                break;
            }
        }
        Ok(report)
    }

    /// Counts the held records and computes the root of their keys. The root is `None` if
    /// the keys form no tree, if the bytes of a record are missing or do not hash to its
    /// CID, or if a row cannot be read.
    fn recompute(
        &self,
        view: &ReadView,
        id: RepoId,
        did: &Did,
    ) -> Result<(u64, Option<Cid>), ApiError> {
        let mut records = 0;
        for record in view.records(id) {
            match record {
                Ok(record) if self.is_sound(&record) => {
                    records += 1;
                }
                Ok(record) => {
                    let path = String::from_utf8_lossy(record.path()).into_owned();
                    tracing::error!(%did, path, cid = %record.cid, "a held record does not hash to its CID; the repository fails the verification");
                    return Ok((records, None));
                }
                Err(error @ StoreError::Row { .. }) => {
                    tracing::error!(%did, %error, "a held record cannot be read; the repository fails the verification");
                    return Ok((records, None));
                }
                Err(error) => return Err(error.into()),
            }
        }
        match view.root(id) {
            Ok(root) => Ok((records, Some(root))),
            Err(RootError::Store(StoreError::Row { .. }) | RootError::Tree(_)) => {
                Ok((records, None))
            }
            Err(RootError::Store(error)) => Err(error.into()),
        }
    }

    fn is_sound(&self, record: &Record) -> bool {
        match record.bytes() {
            Some(bytes) => record.cid.matches(bytes),
            None => self.services.rules.filter.keep(record.path()) != Keep::Record,
        }
    }
}
