//! The tree that a commit signs, built from the held keys in one pass, and kept a
//! while: one pass answers many proofs.
//!
//! Few are built at a time; who waits too long is told to come again. What all of
//! them take together has a bound, in use or not, and those that nobody uses are let
//! go of, the longest unused first. A tree whose root is not the signed one is never
//! handed out: the store is damaged.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::serve::getrepo::batch::Parcel;
use crate::serve::getrepo::build_threads::{Hand, Hands};
use crate::serve::getrepo::two_ended::{Room, both_ends};
use crate::serve::limits::TREES_BYTES;
use crate::serve::lookup::Exact;
use crate::serve::refuse::Refusal;
use gapless_mirror::budget::{Memory, Share};

/// A tree, and its part of the memory.
pub struct Tree {
    pub signed: SignedTree,
    _share: Share,
}

/// A state, and its tree.
pub struct Planned {
    pub exact: Exact,
    pub tree: Arc<Tree>,
    /// The records, if the keys were read for this and there was room for them.
    pub records: Option<KeptRecords>,
}

impl Planned {
    /// With a tree that was built before.
    fn again(exact: Exact, tree: Arc<Tree>) -> Planned {
        Planned {
            exact,
            tree,
            records: None,
        }
    }
}

/// Every record of a state, in order, each found to be what its CID names, and their
/// part of the memory.
pub struct KeptRecords {
    pub parcels: Vec<Parcel>,
    pub room: Arc<Room>,
}

/// Trees that are kept, the last used at the end.
pub struct Trees {
    kept: Mutex<VecDeque<(RepoId, Cid, Arc<Tree>)>>,
    kept_bytes: u64,
    memory: Arc<Memory>,
    records_memory: Arc<Memory>,
    hands: Arc<Hands>,
}

/// Why there is no tree.
enum Unbuilt {
    Refused(Refusal),
    /// The store is not as it should be.
    Damaged(String),
}

/// Why rows do not go on.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("the mirror is stopping")]
    Ending,
    #[error("{0}")]
    Spoilt(String),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Unread {
        match error {
            StoreError::Row { .. } => Unread::Spoilt(error.to_string()),
            error => Unread::Store(error),
        }
    }
}

impl From<Refusal> for Unbuilt {
    fn from(refusal: Refusal) -> Unbuilt {
        Unbuilt::Refused(refusal)
    }
}

impl From<StoreError> for Unbuilt {
    fn from(error: StoreError) -> Unbuilt {
        Unbuilt::Refused(error.into())
    }
}

/// Records that are kept while their keys are read, as long as there is room.
struct Keeping {
    parcels: Vec<Parcel>,
    room: Arc<Room>,
}

impl Keeping {
    fn new(keeps: bool, memory: &Arc<Memory>) -> Keeping {
        Keeping {
            parcels: Vec::new(),
            room: Room::new(keeps, memory.share()),
        }
    }

    /// Takes the next ones. An error if one of them is not what was signed.
    fn take(&mut self, parcel: Parcel) -> Result<(), String> {
        if !self.room.keeps() {
            self.parcels = Vec::new();
            return Ok(());
        }
        if let Some(read) = parcel.iter().find(|read| !read.sound) {
            return Err(spoilt(&read.cid, read.key));
        }
        self.parcels.push(parcel);
        Ok(())
    }

    fn kept(self) -> Option<KeptRecords> {
        self.room.keeps().then_some(KeptRecords {
            parcels: self.parcels,
            room: self.room,
        })
    }
}

/// What is said of a record that the disk has spoilt.
pub(super) fn spoilt(cid: &Cid, path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    format!("the record {cid} at '{path}' is missing or spoilt")
}

impl Trees {
    pub fn new(limits: &ServeLimits) -> Trees {
        Trees {
            kept: Mutex::default(),
            kept_bytes: limits.cached_trees_bytes,
            memory: Memory::new(TREES_BYTES),
            records_memory: Memory::new(limits.kept_records_bytes),
            hands: Hands::new(limits.builds),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(RepoId, Cid, Arc<Tree>)>> {
        // Nothing in here can panic half way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, exact: &Exact) -> Option<Arc<Tree>> {
        let mut kept = self.lock();
        let same =
            |(id, commit, _): &(RepoId, Cid, _)| *id == exact.id && *commit == exact.head.commit;
        let entry = kept.iter().position(same).and_then(|at| kept.remove(at))?;
        let tree = entry.2.clone();
        kept.push_back(entry);
        Some(tree)
    }

    /// Keeps a tree in place of an older one of the repository, and lets go of what is
    /// too much.
    fn keep(&self, exact: &Exact, tree: &Arc<Tree>) {
        let mut kept = self.lock();
        kept.retain(|(id, ..)| *id != exact.id);
        kept.push_back((exact.id, exact.head.commit, tree.clone()));
        let mut bytes: u64 = kept.iter().map(|(.., tree)| tree.signed.bytes()).sum();
        while bytes > self.kept_bytes
            && let Some((.., oldest)) = kept.pop_front()
        {
            bytes -= oldest.signed.bytes();
        }
    }

    /// Lets go of everything that is kept; those in use stay until they are not.
    fn forget(&self) {
        self.lock().clear();
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Serving {
    /// The trees that are kept.
    pub fn trees(&self) -> &Trees {
        &self.trees
    }

    /// The state of a repository that is held now, and its tree. `keep_records`: the
    /// caller wants the records next.
    pub async fn planned(
        self: &Arc<Self>,
        did: &Did,
        keep_records: bool,
    ) -> Result<Planned, Refusal> {
        let turn = match self.trees.hands.free() {
            Some(turn) => turn,
            // Who needs none goes on while others build theirs.
            None => match self.planned_before(did).await? {
                Some(planned) => return Ok(planned),
                None => {
                    let turn = in_time(self.limits.turn, self.trees.hands.wait()).await?;
                    turn.ok_or_else(|| unfinished("no turn could be had"))?
                }
            },
        };
        let (serving, asked) = (self.clone(), did.clone());
        let handle = Handle::current();
        let built = turn.work(move |back| {
            // Anew: it may have moved, or somebody built it, while we waited for our turn.
            let exact = serving.exact(&asked)?;
            if let Some(tree) = serving.trees.find(&exact) {
                return Ok(Planned::again(exact, tree));
            }
            let head = exact.head;
            match serving.build(exact, keep_records, back) {
                Ok(planned) => Ok(planned),
                Err(Unbuilt::Refused(refusal)) => Err(refusal),
                Err(Unbuilt::Damaged(why)) => {
                    // Here, since who asked may be gone.
                    handle.block_on(serving.report_damage(&asked, head, &why));
                    Err(Refusal::Internal(format!(
                        "what is held of {asked} is not what was signed; it is fetched anew, and served then"
                    )))
                }
            }
        });
        let built = built.ok_or_else(|| unfinished("no thread could be begun"))?;
        built.await.map_err(|_| unfinished("it panicked"))?
    }

    /// The same, if the tree is one that is kept.
    async fn planned_before(self: &Arc<Self>, did: &Did) -> Result<Option<Planned>, Refusal> {
        let (serving, asked) = (self.clone(), did.clone());
        let found = blocking(move || {
            let exact = serving.exact(&asked)?;
            let tree = serving.trees.find(&exact);
            Ok(tree.map(|tree| Planned::again(exact, tree)))
        });
        found.await?
    }

    fn build(
        &self,
        exact: Exact,
        keep_records: bool,
        back: &Arc<Hand>,
    ) -> Result<Planned, Unbuilt> {
        let Some(commit) = exact.view.signed_commit(exact.id)? else {
            return Err(Unbuilt::Damaged("its signed commit is missing".to_owned()));
        };
        if Cid::dag_cbor(&commit) != exact.head.commit {
            return Err(Unbuilt::Damaged(
                "its signed commit is another one".to_owned(),
            ));
        }
        let mut share = self.trees.memory.share();
        let mut keeping = Keeping::new(keep_records, &self.trees.records_memory);
        let (view, id) = (exact.view.clone(), exact.id);
        let rows = both_ends(
            Box::new(view.records(id)),
            move || Box::new(view.records(id).rev()),
            back.clone(),
            keeping.room.clone(),
        );
        let mut granted = |bytes| {
            share.reaches(bytes) || {
                self.trees.forget();
                share.reaches(bytes)
            }
        };
        let signed = SignedTree::build_from(&commit, &mut granted, |take| {
            for parcel in rows {
                if self.services.shutdown.has_begun() {
                    return Err(SignedTreeError::Source(Unread::Ending));
                }
                let parcel = parcel.map_err(|error| SignedTreeError::Source(error.into()))?;
                for read in parcel.iter() {
                    take(read.key, read.height, read.cid)?;
                }
                let kept = keeping.take(parcel).map_err(Unread::Spoilt);
                kept.map_err(SignedTreeError::Source)?;
            }
            Ok(())
        });
        let signed = match signed {
            Ok(signed) => signed,
            Err(SignedTreeError::Memory) => {
                let words = "other large repositories take the memory that this one needs";
                let refusal = Refusal::Busy(words.to_owned(), self.limits.turn);
                return Err(refusal.into());
            }
            Err(SignedTreeError::Source(ending @ Unread::Ending)) => {
                return Err(Refusal::Unavailable(ending.to_string()).into());
            }
            Err(SignedTreeError::Source(Unread::Spoilt(why))) => return Err(Unbuilt::Damaged(why)),
            Err(SignedTreeError::Source(Unread::Store(error))) => return Err(error.into()),
            Err(other) => return Err(Unbuilt::Damaged(other.to_string())),
        };
        let tree = Arc::new(Tree {
            signed,
            _share: share,
        });
        self.services.metrics.trees_built.inc();
        self.trees.keep(&exact, &tree);
        Ok(Planned {
            exact,
            tree,
            records: keeping.kept(),
        })
    }
}

/// A turn at something of which few are done at a time.
pub(super) async fn turn(
    of: &Arc<Semaphore>,
    patience: Duration,
) -> Result<OwnedSemaphorePermit, Refusal> {
    in_time(patience, of.clone().acquire_owned())
        .await?
        // Nobody closes it.
        .map_err(|_| Refusal::Unavailable("the mirror is stopping".to_owned()))
}

/// Waits, but not for ever: then it is said when to come again.
pub(super) async fn in_time<T>(
    patience: Duration,
    waits: impl Future<Output = T>,
) -> Result<T, Refusal> {
    let waited = tokio::time::timeout(patience, waits).await;
    waited.map_err(|_| {
        Refusal::Busy(
            "too many ask for whole repositories or proofs at the moment".to_owned(),
            patience.max(Duration::from_secs(1)),
        )
    })
}

/// Work that waits for the disk, on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| unfinished(&error.to_string()))
}

fn unfinished(why: &str) -> Refusal {
    tracing::error!(why, "answering a question ended unexpectedly");
    Refusal::Internal("the answer was not finished; the log may tell more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::getrepo::batch::Wanted;
    use crate::serve::getrepo::batch::tests::record;

    fn parcel(spoilt: bool) -> Parcel {
        let mut parcel = Parcel::default();
        parcel.push(&record(1, false), Wanted::Both);
        parcel.push(&record(2, spoilt), Wanted::Both);
        parcel
    }

    #[test]
    fn a_record_that_is_kept_was_found_sound() {
        let mut keeping = Keeping::new(true, &Memory::new(1 << 20));
        keeping.take(parcel(false)).expect("it is sound");
        let words = keeping.take(parcel(true)).unwrap_err();
        assert!(words.contains("a/000002"), "{words}");
        let kept = keeping.kept().expect("there was room");
        assert_eq!(kept.parcels.len(), 1);
    }

    #[test]
    fn where_none_are_kept_nothing_is_hashed_or_held() {
        let mut keeping = Keeping::new(false, &Memory::new(1 << 20));
        keeping.take(parcel(true)).expect("nobody hashed it");
        assert!(keeping.parcels.is_empty());
        assert!(keeping.kept().is_none());
    }
}
