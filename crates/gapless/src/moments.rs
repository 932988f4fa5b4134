//! Which tick it was when. Rows keep ticks where order is all that rules need;
//! people want a time. Kept in memory, a bounded number, ever more coarsely: what
//! was before the start is known to be no later than the start.

use std::sync::{Mutex, PoisonError};

use gapless_core::ledger::{Now, Tick, Time};

/// Moments that are kept. When there are more, every second one is dropped.
const MOST: usize = 4096;

pub struct Moments {
    /// Ticks and times, both growing.
    noted: Mutex<Vec<Now>>,
    began: Time,
}

impl Moments {
    /// Begins with the last tick that the store remembers.
    pub fn new(start: Now) -> Moments {
        Moments {
            noted: Mutex::new(vec![start]),
            began: start.time,
        }
    }

    /// When the program was started.
    pub fn began(&self) -> Time {
        self.began
    }

    pub fn note(&self, now: Now) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.last().is_some_and(|last| last.tick >= now.tick) {
            return;
        }
        noted.push(now);
        if noted.len() > MOST {
            let mut place = 0;
            noted.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
    }

    /// A time at which the tick had passed, as early as is known; none when that
    /// was not noted yet.
    pub fn when(&self, tick: Tick) -> Option<Time> {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let place = noted.partition_point(|one| one.tick < tick);
        noted.get(place).map(|one| one.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(tick: u64, time: u64) -> Now {
        Now {
            tick: Tick(tick),
            time: Time(time),
        }
    }

    #[test]
    fn a_tick_has_the_first_time_that_is_known_after_it() {
        let moments = Moments::new(now(100, 1_000));
        moments.note(now(110, 2_000));
        moments.note(now(110, 2_500));
        moments.note(now(120, 3_000));
        assert_eq!(moments.when(Tick(7)), Some(Time(1_000)), "at the latest");
        assert_eq!(moments.when(Tick(101)), Some(Time(2_000)));
        assert_eq!(moments.when(Tick(120)), Some(Time(3_000)));
        assert_eq!(moments.when(Tick(121)), None);
        assert_eq!(moments.began(), Time(1_000));
    }

    #[test]
    fn many_moments_take_bounded_memory_and_keep_the_first() {
        let moments = Moments::new(now(0, 1));
        for tick in 1..20_000 {
            moments.note(now(tick, tick + 1));
        }
        assert!(moments.noted.lock().unwrap().len() <= MOST + 1);
        assert_eq!(moments.when(Tick(0)), Some(Time(1)));
        let known = moments.when(Tick(10_000)).expect("later ones are there");
        assert!(known.0 >= 10_001 && known.0 < 10_101, "{known:?}");
    }
}
