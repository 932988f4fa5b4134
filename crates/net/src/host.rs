//! How fast one host is asked, whoever asks.
//!
//! Per host: a few requests at once, in the order in which they came; a token
//! bucket; and a pause when the host asked for one, during which nobody is
//! admitted. There is no task per host, and a host that was idle for an hour is
//! forgotten. Strangers choose the names, so their number is bounded: when all
//! places are in use, further hosts share one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Hosts that are remembered at once.
const MOST_HOSTS: usize = 100_000;
/// A host that was not asked for so long is forgotten.
const IDLE: Duration = Duration::from_secs(3600);
/// Idle hosts are looked for this often, and when the places run out.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// With all places in use they are not looked through again before this.
const TIDY_FULL_EVERY: Duration = Duration::from_secs(1);
/// The longest pause of hosts that share a place: one of them must not silence
/// the others.
const SHARED_PAUSE: Duration = Duration::from_secs(10);
/// The slowest pace that can be set, in requests per second.
const SLOWEST: f64 = 0.001;

/// What every host can bear.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostLimits {
    /// Requests at once.
    pub concurrency: usize,
    pub requests_per_second: f64,
    /// Requests that may come without waiting after a rest.
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

/// The limits of all hosts. Clones share them.
#[derive(Clone)]
pub struct Hosts(Arc<Shared>);

struct Shared {
    limits: HostLimits,
    places: Mutex<Places>,
    /// For hosts that found no place.
    crowd: Arc<Place>,
}

struct Places {
    of: HashMap<Box<str>, Arc<Place>>,
    tidied: Instant,
}

/// What is known of one host.
struct Place {
    seats: Arc<Semaphore>,
    pace: Mutex<Pace>,
}

/// The bucket, as the moment at which it will be full again; and the pause.
#[derive(Debug, Clone, Copy)]
struct Pace {
    full_at: Instant,
    paused_until: Option<Instant>,
    used: Instant,
}

/// The right to ask one host one question. Dropping it lets the next one in.
pub struct Permit {
    _seat: Option<OwnedSemaphorePermit>,
    /// Keeps the host's entry from being forgotten while it is asked.
    _place: Arc<Place>,
}

impl Pace {
    fn new(now: Instant) -> Pace {
        Pace {
            full_at: now,
            paused_until: None,
            used: now,
        }
    }

    /// Takes a token and says from when on it may be used.
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

impl Place {
    fn new(limits: &HostLimits, now: Instant) -> Arc<Place> {
        let seats = limits.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Place {
            seats: Arc::new(Semaphore::new(seats)),
            pace: Mutex::new(Pace::new(now)),
        })
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        // A plain value: whoever panicked left it whole.
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hosts {
    pub fn new(limits: HostLimits) -> Hosts {
        let now = Instant::now();
        Hosts(Arc::new(Shared {
            limits,
            places: Mutex::new(Places {
                of: HashMap::new(),
                tidied: now,
            }),
            crowd: Place::new(&limits, now),
        }))
    }

    /// Waits until the host may be asked: for a seat, for a token, and for the
    /// end of a pause. Who came first goes first.
    pub async fn admit(&self, host: &str) -> Permit {
        let place = self.place(host);
        // The semaphore is never closed; if it were, the pace still holds.
        let seat = place.seats.clone().acquire_owned().await.ok();
        self.keep_pace(&place).await;
        Permit {
            _seat: seat,
            _place: place,
        }
    }

    /// Waits for a token and for the end of a pause, but takes no seat: for a
    /// question that already has one elsewhere and was redirected here. (Two
    /// hosts that redirect to each other could wait for each other's seats.)
    pub async fn pass_by(&self, host: &str) {
        let place = self.place(host);
        self.keep_pace(&place).await;
    }

    async fn keep_pace(&self, place: &Place) {
        let mut from = place.pace().take(Instant::now(), &self.0.limits);
        loop {
            sleep_until(from).await;
            match place.pace().pause(Instant::now()) {
                Some(until) => from = until,
                None => return,
            }
        }
    }

    /// Nobody asks this host for so long. A shorter pause does not end a longer.
    pub fn pause(&self, host: &str, pause: Duration) {
        let now = Instant::now();
        let place = self.place(host);
        let pause = if Arc::ptr_eq(&place, &self.0.crowd) {
            pause.min(SHARED_PAUSE)
        } else {
            pause
        };
        let mut pace = place.pace();
        pace.used = now;
        pace.paused_until = pace.paused_until.max(Some(now + pause));
    }

    /// The end of the pause that the host is in.
    pub fn paused_until(&self, host: &str) -> Option<Instant> {
        let places = self.places();
        let place = places.of.get(host)?;
        place.pace().pause(Instant::now())
    }

    /// Hosts that are remembered.
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

    fn place(&self, host: &str) -> Arc<Place> {
        let now = Instant::now();
        let mut places = self.places();
        if let Some(place) = places.of.get(host) {
            return place.clone();
        }
        places.make_room(now, MOST_HOSTS);
        if places.of.len() >= MOST_HOSTS {
            return self.0.crowd.clone();
        }
        let place = Place::new(&self.0.limits, now);
        places.of.insert(host.into(), place.clone());
        place
    }
}

impl Places {
    /// Forgets idle hosts now and then; and when the places run out, every host
    /// that is neither being asked nor paused: it loses no more than its pace.
    fn make_room(&mut self, now: Instant, most: usize) {
        let since = now.saturating_duration_since(self.tidied);
        let full = self.of.len() >= most;
        if since < TIDY_EVERY && !(full && since >= TIDY_FULL_EVERY) {
            return;
        }
        self.tidied = now;
        let in_use = |place: &Arc<Place>| Arc::strong_count(place) > 1;
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
