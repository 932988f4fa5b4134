//! A budget of memory that several owners share: many hosts that send tiny blocks at
//! once must not take all memory. An owner that the budget cannot serve fails; nothing
//! waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that the indexes of all CARs may take together: four indexes of the maximum
/// size, or forty of repositories with a million records.
pub(crate) const CAR_INDEXES_BYTES: u64 = 1 << 30;
/// Bytes that a lease grows by. The first step of each lease is free, so that small
/// repositories, which are nearly all, proceed while large ones hold the whole budget.
const LEASE_STEP_BYTES: u64 = 1 << 20;

/// The bytes of a shared budget that are free.
#[derive(Debug)]
pub struct Budget {
    free_bytes: AtomicU64,
}

impl Budget {
    pub fn new(bytes: u64) -> Arc<Budget> {
        Arc::new(Budget {
            free_bytes: AtomicU64::new(bytes),
        })
    }

    /// Returns a lease that holds nothing yet.
    pub fn lease(self: &Arc<Budget>) -> Lease {
        Lease {
            budget: self.clone(),
            held_bytes: 0,
        }
    }
}

/// The part of a budget that one owner holds. Dropping the lease gives it back.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<Budget>,
    held_bytes: u64,
}

impl Lease {
    /// Grows the lease until it covers `bytes` in total. Returns false if the budget does
    /// not have enough left.
    pub fn grow_to(&mut self, bytes: u64) -> bool {
        while self.held_bytes + LEASE_STEP_BYTES < bytes {
            let less = |free: u64| free.checked_sub(LEASE_STEP_BYTES);
            let free_bytes = &self.budget.free_bytes;
            if free_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_err()
            {
                return false;
            }
            self.held_bytes += LEASE_STEP_BYTES;
        }
        true
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let free_bytes = &self.budget.free_bytes;
        free_bytes.fetch_add(self.held_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = LEASE_STEP_BYTES;

    #[test]
    fn what_one_has_another_cannot_have_until_it_is_given_back() {
        let budget = Budget::new(3 * STEP);
        let (mut one, mut other) = (budget.lease(), budget.lease());
        assert!(one.grow_to(3 * STEP));
        assert!(other.grow_to(2 * STEP));
        assert!(!other.grow_to(2 * STEP + 1), "all of it is taken");
        assert!(budget.lease().grow_to(STEP), "small owners proceed");
        drop(one);
        assert!(other.grow_to(4 * STEP));
        assert!(!other.grow_to(4 * STEP + 1));
        drop(other);
        assert_eq!(budget.free_bytes.load(Ordering::Relaxed), 3 * STEP);
    }
}
