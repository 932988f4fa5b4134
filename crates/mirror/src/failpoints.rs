//! Named points between two stages, at which a test lets the program be killed.
//!
//! `STOP_POINT=NAME:N` kills the process, as `kill -9` does, when it passes the
//! point for the N-th time; whoever passes it then goes no further. `HOLD_POINT=NAME:N`
//! lets the process live: only whoever passes goes no further. [`spoil`] makes the
//! next event of one repository panic, [`panic_at`] the next pass of a point for one
//! repository. Only in debug builds: a release build neither reads the variables nor
//! does anything here.

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
pub use debug::{event_of, here, panic_at, pass, spoil};

#[cfg(debug_assertions)]
mod debug {
    use std::collections::BTreeSet;
    use std::process::Command;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, OnceLock, PoisonError};

    use gapless_atp::syntax::Did;

    const KILL: &str = "STOP_POINT";
    const HOLD: &str = "HOLD_POINT";

    struct Stop {
        point: String,
        passings_left: AtomicU64,
        kills: bool,
    }

    fn stop() -> Option<&'static Stop> {
        static STOP: OnceLock<Option<Stop>> = OnceLock::new();
        let read = |variable| {
            let text = std::env::var(variable).ok()?;
            let (point, passing) = text.split_once(':')?;
            Some(Stop {
                point: point.to_owned(),
                passings_left: AtomicU64::new(passing.parse().ok()?),
                kills: variable == KILL,
            })
        };
        STOP.get_or_init(|| read(KILL).or_else(|| read(HOLD)))
            .as_ref()
    }

    pub fn here(point: &'static str) {
        let Some(stop) = stop().filter(|stop| stop.point == point) else {
            return;
        };
        if stop.passings_left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        if stop.kills {
            let id = std::process::id().to_string();
            // If there is no such program, the test waits for the end in vain, and says so.
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
        tracing::info!(point, "held here");
        loop {
            std::thread::park();
        }
    }

    /// Points that panic the next time they are passed for a repository.
    static PANICS: Mutex<BTreeSet<(&str, Did)>> = Mutex::new(BTreeSet::new());
    const EVENT: &str = "event";

    /// Makes the next event of a repository panic while it is decided.
    pub fn spoil(did: &Did) {
        panic_at(EVENT, did);
    }

    /// Marks the decision of an event of this repository.
    pub fn event_of(did: &Did) {
        pass(EVENT, did);
    }

    /// Makes `point` panic the next time it is passed for a repository.
    pub fn panic_at(point: &'static str, did: &Did) {
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        panics.insert((point, did.clone()));
    }

    /// Marks a named point in the work for one repository.
    pub fn pass(point: &'static str, did: &Did) {
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        let armed = panics.remove(&(point, did.clone()));
        drop(panics);
        assert!(!armed, "a test wants a fault of ours here");
    }
}
