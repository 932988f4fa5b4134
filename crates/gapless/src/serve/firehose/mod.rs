//! `com.atproto.sync.subscribeRepos`: the verified frames that are kept, under
//! numbers of our own, for whoever wants to stand on this mirror as on a relay.
//!
//! Promises: what is sent is durable here, so after any crash no number names
//! anything else than it did. For each repository commits come in the order in which
//! they were applied, each byte for byte its owner's but for the number. Where the
//! state moved in another way a `#sync` is kept in place of a frame; where a frame is
//! gone a `#sync` says where the repository is now: nobody sees a break that is not
//! explained. The window is what the frames cover; whoever asks for more is told
//! `OutdatedCursor`.
//!
//! Limits: so many consumers at a time, and no address has more than its share. Each
//! reads from the disk at its own pace, in pages: one that lags costs no memory, and is
//! cut when the window passes it or when it does not read at all.

mod page;
mod start;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gapless_store::error::StoreError;
use gapless_store::frames::FramesReader;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::config::FirehoseSettings;
use crate::serve::ip_limit::{Share, Shares};
use gapless_mirror::metrics::head;
use gapless_mirror::services::Services;

pub use page::{Page, Place, Stopped};
pub use start::{Start, start};

/// Why somebody cannot subscribe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
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
    Share(usize),
    #[error("the store cannot be read: {0}")]
    Store(String),
}

impl From<StoreError> for Unserved {
    fn from(error: StoreError) -> Unserved {
        Unserved::Store(error.to_string())
    }
}

/// One for a running mirror.
pub struct Firehose {
    pub settings: FirehoseSettings,
    services: Arc<Services>,
    room: Arc<Semaphore>,
    shares: Arc<Shares>,
    /// The number after the last one that is durable.
    head: watch::Sender<u64>,
    positions: Mutex<BTreeMap<u64, Arc<AtomicU64>>>,
    next_consumer: AtomicU64,
}

impl Firehose {
    pub fn new(services: Arc<Services>, settings: FirehoseSettings) -> Firehose {
        let head = watch::Sender::new(services.store.durable_head().next_seq);
        let tell = head.clone();
        services.store.on_durable(move |durable| {
            tell.send_if_modified(|next| {
                let more = durable.next_seq > *next;
                *next = durable.next_seq.max(*next);
                more
            });
        });
        Firehose {
            settings,
            room: Arc::new(Semaphore::new(settings.consumers)),
            shares: Arc::new(Shares::of(settings.consumers, false)),
            head,
            positions: Mutex::default(),
            next_consumer: AtomicU64::new(0),
            services,
        }
    }

    /// Takes a consumer in, before its handshake is answered: whoever has the answer
    /// misses nothing that happens after it.
    pub fn admit(
        self: &Arc<Self>,
        cursor: Option<u64>,
        peer: Option<IpAddr>,
    ) -> Result<(Consumer, Start), Unserved> {
        if self.services.rules.filter.is_narrow() {
            return Err(Unserved::Filtered);
        }
        let frames = self.frames().ok_or(Unserved::NoFrames)?;
        let share = match self.shares.take(peer) {
            Ok(share) => share,
            Err(all) => {
                self.services.metrics.firehose_turned_away.inc();
                return Err(Unserved::Share(all));
            }
        };
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            self.services.metrics.firehose_turned_away.inc();
            return Err(Unserved::Full(self.settings.consumers));
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
        let consumer = Consumer {
            firehose: self.clone(),
            number,
            position,
            head: self.head.subscribe(),
            _permit: permit,
            _share: share,
        };
        Ok((consumer, start))
    }

    /// Consumers now, and by how many numbers the slowest is behind.
    pub fn consumers(&self) -> (u64, u64) {
        let next = self.services.store.durable_head().next_seq;
        let positions = self.lock();
        let behind = positions.values().map(|at| at.load(Ordering::Relaxed));
        let lag = behind.min().map_or(0, |least| next.saturating_sub(least));
        (positions.len() as u64, lag)
    }

    /// Appends the gauges of the firehose in the text format of Prometheus.
    pub fn write_metrics(&self, out: &mut String) {
        let (consumers, lag) = self.consumers();
        let gauges = [
            (
                "gapless_firehose_consumers",
                "Consumers of the firehose.",
                consumers,
            ),
            (
                "gapless_firehose_lag",
                "By how many log numbers the slowest of them is behind.",
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
        // Nothing in here can panic half way.
        self.positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A consumer that was taken in. Its place is free again when this is dropped.
pub struct Consumer {
    firehose: Arc<Firehose>,
    number: u64,
    position: Arc<AtomicU64>,
    /// The number after the last one that is durable.
    pub head: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
    _share: Option<Share>,
}

impl Consumer {
    pub fn settings(&self) -> FirehoseSettings {
        self.firehose.settings
    }

    /// A reader of its own, from this number on.
    pub fn place(&self, from: u64) -> Place {
        Place::new(self.firehose.services.clone(), from)
    }

    /// So many frames and bytes were handed to its socket, up to this number.
    pub fn sent(&self, frames: u64, bytes: u64, next: u64) {
        let metrics = &self.firehose.services.metrics;
        metrics.firehose_frames.add(frames);
        metrics.firehose_bytes.add(bytes);
        self.position.store(next, Ordering::Relaxed);
    }

    /// It is cut.
    pub fn cut(&self, why: &'static str) {
        self.firehose.services.metrics.firehose_cut.inc();
        tracing::info!(
            consumer = self.number,
            at = self.position.load(Ordering::Relaxed),
            why,
            "a consumer of the firehose is cut; it can go on from its cursor while the window has it"
        );
    }

    /// Its log cannot be read.
    pub fn failed(&self, error: &StoreError) {
        tracing::warn!(consumer = self.number, %error, "the firehose cannot be read on");
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.firehose.lock().remove(&self.number);
    }
}
