//! Time and order, as arguments of every decision.
//!
//! Wall clocks jump, so they never decide what came first; the [`Tick`] does. Work that
//! takes a while (a fetch, a page of a listing) notes the tick at which it began. It does
//! not know what happened to a repository at a later tick, and does not undo it.

use std::time::Duration;

/// Microseconds since 1970 by the wall clock: for display, intervals and revs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The time that is `span` later.
    pub fn after(self, span: Duration) -> Time {
        Time(self.0.saturating_add(micros(span)))
    }

    /// Whether `span` has passed since `earlier`. If the clock went back behind
    /// `earlier`, the answer is true, so that nothing waits for a wrong clock.
    pub fn passed(self, earlier: Time, span: Duration) -> bool {
        self < earlier || self.since(earlier) >= span
    }

    /// How long ago `earlier` was; zero if the clock went back.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A span in microseconds, at most `u64::MAX`: over half a million years.
pub fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// A place in the order of all decisions. Ticks strictly increase, across restarts too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

/// Microseconds that a store has lived through: the time during which a program had it open and
/// its clocks agreed. A wall clock that is set changes nothing, and time in which no program ran
/// does not count. Grace periods are measured in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lived(pub u64);

impl Lived {
    /// How much was lived through since `earlier`.
    pub fn since(self, earlier: Lived) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// When a decision is taken: its tick, the wall clock, and the time lived through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub time: Time,
    pub tick: Tick,
    pub lived: Lived,
}

/// Issues ticks. The store keeps the last one, so that no tick is issued twice.
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

    pub fn next(&mut self, time: Time, lived: Lived) -> Now {
        self.last = Tick(self.last.0 + 1);
        Now {
            time,
            tick: self.last,
            lived,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_grow_when_the_clock_goes_back() {
        let mut ticks = Ticks::resume(Tick(41));
        let first = ticks.next(Time(100), Lived(0));
        let second = ticks.next(Time(90), Lived(0));
        assert_eq!(first.tick, Tick(42));
        assert!(second.tick > first.tick);
        assert_eq!(second.time.since(first.time), Duration::ZERO);
    }
}
