//! Time and order, as arguments.
//!
//! Wall clocks jump, so they never decide what came first: that is what the
//! [`Tick`] is for. Work that takes a while (a fetch, a page of a listing) notes
//! the tick at which it began; what happened to a repository at a later tick, it
//! does not know of, and does not undo.

use std::time::Duration;

/// Microseconds since 1970, by the wall clock. For people, intervals, and revs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The time that much later.
    pub fn after(self, span: Duration) -> Time {
        Time(self.0.saturating_add(micros(span)))
    }

    /// Whether that much has passed since `earlier`. A clock that went back behind
    /// it cannot tell, and counts as passed: nothing waits for a wrong clock.
    pub fn passed(self, earlier: Time, span: Duration) -> bool {
        self < earlier || self.since(earlier) >= span
    }

    /// How long ago `earlier` was; zero when the clock went backwards.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A span in microseconds; spans beyond half a million years count as that.
pub fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// A place in the order of all decisions: strictly increasing, across restarts
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

/// When a decision is taken: its place in the order, and the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub time: Time,
    pub tick: Tick,
}

/// Gives out ticks. The last one is kept by the store, so that no tick is given
/// twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticks {
    last: Tick,
}

impl Ticks {
    pub fn resume(last: Tick) -> Ticks {
        Ticks { last }
    }

    pub fn last(&self) -> Tick {
        self.last
    }

    pub fn next(&mut self, time: Time) -> Now {
        self.last = Tick(self.last.0 + 1);
        Now {
            time,
            tick: self.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_grow_when_the_clock_goes_back() {
        let mut ticks = Ticks::resume(Tick(41));
        let first = ticks.next(Time(100));
        let second = ticks.next(Time(90));
        assert_eq!(first.tick, Tick(42));
        assert!(second.tick > first.tick);
        assert_eq!(second.time.since(first.time), Duration::ZERO);
    }
}
