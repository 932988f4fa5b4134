//! How often hosts are swept. The interval follows from the cost of all sweeps together, so
//! that sweeps stay within their share of time and bandwidth. Between two sweeps a host rests,
//! whatever its stream asks for.

use std::time::Duration;

/// The rest after a sweep, also if resets or unreadable frames ask for the next one. The
/// rest doubles with every failure in a row.
const FIRST_REST: Duration = Duration::from_secs(5);
const MAX_REST: Duration = Duration::from_secs(900);
/// The rest after a sweep as a multiple of its time, so that a stream that asks for sweeps
/// cannot cause endless sweeps of a large host.
const REST_PER_SWEEP_TIME: u32 = 4;
/// Failures in a row after which a host that no operator has named is swept ever more rarely. The
/// sweeps never end.
const GONE_AFTER_FAILURES: u32 = 12;
const MAX_GONE_REST: Duration = Duration::from_secs(24 * 3600);
/// By default all sweeps together take at most one part in this many of the time.
const BUSY_SHARE_DIVISOR: u32 = 20;
/// By default the listings of all sweeps together take at most this bandwidth.
const BYTES_PER_SECOND: u64 = 1_250_000;

/// The cost of one sweep, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    /// Bytes of the listings.
    pub bytes: u64,
    /// How long Gapless was busy.
    pub busy: Duration,
    /// How long listing and asking took, without waiting for suspects.
    pub took: Duration,
}

/// Returns how long a host rests after a sweep, whatever its streams ask for.
pub(crate) fn rest(cost: Cost, failures: u32, every: Duration) -> Duration {
    let least = match failures {
        0 => FIRST_REST.min(every),
        _ => {
            let doubled = FIRST_REST.saturating_mul(1 << failures.min(8));
            doubled.min(MAX_REST).min(every.max(FIRST_REST))
        }
    };
    least.max(cost.took.saturating_mul(REST_PER_SWEEP_TIME).min(every))
}

/// Returns how long a host rests that no operator has named. A network has thousands of such hosts,
/// and some never come back, so the rests are longer and spread out.
pub(crate) fn rest_of_unnamed_host(
    cost: Cost,
    failures: u32,
    every: Duration,
    host: u32,
) -> Duration {
    let least = rest(cost, failures, every);
    if failures == 0 {
        return least;
    }
    let longer = match failures.checked_sub(GONE_AFTER_FAILURES) {
        None => least,
        Some(more) => MAX_REST
            .saturating_mul(1 << more.min(8))
            .min(MAX_GONE_REST)
            .max(least),
    };
    let seed = u64::from(host) << 32 | u64::from(failures);
    let share = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    longer + longer.mul_f64(share as f64 / 1024.0)
}

impl Cost {
    pub(crate) fn plus(self, other: Cost) -> Cost {
        Cost {
            bytes: self.bytes.saturating_add(other.bytes),
            busy: self.busy.saturating_add(other.busy),
            took: self.took.saturating_add(other.took),
        }
    }

    pub(crate) fn minus(self, other: Cost) -> Cost {
        Cost {
            bytes: self.bytes.saturating_sub(other.bytes),
            busy: self.busy.saturating_sub(other.busy),
            took: self.took.saturating_sub(other.took),
        }
    }

    /// Returns the larger value of each field.
    pub(crate) fn max_of_each(self, other: Cost) -> Cost {
        Cost {
            bytes: self.bytes.max(other.bytes),
            busy: self.busy.max(other.busy),
            took: self.took.max(other.took),
        }
    }
}

/// Returns how often every host is swept, from the cost of the last sweeps of all hosts;
/// at least `least`.
pub(crate) fn interval(all: Cost, least: Duration) -> Duration {
    let by_bytes = Duration::from_secs(all.bytes / BYTES_PER_SECOND);
    least
        .max(all.busy.saturating_mul(BUSY_SHARE_DIVISOR))
        .max(by_bytes)
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
        assert_eq!(small, FIRST_REST, "a small host is swept again soon");
        assert_eq!(rest(took(60), 0, every), Duration::from_secs(240));
        assert_eq!(rest(took(3600), 0, every), every, "but it is swept");
        let often = Duration::from_secs(1);
        assert_eq!(rest(took(60), 0, often), often, "as the operator wants");
    }

    #[test]
    fn a_host_that_is_gone_is_tried_rarely_and_for_ever() {
        let every = Duration::from_secs(900);
        let of = |failures, host| rest_of_unnamed_host(Cost::default(), failures, every, host);
        assert_eq!(of(0, 1), FIRST_REST, "one that answers is not put off");
        assert!(of(3, 1) >= FIRST_REST * 8 && of(3, 1) <= FIRST_REST * 10);
        assert!(of(GONE_AFTER_FAILURES + 2, 1) >= MAX_REST * 4);
        let longest = of(u32::MAX, 1);
        assert!(longest >= MAX_GONE_REST && longest <= MAX_GONE_REST.mul_f64(1.25));
        let spread = (0..50).any(|host| of(20, host) != of(20, 99));
        assert!(spread, "they come one after the other");
        // However often an operator wants sweeps: this is about strangers.
        let often = rest_of_unnamed_host(Cost::default(), 20, Duration::from_secs(1), 1);
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
        assert_eq!(rest(took(1), 1, every), FIRST_REST * 2);
        assert_eq!(rest(took(1), 3, every), FIRST_REST * 8);
        assert_eq!(rest(took(1), 40, every), MAX_REST);
        assert_eq!(rest(took(60), 1, every), Duration::from_secs(240));
        assert_eq!(rest(took(60), 9, Duration::from_secs(1)), FIRST_REST);
    }
}
