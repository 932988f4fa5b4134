//! Limits the rate of requests to each host, for all callers together.
//!
//! Each host has a number of concurrent requests, admitted first in, first out; a token
//! bucket; and a pause, during which no request is admitted, if the host asked for one.
//! There is no task per host, and a host that was idle for an hour is forgotten. Other
//! parties choose the host names, so their number is bounded: once 100,000 hosts have
//! entries in use, all further hosts share one entry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// The most hosts with an entry of their own.
const MOST_HOSTS: usize = 100_000;
/// A host that was not asked for this long is forgotten.
const IDLE: Duration = Duration::from_secs(3600);
/// How often idle hosts are removed while entries are left.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// The shortest time between two removals while all entries are in use.
const TIDY_FULL_EVERY: Duration = Duration::from_secs(1);
/// The longest pause of the shared entry: one host must not stop requests to the
/// others.
const SHARED_PAUSE: Duration = Duration::from_secs(10);
/// The slowest pace that can be set, in requests per second.
const SLOWEST: f64 = 0.001;

/// The rate limits of one host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostLimits {
    /// Concurrent requests.
    pub concurrency: usize,
    pub requests_per_second: f64,
    /// Requests that are admitted without waiting after an idle time.
    pub burst: u32,
}

impl Default for HostLimits {
    fn default() -> HostLimits {
        HostLimits {
            concurrency: 4,
            requests_per_second: 10.0,
            burst: 20,
        }
    }
}

/// The rate limits of all hosts. Clones share them.
#[derive(Clone)]
pub struct Hosts(Arc<Inner>);

struct Inner {
    limits: HostLimits,
    places: Mutex<Places>,
    /// The entry that hosts share when all others are in use.
    shared_entry: Arc<HostSlot>,
}

struct Places {
    of: HashMap<Box<str>, Arc<HostSlot>>,
    tidied: Instant,
}

/// The entry of one host.
struct HostSlot {
    permits: Arc<Semaphore>,
    pace: Mutex<Pace>,
}

/// The token bucket, as the time at which it will be full again; and the pause.
#[derive(Debug, Clone, Copy)]
struct Pace {
    full_at: Instant,
    paused_until: Option<Instant>,
    used: Instant,
}

/// The permit for one request to one host. Dropping the permit admits the next request.
pub struct Permit {
    _seat: Option<OwnedSemaphorePermit>,
    /// Keeps the host's entry from being forgotten during the request.
    _place: Arc<HostSlot>,
}

impl Pace {
    fn new(now: Instant) -> Pace {
        Pace {
            full_at: now,
            paused_until: None,
            used: now,
        }
    }

    /// Takes a token. Returns the time from which it may be used.
    fn take(&mut self, now: Instant, limits: &HostLimits) -> Instant {
        let one = Duration::from_secs_f64(1.0 / limits.requests_per_second.max(SLOWEST));
        let burst = one.saturating_mul(limits.burst.max(1));
        self.full_at = self.full_at.max(now) + one;
        self.used = now;
        self.full_at.checked_sub(burst).unwrap_or(now).max(now)
    }

    fn pause(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.pause(now).is_none() && now.saturating_duration_since(self.used) >= IDLE
    }
}

impl HostSlot {
    fn new(limits: &HostLimits, now: Instant) -> Arc<HostSlot> {
        let permits = limits.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(HostSlot {
            permits: Arc::new(Semaphore::new(permits)),
            pace: Mutex::new(Pace::new(now)),
        })
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        // `Pace` is a plain value, which a panic cannot leave inconsistent.
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hosts {
    pub fn new(limits: HostLimits) -> Hosts {
        let now = Instant::now();
        Hosts(Arc::new(Inner {
            limits,
            places: Mutex::new(Places {
                of: HashMap::new(),
                tidied: now,
            }),
            shared_entry: HostSlot::new(&limits, now),
        }))
    }

    /// Waits until a request to the host is allowed: for a free slot, for a token, and
    /// for the end of a pause. First in, first out.
    pub async fn admit(&self, host: &str) -> Permit {
        let place = self.slot_of(host);
        // The semaphore is never closed; if it were, the rate limit would still hold.
        let permit = place.permits.clone().acquire_owned().await.ok();
        self.keep_pace(&place).await;
        Permit {
            _seat: permit,
            _place: place,
        }
    }

    /// Waits for a token and for the end of a pause, but takes no slot: for a request
    /// that has a slot at another host and was redirected to this one. With slots, two
    /// hosts that redirect to each other could deadlock.
    pub async fn pass_by(&self, host: &str) {
        let place = self.slot_of(host);
        self.keep_pace(&place).await;
    }

    async fn keep_pace(&self, place: &HostSlot) {
        let mut from = place.pace().take(Instant::now(), &self.0.limits);
        loop {
            sleep_until(from).await;
            match place.pace().pause(Instant::now()) {
                Some(until) => from = until,
                None => return,
            }
        }
    }

    /// Admits no request to this host for a time. A shorter pause does not end a longer one.
    pub fn pause(&self, host: &str, pause: Duration) {
        let now = Instant::now();
        let place = self.slot_of(host);
        let pause = if Arc::ptr_eq(&place, &self.0.shared_entry) {
            pause.min(SHARED_PAUSE)
        } else {
            pause
        };
        let mut pace = place.pace();
        pace.used = now;
        pace.paused_until = pace.paused_until.max(Some(now + pause));
    }

    /// The end of the host's present pause, if there is one.
    pub(crate) fn paused_until(&self, host: &str) -> Option<Instant> {
        let places = self.places();
        let place = places.of.get(host)?;
        place.pace().pause(Instant::now())
    }

    /// The number of hosts with an entry.
    pub fn len(&self) -> usize {
        self.places().of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        let places = self.0.places.lock();
        places.unwrap_or_else(PoisonError::into_inner)
    }

    fn slot_of(&self, host: &str) -> Arc<HostSlot> {
        let now = Instant::now();
        let mut places = self.places();
        if let Some(place) = places.of.get(host) {
            return place.clone();
        }
        places.make_room(now, MOST_HOSTS);
        if places.of.len() >= MOST_HOSTS {
            return self.0.shared_entry.clone();
        }
        let place = HostSlot::new(&self.0.limits, now);
        places.of.insert(host.into(), place.clone());
        place
    }
}

impl Places {
    /// Forgets idle hosts periodically. When all entries are in use, forgets every host
    /// without a request or a pause; such a host loses only its token bucket.
    fn make_room(&mut self, now: Instant, most: usize) {
        let since = now.saturating_duration_since(self.tidied);
        let full = self.of.len() >= most;
        if since < TIDY_EVERY && !(full && since >= TIDY_FULL_EVERY) {
            return;
        }
        self.tidied = now;
        let in_use = |place: &Arc<HostSlot>| Arc::strong_count(place) > 1;
        self.of
            .retain(|_, place| in_use(place) || !place.pace().is_idle(now));
        if self.of.len() >= most {
            self.of
                .retain(|_, place| in_use(place) || place.pace().pause(now).is_some());
        }
    }
}

#[cfg(test)]
mod tests;
