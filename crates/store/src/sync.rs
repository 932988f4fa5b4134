//! Locks that ignore poisoning, for the store, the mirror and the program.
//!
//! A panic in one task or thread must not make every other one panic at the same lock, so these
//! locks return their guards directly. That is sound because none of them ever guards half an
//! update:
//!
//! - Most updates are one statement: a published view, a segment list or a handle is replaced,
//!   pushed or taken.
//! - Updates of several statements (in the store the queue, a cell of the row cache, the low-water
//!   marks and the tables in memory; elsewhere schedules, hosts, upstreams and caches)
//!   consist of arithmetic and of changes of collections, which do not panic: a failed allocation
//!   ends the process. No callback runs under these locks.
//! - The index of a segment grows while the file is read under its lock. An index that was left
//!   incomplete is still correct: the next reader goes on from where it ends.
//!
//! To keep this sound, run callbacks and everything that can panic outside of a lock or before the
//! first change.

use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// A [`std::sync::Mutex`] whose poisoning is ignored.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`std::sync::RwLock`] whose poisoning is ignored.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`std::sync::Condvar`] for guards of [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a notification, at most for `patience`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Duration,
    ) -> MutexGuard<'a, T> {
        let woken = self.0.wait_timeout(guard, patience);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_under_a_lock_leaves_it_usable() {
        let (mutex, rw_lock) = (Mutex::new(1), RwLock::new(1));
        for panicked in [
            catch_unwind(AssertUnwindSafe(|| {
                let _guard = mutex.lock();
                panic!("under the mutex");
            })),
            catch_unwind(AssertUnwindSafe(|| {
                let _guard = rw_lock.write();
                panic!("under the lock");
            })),
        ] {
            assert!(panicked.is_err());
        }
        *mutex.lock() += 1;
        *rw_lock.write() += 1;
        assert_eq!((*mutex.lock(), *rw_lock.read()), (2, 2));
    }
}
