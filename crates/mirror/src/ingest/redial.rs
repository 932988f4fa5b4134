//! When a connection is given up although it lives, and when a host is dialed again.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use gapless_core::ledger::{UpstreamId, UpstreamKind};

/// The first wait after a failed dial, doubled up to the longest.
const REDIAL_FIRST: Duration = Duration::from_millis(500);
const REDIAL_LONGEST: Duration = Duration::from_secs(60);
/// The longest rest between two dials while thousands of hosts are followed, some of
/// which are gone.
const REDIAL_LONGEST_OF_MANY: Duration = Duration::from_secs(3600);
/// The longest Retry-After that is respected.
const RETRY_AFTER_LONGEST: Duration = Duration::from_secs(3600);
/// A relay without an event for so long has lost its own sources, or us: a new
/// connection from the cursor shows which, and costs nothing. Relays carry several
/// events a second; small ones of test networks lose nothing by a new connection.
const RELAY_QUIET_TOO_LONG: Duration = Duration::from_secs(600);

/// The count of failures begins anew after a connection that lasted this long.
const GOOD_CONNECTION: Duration = Duration::from_secs(30);

/// How many failures in a row there have been, now that a connection ended. A host
/// that told something new is there, however soon it went: one that is started again
/// and again, as after a crash, is not left alone for longer each time.
fn failures_after(failures: u32, held: Duration, told_news: bool) -> u32 {
    match told_news || held >= GOOD_CONNECTION {
        true => 1,
        false => failures.saturating_add(1),
    }
}

/// How a connection, or the try to have one, ended.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    pub held: Duration,
    /// It brought events that were not known.
    pub told_news: bool,
    /// The host knows no number as high as our cursor, which is given up.
    pub renumbered: bool,
}

/// The tries to be connected, one after the other.
#[derive(Debug, Default)]
pub struct Tries {
    failures: u32,
    renumbered: bool,
}

impl Tries {
    /// One has ended: how many failures in a row that makes. None: the next is due at
    /// once, because it asks for something else. Whoever says the same to that is left
    /// alone as everybody is.
    pub fn ended(&mut self, ending: Ending) -> Option<u32> {
        let at_once = ending.renumbered && !self.renumbered;
        self.renumbered = ending.renumbered;
        if at_once {
            return None;
        }
        self.failures = failures_after(self.failures, ending.held, ending.told_news);
        Some(self.failures)
    }
}

/// Whether a connection that lives is given up because no event came over it.
pub fn is_too_quiet(kind: UpstreamKind, quiet: Duration) -> bool {
    match kind {
        UpstreamKind::Relay | UpstreamKind::Jetstream => quiet >= RELAY_QUIET_TOO_LONG,
        UpstreamKind::Pds => false,
    }
}

/// Another number in every process: in containers they all have the same id, and
/// may have been started in the same moment.
static SALT: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

/// How long until the next dial: as [`backoff`] has it, and not before the host
/// wants it, within reason.
pub fn redial_wait(
    failures: u32,
    id: UpstreamId,
    after: Option<Duration>,
    patient: bool,
) -> Duration {
    let asked = after.unwrap_or_default().min(RETRY_AFTER_LONGEST);
    let longest = match patient {
        true => REDIAL_LONGEST_OF_MANY,
        false => REDIAL_LONGEST,
    };
    backoff(failures, id, *SALT, longest).max(asked)
}

/// Doubling waits, spread between half and the whole, so that many mirrors do not
/// come back together.
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
        let mut tries = Tries::default();
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
        assert!(patiently >= REDIAL_LONGEST_OF_MANY / 2, "one of thousands");
    }

    #[test]
    fn a_relay_is_never_quiet_for_long_and_a_pds_may_be() {
        let long = RELAY_QUIET_TOO_LONG;
        assert!(is_too_quiet(UpstreamKind::Relay, long));
        assert!(!is_too_quiet(UpstreamKind::Relay, long / 2));
        assert!(!is_too_quiet(UpstreamKind::Pds, long * 1000));
    }
}
