//! Builds the tree that a commit signs from the held keys in one pass, and caches the tree,
//! so one pass answers many proofs.
//!
//! Concurrent builds are limited. A request that waits longer than `limits.turn` gets 503
//! with Retry-After. All trees together, cached or in use, take at most
//! [`MAX_TREES_BYTES`]; the cache evicts the least recently used tree first. A tree whose
//! root differs from the signed root is never served: the store is damaged.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use gapless_atp::cid::Cid;
use gapless_atp::repo::{SignedTree, SignedTreeError};
use gapless_atp::syntax::Did;
use gapless_core::ledger::RepoId;
use gapless_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::ServeLimits;
use crate::serve::Serving;
use crate::serve::getrepo::batch::RecordBatch;
use crate::serve::getrepo::build_threads::{BuildThread, BuildThreads};
use crate::serve::getrepo::record_budget::RecordBudget;
use crate::serve::getrepo::two_ended::read_from_both_ends;
use crate::serve::limits::MAX_TREES_BYTES;
use crate::serve::lookup::ServedState;
use crate::serve::refuse::ServeError;
use gapless_mirror::budget::{Budget, Lease};
use gapless_store::sync::Mutex;

/// A tree, and its share of the memory of all trees.
pub(crate) struct CachedTree {
    pub(crate) signed: SignedTree,
    _lease: Lease,
}

/// A state of a repository, and its tree.
pub struct StateWithTree {
    pub(crate) state: ServedState,
    pub(crate) tree: Arc<CachedTree>,
    /// The records, if this call built the tree and they fitted into memory.
    pub(crate) records: Option<BufferedRecords>,
}

impl StateWithTree {
    fn from_cache(state: ServedState, tree: Arc<CachedTree>) -> StateWithTree {
        StateWithTree {
            state,
            tree,
            records: None,
        }
    }
}

/// Every record of a state in key order, verified against its CID, and the memory of the
/// records.
pub(crate) struct BufferedRecords {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) budget: Arc<RecordBudget>,
}

/// The cached trees, the most recently used last, and the means to build more.
pub struct TreeCache {
    kept: Mutex<VecDeque<(RepoId, Cid, Arc<CachedTree>)>>,
    kept_bytes: u64,
    memory: Arc<Budget>,
    records_memory: Arc<Budget>,
    threads: Arc<BuildThreads>,
}

/// Why a tree was not built.
enum BuildError {
    Serve(ServeError),
    /// The stored data is not what was signed.
    Damaged(String),
}

/// Why the reading of rows ended early.
#[derive(Debug, thiserror::Error)]
enum RowsError {
    #[error("the mirror is stopping")]
    Stopping,
    #[error("{0}")]
    Damaged(String),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for RowsError {
    fn from(error: StoreError) -> RowsError {
        match error {
            StoreError::Row { .. } => RowsError::Damaged(error.to_string()),
            error => RowsError::Store(error),
        }
    }
}

impl From<ServeError> for BuildError {
    fn from(refusal: ServeError) -> BuildError {
        BuildError::Serve(refusal)
    }
}

impl From<StoreError> for BuildError {
    fn from(error: StoreError) -> BuildError {
        BuildError::Serve(error.into())
    }
}

/// Keeps the records while a build reads their keys, as long as they fit into memory.
struct RecordBuffer {
    batches: Vec<RecordBatch>,
    budget: Arc<RecordBudget>,
}

impl RecordBuffer {
    fn new(keeps: bool, memory: &Arc<Budget>) -> RecordBuffer {
        RecordBuffer {
            batches: Vec::new(),
            budget: RecordBudget::new(keeps, memory.lease()),
        }
    }

    /// Adds a batch. Fails if the bytes of a record do not match its CID.
    fn push(&mut self, batch: RecordBatch) -> Result<(), String> {
        if !self.budget.keeps_records() {
            self.batches = Vec::new();
            return Ok(());
        }
        if let Some(read) = batch.iter().find(|read| !read.verified) {
            return Err(damaged_record(&read.cid, read.key));
        }
        self.batches.push(batch);
        Ok(())
    }

    fn finish(self) -> Option<BufferedRecords> {
        self.budget.keeps_records().then_some(BufferedRecords {
            batches: self.batches,
            budget: self.budget,
        })
    }
}

/// The report of a record that is missing or damaged on disk.
pub(super) fn damaged_record(cid: &Cid, path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    format!("the record {cid} at '{path}' is missing or damaged")
}

impl TreeCache {
    pub(crate) fn new(limits: &ServeLimits) -> TreeCache {
        TreeCache {
            kept: Mutex::default(),
            kept_bytes: limits.cached_trees_bytes,
            memory: Budget::new(MAX_TREES_BYTES),
            records_memory: Budget::new(limits.kept_records_bytes),
            threads: BuildThreads::new(limits.builds),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(RepoId, Cid, Arc<CachedTree>)>> {
        self.kept.lock()
    }

    fn get(&self, state: &ServedState) -> Option<Arc<CachedTree>> {
        let mut kept = self.lock();
        let same =
            |(id, commit, _): &(RepoId, Cid, _)| *id == state.id && *commit == state.head.commit;
        let entry = kept.iter().position(same).and_then(|at| kept.remove(at))?;
        let tree = entry.2.clone();
        kept.push_back(entry);
        Some(tree)
    }

    /// Caches a tree in place of an older one of the repository, and evicts the least
    /// recently used trees beyond `cached_trees_bytes`.
    fn insert(&self, state: &ServedState, tree: &Arc<CachedTree>) {
        let mut kept = self.lock();
        kept.retain(|(id, ..)| *id != state.id);
        kept.push_back((state.id, state.head.commit, tree.clone()));
        let mut bytes: u64 = kept.iter().map(|(.., tree)| tree.signed.bytes()).sum();
        while bytes > self.kept_bytes
            && let Some((.., oldest)) = kept.pop_front()
        {
            bytes -= oldest.signed.bytes();
        }
    }

    /// Evicts every tree. A tree in use is freed when its last request ends.
    fn clear(&self) {
        self.lock().clear();
    }

    /// The number of cached trees.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Serving {
    /// The cache of trees.
    pub fn trees(&self) -> &TreeCache {
        &self.trees
    }

    /// The current state of a repository, and its tree, cached or built. With
    /// `buffer_records` a build also keeps the records for an export.
    pub async fn state_with_tree(
        self: &Arc<Self>,
        did: &Did,
        buffer_records: bool,
    ) -> Result<StateWithTree, ServeError> {
        let permit = match self.trees.threads.try_acquire() {
            Some(permit) => permit,
            // A cached tree needs no permit.
            None => match self.cached_state_with_tree(did).await? {
                Some(found) => return Ok(found),
                None => {
                    let permit =
                        with_deadline(self.limits.turn, self.trees.threads.acquire()).await?;
                    permit.ok_or_else(|| internal_error("the build permits are closed"))?
                }
            },
        };
        let (serving, asked) = (self.clone(), did.clone());
        let handle = Handle::current();
        let built = permit.run(move |back| {
            // While this request waited for a permit, the repository may have moved on, or
            // another request may have built the tree.
            let state = serving.served_state(&asked)?;
            if let Some(tree) = serving.trees.get(&state) {
                return Ok(StateWithTree::from_cache(state, tree));
            }
            let head = state.head;
            match serving.build(state, buffer_records, back) {
                Ok(found) => Ok(found),
                Err(BuildError::Serve(refusal)) => Err(refusal),
                Err(BuildError::Damaged(why)) => {
                    // On this thread, because the client may have disconnected.
                    handle.block_on(serving.report_damage(&asked, head, &why));
                    Err(ServeError::Internal(format!(
                        "the stored data of {asked} is not what was signed; it is being fetched anew, ask again later"
                    )))
                }
            }
        });
        let built = built.ok_or_else(|| internal_error("no build thread could be started"))?;
        built
            .await
            .map_err(|_| internal_error("the build panicked"))?
    }

    /// The current state of a repository and its tree, if the tree is cached.
    async fn cached_state_with_tree(
        self: &Arc<Self>,
        did: &Did,
    ) -> Result<Option<StateWithTree>, ServeError> {
        let (serving, asked) = (self.clone(), did.clone());
        let found = run_blocking(move || {
            let state = serving.served_state(&asked)?;
            let tree = serving.trees.get(&state);
            Ok(tree.map(|tree| StateWithTree::from_cache(state, tree)))
        });
        found.await?
    }

    fn build(
        &self,
        state: ServedState,
        buffer_records: bool,
        back: &Arc<BuildThread>,
    ) -> Result<StateWithTree, BuildError> {
        let Some(commit) = state.view.signed_commit(state.id)? else {
            return Err(BuildError::Damaged(
                "its signed commit is missing".to_owned(),
            ));
        };
        if Cid::dag_cbor(&commit) != state.head.commit {
            return Err(BuildError::Damaged(
                "its stored commit is not the signed one".to_owned(),
            ));
        }
        let mut lease = self.trees.memory.lease();
        let mut buffer = RecordBuffer::new(buffer_records, &self.trees.records_memory);
        let (view, id) = (state.view.clone(), state.id);
        let rows = read_from_both_ends(
            Box::new(view.records(id)),
            move || Box::new(view.records(id).rev()),
            back.clone(),
            buffer.budget.clone(),
        );
        let mut granted = |bytes| {
            lease.grow_to(bytes) || {
                self.trees.clear();
                lease.grow_to(bytes)
            }
        };
        let signed = SignedTree::build_from(&commit, &mut granted, |take| {
            for batch in rows {
                if self.services.shutdown.has_begun() {
                    return Err(SignedTreeError::Source(RowsError::Stopping));
                }
                let batch = batch.map_err(|error| SignedTreeError::Source(error.into()))?;
                for read in batch.iter() {
                    take(read.key, read.height, read.cid)?;
                }
                let kept = buffer.push(batch).map_err(RowsError::Damaged);
                kept.map_err(SignedTreeError::Source)?;
            }
            Ok(())
        });
        let signed = match signed {
            Ok(signed) => signed,
            Err(SignedTreeError::Memory) => {
                let words = "other large repositories use the memory that this one needs";
                let refusal = ServeError::Busy(words.to_owned(), self.limits.turn);
                return Err(refusal.into());
            }
            Err(SignedTreeError::Source(ending @ RowsError::Stopping)) => {
                return Err(ServeError::Unavailable(ending.to_string()).into());
            }
            Err(SignedTreeError::Source(RowsError::Damaged(why))) => {
                return Err(BuildError::Damaged(why));
            }
            Err(SignedTreeError::Source(RowsError::Store(error))) => return Err(error.into()),
            Err(other) => return Err(BuildError::Damaged(other.to_string())),
        };
        let tree = Arc::new(CachedTree {
            signed,
            _lease: lease,
        });
        self.services.metrics.trees_built.inc();
        self.trees.insert(&state, &tree);
        Ok(StateWithTree {
            state,
            tree,
            records: buffer.finish(),
        })
    }
}

/// Waits for a permit for at most `patience`.
pub(super) async fn acquire_permit(
    of: &Arc<Semaphore>,
    patience: Duration,
) -> Result<OwnedSemaphorePermit, ServeError> {
    with_deadline(patience, of.clone().acquire_owned())
        .await?
        // The semaphore is never closed.
        .map_err(|_| ServeError::Unavailable("the mirror is stopping".to_owned()))
}

/// Waits for at most `patience`, then fails with 503 and Retry-After.
pub(super) async fn with_deadline<T>(
    patience: Duration,
    waits: impl Future<Output = T>,
) -> Result<T, ServeError> {
    let waited = tokio::time::timeout(patience, waits).await;
    waited.map_err(|_| {
        ServeError::Busy(
            "too many requests for whole repositories or proofs at the moment".to_owned(),
            patience.max(Duration::from_secs(1)),
        )
    })
}

/// Runs work that reads the disk on a blocking thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ServeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| internal_error(&error.to_string()))
}

fn internal_error(why: &str) -> ServeError {
    tracing::error!(why, "a request failed unexpectedly; its client gets 500");
    ServeError::Internal(
        "the answer was not finished; the log of the mirror may tell more".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::getrepo::batch::BatchContent;
    use crate::serve::getrepo::batch::tests::record;

    fn batch(spoilt: bool) -> RecordBatch {
        let mut batch = RecordBatch::default();
        batch.push(&record(1, false), BatchContent::Both);
        batch.push(&record(2, spoilt), BatchContent::Both);
        batch
    }

    #[test]
    fn a_record_that_is_kept_was_found_sound() {
        let mut buffer = RecordBuffer::new(true, &Budget::new(1 << 20));
        buffer.push(batch(false)).expect("it is verified");
        let words = buffer.push(batch(true)).unwrap_err();
        assert!(words.contains("a/000002"), "{words}");
        let kept = buffer.finish().expect("it fits into the budget");
        assert_eq!(kept.batches.len(), 1);
    }

    #[test]
    fn where_none_are_kept_nothing_is_hashed_or_held() {
        let mut buffer = RecordBuffer::new(false, &Budget::new(1 << 20));
        buffer.push(batch(true)).expect("nobody hashed it");
        assert!(buffer.batches.is_empty());
        assert!(buffer.finish().is_none());
    }
}
