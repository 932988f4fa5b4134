//! The network's time: a logical clock that advances by itself, or the wall clock.
//!
//! Logical time starts at a fixed instant in the past and advances with every reading, so
//! that revs rise and a seed gives the same bytes on any day. On the wall clock, a
//! reading that would repeat advances by a microsecond.

use std::time::{SystemTime, UNIX_EPOCH};

use gapless_atp::syntax::Tid;

/// 2025-01-01T00:00:00Z. Every run is later than this, so no rev is in the future.
pub(super) const LOGICAL_START_MICROS: u64 = 1_735_689_600_000_000;
/// 2100-01-01T00:00:00Z. A rev from this time is in the future in every run.
pub(super) const FAR_FUTURE_MICROS: u64 = 4_102_444_800_000_000;
const LOGICAL_STEP_MICROS: u64 = 7_001;

#[derive(Debug)]
pub(crate) struct Clock {
    wall: bool,
    last_micros: u64,
}

impl Clock {
    pub(crate) fn logical() -> Clock {
        Clock {
            wall: false,
            last_micros: LOGICAL_START_MICROS,
        }
    }

    pub(crate) fn wall() -> Clock {
        Clock {
            wall: true,
            last_micros: 0,
        }
    }

    /// Microseconds since 1970, later than any earlier reading.
    pub(crate) fn tick(&mut self) -> u64 {
        self.last_micros = if self.wall {
            wall_micros().max(self.last_micros + 1)
        } else {
            self.last_micros + LOGICAL_STEP_MICROS
        };
        self.last_micros
    }

    /// The last reading.
    pub(crate) fn now(&self) -> u64 {
        self.last_micros
    }

    /// A new rev.
    pub(crate) fn rev(&mut self) -> Tid {
        Tid::from_micros(self.tick(), 0)
    }
}

fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Formats microseconds since 1970 as `2025-01-01T00:00:00.000Z`.
pub(crate) fn timestamp(micros: u64) -> String {
    let (days, rest) = (micros / 86_400_000_000, micros % 86_400_000_000);
    let (year, month, day) = civil(days);
    let millis = rest / 1000;
    let (hour, minute) = (millis / 3_600_000, millis / 60_000 % 60);
    let (second, milli) = (millis / 1000 % 60, millis % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The date of a day counted from 1970. Years are taken to begin in March, so that the
/// leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_as_the_protocol_has_it() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(LOGICAL_START_MICROS), "2025-01-01T00:00:00.000Z");
        assert_eq!(timestamp(FAR_FUTURE_MICROS), "2100-01-01T00:00:00.000Z");
        let leap = 1_709_210_096_789_000;
        assert_eq!(timestamp(leap), "2024-02-29T12:34:56.789Z");
    }

    #[test]
    fn no_reading_repeats() {
        for mut clock in [Clock::logical(), Clock::wall()] {
            let (first, second) = (clock.rev(), clock.rev());
            assert!(first < second);
            assert!(!second.is_future(wall_micros()));
        }
    }
}
