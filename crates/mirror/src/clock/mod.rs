//! The clock and the order of all decisions, for every thread.
//!
//! Times follow the wall clock, backward as well: otherwise a single wrong step forward
//! would be believed until the next start. Times follow a forward step at once. They follow
//! a backward step only if the wall clock is behind by more than [`STEP_TOLERANCE`];
//! until then they advance with the monotonic clock. After a backward step the age of older
//! times is unknown, so modules that hold times in memory watch [`Clock::steps_back`]. Work
//! that cannot be undone first checks whether the clock [is believed](Clock::is_believed).
//! Ticks increase strictly, whatever the wall clock does, across restarts too.

mod evidence;
mod tick_times;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gapless_atp::syntax::Rev;
use gapless_core::ledger::time::micros;
use gapless_core::ledger::{HostId, Lived, Now, Tick, Time};
use gapless_store::sync::Mutex;

/// How far the wall clock may deviate from the monotonic clock before it counts as set. A
/// clock that was set back resets every connection.
pub(crate) const STEP_TOLERANCE: Duration = Duration::from_secs(10);

/// How long the clock must have kept step before a deletion believes it, or the time after which
/// something is deleted if that is less. A deletion cannot be undone, so a clock that was wrong for a
/// moment must not cause one.
const BELIEVED_AFTER: Duration = Duration::from_secs(3600);

use evidence::{ClockVerdict, Votes};
pub(crate) use tick_times::TickTimes;

/// The source of times and ticks.
pub struct Clock {
    last_tick: AtomicU64,
    base: Mutex<Inner>,
    steps_back: AtomicU64,
    /// Microseconds that tests add to the wall clock.
    ahead: AtomicI64,
    tick_times: TickTimes,
    /// What the hosts of verified commits say about the time.
    votes: Mutex<Votes>,
}

struct Inner {
    /// A monotonic instant, and the time at that instant.
    at: Instant,
    time: u64,
    /// When the wall clock was last seen to be set; the start, at first.
    set_at: Instant,
    /// The time lived through, and the moment from which on both clocks are compared for it.
    lived: Lived,
    lived_from: (Instant, u64, Lived),
}

impl Inner {
    /// Advances the time lived through by the smaller progress of the two clocks since they were
    /// last compared anew, which happens when the wall clock `is_set`.
    fn live(&mut self, at: Instant, wall: u64, is_set: bool) {
        if is_set {
            self.lived_from = (at, wall, self.lived);
            return;
        }
        let (from, wall_from, lived) = self.lived_from;
        let passed = micros(at.saturating_duration_since(from));
        let progress = passed.min(wall.saturating_sub(wall_from));
        self.lived = self.lived.max(Lived(lived.0.saturating_add(progress)));
    }
}

impl Clock {
    /// Continues after the last tick in the store, and with the time that the store has lived
    /// through.
    pub fn resume(last: Tick, lived: Lived) -> Clock {
        let (at, time) = (Instant::now(), wall());
        Clock {
            last_tick: AtomicU64::new(last.0),
            base: Mutex::new(Inner {
                at,
                time,
                set_at: at,
                lived,
                lived_from: (at, time, lived),
            }),
            steps_back: AtomicU64::new(0),
            ahead: AtomicI64::new(0),
            tick_times: TickTimes::new(Now {
                tick: last,
                time: Time(time),
                lived,
            }),
            votes: Mutex::default(),
        }
    }

    /// The wall-clock times of recent ticks.
    pub(crate) fn tick_times(&self) -> &TickTimes {
        &self.tick_times
    }

    /// The present time.
    pub fn time(&self) -> Time {
        self.time_and_lived().0
    }

    /// The time that the store has lived through; see [`Lived`].
    pub fn lived(&self) -> Lived {
        self.time_and_lived().1
    }

    fn time_and_lived(&self) -> (Time, Lived) {
        let mut base = self.base.lock();
        let wall = wall().saturating_add_signed(self.ahead.load(Ordering::SeqCst));
        let time = self.advance(&mut base, Instant::now(), wall);
        (time, base.lived)
    }

    fn advance(&self, base: &mut Inner, at: Instant, wall: u64) -> Time {
        let tolerated = micros(STEP_TOLERANCE);
        let passed = micros(at.saturating_duration_since(base.at));
        let due = base.time.saturating_add(passed);
        let back = wall.saturating_add(tolerated) < due;
        let is_set = back || wall > due.saturating_add(tolerated);
        base.live(at, wall, is_set);
        if is_set {
            base.set_at = at;
            self.votes.lock().clear();
            let by_seconds = due.abs_diff(wall) / 1_000_000;
            tracing::warn!(by_seconds, back, "the clock was set; times follow it");
        }
        if back {
            // Count the step before any caller gets the new time.
            self.steps_back.fetch_add(1, Ordering::SeqCst);
        }
        let time = if back { wall } else { wall.max(due) };
        (base.at, base.time) = (at, time);
        Time(time)
    }

    /// How often the time has gone back. A caller that read this number before a backward
    /// step has read a lower number.
    pub(crate) fn steps_back(&self) -> u64 {
        self.steps_back.load(Ordering::SeqCst)
    }

    /// How long the wall clock has run without being set, as far as is known since the
    /// start.
    pub(crate) fn kept_step(&self) -> Duration {
        self.time();
        let base = self.base.lock();
        base.set_at.elapsed()
    }

    /// Notes the rev of a verified commit that was just applied, as evidence of the time.
    pub(crate) fn note_rev(&self, host: HostId, rev: Rev) {
        let wall = self.time();
        let mut votes = self.votes.lock();
        votes.note(Instant::now(), wall, host, rev.micros());
    }

    /// Whether a deletion may believe that `waited` has passed: the wall clock has kept step with the
    /// monotonic clock for that long or for [`BELIEVED_AFTER`], and the hosts whose commits arrived
    /// lately do not agree on another time. Every deletion that cannot be undone asks this.
    pub(crate) fn is_believed(&self, waited: Duration) -> bool {
        let kept_step = self.kept_step() >= waited.min(BELIEVED_AFTER);
        kept_step && self.votes.lock().verdict(Instant::now()) != ClockVerdict::Differs
    }

    /// For tests: sets the wall clock ahead of the real clock.
    pub fn set_wall(&self, ahead_seconds: i64) {
        let ahead = ahead_seconds.saturating_mul(1_000_000);
        self.ahead.store(ahead, Ordering::SeqCst);
    }

    /// The next tick, with the present time.
    pub fn now(&self) -> Now {
        let (time, lived) = self.time_and_lived();
        Now {
            time,
            tick: Tick(self.last_tick.fetch_add(1, Ordering::SeqCst) + 1),
            lived,
        }
    }

    /// The last tick, with the present time, for a question that decides nothing.
    pub fn last_tick_now(&self) -> Now {
        let (time, lived) = self.time_and_lived();
        Now {
            time,
            tick: Tick(self.last_tick.load(Ordering::SeqCst)),
            lived,
        }
    }
}

fn wall() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn ticks_go_on_after_the_last_one() {
        let clock = Clock::resume(Tick(41), Lived::default());
        assert_eq!(clock.last_tick_now().tick, Tick(41));
        assert_eq!(clock.now().tick, Tick(42));
        clock.set_wall(3600);
        assert_eq!(clock.now().tick, Tick(43));
        clock.set_wall(-3600);
        assert_eq!(clock.now().tick, Tick(44));
    }

    /// What the clock says at so many seconds after its start when the wall says so
    /// many, how often it went back by then, and for how many seconds it kept step.
    fn looks(looks: &[(u64, u64)]) -> Vec<(u64, u64, u64)> {
        let clock = Clock::resume(Tick(0), Lived::default());
        let start = Instant::now();
        let mut base = Inner {
            at: start,
            time: 0,
            set_at: start,
            lived: Lived::default(),
            lived_from: (start, 0, Lived::default()),
        };
        let mut told = Vec::new();
        for (at, wall) in looks {
            let at = start + Duration::from_secs(*at);
            let time = clock.advance(&mut base, at, wall * SECOND);
            let kept = at.duration_since(base.set_at).as_secs();
            told.push((time.0 / SECOND, clock.steps_back(), kept));
        }
        told
    }

    #[test]
    fn a_wall_that_was_set_is_followed_both_ways() {
        let told = looks(&[(1, 1), (2, 3602), (3, 3603), (4, 4), (5, 5)]);
        let expected = [(1, 0, 1), (3602, 0, 0), (3603, 0, 1), (4, 1, 0), (5, 1, 1)];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_little_back_is_waited_for_and_never_adds_up() {
        // Eight seconds back, and eight more: together that is a step.
        let told = looks(&[(100, 100), (101, 93), (102, 94), (103, 87)]);
        let expected = [(100, 0, 100), (101, 0, 101), (102, 0, 102), (87, 1, 0)];
        assert_eq!(told, expected);
        // A little ahead is no step either.
        assert_eq!(looks(&[(1, 9), (2, 10)]), [(9, 0, 1), (10, 0, 2)]);
    }

    #[test]
    fn a_wall_that_is_set_changes_no_lived_time() {
        let clock = Clock::resume(Tick(0), Lived(5 * SECOND));
        let start = Instant::now();
        let mut base = Inner {
            at: start,
            time: 0,
            set_at: start,
            lived: Lived(5 * SECOND),
            lived_from: (start, 0, Lived(5 * SECOND)),
        };
        // Steady; set ahead by an hour; steady; set back; and a wall that is a little slow, then a
        // little fast.
        for (at, wall, lived) in [
            (10, 10, 15),
            (11, 3611, 15),
            (21, 3621, 25),
            (22, 22, 25),
            (32, 32, 35),
            (42, 40, 43),
            (52, 53, 55),
        ] {
            let at = start + Duration::from_secs(at);
            clock.advance(&mut base, at, wall * SECOND);
            assert_eq!(base.lived, Lived(lived * SECOND), "at wall {wall}");
        }
    }

    #[test]
    fn a_clock_that_was_just_set_is_not_believed() {
        let clock = Clock::resume(Tick(0), Lived::default());
        let waited = Duration::from_millis(5);
        assert!(!clock.is_believed(waited), "it has just begun");
        std::thread::sleep(waited);
        assert!(clock.is_believed(waited));
        clock.set_wall(3600);
        assert!(!clock.is_believed(waited));
        std::thread::sleep(waited);
        assert!(clock.is_believed(waited), "it has kept step since");
    }

    #[test]
    fn a_clock_that_three_hosts_contradict_is_not_believed() {
        let clock = Clock::resume(Tick(0), Lived::default());
        let rev = |seconds: i64| {
            let micros = wall().saturating_add_signed(seconds * SECOND as i64);
            Rev::from_micros(micros, 0)
        };
        for host in [1, 2, 3] {
            assert!(clock.is_believed(Duration::ZERO), "{host}: too few hosts");
            clock.note_rev(HostId(host), rev(-3600));
        }
        assert!(!clock.is_believed(Duration::ZERO));
        // The hosts were late; now they agree with the wall clock.
        for host in [1, 2, 3] {
            clock.note_rev(HostId(host), rev(0));
        }
        assert!(clock.is_believed(Duration::ZERO));
    }

    #[test]
    fn a_clock_has_kept_step_since_it_was_set() {
        let clock = Clock::resume(Tick(0), Lived::default());
        std::thread::sleep(Duration::from_millis(5));
        assert!(clock.kept_step() >= Duration::from_millis(5));
        clock.set_wall(3600);
        let set = Instant::now();
        assert!(clock.kept_step() <= set.elapsed() + Duration::from_millis(1));
        assert_eq!(clock.steps_back(), 0);
        clock.set_wall(0);
        clock.time();
        assert_eq!(clock.steps_back(), 1);
    }
}
