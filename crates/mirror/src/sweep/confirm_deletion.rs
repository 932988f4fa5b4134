//! Deletions that only a relay has told of: does a sweep of their host bear them out?
//! The sweep has missed them; whether the host has lost more than them is counted here.

use std::sync::Arc;

use gapless_core::ledger::deletion::{self, Residents};
use gapless_store::error::StoreError;

use crate::desk::Turn;
use crate::repair::reload;
use crate::store_io::blocking;
use crate::sweep::{Sweep, Sweeper};

impl Sweeper {
    /// A sweep went through. Nothing is counted unless somebody waits for it.
    pub(crate) async fn see_deleted(&self, sweep: &Sweep) -> Result<(), StoreError> {
        if sweep.awaiting.is_empty() {
            return Ok(());
        }
        let residents = Arc::new(self.residents(sweep).await?);
        let (host, began) = (sweep.host, sweep.began.tick);
        let row = self.fetcher.services.hosts.get(host).unwrap_or_default();
        for did in &sweep.awaiting {
            let (residents, swept) = (residents.clone(), row.clone());
            let visit = self.fetcher.desks.visit(did, move |turn: &mut Turn<'_>| {
                let now = turn.services.clock.now();
                let tx = turn.tx.as_mut();
                tx.is_some_and(|tx| {
                    let repo = &mut tx.repo;
                    deletion::sweep_missed(now, repo, (host, &swept), began, &residents)
                })
            });
            match visit.await? {
                true => tracing::info!(
                    %did, host = %row.name,
                    "deleted: a relay said so, and its host has it no more and all else"
                ),
                false => tracing::debug!(%did, host = %row.name, "deleted, unconfirmed"),
            }
        }
        Ok(())
    }

    async fn residents(&self, sweep: &Sweep) -> Result<Residents, StoreError> {
        let store = self.fetcher.services.store.clone();
        let (host, began) = (sweep.host, sweep.began.tick);
        let missing = sweep.missing.clone();
        let count = move || {
            let mut residents = Residents::default();
            reload::each(&store, &reload::hosted(&store, host)?, |repo| {
                residents.add(&repo, began, !missing.contains(&repo.did));
            })?;
            Ok(residents.counted())
        };
        let metrics = &self.fetcher.services.metrics;
        blocking(metrics, "counting the residents of a host", count).await
    }
}
