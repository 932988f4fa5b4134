//! Serves `com.atproto.sync.subscribeRepos`: the verified frames that are kept, with the
//! log numbers of this mirror, for consumers that use it like a relay.
//!
//! Promises: a frame is durable before it is sent, so a number means the same event after
//! any crash. The commits of a repository arrive in the order in which they were applied,
//! byte for byte as their owner signed them except for the number. A `#sync` frame stands
//! for a state that was reached in another way, and for a frame that is gone, so every
//! break of a chain is explained. A consumer whose cursor is older than the window gets
//! `OutdatedCursor`.
//!
//! Limits: `serve.consumers` consumers at the same time, and one address may use only a
//! part of these places. Each consumer reads from the disk in pages, at its own pace: a
//! consumer that lags costs no memory, and is cut when the window passes it or when it
//! reads nothing for `serve.stall`.

mod page;
mod start;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gapless_store::error::StoreError;
use gapless_store::frames::FramesReader;
use gapless_store::log_reader::PageError;
use gapless_store::sync::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::config::FirehoseSettings;
use crate::serve::ip_limit::{IpLimiter, IpPermit};
use gapless_mirror::log::reader::{Reader as _, StoreLog};
use gapless_mirror::metrics::head;
use gapless_mirror::services::Services;

pub(crate) use page::{FirehoseReader, PageResult};
pub(crate) use start::{Start, start};

/// Why a consumer was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubscribeError {
    #[error(
        "this mirror keeps only some collections, so it has no whole repositories to send on; \
         its records and listings can be read"
    )]
    Filtered,
    #[error("this mirror keeps no frames")]
    NoFrames,
    #[error("{0} consumers are served already; try again later")]
    Full(usize),
    #[error("{0} consumers from your address are served already, which is its share")]
    PerIp(usize),
    #[error("the store cannot be read: {0}")]
    Store(String),
}

impl From<StoreError> for SubscribeError {
    fn from(error: StoreError) -> SubscribeError {
        SubscribeError::Store(error.to_string())
    }
}

/// The firehose of a running mirror.
pub struct Firehose {
    pub(crate) settings: FirehoseSettings,
    services: Arc<Services>,
    places: Arc<Semaphore>,
    ip_limiter: Arc<IpLimiter>,
    log: StoreLog,
    /// The next number of each consumer.
    positions: Mutex<BTreeMap<u64, Arc<AtomicU64>>>,
    next_consumer: AtomicU64,
}

impl Firehose {
    pub(crate) fn new(
        services: Arc<Services>,
        log: StoreLog,
        settings: FirehoseSettings,
    ) -> Firehose {
        Firehose {
            settings,
            places: Arc::new(Semaphore::new(settings.consumers)),
            ip_limiter: Arc::new(IpLimiter::new(settings.consumers, false)),
            log,
            positions: Mutex::default(),
            next_consumer: AtomicU64::new(0),
            services,
        }
    }

    /// Admits a consumer before its handshake is answered, so that the consumer misses no
    /// event after the answer.
    pub(crate) fn admit(
        self: &Arc<Self>,
        cursor: Option<u64>,
        peer: Option<IpAddr>,
    ) -> Result<(FirehoseConsumer, Start), SubscribeError> {
        if self.services.rules.filter.is_narrow() {
            return Err(SubscribeError::Filtered);
        }
        let frames = self.frames().ok_or(SubscribeError::NoFrames)?;
        let ip_permit = match self.ip_limiter.try_acquire(peer) {
            Ok(ip_permit) => ip_permit,
            Err(all) => {
                self.services.metrics.firehose_turned_away.inc();
                return Err(SubscribeError::PerIp(all));
            }
        };
        let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
            self.services.metrics.firehose_turned_away.inc();
            return Err(SubscribeError::Full(self.settings.consumers));
        };
        let next = self.services.store.durable_head().next_seq;
        let start = start(cursor, frames.oldest_seq(), next);
        let from = match start {
            Start::At { from, .. } => from,
            Start::Future => next,
        };
        let position = Arc::new(AtomicU64::new(from));
        let number = self.next_consumer.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, position.clone());
        self.services.metrics.firehose_subscriptions.inc();
        let consumer = FirehoseConsumer {
            firehose: self.clone(),
            number,
            position,
            head: self.log.head(),
            _permit: permit,
            _ip_permit: ip_permit,
        };
        Ok((consumer, start))
    }

    /// The number of consumers, and by how many numbers the slowest one is behind.
    pub fn consumers(&self) -> (u64, u64) {
        let next = self.services.store.durable_head().next_seq;
        let positions = self.lock();
        let behind = positions.values().map(|at| at.load(Ordering::Relaxed));
        let lag = behind.min().map_or(0, |least| next.saturating_sub(least));
        (positions.len() as u64, lag)
    }

    /// Appends the gauges of the firehose in the Prometheus text format.
    pub(crate) fn write_metrics(&self, out: &mut String) {
        let (consumers, lag) = self.consumers();
        let gauges = [
            (
                "gapless_firehose_consumers",
                "Connected consumers of the firehose.",
                consumers,
            ),
            (
                "gapless_firehose_lag",
                "Log numbers by which the slowest consumer of the firehose is behind.",
                lag,
            ),
        ];
        for (name, help, value) in gauges {
            head(out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
    }

    fn frames(&self) -> Option<&FramesReader> {
        self.services.store.frames()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<AtomicU64>>> {
        self.positions.lock()
    }
}

/// An admitted consumer. Dropping it frees its place.
pub(crate) struct FirehoseConsumer {
    firehose: Arc<Firehose>,
    number: u64,
    position: Arc<AtomicU64>,
    /// The number after the last durable one.
    pub(crate) head: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
    _ip_permit: Option<IpPermit>,
}

impl FirehoseConsumer {
    pub(crate) fn settings(&self) -> FirehoseSettings {
        self.firehose.settings
    }

    /// Creates a reader that starts at this number.
    pub(crate) fn reader(&self, from: u64) -> FirehoseReader {
        FirehoseReader::new(self.firehose.services.clone(), from)
    }

    /// Counts frames and bytes that were written to the socket, up to the number `next`.
    pub(crate) fn record_sent(&self, frames: u64, bytes: u64, next: u64) {
        let metrics = &self.firehose.services.metrics;
        metrics.firehose_frames.add(frames);
        metrics.firehose_bytes.add(bytes);
        self.position.store(next, Ordering::Relaxed);
    }

    /// Records that the consumer is cut.
    pub(crate) fn record_cut(&self, why: &'static str) {
        self.firehose.services.metrics.firehose_cut.inc();
        tracing::info!(
            consumer = self.number,
            at = self.position.load(Ordering::Relaxed),
            why,
            "firehose consumer cut; it can resume from its cursor within the window"
        );
    }

    /// Records that the log cannot be read for this consumer.
    pub(crate) fn record_failure(&self, error: &PageError) {
        tracing::warn!(consumer = self.number, %error, "the log cannot be read; the firehose consumer is disconnected");
    }
}

impl Drop for FirehoseConsumer {
    fn drop(&mut self) {
        self.firehose.lock().remove(&self.number);
    }
}
