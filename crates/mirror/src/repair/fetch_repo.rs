//! Fetches one repository, checks it whole, and writes the difference to what is
//! held: in one batch, or in several with the row saying so until the last.

use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt;
use gapless_core::ledger::diff::{self, DiffVerdict, RepoRequest};
use gapless_core::ledger::fetch::{CheckedHead, HeadAnswer, Note};
use gapless_core::ledger::{KeyBytes, NamedHead, Repo, RepoId, SignerKey};
use gapless_core::repo_tx::answer::AskReason;
use gapless_net::{AskClass, FetchLimits, GetRepoError, public_key};
use gapless_store::error::StoreError;
use gapless_store::read_view::{ReadView, RootError};
use tokio::runtime::Handle;

use crate::failpoints;
use crate::hosts::RefusedSnapshot;
use crate::repair::held_tree::{HELD_TREE_BYTES, HeldTree};
use crate::repair::snapshot::{Snapshot, SnapshotError};
use crate::repair::spill::{Spill, SpillError, SpillLimits, SpilledCar};
use crate::repair::worker::{Fetcher, Trouble, known};
use crate::repair::write_snapshot::Writer;

/// Bytes of a repository that stay in memory; larger ones go to a file.
pub(crate) const IN_MEMORY: usize = 8 << 20;
/// How often a snapshot is laid over a state that moves on meanwhile.
pub(crate) const TRIES: u32 = 8;

/// One fetch under way.
#[derive(Clone)]
pub(crate) struct Job {
    pub did: Did,
    pub note: Note,
    pub named: NamedHead,
    pub adopt: bool,
    /// Somebody brought it as a file: it proves nothing about being current.
    pub imported: bool,
}

/// What came of a question for the bytes.
enum Download {
    /// They are put aside.
    Whole(SpilledCar),
    /// There are none to have: the host said why, and that was heard.
    Heard,
    /// A difference that brings nothing.
    Empty,
    /// The repository moved meanwhile: the other host is to be asked.
    CalledOff,
}

/// What came of a snapshot.
enum Outcome {
    Written,
    /// Not written: overtaken, or not this one.
    Discarded,
    /// A difference that leads nowhere: the whole is asked for.
    InFull,
}

/// Whose fault it is that bytes were not taken.
enum Fault {
    Hosts,
    /// Our own disk failed, or has no room.
    Ours,
    /// Nobody's: there are more than are taken.
    TooLarge,
}

/// Why a snapshot was not written.
pub(crate) enum Stop {
    /// The state that it was laid over is not the held one any more.
    Moved,
    Discarded,
    InFull,
    Flawed(SnapshotError),
    Store(StoreError),
}

impl From<SnapshotError> for Stop {
    fn from(error: SnapshotError) -> Stop {
        Stop::Flawed(error)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Store(error)
    }
}

impl Fetcher {
    /// Fetches a repository that should be at `named` or newer.
    pub(crate) async fn fetch(
        &self,
        did: &Did,
        note: Note,
        named: NamedHead,
        adopt: bool,
    ) -> Result<(), Trouble> {
        let job = Job {
            did: did.clone(),
            note,
            named,
            adopt,
            imported: false,
        };
        for whole in [false, true] {
            match self.fetch_once(&job, whole).await? {
                Outcome::Written | Outcome::Discarded => return Ok(()),
                Outcome::InFull => {}
            }
        }
        self.failed(did, None).await?;
        Err(Trouble::Failed)
    }

    async fn fetch_once(&self, job: &Job, whole: bool) -> Result<Outcome, Trouble> {
        let did = &job.did;
        let Some((id, repo)) = self.services.store.view().repo_by_did(did)? else {
            return Ok(Outcome::Discarded);
        };
        let tried = self.since_revs.of(did);
        let ask = match whole {
            true => RepoRequest::InFull,
            false => diff::choose_request(
                &self.services.rules.settings,
                &repo,
                &job.note,
                job.adopt,
                tried,
            ),
        };
        let since = match ask {
            RepoRequest::InFull => None,
            RepoRequest::Since(rev) => {
                // Remembered even if no answer ever comes.
                self.since_revs.note(did, rev);
                Some(rev)
            }
        };
        let fetched = match self.download(job, since).await? {
            Download::Whole(fetched) => fetched,
            Download::Heard | Download::CalledOff => return Ok(Outcome::Discarded),
            Download::Empty => return Ok(Outcome::InFull),
        };
        failpoints::here("fetch.downloaded");
        let checked = self.check(job, id, fetched, since.is_some()).await?;
        let snapshot = match checked {
            Ok(snapshot) => snapshot,
            Err(Stop::InFull) => return Ok(Outcome::InFull),
            Err(stop) => return self.give_up(job, stop).await,
        };
        let Some(key) = self.signed_by(job, &snapshot).await? else {
            self.refuse(job, "signature", "it is whole, and not signed by its owner");
            self.failed(did, None).await?;
            return Err(Trouble::Failed);
        };
        failpoints::here("fetch.checked");
        self.write(job, snapshot, key, since.is_some()).await
    }

    /// What the host serves cannot be used: counted, told, and kept with the host.
    fn refuse(&self, job: &Job, class: &'static str, error: &str) {
        let services = &self.services;
        services.metrics.snapshots_refused.inc();
        services.metrics.refused_by_reason.inc(class);
        let host = services.hosts.get(job.note.host);
        let host = host.map(|host| host.name).unwrap_or_default();
        tracing::warn!(
            did = %job.did, host, error,
            "the repository that the host serves is refused; asked for again later"
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

    /// Our own disk failed, or too much arrived at once: no fault of the host's.
    fn failed_here(&self, job: &Job, error: &str) {
        self.services.metrics.fetches_failed_here.inc();
        tracing::error!(
            did = %job.did, error,
            "a repository was fetched and could not be put aside here; asked for again later"
        );
        self.note_local_error(&job.did, error);
    }

    /// Whose fault it is.
    fn spill_failed(&self, job: &Job, error: &SpillError) -> Fault {
        match error {
            SpillError::Bytes(_) => Fault::TooLarge,
            ours if ours.is_ours() => {
                self.failed_here(job, &error.to_string());
                Fault::Ours
            }
            _ => {
                self.refuse(job, error.class(), &error.to_string());
                Fault::Hosts
            }
        }
    }

    /// It has more bytes than are taken of one repository: no fault of the host's.
    async fn too_large(&self, job: &Job) -> Result<Trouble, StoreError> {
        let limit = self.settings.max_repo_bytes;
        let services = &self.services;
        services.metrics.fetches_too_large.inc();
        tracing::warn!(
            did = %job.did, limit,
            "a repository has more bytes than are taken; asked for again in a day, or once fetch.max_repo_bytes is raised"
        );
        let error = format!("it has more than {limit} bytes, which is all that is taken");
        self.note_error(&job.did, error);
        let visit = self.desks.visit(&job.did, move |turn| {
            let now = turn.services.clock.now();
            if let Some(tx) = turn.tx.as_mut() {
                debt::put_off_oversized(now, &mut tx.repo, limit);
                debt::attempt_failed(now, &mut tx.repo, None);
            }
        });
        visit.await?;
        Ok(Trouble::Ours)
    }

    /// The bytes, put aside.
    async fn download(
        &self,
        job: &Job,
        since: Option<gapless_atp::syntax::Rev>,
    ) -> Result<Download, Trouble> {
        let did = &job.did;
        let Some(address) = self.address(job.note.host) else {
            self.failed(did, None).await?;
            return Err(Trouble::Failed);
        };
        let (bytes, min_free) = (
            self.settings.max_repo_bytes,
            self.services.disk.min_free_bytes(),
        );
        let limits = SpillLimits::of_car(IN_MEMORY, bytes, min_free);
        let lease = self.index_budget.lease();
        let mut spill = Spill::new(&self.settings.temp, limits).with_index_lease(lease);
        let mut flaw = None;
        let mut sink = |bytes: &[u8]| {
            spill.feed(bytes).map_err(|error| {
                let told = error.to_string();
                flaw = Some(error);
                told
            })
        };
        let limits = FetchLimits {
            bytes: self.settings.max_repo_bytes,
            ..FetchLimits::default()
        };
        let got = tokio::select! {
            got = self.net.get_repo(&address, did, since, &mut sink, &limits) => got,
            () = self.services.schedule.moved_away(did) => {
                tracing::debug!(%did, "it moved while it was fetched; its new host is asked");
                return Ok(Download::CalledOff);
            }
        };
        let (fault, retry_after) = match got {
            Ok(got) => {
                self.services.metrics.fetched_bytes.add(got.bytes);
                match spill.finish() {
                    Ok(fetched) => return Ok(Download::Whole(fetched)),
                    // An ordinary answer, and held against nobody.
                    Err(error) if since.is_some() && error.has_no_commit() => {
                        return Ok(Download::Empty);
                    }
                    Err(error) => (self.spill_failed(job, &error), None),
                }
            }
            Err(GetRepoError::State(state)) => {
                self.hear(did, job.note, HeadAnswer::State(state), AskReason::Debt)
                    .await?;
                return Ok(Download::Heard);
            }
            Err(GetRepoError::Ask(error)) if error.class == AskClass::TooLarge => {
                (Fault::TooLarge, None)
            }
            Err(GetRepoError::Ask(error)) => {
                self.refused(did, &error);
                (Fault::Hosts, error.retry_after)
            }
            Err(GetRepoError::Sink(told)) => match &flaw {
                Some(error) => (self.spill_failed(job, error), None),
                None => {
                    self.failed_here(job, &told);
                    (Fault::Ours, None)
                }
            },
        };
        if let Fault::TooLarge = fault {
            return Err(self.too_large(job).await?);
        }
        self.failed(did, retry_after).await?;
        Err(match fault {
            Fault::Hosts => Trouble::Failed,
            Fault::Ours | Fault::TooLarge => Trouble::Ours,
        })
    }

    /// Everything but the signature, before anything is written.
    async fn check(
        &self,
        job: &Job,
        id: RepoId,
        fetched: SpilledCar,
        difference: bool,
    ) -> Result<Result<Snapshot, Stop>, Trouble> {
        let _large = match fetched.is_spilled() {
            true => self.large.acquire().await.ok(),
            false => None,
        };
        let (store, did, note) = (self.services.store.clone(), job.did.clone(), job.note);
        let checked = tokio::task::spawn_blocking(move || {
            let snapshot = Snapshot::check(fetched, &did)?;
            if !difference {
                snapshot.walk_whole()?;
                return Ok(snapshot);
            }
            lay(&store.view(), id, &note, snapshot)
        });
        checked.await.map_err(|fault| broken(&job.did, &fault))
    }

    /// Which of the owner's keys signed it, if any did.
    async fn signed_by(
        &self,
        job: &Job,
        snapshot: &Snapshot,
    ) -> Result<Option<SignerKey>, Trouble> {
        let did = &job.did;
        let Some(repo) = self.row(did)? else {
            return Ok(None);
        };
        if verifies(snapshot, present(&repo)) {
            return Ok(Some(SignerKey::Present));
        }
        // Perhaps the key is a newer one than we know.
        if repo
            .signing
            .is_none_or(|signing| signing.asked < job.note.at)
        {
            let asked = self.services.clock.now().tick;
            self.resolve(did, asked, known(&self.services, &repo))
                .await?;
            let Some(repo) = self.row(did)? else {
                return Ok(None);
            };
            if verifies(snapshot, present(&repo)) {
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
                tracing::debug!(%did, %error, "former keys could not be asked for");
                self.failed(did, error.retry_after()).await?;
                Err(Trouble::Failed)
            }
        }
    }

    pub(crate) fn row(&self, did: &Did) -> Result<Option<Repo>, StoreError> {
        let found = self.services.store.view().repo_by_did(did)?;
        Ok(found.map(|(_, repo)| repo))
    }

    async fn give_up(&self, job: &Job, stop: Stop) -> Result<Outcome, Trouble> {
        let did = &job.did;
        match stop {
            Stop::InFull => return Ok(Outcome::InFull),
            Stop::Discarded => {
                self.services.metrics.snapshots_discarded.inc();
                return Ok(Outcome::Discarded);
            }
            Stop::Store(error) => return Err(error.into()),
            Stop::Moved => {
                tracing::debug!(%did, "overtaken again and again; fetched again later");
            }
            Stop::Flawed(error) if error.is_ours() => {
                self.failed_here(job, &error.to_string());
                self.failed(did, None).await?;
                return Err(Trouble::Ours);
            }
            Stop::Flawed(error) => self.refuse(job, error.class(), &error.to_string()),
        }
        self.failed(did, None).await?;
        Err(Trouble::Failed)
    }

    /// Lays a checked snapshot over what is held. When live commits move that
    /// meanwhile, once more.
    async fn write(
        &self,
        job: &Job,
        snapshot: Snapshot,
        key: SignerKey,
        difference: bool,
    ) -> Result<Outcome, Trouble> {
        let mut snapshot = Arc::new(snapshot);
        for _ in 0..TRIES {
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
            let laid = snapshot.clone();
            let written = tokio::task::spawn_blocking(move || writer.write(&laid)).await;
            let written = written.map_err(|fault| broken(&job.did, &fault))?;
            match written {
                Ok(()) => {
                    self.last_errors.clear(&job.did);
                    return Ok(Outcome::Written);
                }
                Err(Stop::Discarded) => return Ok(Outcome::Discarded),
                Err(Stop::Moved) if difference => {
                    // Over another state it must be checked anew.
                    let Ok(only) = Arc::try_unwrap(snapshot) else {
                        return Ok(Outcome::InFull);
                    };
                    match self.lay_anew(job, only).await? {
                        Ok(again) => snapshot = Arc::new(again),
                        Err(stop) => return self.give_up(job, stop).await,
                    }
                }
                Err(Stop::Moved) => {}
                Err(stop) => return self.give_up(job, stop).await,
            }
        }
        self.give_up(job, Stop::Moved).await
    }

    async fn lay_anew(
        &self,
        job: &Job,
        snapshot: Snapshot,
    ) -> Result<Result<Snapshot, Stop>, Trouble> {
        let Some((id, _)) = self.services.store.view().repo_by_did(&job.did)? else {
            return Ok(Err(Stop::Discarded));
        };
        let (store, note) = (self.services.store.clone(), job.note);
        let checked = tokio::task::spawn_blocking(move || lay(&store.view(), id, &note, snapshot));
        checked.await.map_err(|fault| broken(&job.did, &fault))
    }
}

/// A fault of ours. What is owed stays owed.
fn broken(did: &Did, fault: &tokio::task::JoinError) -> Trouble {
    tracing::error!(%did, %fault, "checking or writing a snapshot ended unexpectedly; fetched again later");
    Trouble::Failed
}

pub(crate) fn present(repo: &Repo) -> Option<KeyBytes> {
    repo.signing.and_then(|signing| signing.key)
}

pub(crate) fn verifies(snapshot: &Snapshot, key: Option<KeyBytes>) -> bool {
    let key = key.as_ref().and_then(public_key);
    key.is_some_and(|key| snapshot.verify(&key))
}

/// A difference, laid over what is held.
fn lay(view: &ReadView, id: RepoId, note: &Note, snapshot: Snapshot) -> Result<Snapshot, Stop> {
    let snapshot = snapshot.with_held(held_tree(view, id)?);
    if snapshot.walk_whole().is_ok() {
        return Ok(snapshot);
    }
    let repo = view.repo(id)?;
    let verdict = repo.map(|repo| diff::judge_difference(&repo, note, &snapshot.head(), None));
    Err(match verdict {
        // Live commits came first: what it brings is held, and more.
        Some(DiffVerdict::Passed) => Stop::Discarded,
        // A host that cannot tell differences has not failed.
        _ => Stop::InFull,
    })
}

/// The tree of what is held; without one, the whole is fetched.
fn held_tree(view: &ReadView, id: RepoId) -> Result<HeldTree, Stop> {
    let head = view.repo(id)?.and_then(|repo| repo.head().copied());
    let Some(head) = head else {
        return Err(Stop::InFull);
    };
    match HeldTree::build(view, id, HELD_TREE_BYTES) {
        Ok(Some(tree)) if tree.root() == head.data => Ok(tree),
        Ok(Some(_)) => {
            tracing::error!(
                repo = id.0,
                "the held keys do not hash to the signed root; fetched whole"
            );
            Err(Stop::InFull)
        }
        Ok(None) => Err(Stop::InFull),
        Err(RootError::Store(error)) => Err(Stop::Store(error)),
        Err(RootError::Tree(_)) => Err(Stop::InFull),
    }
}
