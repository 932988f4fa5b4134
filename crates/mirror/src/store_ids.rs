//! Gives a store its identities: which log it has, and which folder it is.

use std::sync::Arc;

use gapless_store::Store;
use gapless_store::change::{Change, LogId, StoreIds, Upkeep};
use gapless_store::error::StoreError;

use crate::store_io::write;

/// Writes random identities to a store that has none: a new one, or one of an earlier format. On a
/// full disk the next start does so; until then no consumer of the log can register with a log.
pub(crate) async fn ensure_ids(store: &Arc<Store>) -> Result<(), StoreError> {
    if store.view().ids()?.is_some() {
        return Ok(());
    }
    let ids = StoreIds {
        log: LogId(random()?),
        store: random()?,
    };
    let change = Change {
        upkeep: Some(Upkeep::Identify(ids)),
        ..Change::default()
    };
    match write(store, change).await {
        Ok(_) => {
            tracing::info!(log = %ids.log, "the log has got its identity");
            Ok(())
        }
        Err(StoreError::Full(full)) => {
            tracing::warn!(error = %full, "the log gets its identity at the next start");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn random() -> Result<[u8; 16], StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        StoreError::System(format!("the system gives no random bytes: {error}").into())
    })?;
    Ok(bytes)
}
