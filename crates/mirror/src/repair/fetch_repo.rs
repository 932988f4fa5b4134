//! Fetches one repository, checks the whole snapshot, and writes what differs from the held
//! records: in one batch, or in several batches during which the row is marked as applying.

use std::sync::Arc;

use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::diff::{self, DiffVerdict, RepoRequest};
use gapless_core::ledger::fetch::{CheckedHead, Note};
use gapless_core::ledger::{KeyBytes, NamedHead, Repo, RepoId, SignerKey};
use gapless_net::public_key;
use gapless_store::error::StoreError;
use gapless_store::read_view::{ReadView, RootError};
use tokio::runtime::Handle;

use crate::failpoints;
use crate::hosts::RefusedSnapshot;
use crate::repair::download::DownloadOutcome;
use crate::repair::held_tree::{HELD_TREE_BYTES, HeldTree};
use crate::repair::snapshot::{Snapshot, SnapshotError};
use crate::repair::spill::SpilledCar;
use crate::repair::worker::{Fetcher, RepairError, known_identity};
use crate::repair::write_snapshot::Writer;

/// How often a snapshot is written again after live commits have changed the held records
/// meanwhile.
pub(super) const WRITE_ATTEMPTS: u32 = 8;

/// One fetch in progress.
#[derive(Clone)]
pub(super) struct Job {
    pub did: Did,
    pub note: Note,
    pub named: NamedHead,
    pub adopt: bool,
    /// An operator brought the repository as a file, which proves nothing about being
    /// current.
    pub imported: bool,
}

/// Why a snapshot was not written.
pub(super) enum NotWritten {
    /// The held records changed after the snapshot was compared with them.
    Moved,
    /// The held records are newer, or the snapshot is not the one being written.
    Discarded,
    /// A difference does not lead to its root; the whole repository is requested.
    NeedsWhole,
    Flawed(SnapshotError),
    Store(StoreError),
}

impl From<SnapshotError> for NotWritten {
    fn from(error: SnapshotError) -> NotWritten {
        NotWritten::Flawed(error)
    }
}

impl From<StoreError> for NotWritten {
    fn from(error: StoreError) -> NotWritten {
        NotWritten::Store(error)
    }
}

/// The result of a step whose failure is not recorded yet.
type Step<T> = Result<T, NotWritten>;

impl Fetcher {
    /// Fetches a repository that should be at `named` or newer. If the host's difference
    /// is of no use, the whole repository follows at once.
    pub(super) async fn fetch(
        &self,
        did: &Did,
        note: Note,
        named: NamedHead,
        adopt: bool,
    ) -> Result<(), RepairError> {
        let job = Job {
            did: did.clone(),
            note,
            named,
            adopt,
            imported: false,
        };
        for whole in [false, true] {
            match self.fetch_once(&job, whole).await? {
                Ok(()) | Err(NotWritten::Discarded) => return Ok(()),
                Err(NotWritten::NeedsWhole) => {}
                Err(reason) => return Err(self.record_failure(&job, reason).await?),
            }
        }
        self.failed(did, None).await?;
        Err(RepairError::Failed)
    }

    async fn fetch_once(&self, job: &Job, whole: bool) -> Result<Step<()>, RepairError> {
        let did = &job.did;
        let Some((id, repo)) = self.services.store.view().repo_by_did(did)? else {
            return Ok(Err(NotWritten::Discarded));
        };
        let since = self.since_for(job, &repo, whole);
        let car = match self.download(job, since).await? {
            DownloadOutcome::Received(car) => car,
            DownloadOutcome::StateRecorded | DownloadOutcome::Moved => {
                return Ok(Err(NotWritten::Discarded));
            }
            DownloadOutcome::NothingNew => return Ok(Err(NotWritten::NeedsWhole)),
        };
        failpoints::here("fetch.downloaded");
        let snapshot = match self.check(job, id, car, since.is_some()).await? {
            Ok(snapshot) => snapshot,
            Err(reason) => return Ok(Err(reason)),
        };
        let Some(key) = self.signed_by(job, &snapshot).await? else {
            self.refuse(
                job,
                "signature",
                "the snapshot is whole, but not signed by its owner",
            );
            self.failed(did, None).await?;
            return Err(RepairError::Failed);
        };
        failpoints::here("fetch.checked");
        self.write(job, snapshot, key, since.is_some()).await
    }

    /// Returns the rev from which a difference is requested; `None` for the whole
    /// repository. The rev is remembered even if no answer ever comes.
    fn since_for(&self, job: &Job, repo: &Repo, whole: bool) -> Option<Rev> {
        if whole {
            return None;
        }
        let settings = &self.services.rules.settings;
        let last_since = self.since_revs.of(&job.did);
        match diff::choose_request(settings, repo, &job.note, job.adopt, last_since) {
            RepoRequest::InFull => None,
            RepoRequest::Since(rev) => {
                self.since_revs.note(&job.did, rev);
                Some(rev)
            }
        }
    }

    /// Counts and logs a refused snapshot, and keeps the refusal with the host.
    pub(super) fn refuse(&self, job: &Job, class: &'static str, error: &str) {
        let services = &self.services;
        services.metrics.snapshots_refused.inc();
        services.metrics.refused_by_reason.inc(class);
        let host = services.hosts.get(job.note.host);
        let host = host.map(|host| host.name).unwrap_or_default();
        tracing::warn!(
            did = %job.did, host, error,
            "the repository that the host serves is refused; fetched again later"
        );
        let refused = RefusedSnapshot {
            at: services.clock.time(),
            did: job.did.clone(),
            class,
            error: error.to_owned(),
        };
        self.note_error(&job.did, error);
        services.hosts.refuse(job.note.host, refused);
    }

    /// Counts and logs a failure that the host did not cause: the local disk failed, or too
    /// much arrived at once.
    pub(super) fn note_failed_here(&self, job: &Job, error: &str) {
        self.services.metrics.fetches_failed_here.inc();
        tracing::error!(
            did = %job.did, error,
            "a fetched repository could not be kept on the local disk; fetched again later"
        );
        self.note_local_error(&job.did, error);
    }

    /// Checks everything but the signature, before anything is written.
    async fn check(
        &self,
        job: &Job,
        id: RepoId,
        car: SpilledCar,
        difference: bool,
    ) -> Result<Step<Snapshot>, RepairError> {
        let _large = if car.is_spilled() {
            self.large.acquire().await.ok()
        } else {
            None
        };
        let (store, did, note) = (self.services.store.clone(), job.did.clone(), job.note);
        let checked = tokio::task::spawn_blocking(move || {
            let snapshot = Snapshot::check(car, &did)?;
            if !difference {
                snapshot.walk_whole()?;
                return Ok(snapshot);
            }
            check_difference(&store.view(), id, &note, snapshot)
        });
        let checked = checked.await.map_err(|fault| log_panic(&job.did, &fault))?;
        Ok(self.count_discarded(checked))
    }

    /// Returns which of the owner's keys signed the snapshot; `None` if none did.
    async fn signed_by(
        &self,
        job: &Job,
        snapshot: &Snapshot,
    ) -> Result<Option<SignerKey>, RepairError> {
        let did = &job.did;
        let Some(repo) = self.row(did)? else {
            return Ok(None);
        };
        if verifies(snapshot, present_key(&repo)) {
            return Ok(Some(SignerKey::Present));
        }
        // The key may be newer than the known one.
        if repo
            .signing
            .is_none_or(|signing| signing.asked < job.note.at)
        {
            let asked = self.services.clock.now().tick;
            self.resolve(did, asked, known_identity(&self.services, &repo))
                .await?;
            let Some(repo) = self.row(did)? else {
                return Ok(None);
            };
            if verifies(snapshot, present_key(&repo)) {
                return Ok(Some(SignerKey::Present));
            }
        }
        let former = repo.signing.and_then(|signing| signing.former);
        if verifies(snapshot, former) {
            return Ok(Some(SignerKey::Previous));
        }
        match self.net.former_keys(did).await {
            Ok(keys) => {
                let found = keys.iter().any(|key| snapshot.verify(key));
                Ok(found.then_some(SignerKey::Previous))
            }
            Err(error) => {
                tracing::debug!(%did, %error, "the directory did not return former keys; fetched again later");
                self.failed(did, error.retry_after()).await?;
                Err(RepairError::Failed)
            }
        }
    }

    pub(crate) fn row(&self, did: &Did) -> Result<Option<Repo>, StoreError> {
        let found = self.services.store.view().repo_by_did(did)?;
        Ok(found.map(|(_, repo)| repo))
    }

    /// Records why a snapshot was not written. The debt stays.
    async fn record_failure(
        &self,
        job: &Job,
        reason: NotWritten,
    ) -> Result<RepairError, StoreError> {
        let did = &job.did;
        let mut result = RepairError::Failed;
        match reason {
            NotWritten::Store(error) => return Err(error),
            NotWritten::Flawed(error) if error.is_ours() => {
                self.note_failed_here(job, &error.to_string());
                result = RepairError::Local;
            }
            NotWritten::Flawed(error) => self.refuse(job, error.class(), &error.to_string()),
            NotWritten::Moved => {
                tracing::debug!(%did, "live commits changed the repository during every attempt to write it; fetched again later");
            }
            NotWritten::Discarded | NotWritten::NeedsWhole => {}
        }
        self.failed(did, None).await?;
        Ok(result)
    }

    /// Writes a checked snapshot. If live commits change the held records meanwhile, the
    /// snapshot is compared and written again.
    async fn write(
        &self,
        job: &Job,
        snapshot: Snapshot,
        key: SignerKey,
        difference: bool,
    ) -> Result<Step<()>, RepairError> {
        let mut snapshot = Arc::new(snapshot);
        for _ in 0..WRITE_ATTEMPTS {
            let writer = Writer {
                services: self.services.clone(),
                desks: self.desks.clone(),
                handle: Handle::current(),
                job: job.clone(),
                told: CheckedHead {
                    head: snapshot.head(),
                    key,
                },
                difference,
            };
            let written = snapshot.clone();
            let result = tokio::task::spawn_blocking(move || writer.write(&written)).await;
            match result.map_err(|fault| log_panic(&job.did, &fault))? {
                Ok(()) => {
                    self.last_errors.clear(&job.did);
                    return Ok(Ok(()));
                }
                Err(NotWritten::Moved) if difference => {
                    // A difference must be checked again on top of the new state.
                    let Ok(only) = Arc::try_unwrap(snapshot) else {
                        return Ok(Err(NotWritten::NeedsWhole));
                    };
                    match self.check_again(job, only).await? {
                        Ok(again) => snapshot = Arc::new(again),
                        Err(reason) => return Ok(Err(reason)),
                    }
                }
                Err(NotWritten::Moved) => {}
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Err(NotWritten::Moved))
    }

    async fn check_again(
        &self,
        job: &Job,
        snapshot: Snapshot,
    ) -> Result<Step<Snapshot>, RepairError> {
        let Some((id, _)) = self.services.store.view().repo_by_did(&job.did)? else {
            self.services.metrics.snapshots_discarded.inc();
            return Ok(Err(NotWritten::Discarded));
        };
        let (store, note) = (self.services.store.clone(), job.note);
        let checked = tokio::task::spawn_blocking(move || {
            check_difference(&store.view(), id, &note, snapshot)
        });
        let checked = checked.await.map_err(|fault| log_panic(&job.did, &fault))?;
        Ok(self.count_discarded(checked))
    }

    /// Counts a snapshot that is discarded before it reaches its desk.
    fn count_discarded<T>(&self, checked: Step<T>) -> Step<T> {
        if let Err(NotWritten::Discarded) = &checked {
            self.services.metrics.snapshots_discarded.inc();
        }
        checked
    }
}

/// Logs a panic, which is a fault of Gapless. The debt stays.
fn log_panic(did: &Did, fault: &tokio::task::JoinError) -> RepairError {
    tracing::error!(%did, %fault, "checking or writing a snapshot ended unexpectedly; fetched again later");
    RepairError::Failed
}

pub(crate) fn present_key(repo: &Repo) -> Option<KeyBytes> {
    repo.signing.and_then(|signing| signing.key)
}

pub(crate) fn verifies(snapshot: &Snapshot, key: Option<KeyBytes>) -> bool {
    let key = key.as_ref().and_then(public_key);
    key.is_some_and(|key| snapshot.verify(&key))
}

/// Checks a difference on top of the held records.
fn check_difference(
    view: &ReadView,
    id: RepoId,
    note: &Note,
    snapshot: Snapshot,
) -> Result<Snapshot, NotWritten> {
    let snapshot = snapshot.with_held(held_tree(view, id)?);
    if snapshot.walk_whole().is_ok() {
        return Ok(snapshot);
    }
    let repo = view.repo(id)?;
    let verdict = repo.map(|repo| diff::judge_difference(&repo, note, &snapshot.head(), None));
    Err(match verdict {
        // Live commits came first: everything that the difference brings is held.
        Some(DiffVerdict::Passed) => NotWritten::Discarded,
        // A host that cannot compute differences has not failed.
        _ => NotWritten::NeedsWhole,
    })
}

/// Builds the tree of the held records. Without such a tree the whole repository is
/// fetched.
fn held_tree(view: &ReadView, id: RepoId) -> Result<HeldTree, NotWritten> {
    let head = view.repo(id)?.and_then(|repo| repo.head().copied());
    let Some(head) = head else {
        return Err(NotWritten::NeedsWhole);
    };
    match HeldTree::build(view, id, HELD_TREE_BYTES) {
        Ok(Some(tree)) if tree.root() == head.data => Ok(tree),
        Ok(Some(_)) => {
            tracing::error!(
                repo = id.0,
                "the held keys do not hash to the signed root; the whole repository is fetched"
            );
            Err(NotWritten::NeedsWhole)
        }
        Ok(None) => Err(NotWritten::NeedsWhole),
        Err(RootError::Store(error)) => Err(NotWritten::Store(error)),
        Err(RootError::Tree(_)) => Err(NotWritten::NeedsWhole),
    }
}
