//! Maps ledger ticks to wall-clock times. Rows hold ticks, which order decisions; an answer to an
//! operator needs a time. The map is in memory and bounded: when the map is full, every second
//! entry is dropped. A tick from before the start maps to the time of the start.

use gapless_core::ledger::{Now, Tick, Time};

use gapless_store::sync::Mutex;

/// Entries that are kept. When there are more, every second one is dropped.
const MAX_ENTRIES: usize = 4096;

pub(crate) struct TickTimes {
    /// Ticks and times, both growing.
    noted: Mutex<Vec<Now>>,
    started_at: Time,
}

impl TickTimes {
    /// Creates a map that begins with the last tick in the store.
    pub(crate) fn new(start: Now) -> TickTimes {
        TickTimes {
            noted: Mutex::new(vec![start]),
            started_at: start.time,
        }
    }

    /// When the program was started.
    pub(crate) fn started_at(&self) -> Time {
        self.started_at
    }

    /// Adds an entry, unless the tick is no later than the last one.
    pub(crate) fn note(&self, now: Now) {
        let mut noted = self.noted.lock();
        if noted.last().is_some_and(|last| last.tick >= now.tick) {
            return;
        }
        noted.push(now);
        if noted.len() > MAX_ENTRIES {
            let mut place = 0;
            noted.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
    }

    /// The earliest known time at which the tick had passed; `None` if no entry is as
    /// late as the tick.
    pub(crate) fn time_of(&self, tick: Tick) -> Option<Time> {
        let noted = self.noted.lock();
        let place = noted.partition_point(|one| one.tick < tick);
        noted.get(place).map(|one| one.time)
    }
}

#[cfg(test)]
mod tests {
    use gapless_core::ledger::Lived;

    use super::*;

    fn now(tick: u64, time: u64) -> Now {
        Now {
            tick: Tick(tick),
            time: Time(time),
            lived: Lived::default(),
        }
    }

    #[test]
    fn a_tick_has_the_first_time_that_is_known_after_it() {
        let times = TickTimes::new(now(100, 1_000));
        times.note(now(110, 2_000));
        times.note(now(110, 2_500));
        times.note(now(120, 3_000));
        assert_eq!(times.time_of(Tick(7)), Some(Time(1_000)), "at the latest");
        assert_eq!(times.time_of(Tick(101)), Some(Time(2_000)));
        assert_eq!(times.time_of(Tick(120)), Some(Time(3_000)));
        assert_eq!(times.time_of(Tick(121)), None);
        assert_eq!(times.started_at(), Time(1_000));
    }

    #[test]
    fn many_times_take_bounded_memory_and_keep_the_first() {
        let times = TickTimes::new(now(0, 1));
        for tick in 1..20_000 {
            times.note(now(tick, tick + 1));
        }
        assert!(times.noted.lock().len() <= MAX_ENTRIES + 1);
        assert_eq!(times.time_of(Tick(0)), Some(Time(1)));
        let known = times.time_of(Tick(10_000)).expect("later ones are there");
        assert!(known.0 >= 10_001 && known.0 < 10_101, "{known:?}");
    }
}
