//! Reports damage: held data that is not what its owner signed. The damage is logged and counted,
//! the ledger marks the repository as damaged, and its host is asked for the whole repository
//! again. A damaged repository is not served.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Head, damage};
use gapless_store::error::StoreError;

use crate::desk::{Desks, RepoTurn};
use crate::services::Services;

/// Logs and counts the damage, and marks the repository as damaged unless it has moved
/// on from `head` meanwhile.
pub async fn report(services: &Services, desks: &Desks, did: &Did, head: Head, why: &str) {
    services.metrics.damaged.inc();
    tracing::error!(%did, rev = %head.rev, why, "held data is not what the owner signed; the repository is not served until it is fetched again");
    let marked = desks.with_repo(did, move |turn: &mut RepoTurn<'_>| {
        let now = turn.services.clock.now();
        if let Some(tx) = turn.tx.as_mut()
            && tx.repo.head() == Some(&head)
        {
            damage::distrust(now, &mut tx.repo, &head);
        }
    });
    if let Err(error) = marked.await
        && !matches!(error, StoreError::Closed)
    {
        tracing::error!(%did, %error, "damage not recorded; the next read of this repository reports it again");
    }
}
