//! Totals over all repositories that limits are checked against: parked bytes, claims and
//! dead letters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::table::dead::Resolution;

use gapless_store::sync::Mutex;

/// Dead letters that are kept until an operator resolves some. Further ones are counted
/// and not kept.
pub const MAX_DEAD_LETTERS: u64 = 10_000;

/// Totals over all repositories.
#[derive(Default)]
pub struct DeskTotals {
    /// Bytes of all parked frames.
    pub parked_bytes: AtomicU64,
    /// Claims of unproven sources.
    pub claims: ClaimTotals,
    /// Dead letters that are not resolved.
    pub dead_letters: AtomicU64,
}

impl DeskTotals {
    /// Counts the claims and dead letters of the store. Parked bytes are left at zero.
    pub fn count(view: &ReadView) -> Result<DeskTotals, StoreError> {
        let mut dead_letters = 0;
        for row in view.dead_letters() {
            let (_, letter) = row?;
            dead_letters += u64::from(letter.resolution == Resolution::Open);
        }
        let totals = DeskTotals {
            dead_letters: AtomicU64::new(dead_letters),
            ..DeskTotals::default()
        };
        totals.claims.recount(view)?;
        Ok(totals)
    }

    /// Counts one more dead letter, unless [`MAX_DEAD_LETTERS`] are kept already. Returns
    /// whether it was counted.
    pub(crate) fn take_dead_letter(&self) -> bool {
        let taken = self
            .dead_letters
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |kept| {
                (kept < MAX_DEAD_LETTERS).then_some(kept + 1)
            });
        taken.is_ok()
    }

    /// Counts one dead letter less, because it was resolved or removed.
    pub(crate) fn resolve_dead_letter(&self) {
        let resolved = |open: u64| open.checked_sub(1);
        // At zero there is nothing to subtract.
        let _ = self
            .dead_letters
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, resolved);
    }
}

/// Claims of one repository.
pub(crate) const CLAIMS_OF_ONE: usize = 256;
/// Bytes of the claimed records of one repository.
pub(crate) const BYTES_OF_ONE: u64 = 4 << 20;
/// Claims of all repositories.
pub(crate) const CLAIMS_IN_ALL: u64 = 200_000;
/// Bytes of the claimed records of all repositories.
pub(crate) const BYTES_IN_ALL: u64 = 512 << 20;
/// When there is no room, the claims are recounted, but not more often than this.
const RECOUNT_EVERY: Duration = Duration::from_secs(60);

/// The number and the bytes of all claims. A claim is kept only for a repository that is
/// fetched anyway, so a dropped claim loses nothing. Claims that a proof replaces are not
/// subtracted: until the next recount the totals are too high, never too low.
#[derive(Debug, Default)]
pub struct ClaimTotals {
    count: AtomicU64,
    bytes: AtomicU64,
    counted: Mutex<Option<Instant>>,
}

impl ClaimTotals {
    /// Counts one more claim with the given bytes.
    pub fn add(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there is room for one more claim with the given bytes.
    pub(crate) fn has_room(&self, bytes: u64, view: &ReadView) -> Result<bool, StoreError> {
        if self.fits(bytes) {
            return Ok(true);
        }
        let due = {
            let counted = self.counted.lock();
            counted.is_none_or(|at| at.elapsed() >= RECOUNT_EVERY)
        };
        if due {
            self.recount(view)?;
        }
        Ok(self.fits(bytes))
    }

    fn fits(&self, bytes: u64) -> bool {
        let held = self.bytes.load(Ordering::Relaxed);
        self.count() < CLAIMS_IN_ALL && held.saturating_add(bytes) <= BYTES_IN_ALL
    }

    /// Counts all claims in the store; there are never many more than [`CLAIMS_IN_ALL`].
    pub(crate) fn recount(&self, view: &ReadView) -> Result<(), StoreError> {
        let (mut count, mut bytes) = (0, 0);
        for row in view.claim_sizes() {
            count += 1;
            bytes += row?;
        }
        self.count.store(count, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        let mut counted = self.counted.lock();
        *counted = Some(Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_until_there_are_too_many_or_too_large() {
        let claims = ClaimTotals::default();
        assert!(claims.fits(BYTES_IN_ALL) && !claims.fits(BYTES_IN_ALL + 1));
        claims.add(BYTES_IN_ALL - 1);
        assert!(claims.fits(1) && !claims.fits(2));
        for _ in 1..CLAIMS_IN_ALL {
            assert!(claims.fits(1));
            claims.add(0);
        }
        assert!(!claims.fits(0));
        assert_eq!(claims.count(), CLAIMS_IN_ALL);
    }
}
