//! Imports a repository from a CAR that an operator provides.
//!
//! The CAR passes every check that a fetched CAR passes. It must be signed with the key
//! that the DID document names now, and be newer than the held state. An import proves
//! nothing about being current, so it raises no marker, and the host is asked afterwards.

use std::sync::Arc;

use gapless_atp::repo::Commit;
use gapless_atp::syntax::Did;
use gapless_core::ledger::fetch::{self, CheckedHead, ImportRefusal, Note};
use gapless_core::ledger::{Head, HostId, NamedHead, Repo, SignerKey, cover};
use tokio::runtime::Handle;

use crate::api::{ApiError, ImportAnswer};
use crate::desk::RepoTurn;
use crate::repair::fetch_repo::{Job, NotWritten, WRITE_ATTEMPTS, present_key, verifies};
use crate::repair::snapshot::Snapshot;
use crate::repair::spill::{Spill, SpillError, SpilledCar};
use crate::repair::worker::{Fetcher, WorkGuard, known_identity};
use crate::repair::write_snapshot::Writer;
use crate::schedule::Payee;

/// Turns an error of the spill into the answer to an import.
pub fn spill_error(error: &SpillError) -> ApiError {
    if error.is_ours() {
        ApiError::Unavailable(error.to_string())
    } else {
        ApiError::Invalid(error.to_string())
    }
}

/// Writes repositories from files that an operator provides.
pub struct Importer {
    fetcher: Arc<Fetcher>,
}

impl Importer {
    pub fn new(fetcher: Arc<Fetcher>) -> Importer {
        Importer { fetcher }
    }

    /// The largest file that is imported, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.fetcher.settings.max_repo_bytes
    }

    /// Creates an empty spill that takes the bytes of a file.
    pub fn new_spill(&self) -> Spill {
        self.fetcher.new_spill()
    }

    /// Checks a CAR, and writes its records if the CAR is newer than the held state.
    pub async fn import(&self, car: SpilledCar) -> Result<ImportAnswer, ApiError> {
        let (did, head) = did_and_head(&car)?;
        let (host, repo) = self.importable(&did).await?;
        // Checked here, because the checks that follow take long, and again at the desk.
        let now = self.fetcher.services.clock.last_tick_now();
        fetch::may_import(now, &repo, &head).map_err(|why| refused(&did, why))?;
        if !self.fetcher.services.schedule.begin(&did, host) {
            return Err(ApiError::Conflict(format!(
                "{did} is being compared or fetched at this moment; import it again later"
            )));
        }
        let _guard = WorkGuard(&self.fetcher.services, &did, Payee::Host(host));
        let note = self.take_import_note(&did, host).await?;
        let (snapshot, records) = self.check_import(&did, car).await?;
        self.require_current_key(&did, &note, &snapshot).await?;
        let job = Job {
            did: did.clone(),
            note,
            named: NamedHead {
                rev: head.rev,
                commit: head.commit,
            },
            adopt: false,
            imported: true,
        };
        self.write_imported(&job, snapshot).await?;
        Ok(ImportAnswer {
            did: did.to_string(),
            rev: head.rev.to_string(),
            commit: head.commit.to_string(),
            data: head.data.to_string(),
            records,
        })
    }

    /// Returns the host and the row of a repository that is mirrored here.
    async fn importable(&self, did: &Did) -> Result<(HostId, Repo), ApiError> {
        let row = || self.fetcher.row(did).map_err(ApiError::from);
        let Some(mut repo) = row()?.filter(|repo| !cover::is_bare_name(repo)) else {
            return Err(ApiError::NotFound(format!(
                "{did} is not mirrored here; `gapless track add {did}` adds it"
            )));
        };
        if repo.host.is_none() {
            let asked = self.fetcher.services.clock.now().tick;
            // A failure shows in the row that is read next.
            self.fetcher.handle_result(
                Some(did),
                self.fetcher
                    .resolve(did, asked, known_identity(&self.fetcher.services, &repo))
                    .await,
            );
            repo = row()?.unwrap_or(repo);
        }
        match repo.host {
            Some(host) => Ok((host, repo)),
            None => Err(ApiError::Conflict(format!(
                "the host and the key of {did} are unknown: its DID document cannot be read, \
                 or names no host"
            ))),
        }
    }

    async fn take_import_note(&self, did: &Did, host: HostId) -> Result<Note, ApiError> {
        let change = self
            .fetcher
            .desks
            .with_repo(did, |turn: &mut RepoTurn<'_>| {
                let (services, now) = (turn.services, turn.services.clock.now());
                let repo = &mut turn.tx.as_mut()?.repo;
                services.decide(now, |context| fetch::take_note(context, repo))
            });
        let note = change.await.map_err(ApiError::from)?;
        note.filter(|note| note.host == host).ok_or_else(|| {
            ApiError::Conflict(format!(
                "{did} moved to another host meanwhile; import it again later"
            ))
        })
    }

    /// Checks everything but the signature. Returns the number of records, too.
    async fn check_import(&self, did: &Did, car: SpilledCar) -> Result<(Snapshot, u64), ApiError> {
        let _large = if car.is_spilled() {
            self.fetcher.large.acquire().await.ok()
        } else {
            None
        };
        let owner = did.clone();
        let checked = tokio::task::spawn_blocking(move || {
            let snapshot = Snapshot::check(car, &owner)?;
            let keys = snapshot.walk_whole()?.keys;
            Ok((snapshot, keys))
        });
        match checked.await {
            Ok(Ok(checked)) => Ok(checked),
            Ok(Err(NotWritten::Flawed(error))) if error.is_ours() => {
                Err(ApiError::Internal(error.flaw.to_string()))
            }
            Ok(Err(NotWritten::Flawed(error))) => Err(ApiError::Invalid(format!(
                "the file is not a whole repository: {}",
                error.flaw
            ))),
            Ok(Err(_)) | Err(_) => Err(ApiError::Internal(
                "checking the file ended unexpectedly; the log says more".to_owned(),
            )),
        }
    }

    /// Refuses a snapshot that is not signed with the key in the present DID document.
    async fn require_current_key(
        &self,
        did: &Did,
        note: &Note,
        snapshot: &Snapshot,
    ) -> Result<(), ApiError> {
        for again in [false, true] {
            let repo = self.fetcher.row(did).map_err(ApiError::from)?;
            let repo = repo.unwrap_or_else(|| Repo::new(did.clone()));
            // A key that was stolen and has been replaced since must not count.
            let fresh = repo.signing.is_some_and(|known| known.asked >= note.at);
            if (fresh || again) && verifies(snapshot, present_key(&repo)) {
                return Ok(());
            }
            if fresh || again {
                break;
            }
            let asked = self.fetcher.services.clock.now().tick;
            let resolved = self
                .fetcher
                .resolve(did, asked, known_identity(&self.fetcher.services, &repo))
                .await;
            let unread = resolved.is_err();
            self.fetcher.handle_result(Some(did), resolved);
            if unread {
                return Err(ApiError::Unavailable(format!(
                    "the DID document of {did} could not be read, so its present key is unknown; \
                     import it again later"
                )));
            }
        }
        Err(ApiError::Invalid(format!(
            "the file is not signed by its owner: its signature is not by the key in the present \
             DID document of {did}"
        )))
    }

    async fn write_imported(&self, job: &Job, snapshot: Snapshot) -> Result<(), ApiError> {
        let snapshot = Arc::new(snapshot);
        let head = snapshot.head();
        for _ in 0..WRITE_ATTEMPTS {
            let repo = self.fetcher.row(&job.did).map_err(ApiError::from)?;
            let repo = repo.unwrap_or_else(|| Repo::new(job.did.clone()));
            let now = self.fetcher.services.clock.last_tick_now();
            fetch::may_import(now, &repo, &head).map_err(|why| refused(&job.did, why))?;
            let writer = Writer {
                services: self.fetcher.services.clone(),
                desks: self.fetcher.desks.clone(),
                handle: Handle::current(),
                job: job.clone(),
                told: CheckedHead {
                    head,
                    key: SignerKey::Present,
                },
                difference: false,
            };
            let written = snapshot.clone();
            let result = tokio::task::spawn_blocking(move || writer.write(&written)).await;
            match result {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(NotWritten::Moved)) => {}
                Ok(Err(NotWritten::Discarded | NotWritten::NeedsWhole)) => break,
                Ok(Err(NotWritten::Store(error))) => return Err(error.into()),
                Ok(Err(NotWritten::Flawed(error))) => {
                    return Err(ApiError::Internal(error.flaw.to_string()));
                }
                Err(_) => {
                    return Err(ApiError::Internal(
                        "writing ended unexpectedly; the repository is fetched instead".to_owned(),
                    ));
                }
            }
        }
        Err(ApiError::Conflict(format!(
            "{} changed while it was imported; the held state is as new as the file, or will be",
            job.did
        )))
    }
}

/// Reads the DID and the head from the commit.
fn did_and_head(car: &SpilledCar) -> Result<(Did, Head), ApiError> {
    let commit = Commit::decode(&car.commit_block).map_err(|error| {
        ApiError::Invalid(format!("the root of the file is not a commit: {error}"))
    })?;
    let did = Did::parse(commit.did).map_err(|error| ApiError::Invalid(error.to_string()))?;
    let head = Head {
        rev: commit.rev,
        data: commit.data,
        commit: car.commit_cid,
    };
    Ok((did, head))
}

fn refused(did: &Did, why: ImportRefusal) -> ApiError {
    let why = match why {
        ImportRefusal::Hidden => {
            "the account is not active, and records of inactive accounts are not imported"
        }
        ImportRefusal::Held => "this very commit is held already",
        ImportRefusal::Older => "the held commit is newer, or another commit of the same rev",
        ImportRefusal::Future => "the rev is ahead of the clock, so no commit could follow it",
        ImportRefusal::Abandoned => "the commit belongs to an abandoned lineage",
        ImportRefusal::BeingWritten => "another snapshot is being written; import it again later",
    };
    ApiError::Conflict(format!("{did} is not imported: {why}"))
}
