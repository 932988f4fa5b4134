//! A repository that somebody brings as a file: a snapshot from a stranger.
//!
//! It passes every check that a fetched one does; it must be signed with the key that
//! the DID's document names now, and be newer than what is held. It says nothing about
//! being current, so it raises no marker, and the host is asked afterwards.

use std::sync::Arc;

use gapless_atp::repo::Commit;
use gapless_atp::syntax::Did;
use gapless_core::ledger::fetch::{self, CheckedHead, ImportRefusal, Note};
use gapless_core::ledger::{Head, HostId, NamedHead, Repo, SignerKey, cover};
use tokio::runtime::Handle;

use crate::api::{ApiError, ImportAnswer};
use crate::desk::Turn;
use crate::repair::fetch_repo::{IN_MEMORY, Job, Stop, TRIES, present, verifies};
use crate::repair::snapshot::Snapshot;
use crate::repair::spill::{Spill, SpillError, SpillLimits, SpilledCar};
use crate::repair::worker::{Fetcher, Released, known};
use crate::repair::write_snapshot::Writer;
use crate::schedule::Payee;

/// What came is not taken, in words.
pub fn unfit(error: &SpillError) -> ApiError {
    match error.is_ours() {
        true => ApiError::Unavailable(error.to_string()),
        false => ApiError::Invalid(error.to_string()),
    }
}

impl Fetcher {
    /// Where a file goes as it comes in, with the bounds of a fetched one.
    pub fn import_spill(&self) -> Spill {
        let (bytes, min_free) = (
            self.settings.max_repo_bytes,
            self.services.disk.min_free_bytes(),
        );
        let limits = SpillLimits::of_car(IN_MEMORY, bytes, min_free);
        Spill::new(&self.settings.temp, limits).with_index_lease(self.index_budget.lease())
    }

    /// Checks what came, and writes it if it is newer than what is held.
    pub async fn import(&self, fetched: SpilledCar) -> Result<ImportAnswer, ApiError> {
        let (did, head) = owner(&fetched)?;
        let (host, repo) = self.importable(&did).await?;
        // At once, since checking takes long; and again at the desk.
        let now = self.services.clock.glance();
        fetch::may_import(now, &repo, &head).map_err(|why| refused(&did, why))?;
        if !self.services.schedule.begin(&did, host) {
            return Err(ApiError::Conflict(format!(
                "{did} is being compared or fetched at this moment; import it again in a while"
            )));
        }
        // Whatever happens, others may work for it afterwards.
        let _released = Released(&self.services, &did, Payee::Host(host));
        let note = self.noted(&did, host).await?;
        let (snapshot, records) = self.checked(&did, fetched).await?;
        self.signed_now(&did, &note, &snapshot).await?;
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

    /// The repository, if it is mirrored here and lives somewhere.
    async fn importable(&self, did: &Did) -> Result<(HostId, Repo), ApiError> {
        let row = || self.row(did).map_err(ApiError::from);
        let Some(mut repo) = row()?.filter(|repo| !cover::is_bare_name(repo)) else {
            return Err(ApiError::NotFound(format!(
                "{did} is not mirrored here; `gapless track add {did}` makes it be followed"
            )));
        };
        if repo.host.is_none() {
            let asked = self.services.clock.now().tick;
            // What goes wrong shows in the row that is read next.
            self.see_to(self.resolve(did, asked, known(&self.services, &repo)).await);
            repo = row()?.unwrap_or(repo);
        }
        match repo.host {
            Some(host) => Ok((host, repo)),
            None => Err(ApiError::Conflict(format!(
                "where {did} lives could not be found out, and so neither who may sign for it: \
                 its document cannot be read, or names no host"
            ))),
        }
    }

    async fn noted(&self, did: &Did, host: HostId) -> Result<Note, ApiError> {
        let visit = self.desks.visit(did, |turn: &mut Turn<'_>| {
            let (services, now) = (turn.services, turn.services.clock.now());
            let repo = &mut turn.tx.as_mut()?.repo;
            services.decide(now, |context| fetch::take_note(context, repo))
        });
        let note = visit.await.map_err(ApiError::from)?;
        note.filter(|note| note.host == host).ok_or_else(|| {
            ApiError::Conflict(format!("{did} moved meanwhile; import it again in a while"))
        })
    }

    /// Everything but the signature.
    async fn checked(&self, did: &Did, fetched: SpilledCar) -> Result<(Snapshot, u64), ApiError> {
        let _large = match fetched.is_spilled() {
            true => self.large.acquire().await.ok(),
            false => None,
        };
        let asked = did.clone();
        let checked = tokio::task::spawn_blocking(move || {
            let snapshot = Snapshot::check(fetched, &asked)?;
            let keys = snapshot.walk_whole()?.keys;
            Ok((snapshot, keys))
        });
        match checked.await {
            Ok(Ok(checked)) => Ok(checked),
            Ok(Err(Stop::Flawed(error))) if error.is_ours() => {
                Err(ApiError::Internal(error.flaw.to_string()))
            }
            Ok(Err(Stop::Flawed(error))) => Err(ApiError::Invalid(format!(
                "the file is not a whole repository: {}",
                error.flaw
            ))),
            Ok(Err(_)) | Err(_) => Err(ApiError::Internal(
                "checking the file ended unexpectedly; the log may tell more".to_owned(),
            )),
        }
    }

    /// Signed with the key that the document names now.
    async fn signed_now(
        &self,
        did: &Did,
        note: &Note,
        snapshot: &Snapshot,
    ) -> Result<(), ApiError> {
        for again in [false, true] {
            let repo = self.row(did).map_err(ApiError::from)?;
            let repo = repo.unwrap_or_else(|| Repo::new(did.clone()));
            // A key that was stolen, and given up since, must not count.
            let fresh = repo.signing.is_some_and(|known| known.asked >= note.at);
            if (fresh || again) && verifies(snapshot, present(&repo)) {
                return Ok(());
            }
            if fresh || again {
                break;
            }
            let asked = self.services.clock.now().tick;
            let resolved = self.resolve(did, asked, known(&self.services, &repo)).await;
            let unread = resolved.is_err();
            self.see_to(resolved);
            if unread {
                return Err(ApiError::Unavailable(format!(
                    "the document of {did} could not be read, so that its key of now is not known: \
                     import it again in a while"
                )));
            }
        }
        Err(ApiError::Invalid(format!(
            "the file is not signed by its owner: the key that the document of {did} names now \
             did not sign it"
        )))
    }

    async fn write_imported(&self, job: &Job, snapshot: Snapshot) -> Result<(), ApiError> {
        let snapshot = Arc::new(snapshot);
        let head = snapshot.head();
        for _ in 0..TRIES {
            let repo = self.row(&job.did).map_err(ApiError::from)?;
            let repo = repo.unwrap_or_else(|| Repo::new(job.did.clone()));
            let now = self.services.clock.glance();
            fetch::may_import(now, &repo, &head).map_err(|why| refused(&job.did, why))?;
            let writer = Writer {
                services: self.services.clone(),
                desks: self.desks.clone(),
                handle: Handle::current(),
                job: job.clone(),
                told: CheckedHead {
                    head,
                    key: SignerKey::Present,
                },
                difference: false,
            };
            let laid = snapshot.clone();
            let written = tokio::task::spawn_blocking(move || writer.write(&laid)).await;
            match written {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Stop::Moved)) => {}
                Ok(Err(Stop::Discarded | Stop::InFull)) => break,
                Ok(Err(Stop::Store(error))) => return Err(error.into()),
                Ok(Err(Stop::Flawed(error))) => {
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
            "{} moved on while it was imported; what is held now is as new, or will be",
            job.did
        )))
    }
}

/// Whose repository it says it is, and at which commit.
fn owner(fetched: &SpilledCar) -> Result<(Did, Head), ApiError> {
    let commit = Commit::decode(&fetched.commit_block).map_err(|error| {
        ApiError::Invalid(format!("the root of the file is no commit: {error}"))
    })?;
    let did = Did::parse(commit.did).map_err(|error| ApiError::Invalid(error.to_string()))?;
    let head = Head {
        rev: commit.rev,
        data: commit.data,
        commit: fetched.commit_cid,
    };
    Ok((did, head))
}

fn refused(did: &Did, why: ImportRefusal) -> ApiError {
    let why = match why {
        ImportRefusal::Hidden => {
            "its account is not active, and nothing is taken in for it meanwhile"
        }
        ImportRefusal::Held => "this very commit is held already",
        ImportRefusal::Older => "what is held is newer, or another commit of the same rev",
        ImportRefusal::Future => "its rev is ahead of the clock, so that nothing could follow it",
        ImportRefusal::Abandoned => "it belongs to a line of commits that was given up",
        ImportRefusal::BeingWritten => {
            "another snapshot is being written; import it again in a while"
        }
    };
    ApiError::Conflict(format!("{did} is not imported: {why}"))
}
