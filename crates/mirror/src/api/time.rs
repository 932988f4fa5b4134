//! Times as text: RFC 3339, UTC, microseconds. A time beyond the year 9999 has no
//! such text, and is null.

use gapless_core::ledger::Time;

const DAY_MICROS: u64 = 86_400_000_000;
/// Days of 400 years, after which the calendar repeats.
const CYCLE_DAYS: u64 = 146_097;
/// From 0000-03-01, where cycles begin, to 1970-01-01.
const TO_1970_DAYS: u64 = 719_468;

/// The text of a time.
pub fn timestamp(time: Time) -> Option<String> {
    let (year, month, day) = date(time.0 / DAY_MICROS);
    if year > 9999 {
        return None;
    }
    let micros = time.0 % DAY_MICROS;
    let seconds = micros / 1_000_000;
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        micros % 1_000_000
    ))
}

/// Whole seconds from one time to a later one; zero when the clock went back.
pub fn seconds_between(earlier: Time, later: Time) -> u64 {
    later.since(earlier).as_secs()
}

/// Year, month and day. Years are counted from March, so that the leap day is the
/// last of its year.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + TO_1970_DAYS;
    let (cycle, day) = (days / CYCLE_DAYS, days % CYCLE_DAYS);
    // Leap days that came before, within the cycle: one in 4 years, none in 100,
    // one in 400.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Five months from March have 153 days, again and again.
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = match month < 10 {
        true => (month + 3, 0),
        false => (month - 9, 1),
    };
    (cycle * 400 + year + next, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seconds: u64, micros: u64) -> String {
        timestamp(Time(seconds * 1_000_000 + micros)).expect("within the calendar")
    }

    #[test]
    fn known_times_have_their_known_texts() {
        assert_eq!(text(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(text(951_782_399, 999_999), "2000-02-28T23:59:59.999999Z");
        assert_eq!(text(951_782_400, 1), "2000-02-29T00:00:00.000001Z");
        assert_eq!(text(951_868_800, 0), "2000-03-01T00:00:00.000000Z");
        assert_eq!(text(1_735_689_599, 0), "2024-12-31T23:59:59.000000Z");
        assert_eq!(text(4_107_542_400, 0), "2100-03-01T00:00:00.000000Z");
        assert_eq!(text(253_402_300_799, 0), "9999-12-31T23:59:59.000000Z");
    }

    #[test]
    fn a_time_without_a_text_is_none() {
        assert_eq!(timestamp(Time(253_402_300_800_000_000)), None);
        assert_eq!(timestamp(Time(u64::MAX)), None);
    }
}
