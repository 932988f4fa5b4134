//! Locks that ignore poisoning.
//!
//! A panic in one task must not make every other task panic at the same lock, so these locks
//! return their guards directly. That is sound because no lock of the mirror, nor of the program
//! that serves from it, ever guards half an update: updates are single statements, or arithmetic
//! and changes of collections, which do not panic. A failed allocation ends the process.
//!
//! Keep it so: whatever can panic runs outside of a lock, or before the first change.

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
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Waits for a notification, at most for so long.
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
