//! Where the two sides of a two-ended reader meet: each record is claimed by one side.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::serve::getrepo::batch::RecordBatch;
use gapless_store::sync::Mutex;

/// The end of the repository from which a side reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Front,
    Back,
}

/// How far the two sides have read.
#[derive(Default)]
pub(crate) struct MeetingPoint {
    /// Every record is claimed, or the reader was dropped.
    all_claimed: AtomicBool,
    /// The last key that the front side has claimed, and that of the back side.
    claimed: Mutex<[Option<Vec<u8>>; 2]>,
}

impl MeetingPoint {
    /// Whether every record is claimed, or the reader was dropped.
    pub(crate) fn is_over(&self) -> bool {
        self.all_claimed.load(Ordering::Relaxed)
    }

    /// Ends the reading of both sides.
    pub(crate) fn end(&self) {
        self.all_claimed.store(true, Ordering::Relaxed);
    }

    /// Claims the records of a batch for a side, and removes those that the other side has
    /// claimed. `ended` means that there are no further rows. Returns whether every record
    /// of the repository is claimed now.
    pub(crate) fn claim(&self, side: Side, batch: &mut RecordBatch, ended: bool) -> bool {
        let mut claimed = self.claimed.lock();
        let [first, last] = &mut *claimed;
        if self.all_claimed.load(Ordering::Relaxed) {
            batch.truncate_while(|_| true);
            return true;
        }
        let (own, other) = match side {
            Side::Front => (first, last),
            Side::Back => (last, first),
        };
        let cut = batch.truncate_while(|key| match (side, other.as_deref()) {
            (_, None) => false,
            (Side::Front, Some(other)) => key >= other,
            (Side::Back, Some(other)) => key <= other,
        });
        if let Some(key) = batch.last_read() {
            *own = Some(key.to_vec());
        }
        if cut || ended {
            self.all_claimed.store(true, Ordering::Relaxed);
        }
        cut || ended
    }
}
