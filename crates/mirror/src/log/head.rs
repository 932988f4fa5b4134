//! The durable end of the log, for any number of readers.
//!
//! The store announces new numbers to one listener. [`LogHead`] is that listener, and passes the
//! end of the log on to every subscriber. A subscriber that lags sees only the newest end.

use gapless_store::Store;
use tokio::sync::watch;

/// The number after the last durable one, as a value that readers can wait for.
#[derive(Clone)]
pub(crate) struct LogHead(watch::Sender<u64>);

impl LogHead {
    /// Becomes the listener of a store that has none yet.
    pub(crate) fn listen_to(store: &Store) -> LogHead {
        let head = LogHead(watch::Sender::new(store.durable_head().next_seq));
        let announced = head.clone();
        let first = store.on_durable(move |durable| announced.advance(durable.next_seq));
        assert!(first, "the store has another listener");
        // What became durable before the listener was set was not announced.
        head.advance(store.durable_head().next_seq);
        head
    }

    /// Subscribes to the number after the last durable one. A view of the store that is taken
    /// after a change shows at least every smaller number.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    fn advance(&self, to: u64) {
        self.0.send_if_modified(|next| {
            let more = to > *next;
            *next = to.max(*next);
            more
        });
    }
}
