//! Totals over all repositories that limits are checked against: parked bytes, claims and
//! dead letters.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::claims::Claims;

/// Dead letters that are kept until an operator resolves some. Further ones are counted
/// and not kept.
pub const MAX_DEAD_LETTERS: u64 = 10_000;

/// Totals over all repositories.
#[derive(Default)]
pub struct Totals {
    /// Bytes of all parked frames.
    pub parked_bytes: AtomicU64,
    /// What unproven sources claim.
    pub claims: Claims,
    /// Dead letters that are not resolved.
    pub dead_letters: AtomicU64,
}

impl Totals {
    /// Counts one more dead letter, unless [`MAX_DEAD_LETTERS`] are kept already. Returns
    /// whether it was counted.
    pub fn take_dead_letter(&self) -> bool {
        let taken = self
            .dead_letters
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |kept| {
                (kept < MAX_DEAD_LETTERS).then_some(kept + 1)
            });
        taken.is_ok()
    }

    /// Counts one dead letter less, because it was resolved or removed.
    pub fn resolve_dead_letter(&self) {
        let resolved = |open: u64| open.checked_sub(1);
        // At zero there is nothing to subtract.
        let _ = self
            .dead_letters
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, resolved);
    }
}
