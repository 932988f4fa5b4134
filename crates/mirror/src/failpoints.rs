//! Named points between two stages, at which a test can kill the process, hold a thread, or
//! cause a panic.
//!
//! `STOP_POINT=NAME:N` kills the process, as `kill -9` does, when the point is passed for
//! the N-th time. `HOLD_POINT=NAME:N` only holds the thread that passes. [`panic_at_event`]
//! makes the next event of one repository panic, and [`panic_at`] the next pass of a point
//! for one repository. In release builds this module reads no variables and does nothing.

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn here(_point: &'static str) {}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn event_of(_did: &gapless_atp::syntax::Did) {}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn pass(_point: &'static str, _did: &gapless_atp::syntax::Did) {}

#[cfg(debug_assertions)]
pub(crate) use debug::event_of;
#[cfg(debug_assertions)]
pub use debug::{here, panic_at, panic_at_event, pass};

#[cfg(debug_assertions)]
mod debug {
    use std::collections::BTreeSet;

    use gapless_store::sync::Mutex;
    use std::process::Command;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use gapless_atp::syntax::Did;

    const KILL: &str = "STOP_POINT";
    const HOLD: &str = "HOLD_POINT";

    /// The failpoint that a variable sets.
    struct Failpoint {
        point: String,
        passes_left: AtomicU64,
        /// Whether the failpoint kills the process, and does not only hold the thread.
        kills: bool,
    }

    fn configured() -> Option<&'static Failpoint> {
        static FAILPOINT: OnceLock<Option<Failpoint>> = OnceLock::new();
        let read = |variable| {
            let text = std::env::var(variable).ok()?;
            let (point, pass) = text.split_once(':')?;
            Some(Failpoint {
                point: point.to_owned(),
                passes_left: AtomicU64::new(pass.parse().ok()?),
                kills: variable == KILL,
            })
        };
        FAILPOINT
            .get_or_init(|| read(KILL).or_else(|| read(HOLD)))
            .as_ref()
    }

    /// Marks a named point.
    pub fn here(point: &'static str) {
        let Some(failpoint) = configured().filter(|configured| configured.point == point) else {
            return;
        };
        if failpoint.passes_left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        if failpoint.kills {
            let id = std::process::id().to_string();
            // Without the program `kill` the test fails: it waits for the end in vain.
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
        tracing::info!(point, "held here");
        loop {
            std::thread::park();
        }
    }

    /// Points that panic when they are passed next, each for one repository.
    static PANICS: Mutex<BTreeSet<(&str, Did)>> = Mutex::new(BTreeSet::new());
    const EVENT: &str = "event";

    /// Makes the next event of a repository panic while it is decided.
    pub fn panic_at_event(did: &Did) {
        panic_at(EVENT, did);
    }

    /// Marks the decision of an event of this repository.
    pub(crate) fn event_of(did: &Did) {
        pass(EVENT, did);
    }

    /// Makes `point` panic the next time it is passed for a repository.
    pub fn panic_at(point: &'static str, did: &Did) {
        let mut panics = PANICS.lock();
        panics.insert((point, did.clone()));
    }

    /// Marks a named point in the work for one repository.
    pub fn pass(point: &'static str, did: &Did) {
        let mut panics = PANICS.lock();
        let armed = panics.remove(&(point, did.clone()));
        drop(panics);
        assert!(!armed, "a test wants a fault of ours here");
    }
}
