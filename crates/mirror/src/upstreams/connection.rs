//! The state of the connection to an upstream, as the answers show it.

use std::sync::Arc;
use std::time::Duration;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::Time;
use gapless_store::sync::Mutex;

/// The state of the connection to one upstream. Its follower writes it; answers copy it.
#[derive(Debug, Clone, Default)]
pub struct ConnectionState {
    pub error: Option<String>,
    pub failures: u32,
    pub next_dial: Option<Time>,
    /// The time since which there has been no connection.
    pub down_since: Option<Time>,
    pub last_frame: Option<Time>,
    pub lag: Arc<Lag>,
    pub frames: u64,
}

/// The age of the last commit of a stream when the commit was durable. Only commits with
/// a verified signature count, because any other rev can claim any age.
#[derive(Debug, Default)]
pub struct Lag(Mutex<Option<Duration>>);

impl Lag {
    /// Records that a commit is durable.
    pub fn note(&self, now: Time, rev: Rev) {
        let age = now.since(Time(rev.micros()));
        *self.0.lock() = Some(age);
    }

    pub fn get(&self) -> Option<Duration> {
        *self.0.lock()
    }
}
