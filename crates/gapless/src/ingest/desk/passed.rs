//! Events that concern nobody here: only the cursor moves, as soon as there is room
//! to write that down.

use std::time::Instant;

use gapless_store::change::Change;
use gapless_store::cursor::Position;
use gapless_store::error::StoreError;
use gapless_store::space::Full;

use super::Item;
use super::answered::NO_ROOM_PAUSE;
use super::worker::Worker;

impl Worker {
    pub(super) fn pass(&mut self, position: Position) {
        let (shared, inbox) = (self.shared.clone(), self.inbox.clone());
        let change = Change {
            done: Some(position),
            ..Change::default()
        };
        self.shared
            .store
            .submit(change, move |answer| match answer {
                // It holds the cursor until it is done: nobody else does it.
                Err(StoreError::Full(full)) => inbox.push(Item::NotSkipped(position, full)),
                Err(error) if error.is_final() => shared.end.fail(error),
                Ok(_) | Err(_) => {}
            });
    }

    /// There was no room: it is tried again after a while.
    pub(super) fn not_passed(&mut self, position: Position, full: &Full) {
        self.shared.room.lacks(self.shared.clock.time(), full);
        self.unpassed.push(position);
        self.rest_until = Instant::now() + NO_ROOM_PAUSE;
    }

    pub(super) fn pass_again(&mut self) {
        for position in std::mem::take(&mut self.unpassed) {
            self.pass(position);
        }
    }
}
