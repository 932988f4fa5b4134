//! The clock and the order of all decisions, for every thread.
//!
//! Times follow the clock on the wall when that goes forward. When it goes back
//! they do not: waiting would begin anew, and an upstream that has been down for
//! an hour would count as just lost. Ticks are strictly increasing, across
//! restarts too.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gapless_core::ledger::{Now, Tick, Time};

pub struct Clock {
    last_tick: AtomicU64,
    /// A moment, and the time that it had.
    base: Mutex<(Instant, u64)>,
}

impl Clock {
    /// Goes on after the last tick that the store remembers.
    pub fn resume(last: Tick) -> Clock {
        Clock {
            last_tick: AtomicU64::new(last.0),
            base: Mutex::new((Instant::now(), wall())),
        }
    }

    pub fn time(&self) -> Time {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, at) = *base;
        let steady = at.saturating_add(since.elapsed().as_micros() as u64);
        let wall = wall();
        if wall > steady {
            *base = (Instant::now(), wall);
            return Time(wall);
        }
        Time(steady)
    }

    /// The next place in the order of all decisions.
    pub fn now(&self) -> Now {
        let time = self.time();
        Now {
            time,
            tick: Tick(self.last_tick.fetch_add(1, Ordering::SeqCst) + 1),
        }
    }

    /// The present moment, for a question that decides nothing.
    pub fn glance(&self) -> Now {
        Now {
            time: self.time(),
            tick: Tick(self.last_tick.load(Ordering::SeqCst)),
        }
    }
}

fn wall() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_on_after_the_last_one() {
        let clock = Clock::resume(Tick(41));
        assert_eq!(clock.glance().tick, Tick(41));
        assert_eq!(clock.now().tick, Tick(42));
        assert_eq!(clock.now().tick, Tick(43));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_time() {
        let clock = Clock::resume(Tick(0));
        // As if it had been an hour later when we last looked.
        let ahead = wall() + 3_600_000_000;
        *clock.base.lock().unwrap() = (Instant::now(), ahead);
        let first = clock.time();
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(first.0 >= ahead && clock.time().0 >= first.0 + 3_000);
    }
}
