//! What waits for a desk: events and visits in order, and the store's answers.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use gapless_store::change::Ack;
use gapless_store::error::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::desk::Item;
use crate::sync::{Condvar, Mutex};

/// Bytes of events that may wait or be on their way, at all desks.
const ROOM_BYTES: usize = 32 << 20;
/// Room is counted in pieces of this many bytes.
const PIECE: usize = 512;
/// What an event takes beside its frame.
const EVENT_BYTES: usize = 1024;

/// The store has answered: which slot, which change, and what became of it.
pub struct Answer {
    pub slot: usize,
    pub number: u64,
    pub result: Result<Ack, StoreError>,
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<Item>,
    answers: Vec<Answer>,
    closed: bool,
}

pub struct Inbox {
    waiting: Mutex<Waiting>,
    came: Condvar,
    room: Arc<Semaphore>,
    pieces: usize,
}

/// What a desk takes at once.
pub struct Taken {
    pub items: VecDeque<Item>,
    pub answers: Vec<Answer>,
    pub closed: bool,
}

impl Inbox {
    pub fn new(desks: usize) -> Inbox {
        let pieces = ROOM_BYTES / PIECE / desks;
        Inbox {
            waiting: Mutex::default(),
            came: Condvar::default(),
            room: Arc::new(Semaphore::new(pieces)),
            pieces,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    /// Waits for room for an event of so many bytes.
    pub async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pieces = (bytes + EVENT_BYTES).div_ceil(PIECE).min(self.pieces);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        // It is never closed.
        self.room.clone().acquire_many_owned(pieces).await.ok()
    }

    /// Brings something. After the end nobody would ever take it: it is dropped,
    /// and whoever waits for its outcome hears that.
    pub fn push(&self, item: Item) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            drop(item);
            return;
        }
        let first = waiting.items.is_empty() && waiting.answers.is_empty();
        waiting.items.push_back(item);
        drop(waiting);
        if first {
            self.came.notify_one();
        }
    }

    pub fn answer(&self, answer: Answer) {
        let mut waiting = self.lock();
        let first = waiting.items.is_empty() && waiting.answers.is_empty();
        waiting.answers.push(answer);
        drop(waiting);
        if first {
            self.came.notify_one();
        }
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.came.notify_all();
    }

    pub fn len(&self) -> usize {
        self.lock().items.len()
    }

    /// Everything that waits, as soon as there is anything, or after a while.
    pub fn take(&self, patience: Duration) -> Taken {
        let mut waiting = self.lock();
        if waiting.items.is_empty() && waiting.answers.is_empty() && !waiting.closed {
            waiting = self.came.wait_timeout(waiting, patience);
        }
        Taken {
            items: std::mem::take(&mut waiting.items),
            answers: std::mem::take(&mut waiting.answers),
            closed: waiting.closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn room_is_bounded_and_whatever_comes_gets_in_at_last() {
        let inbox = Inbox::new(64);
        let mut held = Vec::new();
        let mut bytes = 0;
        while let Some(room) = inbox.room(60_000).now_or_never() {
            held.push(room.expect("it is not closed"));
            bytes += 60_000;
            assert!(bytes <= ROOM_BYTES / 64);
        }
        assert!(bytes > ROOM_BYTES / 64 / 2, "{bytes}");
        held.pop();
        assert!(inbox.room(60_000).now_or_never().is_some(), "given back");
        held.clear();
        // Larger than all of it: alone.
        let large = inbox.room(ROOM_BYTES).now_or_never();
        assert!(large.is_some() && inbox.room(1).now_or_never().is_none());
    }
}
