//! Names that an upstream told of after it had told of too many: the directory is asked
//! before anything is written down, few at a time, so that all else is asked as well.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use gapless_atp::syntax::Did;
use gapless_net::KnownIdentity;
use gapless_store::error::StoreError;

use crate::desk::{Turn, first_heard};
use crate::discover::{CHECK_EVERY, Discovery};

/// Names that the directory is asked about at a time.
const CONCURRENT_LOOKUPS: usize = 4;

pub async fn run(discovery: Arc<Discovery>) {
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
                    // Nothing can be written any more: whoever saw that says so.
                    return;
                }
                // It comes with its next event, or with a sweep.
                Ok(()) | Err(_) => {}
            },
            () = services.admission.newcomers.arrived.notified(), if asking.len() < CONCURRENT_LOOKUPS => {}
            () = tokio::time::sleep(CHECK_EVERY) => {}
            () = services.shutdown.begun() => return,
        }
    }
}

/// Asks about one, and writes it down if the directory knows it: from then on it is owed.
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
    let visit = discovery.desks.visit(&did, |turn: &mut Turn<'_>| {
        if turn.draft.is_none() {
            turn.draft = Some(first_heard(turn.services, turn.did));
        }
    });
    visit.await
}
