//! The position of a consumer whose effects lie outside of the store.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::retain::{Consumer, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_store::Store;
use gapless_store::change::{Change, ConsumerChange};
use gapless_store::error::StoreError;

use crate::clock::Clock;

/// A consumer of the log, as it registers.
#[derive(Clone, Debug)]
pub struct ConsumerInfo {
    pub key: ConsumerKey,
    /// The name that operators see.
    pub name: String,
    pub needs: ConsumerNeeds,
}

/// Tells the store that a consumer has processed everything below `next`. Registers the consumer if
/// the store does not know it. Call it after the consumer's own effects are durable. Blocks until the
/// position is durable.
pub(crate) fn report_position(
    store: &Arc<Store>,
    clock: &Clock,
    hold: Duration,
    info: &ConsumerInfo,
    next: u64,
) -> Result<(), StoreError> {
    let now = clock.now();
    let at = When {
        time: now.time,
        lived: now.lived,
    };
    let view = store.view();
    let log = view.ids()?.map(|ids| ids.log);
    let ConsumerInfo { key, name, needs } = info.clone();
    let known = view.consumers()?.contains_key(&key);
    let change = if known {
        ConsumerChange::Move {
            key,
            next,
            holds_from: next,
            log,
            at,
        }
    } else {
        let consumer = Consumer {
            name,
            next,
            holds_from: next,
            registered: at,
            moved: at,
            hold: Hold::For(hold),
            needs,
            overrun: false,
        };
        ConsumerChange::Register { key, consumer, log }
    };
    drop(view);
    store.write(Change {
        tick: now.tick,
        consumer: Some(change),
        ..Change::default()
    })?;
    Ok(())
}
