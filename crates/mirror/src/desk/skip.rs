//! Events that concern nobody here: only the cursor moves, as soon as there is room
//! to write that down.

use std::time::Instant;

use gapless_store::change::Change;
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;

use crate::desk::Item;
use crate::desk::ack::NO_ROOM_PAUSE;
use crate::desk::worker::Worker;

impl Worker {
    pub(crate) fn pass(&mut self, position: EventPosition) {
        let (services, inbox) = (self.services.clone(), self.inbox.clone());
        let change = Change {
            done: Some(position),
            ..Change::default()
        };
        self.services
            .store
            .submit(change, move |answer| match answer {
                Ok(_) => {}
                Err(error) if error.is_final() => services.shutdown.fail(error),
                // It holds the cursor until it is done: nobody else does it.
                Err(error) => inbox.push(Item::NotSkipped(position, error)),
            });
    }

    /// There was no room, or the store refused it: it is tried again after a while.
    pub(crate) fn not_passed(&mut self, position: EventPosition, error: &StoreError) {
        match error {
            StoreError::Full(full) => self.services.disk.refused(self.services.clock.time(), full),
            error => {
                self.services.metrics.refused_changes.inc();
                tracing::error!(
                    upstream = position.upstream.0, seq = position.seq, %error,
                    "the store refuses to pass over an event, and the cursor waits for it; tried again"
                );
            }
        }
        self.unpassed.push(position);
        self.rest_until = Instant::now() + NO_ROOM_PAUSE;
    }

    pub(crate) fn pass_again(&mut self) {
        for position in std::mem::take(&mut self.unpassed) {
            self.pass(position);
        }
    }
}
