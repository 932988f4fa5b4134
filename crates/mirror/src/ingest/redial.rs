//! Decides when a quiet connection is closed, and how long to wait before a host is dialed again.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use gapless_core::ledger::{UpstreamId, UpstreamKind};

/// The wait after the first failed dial. It doubles up to [`REDIAL_LONGEST`].
const REDIAL_FIRST: Duration = Duration::from_millis(500);
const REDIAL_LONGEST: Duration = Duration::from_secs(60);
/// The longest wait for a host that discovery added: there may be thousands, and some of them are
/// always unreachable.
const REDIAL_PATIENTLY: Duration = Duration::from_secs(3600);
/// A longer `Retry-After` of a host counts as this.
const RETRY_AFTER_LONGEST: Duration = Duration::from_secs(3600);
/// A relay or a Jetstream that sends no event for this long has lost its own sources or this
/// connection. A new connection from the cursor shows which, and costs nothing, even with a small
/// relay that is just quiet.
const RELAY_QUIET_TOO_LONG: Duration = Duration::from_secs(600);

/// A connection that lasted this long resets the count of failures.
const GOOD_CONNECTION: Duration = Duration::from_secs(30);

/// The number of failures in a row after a connection ended. A connection that brought new
/// events resets it, however short: a host that restarts several times is not dialed more
/// slowly each time.
fn failures_after(failures: u32, held: Duration, told_news: bool) -> u32 {
    if told_news || held >= GOOD_CONNECTION {
        1
    } else {
        failures.saturating_add(1)
    }
}

/// How a connection, or the attempt to open one, ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub held: Duration,
    /// Whether the connection brought new events.
    pub told_news: bool,
    /// Whether the cursor was cleared because the host knows no number as high as the cursor.
    pub renumbered: bool,
}

/// Counts the failures in a row.
#[derive(Debug, Default)]
pub(super) struct DialFailures {
    failures: u32,
    renumbered: bool,
}

impl DialFailures {
    /// Counts the end of a connection and returns the number of failures in a row. Returns
    /// `None` if the next dial is due at once, because the cursor was cleared; a second such
    /// end in a row is a failure.
    pub(super) fn ended(&mut self, ending: Ending) -> Option<u32> {
        let at_once = ending.renumbered && !self.renumbered;
        self.renumbered = ending.renumbered;
        if at_once {
            return None;
        }
        self.failures = failures_after(self.failures, ending.held, ending.told_news);
        Some(self.failures)
    }
}

/// Whether an open connection is closed because no event came over it.
pub(super) fn is_too_quiet(kind: UpstreamKind, quiet: Duration) -> bool {
    match kind {
        UpstreamKind::Relay | UpstreamKind::Jetstream => quiet >= RELAY_QUIET_TOO_LONG,
        UpstreamKind::Pds => false,
    }
}

/// A number that differs between processes, even between containers that were started in the same
/// moment and whose processes have the same id.
static SALT: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

/// Returns the wait until the next dial: the wait of [`backoff`], or the host's `Retry-After` if
/// that is longer, up to [`RETRY_AFTER_LONGEST`].
pub(super) fn redial_wait(
    failures: u32,
    id: UpstreamId,
    after: Option<Duration>,
    patient: bool,
) -> Duration {
    let asked = after.unwrap_or_default().min(RETRY_AFTER_LONGEST);
    let longest = if patient {
        REDIAL_PATIENTLY
    } else {
        REDIAL_LONGEST
    };
    backoff(failures, id, *SALT, longest).max(asked)
}

/// Returns a wait that doubles with each failure, spread between half and the whole, so that many
/// mirrors do not dial a host at the same time.
fn backoff(failures: u32, id: UpstreamId, salt: u64, longest: Duration) -> Duration {
    let doubled = REDIAL_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let whole = doubled.min(longest);
    let seed = (u64::from(id.0) << 32 | u64::from(failures)) ^ salt;
    let share = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    whole / 2 + whole.mul_f64(share as f64 / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_are_spread_and_have_an_end() {
        for id in [1, 2, 77] {
            let waits: Vec<Duration> = (1..40)
                .map(|one| backoff(one, UpstreamId(id), 7, REDIAL_LONGEST))
                .collect();
            assert!(waits[0] >= REDIAL_FIRST / 2 && waits[0] <= REDIAL_FIRST);
            assert!(waits.iter().all(|wait| *wait <= REDIAL_LONGEST));
            assert!(waits[38] >= REDIAL_LONGEST / 2);
        }
        let of = |salt| backoff(20, UpstreamId(1), salt, REDIAL_LONGEST);
        assert!((0..50).any(|salt| of(salt) != of(50)), "not spread");
    }

    #[test]
    fn failures_count_until_a_connection_holds_or_tells_something_new() {
        let short = Duration::from_secs(1);
        assert_eq!(failures_after(0, short, false), 1);
        assert_eq!(failures_after(7, short, false), 8);
        assert_eq!(failures_after(7, GOOD_CONNECTION, false), 1);
        assert_eq!(failures_after(7, short, true), 1);
        assert_eq!(failures_after(u32::MAX, short, false), u32::MAX);
    }

    #[test]
    fn a_numbering_that_ended_is_asked_for_anew_at_once_and_only_once() {
        let short = Ending {
            held: Duration::from_secs(1),
            told_news: false,
            renumbered: false,
        };
        let renumbered = Ending {
            renumbered: true,
            ..short
        };
        let mut tries = DialFailures::default();
        for failures in 1..8 {
            assert_eq!(tries.ended(short), Some(failures));
        }
        assert_eq!(tries.ended(renumbered), None, "whatever was before");
        assert_eq!(tries.ended(renumbered), Some(8), "no loop");
        assert_eq!(tries.ended(renumbered), Some(9));
        assert_eq!(tries.ended(short), Some(10));
        assert_eq!(tries.ended(renumbered), None);
    }

    #[test]
    fn a_host_that_names_a_time_is_not_dialed_before_it() {
        let wait = |after| redial_wait(1, UpstreamId(1), after, false);
        assert!(wait(None) <= REDIAL_FIRST);
        let minutes = Duration::from_secs(300);
        assert_eq!(wait(Some(minutes)), minutes);
        assert_eq!(
            wait(Some(Duration::from_secs(1_000_000))),
            RETRY_AFTER_LONGEST
        );
        assert_eq!(wait(Some(Duration::ZERO)), wait(None));
        let patiently = redial_wait(40, UpstreamId(1), None, true);
        assert!(patiently >= REDIAL_PATIENTLY / 2, "one of thousands");
    }

    #[test]
    fn a_relay_is_never_quiet_for_long_and_a_pds_may_be() {
        let long = RELAY_QUIET_TOO_LONG;
        assert!(is_too_quiet(UpstreamKind::Relay, long));
        assert!(!is_too_quiet(UpstreamKind::Relay, long / 2));
        assert!(!is_too_quiet(UpstreamKind::Pds, long * 1000));
    }
}
