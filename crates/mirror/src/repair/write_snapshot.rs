//! Writes a checked snapshot over the held records, chunk by chunk at the repository's desk. Each
//! chunk is durable before the next. A state that changed meanwhile is not touched.

use std::sync::Arc;

use gapless_core::ledger::fetch::CheckedHead;
use gapless_core::ledger::{Held, RepoId};
use gapless_core::repo_tx::snapshot::{ChunkResult, FetchJob, SnapshotChunk};
use gapless_store::error::StoreError;
use tokio::runtime::Handle;

use crate::desk::Desks;
use crate::failpoints;
use crate::repair::compare::{Chunk, CompareInput};
use crate::repair::fetch_repo::{Job, NotWritten};
use crate::repair::snapshot::Snapshot;
use crate::services::Services;

/// Writes one snapshot, on a thread that may wait.
pub(crate) struct Writer {
    pub services: Arc<Services>,
    pub desks: Arc<Desks>,
    pub handle: Handle,
    pub job: Job,
    pub told: CheckedHead,
    pub difference: bool,
}

impl Writer {
    pub(super) fn write(&self, snapshot: &Snapshot) -> Result<(), NotWritten> {
        let found = self.services.store.view().repo_by_did(&self.job.did)?;
        let Some((id, repo)) = found else {
            return Err(NotWritten::Discarded);
        };
        if repo.purging {
            // Records that the purge still deletes would count as held.
            return Err(NotWritten::Discarded);
        }
        let held = repo.held;
        // An equal CID is not enough if the filter has changed or the held contents are in doubt.
        let repair = !matches!(held, Held::Exactly(_))
            || repo.filter != self.job.note.filter
            || repo
                .debt
                .fetch
                .is_some_and(|owed| owed.why.concerns_contents());
        let mut first = true;
        let services = &self.services;
        let commit = snapshot.commit_block().to_vec();
        let comparison = CompareInput {
            open_view: &|| services.store.view(),
            repo: base(id, &held),
            keep: &|path| services.rules.filter.keep(path),
            compare_bytes: repair,
        };
        for chunk in snapshot.differences(comparison)? {
            let begins = std::mem::take(&mut first);
            if !begins {
                failpoints::here("fetch.between");
            }
            self.step(held, begins, chunk?, &commit)?;
        }
        failpoints::here("fetch.written");
        Ok(())
    }

    /// Writes one chunk at the desk. The chunk is durable when this function returns.
    fn step(
        &self,
        held: Held,
        begins: bool,
        chunk: Chunk,
        commit: &[u8],
    ) -> Result<(), NotWritten> {
        let job = FetchJob {
            note: self.job.note,
            named: self.job.named,
            adopt: self.job.adopt,
            imported: self.job.imported,
            difference: self.difference,
            checked: self.told,
        };
        let commit = commit.to_vec();
        let change = self.desks.with_repo(&self.job.did, move |turn| {
            let env = turn.env();
            let Some(tx) = turn.tx.as_mut() else {
                return Ok(ChunkResult::Discarded);
            };
            let (ops, last) = (chunk.ops.len(), chunk.last);
            let chunk = SnapshotChunk {
                job: &job,
                over: held,
                ops: chunk.ops,
                commit: &commit,
                begins,
                last,
            };
            let result = tx.write_chunk(&env, &turn.services.rules, chunk)?;
            if result == ChunkResult::Written {
                count(turn.services, ops, last, job.difference);
                if last {
                    failpoints::here("fetch.unsettled");
                }
            }
            Ok::<_, StoreError>(result)
        });
        match self.handle.block_on(change)?? {
            ChunkResult::Written => Ok(()),
            ChunkResult::Moved => Err(NotWritten::Moved),
            ChunkResult::Discarded => Err(NotWritten::Discarded),
            ChunkResult::NeedsWhole => Err(NotWritten::NeedsWhole),
        }
    }
}

/// The repository whose records the snapshot is compared with; `None` if nothing is held: then rows
/// that are still there are those of a purge, which deletes them.
fn base(id: RepoId, held: &Held) -> Option<RepoId> {
    (*held != Held::Nothing).then_some(id)
}

/// Counts a chunk at the desk, so that the counters are never behind the visible state.
fn count(services: &Services, ops: usize, last: bool, difference: bool) {
    let metrics = &services.metrics;
    metrics.records_fetched.add(ops as u64);
    metrics.snapshots_written.add(u64::from(last));
    metrics
        .differences_written
        .add(u64::from(last && difference));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_a_purge_has_not_deleted_yet_are_not_held() {
        assert_eq!(base(RepoId(7), &Held::Nothing), None);
        let damaged = Held::Damaged { from: None };
        assert_eq!(base(RepoId(7), &damaged), Some(RepoId(7)));
    }
}
