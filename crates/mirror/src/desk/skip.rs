//! Events that are not wanted: only the cursor moves, as soon as the disk has room for that
//! change.

use std::time::Instant;

use gapless_store::change::Change;
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;

use crate::desk::ack::FULL_DISK_RETRY;
use crate::desk::route::Item;
use crate::desk::worker::Worker;

impl Worker {
    /// Submits a change that moves the cursor past an event.
    pub(crate) fn submit_skip(&mut self, position: EventPosition) {
        let (services, inbox) = (self.services.clone(), self.inbox.clone());
        let change = Change {
            done: Some(position),
            ..Change::default()
        };
        self.services
            .store
            .submit(change, move |result| match result {
                Ok(_) => {}
                Err(error) if error.is_final() => services.shutdown.fail(error),
                // The cursor waits for this position, so the skip is tried again.
                Err(error) => inbox.push(Item::SkipFailed(position, error)),
            });
    }

    /// Notes a skip that the store refused. It is tried again after [`FULL_DISK_RETRY`].
    pub(crate) fn note_refused_skip(&mut self, position: EventPosition, error: &StoreError) {
        match error {
            StoreError::Full(full) => self.services.disk.refused(self.services.clock.time(), full),
            error => {
                self.services.metrics.refused_changes.inc();
                tracing::error!(
                    upstream = position.upstream.0, seq = position.seq, %error,
                    "the store refused to move the cursor past an event that is not wanted; the desk tries again"
                );
            }
        }
        self.refused_skips.push(position);
        self.retry_at = Instant::now() + FULL_DISK_RETRY;
    }

    /// Submits the refused skips again.
    pub(crate) fn retry_skips(&mut self) {
        for position in std::mem::take(&mut self.refused_skips) {
            self.submit_skip(position);
        }
    }
}
