//! Confirms deletions that only a relay has reported. A sweep of the host did not find the
//! repositories; this module counts whether the host has lost others, too.

use std::sync::Arc;

use gapless_core::ledger::deletion::{self, Residents};
use gapless_store::error::StoreError;

use crate::desk::RepoTurn;
use crate::repair::reload::{hosted_repos, read_repos};
use crate::store_io::blocking;
use crate::sweep::{SweepRun, Sweeper};

impl Sweeper {
    /// Confirms the deletions that wait for this sweep. Counts nothing if there are none.
    pub(crate) async fn confirm_deletions(&self, sweep: &SweepRun) -> Result<(), StoreError> {
        if sweep.awaiting_deletion.is_empty() {
            return Ok(());
        }
        let residents = Arc::new(self.residents(sweep).await?);
        let (host, began) = (sweep.host, sweep.began.tick);
        let row = self.fetcher.services.hosts.get(host).unwrap_or_default();
        for did in &sweep.awaiting_deletion {
            let (residents, swept) = (residents.clone(), row.clone());
            let change = self
                .fetcher
                .desks
                .with_repo(did, move |turn: &mut RepoTurn<'_>| {
                    let now = turn.services.clock.now();
                    let tx = turn.tx.as_mut();
                    tx.is_some_and(|tx| {
                        let repo = &mut tx.repo;
                        deletion::sweep_missed(now, repo, (host, &swept), began, &residents)
                    })
                });
            if change.await? {
                tracing::info!(
                    %did, host = %row.name,
                    "deleted: a relay said so, and its host lacks this repository but has the others"
                )
            } else {
                tracing::debug!(%did, host = %row.name, "deletion reported by a relay, but not confirmed by the host")
            }
        }
        Ok(())
    }

    async fn residents(&self, sweep: &SweepRun) -> Result<Residents, StoreError> {
        let store = self.fetcher.services.store.clone();
        let (host, began) = (sweep.host, sweep.began.tick);
        let missing = sweep.missing.clone();
        let count = move || {
            let mut residents = Residents::default();
            for repo in read_repos(&store, &hosted_repos(&store, host)?) {
                let repo = repo?;
                residents.add(&repo, began, !missing.contains(&repo.did));
            }
            Ok(residents.counted())
        };
        let metrics = &self.fetcher.services.metrics;
        blocking(metrics, "counting the residents of a host", count).await
    }
}
