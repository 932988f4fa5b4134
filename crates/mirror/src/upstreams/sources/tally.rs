//! The counters of one source: which commits it brought first, late or not at all.

use std::collections::HashSet;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gapless_core::ledger::{HostId, Time, UpstreamId, UpstreamKind};
use gapless_store::sync::Mutex;

/// Upper bounds of the histogram of delays.
const LATENESS_BOUNDS_MS: [u64; 14] = [
    1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000,
];
/// Hosts remembered for one relay. No commits are expected of the relay for further hosts.
const MAX_RELAY_HOSTS: usize = 200_000;

/// The counters of one source.
pub struct SourceTally {
    pub id: UpstreamId,
    pub kind: UpstreamKind,
    pub host: Option<HostId>,
    pub tracked_only: bool,
    first: AtomicU64,
    late: [AtomicU64; LATENESS_BOUNDS_MS.len() + 1],
    late_micros: AtomicU64,
    latest_micros: AtomicU64,
    inner: Mutex<Inner>,
}

/// The data that is rarely written or read.
#[derive(Default)]
struct Inner {
    connected_since: Option<Instant>,
    missed: u64,
    missed_first: Option<Time>,
    missed_last: Option<Time>,
    /// Hosts whose repositories a relay has brought.
    hosts: HashSet<HostId>,
}

/// The counts of one source since it was added.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceFigures {
    /// Commits that the source brought before all other sources.
    pub first: u64,
    /// Commits that the source brought after another source.
    pub late: u64,
    /// Commits that other sources brought and this source did not bring in time.
    pub missed: u64,
    pub missed_first: Option<Time>,
    pub missed_last: Option<Time>,
    pub late_mean: Option<Duration>,
    /// An upper bound: the bound of a histogram bucket, or `late_max` if that is less.
    pub late_p99: Option<Duration>,
    pub late_max: Option<Duration>,
}

impl SourceTally {
    pub fn new(
        id: UpstreamId,
        kind: UpstreamKind,
        host: Option<HostId>,
        tracked_only: bool,
    ) -> SourceTally {
        SourceTally {
            id,
            kind,
            host,
            tracked_only,
            first: AtomicU64::new(0),
            late: std::array::from_fn(|_| AtomicU64::new(0)),
            late_micros: AtomicU64::new(0),
            latest_micros: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub fn connected(&self) {
        self.lock().connected_since = Some(Instant::now());
    }

    pub fn lost(&self) {
        self.lock().connected_since = None;
    }

    /// Whether the source has been connected without a break since `at`.
    pub(crate) fn was_connected_since(&self, at: Instant) -> bool {
        let since = self.lock().connected_since;
        since.is_some_and(|since| since <= at)
    }

    pub(crate) fn note_host(&self, host: HostId) {
        if self.kind != UpstreamKind::Relay {
            return;
        }
        let mut inner = self.lock();
        if inner.hosts.len() < MAX_RELAY_HOSTS {
            inner.hosts.insert(host);
        }
    }

    pub fn brings(&self, host: HostId) -> bool {
        self.lock().hosts.contains(&host)
    }

    pub fn first(&self) {
        self.first.fetch_add(1, Ordering::Relaxed);
    }

    pub fn late(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let class =
            LATENESS_BOUNDS_MS.partition_point(|bound| bound.saturating_mul(1_000) < micros);
        self.late[class].fetch_add(1, Ordering::Relaxed);
        self.late_micros.fetch_add(micros, Ordering::Relaxed);
        self.latest_micros.fetch_max(micros, Ordering::Relaxed);
    }

    pub fn missed(&self, now: Time) {
        let mut inner = self.lock();
        inner.missed += 1;
        inner.missed_first.get_or_insert(now);
        inner.missed_last = Some(now);
    }

    pub fn figures(&self) -> SourceFigures {
        let classes: Vec<u64> = self
            .late
            .iter()
            .map(|class| class.load(Ordering::Relaxed))
            .collect();
        let late: u64 = classes.iter().sum();
        let max = Duration::from_micros(self.latest_micros.load(Ordering::Relaxed));
        let mean = self.late_micros.load(Ordering::Relaxed).checked_div(late);
        let inner = self.lock();
        SourceFigures {
            first: self.first.load(Ordering::Relaxed),
            late,
            missed: inner.missed,
            missed_first: inner.missed_first,
            missed_last: inner.missed_last,
            late_mean: mean.map(Duration::from_micros),
            late_p99: percentile(&classes, late).map(|bound| bound.min(max)),
            late_max: (late > 0).then_some(max),
        }
    }
}

/// The upper bound of the bucket that holds the 99th percentile of `all` delays.
fn percentile(classes: &[u64], all: u64) -> Option<Duration> {
    let wanted = all.saturating_mul(99).div_ceil(100);
    let mut reached = 0;
    for (class, count) in classes.iter().enumerate() {
        reached += count;
        if reached >= wanted && reached > 0 {
            let bound = LATENESS_BOUNDS_MS.get(class).copied();
            return Some(bound.map_or(Duration::MAX, Duration::from_millis));
        }
    }
    None
}
