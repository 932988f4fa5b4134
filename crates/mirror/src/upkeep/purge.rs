//! Purges repositories that their present host, or the directory, called deleted, once they have
//! stayed so for the grace period.
//!
//! A purge begins at the repository's desk: from then on nothing of the repository is shown, and
//! nothing is written to it. The records are then deleted in parts, each a change of its own, and
//! the desk ends the purge. The store has the progress, so a purge continues after a crash.

use std::collections::BTreeMap;
use std::time::Duration;

use gapless_core::ledger::{Held, Repo, RepoId, account};
use gapless_store::Store;
use gapless_store::change::Upkeep;
use gapless_store::error::StoreError;
use gapless_store::table::purge::PurgeRow;

use crate::desk::RepoTurn;
use crate::failpoints;
use crate::services::Services;
use crate::store_io::blocking;
use crate::upkeep::{UpkeepTask, report_error};

/// The name of the reads of this module in the log.
const PURGE_SEARCH: &str = "looking for repositories to purge";

/// The engine is flushed after so many parts of a purge, which bounds the memory that a purge takes.
const PARTS_PER_FLUSH: u32 = 16;

/// What a search for repositories to purge found, by their DIDs.
#[derive(Default)]
struct Found {
    due: Vec<gapless_atp::syntax::Did>,
    /// Deletions that an earlier version noted, whose grace period has to begin.
    lacking_grace: Vec<gapless_atp::syntax::Did>,
}

/// Whether anything is stored of a repository: records, parked frames or claims.
fn has_anything(services: &Services, id: RepoId, repo: &Repo) -> Result<bool, StoreError> {
    if repo.held != Held::Nothing {
        return Ok(true);
    }
    let view = services.store.view();
    Ok(!view.parked(id)?.is_empty() || view.claims(id).next().transpose()?.is_some())
}

impl UpkeepTask {
    /// Continues the purges that are under way, and begins those that are due.
    pub(super) async fn purge(&self) -> Result<(), StoreError> {
        self.continue_purges().await?;
        let grace = self.settings.purge_grace;
        let found = self.find_due(grace).await?;
        for did in found.lacking_grace {
            let begun = self.desks.with_repo(&did, |turn: &mut RepoTurn<'_>| {
                let now = turn.services.clock.now();
                if let Some(tx) = turn.tx.as_mut() {
                    account::begin_lacking_grace(now, &mut tx.repo);
                }
            });
            begun.await?;
        }
        let mut begun = false;
        for did in found.due {
            let purged = self.desks.with_repo(&did, move |turn: &mut RepoTurn<'_>| {
                begin_purge(turn, grace)
            });
            match purged.await {
                Ok(true) => {
                    begun = true;
                    tracing::info!(%did, "purged: the repository was deleted, and the grace period has passed");
                }
                Ok(false) => {}
                // An error of one repository does not stop the others.
                Err(error) => report_error(&self.services, error),
            }
        }
        if begun {
            self.continue_purges().await?;
        }
        Ok(())
    }

    async fn find_due(&self, grace: Duration) -> Result<Found, StoreError> {
        let services = self.services.clone();
        let find = move || {
            let mut found = Found::default();
            let believed = services.clock.is_believed(grace);
            let now = services.clock.last_tick_now();
            for row in services.store.scan_repos(RepoId(0)) {
                let (id, repo) = row?;
                if account::lacks_grace(now, &repo) {
                    found.lacking_grace.push(repo.did);
                } else if believed
                    && account::is_purge_due(now, &repo, grace)
                    && has_anything(&services, id, &repo)?
                {
                    found.due.push(repo.did);
                }
            }
            Ok::<_, StoreError>(found)
        };
        blocking(&self.services.metrics, PURGE_SEARCH, find).await
    }

    /// Deletes what is left of the repositories whose purge has begun, part after part.
    async fn continue_purges(&self) -> Result<(), StoreError> {
        let store = self.services.store.clone();
        let under_way = blocking(&self.services.metrics, PURGE_SEARCH, move || {
            purges_under_way(&store)
        });
        for (number, purge) in under_way.await?.into_values() {
            if self.services.shutdown.has_begun() {
                return Ok(());
            }
            // An error of one repository does not stop the others.
            if let Err(error) = self.continue_purge(number, purge).await {
                report_error(&self.services, error);
            }
        }
        Ok(())
    }

    /// Deletes what a purge has left to delete, and ends the purge.
    async fn continue_purge(&self, number: u64, mut purge: PurgeRow) -> Result<(), StoreError> {
        let mut parts = 0_u32;
        while purge.deleting.is_some() {
            parts += 1;
            if parts.is_multiple_of(PARTS_PER_FLUSH) {
                self.flush_engine().await?;
            }
            if self.services.shutdown.has_begun() {
                return Ok(());
            }
            let at = self.when();
            self.write(Upkeep::DeletePurged { purge: number, at })
                .await?;
            failpoints::here("purge.between");
            let Some(after) = self.read_purge(number).await? else {
                return Ok(());
            };
            purge = after;
        }
        let ended = self.desks.with_repo(&purge.did, |turn: &mut RepoTurn<'_>| {
            if let Some(tx) = turn.tx.as_mut() {
                tx.end_purge();
            }
        });
        ended.await
    }

    /// Writes what the engine buffers into tables. Otherwise a large purge would fill its buffers.
    async fn flush_engine(&self) -> Result<(), StoreError> {
        let Some(scourer) = self.services.store.scourer() else {
            return Ok(());
        };
        blocking(&self.services.metrics, "flushing amid a purge", move || {
            Ok(scourer.flush()?)
        })
        .await?;
        Ok(())
    }

    /// Reads the row of a purge, by the purge's first log number.
    pub(super) async fn read_purge(&self, number: u64) -> Result<Option<PurgeRow>, StoreError> {
        let store = self.services.store.clone();
        blocking(&self.services.metrics, PURGE_SEARCH, move || {
            let row = store.view().purges(number).next().transpose()?;
            Ok(row
                .filter(|(found, _)| *found == number)
                .map(|(_, row)| row))
        })
        .await
    }
}

/// The last purge of each repository whose purge has not ended. A purge is finished only after it
/// has ended.
fn purges_under_way(store: &Store) -> Result<BTreeMap<RepoId, (u64, PurgeRow)>, StoreError> {
    let view = store.view();
    let mut under_way = BTreeMap::new();
    for row in view.purges(0) {
        let (number, purge) = row?;
        if purge.finished_at.is_none() && view.repo(purge.repo)?.is_some_and(|repo| repo.purging) {
            under_way.insert(purge.repo, (number, purge));
        }
    }
    Ok(under_way)
}

/// Begins a purge at the repository's desk, if it is still due.
fn begin_purge(turn: &mut RepoTurn<'_>, grace: Duration) -> bool {
    let services = turn.services;
    let now = services.clock.now();
    let Some(tx) = turn.tx.as_mut() else {
        return false;
    };
    // The repository may have come back meanwhile, or the clock was set.
    let due = account::is_purge_due(now, &tx.repo, grace) && services.clock.is_believed(grace);
    let Some(id) = tx.id.filter(|_| due) else {
        return false;
    };
    // If the rows cannot be read now, the next search tries again.
    if !has_anything(services, id, &tx.repo).unwrap_or(false) {
        return false;
    }
    tx.purge(now);
    services.metrics.purged.inc();
    true
}
