//! What is counted from many rows of the store: what is owed, and how many
//! repositories a host has.
//!
//! First the numbers of the repositories are read, which takes a moment, then their
//! rows, some at a time and each part from a view of its own: a view that stays open
//! keeps all that is written meanwhile in memory.

use gapless_atp::syntax::Did;
use gapless_core::ledger::rollback::BehindShare;
use gapless_core::ledger::{HostId, Repo, RepoId};
use gapless_store::error::StoreError;
use gapless_store::store::Store;

use crate::repair::worker::Fetcher;
use crate::services::Services;
use crate::store_io::blocking;

/// Rows that are read from one view.
const AT_A_TIME: usize = 1_000;
impl Fetcher {
    /// How many repositories a host has, and with how many it is behind: one may be
    /// rolled back by itself, many are an accident of the host's.
    pub(crate) async fn census(&self, host: HostId) -> Result<BehindShare, StoreError> {
        let now = self.services.clock.time();
        if let Some(census) = self.services.hosts.behind_counts.get(now, host) {
            return Ok(census);
        }
        let store = self.services.store.clone();
        let count = move || census(&store, host);
        let census = blocking(
            &self.services.metrics,
            "counting the repositories of a host",
            count,
        )
        .await?;
        Ok(self.services.hosts.behind_counts.counted(now, host, census))
    }
}

fn census(store: &Store, host: HostId) -> Result<BehindShare, StoreError> {
    let mut census = BehindShare::default();
    each(store, &hosted(store, host)?, |repo| {
        census.repos += 1;
        census.behind += u64::from(repo.behind.is_some());
    })?;
    Ok(census)
}

/// The repositories of a host.
pub fn hosted(store: &Store, host: HostId) -> Result<Vec<RepoId>, StoreError> {
    store.view().hosted(host).collect()
}

/// Reads what is owed from the store into the schedule.
pub fn read_debts(services: &Services) -> Result<(), StoreError> {
    let now = services.clock.time();
    let owing: Result<Vec<RepoId>, StoreError> = {
        let debts = services.store.view().debts();
        debts.map(|row| row.map(|(id, _)| id)).collect()
    };
    each(&services.store, &owing?, |repo| {
        services.schedule.found(now, &repo);
    })
}

/// Repositories that were too large when less than so much was taken of one.
pub fn too_large(store: &Store, limit: u64) -> Result<Vec<Did>, StoreError> {
    let mut large = Vec::new();
    for row in store.view().debts() {
        let (id, debt) = row?;
        if debt.is_too_large_for_less_than(limit) {
            large.push(id);
        }
    }
    let mut dids = Vec::new();
    each(store, &large, |repo| dids.push(repo.did))?;
    Ok(dids)
}

/// Looks at the rows of these.
pub fn each(store: &Store, ids: &[RepoId], mut look: impl FnMut(Repo)) -> Result<(), StoreError> {
    for some in ids.chunks(AT_A_TIME) {
        let view = store.view();
        for id in some {
            if let Some(repo) = view.repo(*id)? {
                look(repo);
            }
        }
    }
    Ok(())
}
