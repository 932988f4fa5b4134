//! Memory that all fetches share: many hosts that send tiny blocks at a time must
//! not take all that there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the indexes of all files that arrive may take together: those of four of
/// the largest files, or of forty repositories of a million records.
pub const INDEXES: u64 = 1 << 30;
/// Taken at a time. The first of them is not counted, so that the small
/// repositories, which are nearly all, go on when large ones have the rest.
const STEP: u64 = 1 << 20;

/// What is left of it.
#[derive(Debug)]
pub struct Memory(AtomicU64);

impl Memory {
    pub fn new(bytes: u64) -> Arc<Memory> {
        Arc::new(Memory(AtomicU64::new(bytes)))
    }

    /// Nothing of it, yet.
    pub fn share(self: &Arc<Memory>) -> Share {
        Share {
            of: self.clone(),
            taken: 0,
        }
    }
}

/// What one file has of it, until it is dropped.
#[derive(Debug)]
pub struct Share {
    of: Arc<Memory>,
    taken: u64,
}

impl Share {
    /// Whether there is enough for so many bytes, all in all.
    pub fn reaches(&mut self, bytes: u64) -> bool {
        while self.taken + STEP < bytes {
            let less = |free: u64| free.checked_sub(STEP);
            let left = &self.of.0;
            if left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_err()
            {
                return false;
            }
            self.taken += STEP;
        }
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.fetch_add(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_another_cannot_have_until_it_is_given_back() {
        let memory = Memory::new(3 * STEP);
        let (mut one, mut other) = (memory.share(), memory.share());
        assert!(one.reaches(3 * STEP));
        assert!(other.reaches(2 * STEP));
        assert!(!other.reaches(2 * STEP + 1), "all of it is taken");
        assert!(memory.share().reaches(STEP), "the small go on");
        drop(one);
        assert!(other.reaches(4 * STEP));
        assert!(!other.reaches(4 * STEP + 1));
        drop(other);
        assert_eq!(memory.0.load(Ordering::Relaxed), 3 * STEP);
    }
}
