//! What people are told of a connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::Time;

#[derive(Debug, Clone, Default)]
pub struct Link {
    pub error: Option<String>,
    pub failures: u32,
    pub next_dial: Option<Time>,
    /// Since when there has been no connection.
    pub down_since: Option<Time>,
    pub last_frame: Option<Time>,
    pub lag: Arc<Lag>,
    pub frames: u64,
}

/// How old the last commit of a stream was when it was durable. What nobody has
/// checked does not count: anybody could make any age of it.
#[derive(Debug, Default)]
pub struct Lag(Mutex<Option<Duration>>);

impl Lag {
    pub fn note(&self, now: Time, rev: Rev) {
        let age = now.since(Time(rev.micros()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(age);
    }

    pub fn get(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
