//! Resolves unknown repositories that an upstream brought after it had reached its limit of
//! newcomers. The directory is asked before a row is written. Few requests run at the same
//! time, so that other resolutions are not delayed.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use gapless_atp::syntax::Did;
use gapless_net::KnownIdentity;
use gapless_store::error::StoreError;

use crate::desk::{RepoTurn, begin_first_sighting};
use crate::discover::{CHECK_EVERY, Discovery};

/// Repositories that are resolved at the same time.
const CONCURRENT_LOOKUPS: usize = 4;

/// Resolves newcomers until the program shuts down.
pub(crate) async fn run(discovery: Arc<Discovery>) {
    let services = discovery.services.clone();
    let mut asking = FuturesUnordered::new();
    while !services.shutdown.has_begun() {
        while asking.len() < CONCURRENT_LOOKUPS
            && let Some(did) = services.admission.newcomers.take()
        {
            asking.push(ask(discovery.clone(), did));
        }
        tokio::select! {
            Some(asked) = asking.next() => match asked {
                Err(error) if error.is_final() => {
                    // The store cannot be written; the task that saw it has reported it.
                    return;
                }
                // The repository comes again with its next event or with a sweep.
                Ok(()) | Err(_) => {}
            },
            () = services.admission.newcomers.arrived.notified(), if asking.len() < CONCURRENT_LOOKUPS => {}
            () = tokio::time::sleep(CHECK_EVERY) => {}
            () = services.shutdown.begun() => return,
        }
    }
}

/// Resolves a repository, and adds a row with a debt if the directory knows it.
async fn ask(discovery: Arc<Discovery>, did: Did) -> Result<(), StoreError> {
    let metrics = &discovery.services.metrics;
    metrics.resolutions.inc();
    let Ok(document) = discovery
        .fetcher
        .net
        .resolve(&did, KnownIdentity::default())
        .await
    else {
        metrics.resolution_failures.inc();
        return Ok(());
    };
    if document.tombstoned || document.host.is_none() {
        return Ok(());
    }
    metrics.newcomers_known.inc();
    let change = discovery.desks.with_repo(&did, |turn: &mut RepoTurn<'_>| {
        if turn.tx.is_none() {
            turn.tx = Some(begin_first_sighting(turn.services, turn.did));
        }
    });
    change.await
}
