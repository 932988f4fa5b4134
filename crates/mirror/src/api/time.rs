//! Times as text: RFC 3339, UTC, microseconds. A time beyond the year 9999 has no
//! such text, and is null.

use gapless_core::ledger::Time;
use jiff::SignedDuration;
use jiff::civil::DateTime;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The text of a time.
pub fn timestamp(time: Time) -> Option<String> {
    // Not `jiff::Timestamp`, which ends 26 hours before the year 9999 does.
    let since_1970 = SignedDuration::from_micros(i64::try_from(time.0).ok()?);
    let time = EPOCH.checked_add(since_1970).ok()?;
    Some(format!("{time:.6}Z"))
}

/// Whole seconds from one time to a later one; zero when the clock went back.
pub(crate) fn seconds_between(earlier: Time, later: Time) -> u64 {
    later.since(earlier).as_secs()
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
