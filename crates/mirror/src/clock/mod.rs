//! The clock and the order of all decisions, for every thread.
//!
//! Times follow the wall clock, backward as well: otherwise a single wrong step forward
//! would be believed until the next start. Times follow a forward step at once. They follow
//! a backward step only if the wall clock is behind by more than [`STEP_TOLERANCE`];
//! until then they advance with the monotonic clock. After a backward step the age of older
//! times is unknown, so modules that hold times in memory watch [`Clock::steps_back`]. Work
//! that cannot be undone first checks how long the clock [has kept step](Clock::kept_step).
//! Ticks increase strictly, whatever the wall clock does, across restarts too.

mod tick_times;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gapless_core::ledger::time::micros;
use gapless_core::ledger::{Now, Tick, Time};
use gapless_store::sync::Mutex;

/// How far the wall clock may deviate from the monotonic clock before it counts as set. A
/// clock that was set back resets every connection.
pub(crate) const STEP_TOLERANCE: Duration = Duration::from_secs(10);

pub(crate) use tick_times::TickTimes;

/// The source of times and ticks.
pub struct Clock {
    last_tick: AtomicU64,
    base: Mutex<Inner>,
    steps_back: AtomicU64,
    /// Microseconds that tests add to the wall clock.
    ahead: AtomicI64,
    tick_times: TickTimes,
}

struct Inner {
    /// A monotonic instant, and the time at that instant.
    at: Instant,
    time: u64,
    /// When the wall clock was last seen to be set; the start, at first.
    set_at: Instant,
}

impl Clock {
    /// Continues after the last tick in the store.
    pub fn resume(last: Tick) -> Clock {
        let (at, time) = (Instant::now(), wall());
        Clock {
            last_tick: AtomicU64::new(last.0),
            base: Mutex::new(Inner {
                at,
                time,
                set_at: at,
            }),
            steps_back: AtomicU64::new(0),
            ahead: AtomicI64::new(0),
            tick_times: TickTimes::new(Now {
                tick: last,
                time: Time(time),
            }),
        }
    }

    /// The wall-clock times of recent ticks.
    pub(crate) fn tick_times(&self) -> &TickTimes {
        &self.tick_times
    }

    /// The present time.
    pub fn time(&self) -> Time {
        let mut base = self.base.lock();
        let wall = wall().saturating_add_signed(self.ahead.load(Ordering::SeqCst));
        self.advance(&mut base, Instant::now(), wall)
    }

    fn advance(&self, base: &mut Inner, at: Instant, wall: u64) -> Time {
        let tolerated = micros(STEP_TOLERANCE);
        let passed = micros(at.saturating_duration_since(base.at));
        let due = base.time.saturating_add(passed);
        let back = wall.saturating_add(tolerated) < due;
        if back || wall > due.saturating_add(tolerated) {
            base.set_at = at;
            let by_seconds = due.abs_diff(wall) / 1_000_000;
            tracing::warn!(by_seconds, back, "the clock was set; times follow it");
        }
        if back {
            // Count the step before any caller gets the new time.
            self.steps_back.fetch_add(1, Ordering::SeqCst);
        }
        let time = if back { wall } else { wall.max(due) };
        (base.at, base.time) = (at, time);
        Time(time)
    }

    /// How often the time has gone back. A caller that read this number before a backward
    /// step has read a lower number.
    pub(crate) fn steps_back(&self) -> u64 {
        self.steps_back.load(Ordering::SeqCst)
    }

    /// How long the wall clock has run without being set, as far as is known since the
    /// start.
    pub(crate) fn kept_step(&self) -> Duration {
        self.time();
        let base = self.base.lock();
        base.set_at.elapsed()
    }

    /// For tests: sets the wall clock ahead of the real clock.
    pub fn set_wall(&self, ahead_seconds: i64) {
        let ahead = ahead_seconds.saturating_mul(1_000_000);
        self.ahead.store(ahead, Ordering::SeqCst);
    }

    /// The next tick, with the present time.
    pub fn now(&self) -> Now {
        let time = self.time();
        Now {
            time,
            tick: Tick(self.last_tick.fetch_add(1, Ordering::SeqCst) + 1),
        }
    }

    /// The last tick, with the present time, for a question that decides nothing.
    pub fn last_tick_now(&self) -> Now {
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

    const SECOND: u64 = 1_000_000;

    #[test]
    fn ticks_go_on_after_the_last_one() {
        let clock = Clock::resume(Tick(41));
        assert_eq!(clock.last_tick_now().tick, Tick(41));
        assert_eq!(clock.now().tick, Tick(42));
        clock.set_wall(3600);
        assert_eq!(clock.now().tick, Tick(43));
        clock.set_wall(-3600);
        assert_eq!(clock.now().tick, Tick(44));
    }

    /// What the clock says at so many seconds after its start when the wall says so
    /// many, how often it went back by then, and for how many seconds it kept step.
    fn looks(looks: &[(u64, u64)]) -> Vec<(u64, u64, u64)> {
        let clock = Clock::resume(Tick(0));
        let start = Instant::now();
        let mut base = Inner {
            at: start,
            time: 0,
            set_at: start,
        };
        let mut told = Vec::new();
        for (at, wall) in looks {
            let at = start + Duration::from_secs(*at);
            let time = clock.advance(&mut base, at, wall * SECOND);
            let kept = at.duration_since(base.set_at).as_secs();
            told.push((time.0 / SECOND, clock.steps_back(), kept));
        }
        told
    }

    #[test]
    fn a_wall_that_was_set_is_followed_both_ways() {
        let told = looks(&[(1, 1), (2, 3602), (3, 3603), (4, 4), (5, 5)]);
        let expected = [(1, 0, 1), (3602, 0, 0), (3603, 0, 1), (4, 1, 0), (5, 1, 1)];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_little_back_is_waited_for_and_never_adds_up() {
        // Eight seconds back, and eight more: together that is a step.
        let told = looks(&[(100, 100), (101, 93), (102, 94), (103, 87)]);
        let expected = [(100, 0, 100), (101, 0, 101), (102, 0, 102), (87, 1, 0)];
        assert_eq!(told, expected);
        // A little ahead is no step either.
        assert_eq!(looks(&[(1, 9), (2, 10)]), [(9, 0, 1), (10, 0, 2)]);
    }

    #[test]
    fn a_clock_has_kept_step_since_it_was_set() {
        let clock = Clock::resume(Tick(0));
        std::thread::sleep(Duration::from_millis(5));
        assert!(clock.kept_step() >= Duration::from_millis(5));
        clock.set_wall(3600);
        let set = Instant::now();
        assert!(clock.kept_step() <= set.elapsed() + Duration::from_millis(1));
        assert_eq!(clock.steps_back(), 0);
        clock.set_wall(0);
        clock.time();
        assert_eq!(clock.steps_back(), 1);
    }
}
