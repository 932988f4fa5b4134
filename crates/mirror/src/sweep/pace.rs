//! How often hosts are swept, by what their sweeps cost together: seldom enough that
//! they do not get in the way, and never without end because somebody's stream asks
//! for it.

use std::time::Duration;

/// After a sweep that failed, and between two that resets or unreadable frames
/// ask for, a host is left alone for so long; doubled with every failure.
const REST: Duration = Duration::from_secs(5);
const REST_LONGEST: Duration = Duration::from_secs(900);
/// And for so many times what the last sweep took: whoever makes a stream ask for
/// sweeps does not have a large host swept without end.
const REST_TIMES: u32 = 4;
/// A host that others have named and that has failed so often in a row is tried ever
/// more rarely, and never forgotten.
const GONE_AFTER: u32 = 12;
const GONE_LONGEST: Duration = Duration::from_secs(24 * 3600);
/// By default all sweeps together take at most this share of the time.
const SHARE: u32 = 20;
/// And at most this many bytes a second.
const BYTES_PER_SECOND: u64 = 1_250_000;

/// What a sweep cost, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    /// Bytes of the listing.
    pub bytes: u64,
    /// How long we were busy with it.
    pub busy: Duration,
    /// How long listing and asking took, without waiting for suspects.
    pub took: Duration,
}

/// How long a host is left alone after a sweep, whatever its streams ask for.
pub(crate) fn rest(cost: Cost, failures: u32, every: Duration) -> Duration {
    let least = match failures {
        0 => REST.min(every),
        _ => {
            let doubled = REST.saturating_mul(1 << failures.min(8));
            doubled.min(REST_LONGEST).min(every.max(REST))
        }
    };
    least.max(cost.took.saturating_mul(REST_TIMES).min(every))
}

/// The same for a host that no operator has named: there are thousands of these, some
/// gone for good, and they must not all come at once.
pub(crate) fn rest_of_stranger(cost: Cost, failures: u32, every: Duration, host: u32) -> Duration {
    let least = rest(cost, failures, every);
    if failures == 0 {
        return least;
    }
    let longer = match failures.checked_sub(GONE_AFTER) {
        None => least,
        Some(more) => REST_LONGEST
            .saturating_mul(1 << more.min(8))
            .min(GONE_LONGEST)
            .max(least),
    };
    let seed = u64::from(host) << 32 | u64::from(failures);
    let share = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    longer + longer.mul_f64(share as f64 / 1024.0)
}

impl Cost {
    pub fn plus(self, other: Cost) -> Cost {
        Cost {
            bytes: self.bytes.saturating_add(other.bytes),
            busy: self.busy.saturating_add(other.busy),
            took: self.took.saturating_add(other.took),
        }
    }

    pub fn minus(self, other: Cost) -> Cost {
        Cost {
            bytes: self.bytes.saturating_sub(other.bytes),
            busy: self.busy.saturating_sub(other.busy),
            took: self.took.saturating_sub(other.took),
        }
    }

    /// Of each the larger.
    pub fn or_more(self, other: Cost) -> Cost {
        Cost {
            bytes: self.bytes.max(other.bytes),
            busy: self.busy.max(other.busy),
            took: self.took.max(other.took),
        }
    }
}

/// How often every host is swept, if the operator has not said so: by what the last
/// sweeps of all of them cost.
pub(crate) fn interval(all: Cost, every: Duration) -> Duration {
    let by_bytes = Duration::from_secs(all.bytes / BYTES_PER_SECOND);
    every.max(all.busy.saturating_mul(SHARE)).max(by_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(seconds: u64) -> Cost {
        Cost {
            took: Duration::from_secs(seconds),
            ..Cost::default()
        }
    }

    #[test]
    fn a_host_rests_in_proportion_to_what_its_sweep_took() {
        let every = Duration::from_secs(900);
        let small = rest(Cost::default(), 0, every);
        assert_eq!(small, REST, "a small host is swept again soon");
        assert_eq!(rest(took(60), 0, every), Duration::from_secs(240));
        assert_eq!(rest(took(3600), 0, every), every, "but it is swept");
        let often = Duration::from_secs(1);
        assert_eq!(rest(took(60), 0, often), often, "as the operator wants");
    }

    #[test]
    fn a_host_that_is_gone_is_tried_rarely_and_for_ever() {
        let every = Duration::from_secs(900);
        let of = |failures, host| rest_of_stranger(Cost::default(), failures, every, host);
        assert_eq!(of(0, 1), REST, "one that answers is not put off");
        assert!(of(3, 1) >= REST * 8 && of(3, 1) <= REST * 10);
        assert!(of(GONE_AFTER + 2, 1) >= REST_LONGEST * 4);
        let longest = of(u32::MAX, 1);
        assert!(longest >= GONE_LONGEST && longest <= GONE_LONGEST.mul_f64(1.25));
        let spread = (0..50).any(|host| of(20, host) != of(20, 99));
        assert!(spread, "they come one after the other");
        // However often an operator wants sweeps: this is about strangers.
        let often = rest_of_stranger(Cost::default(), 20, Duration::from_secs(1), 1);
        assert!(often >= Duration::from_secs(3600));
    }

    #[test]
    fn all_sweeps_together_keep_to_their_share() {
        let every = Duration::from_secs(900);
        assert_eq!(interval(Cost::default(), every), every);
        let busy = Cost {
            busy: Duration::from_secs(60),
            ..Cost::default()
        };
        assert_eq!(interval(busy, every), Duration::from_secs(1200));
        let bytes = Cost {
            bytes: 2000 * BYTES_PER_SECOND,
            ..Cost::default()
        };
        assert_eq!(interval(bytes, every), Duration::from_secs(2000));
    }

    #[test]
    fn a_sweep_that_fails_is_tried_ever_more_slowly() {
        let every = Duration::from_secs(900);
        assert_eq!(rest(took(1), 1, every), REST * 2);
        assert_eq!(rest(took(1), 3, every), REST * 8);
        assert_eq!(rest(took(1), 40, every), REST_LONGEST);
        assert_eq!(rest(took(60), 1, every), Duration::from_secs(240));
        assert_eq!(rest(took(60), 9, Duration::from_secs(1)), REST);
    }
}
