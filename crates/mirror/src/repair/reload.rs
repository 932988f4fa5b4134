//! Reads what repairs need from many rows of the store: the debts for the schedule, and the
//! share of a host's repositories that is behind.

use gapless_atp::syntax::Did;
use gapless_core::ledger::rollback::BehindShare;
use gapless_core::ledger::{HostId, Repo, RepoId};
use gapless_store::error::StoreError;
use gapless_store::scan::ROWS_PER_VIEW;
use gapless_store::store::Store;

use crate::services::Services;
use crate::store_io::blocking;

/// Returns the numbers of the repositories of a host.
pub(crate) fn hosted_repos(store: &Store, host: HostId) -> Result<Vec<RepoId>, StoreError> {
    store.view().hosted(host).collect()
}

/// Reads the rows of these repositories. A repository without a row is skipped.
pub(crate) fn read_repos(
    store: &Store,
    ids: &[RepoId],
) -> impl Iterator<Item = Result<Repo, StoreError>> {
    ids.chunks(ROWS_PER_VIEW).flat_map(|chunk| {
        let view = store.view();
        chunk
            .iter()
            .filter_map(move |id| view.repo(*id).transpose())
    })
}

/// Returns how many repositories a host has, and for how many of them the host is
/// behind. A rollback of one repository may be right; a rollback of many is an
/// accident of the host.
pub(super) async fn behind_share(
    services: &Services,
    host: HostId,
) -> Result<BehindShare, StoreError> {
    let now = services.clock.time();
    if let Some(share) = services.hosts.behind_counts.get(now, host) {
        return Ok(share);
    }
    let store = services.store.clone();
    let count = move || count_behind(&store, host);
    let work = "counting the repositories of a host";
    let share = blocking(&services.metrics, work, count).await?;
    let behind_counts = &services.hosts.behind_counts;
    Ok(behind_counts.record_count(now, host, share))
}

fn count_behind(store: &Store, host: HostId) -> Result<BehindShare, StoreError> {
    let mut share = BehindShare::default();
    for repo in read_repos(store, &hosted_repos(store, host)?) {
        share.repos += 1;
        share.behind += u64::from(repo?.behind.is_some());
    }
    Ok(share)
}

/// Reads all debts from the store into the schedule.
pub fn read_debts(services: &Services) -> Result<(), StoreError> {
    let now = services.clock.time();
    let owing: Result<Vec<RepoId>, StoreError> = {
        let debts = services.store.view().debts();
        debts.map(|row| row.map(|(id, _)| id)).collect()
    };
    for repo in read_repos(&services.store, &owing?) {
        services.schedule.note_reloaded(now, &repo?);
    }
    Ok(())
}

/// Returns the repositories that were put off as too large under a limit below `limit`.
pub(super) fn oversized_repos(store: &Store, limit: u64) -> Result<Vec<Did>, StoreError> {
    let mut oversized = Vec::new();
    for row in store.view().debts() {
        let (id, debt) = row?;
        if debt.is_too_large_for_less_than(limit) {
            oversized.push(id);
        }
    }
    let repos = read_repos(store, &oversized);
    repos.map(|repo| Ok(repo?.did)).collect()
}
