//! What is found by itself, in the order in which it happens:
//!
//! | module | what it does |
//! |---|---|
//! | `hosts` | asks relays, again and again, which hosts there are |
//! | `streams` | opens a stream for each host, where that is wanted |
//! | `collections` | asks who has records in a collection, again and again |
//! | `found` | whoever was found is tracked, once the directory knows them |
//! | `newcomers` | asks the directory first about names of which too many were told |
//! | `answers` | says which hosts are known, and how each is |
//!
//! Hosts that are found are swept by the sweeps that there are; all that this adds are
//! names. What a listing says is a claim: a host is believed about its own repositories
//! alone, and a DID when the directory knows it.

pub(crate) mod collections;
pub(crate) mod found_repos;
pub(crate) mod hosts;
pub(crate) mod newcomers;
pub(crate) mod streams;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gapless_core::ledger::{HostId, Time, UpstreamKind};

use crate::desk::Desks;
use crate::following::Following;
use crate::repair::worker::Fetcher;
use crate::services::Services;
use crate::settings::MirrorSettings;
use crate::tracking::Tracking;
pub use found_repos::FoundRepos;

/// How often it is looked whether something is to be asked.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// After an error a listing is asked for again this soon, if it is not due before.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(60);

/// What listings have told, since we run.
#[derive(Default)]
pub struct Listings {
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(crate) struct Inner {
    /// By what was asked: a relay, or a source and a collection.
    pub(crate) listings: BTreeMap<ListingKey, Listing>,
    /// Which relays list a host.
    pub(crate) listed_by: HashMap<HostId, BTreeSet<Arc<str>>>,
    /// Servers that do not know collections: said once.
    pub(crate) without: HashSet<String>,
}

/// What a listing is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListingKey {
    pub(crate) url: String,
    /// None: of hosts.
    pub(crate) collection: Option<String>,
}

/// How a listing went.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listing {
    /// When it was last read to its end, and how many it had.
    pub(crate) read: Option<(Time, u64)>,
    /// Why it was not, the last time.
    pub(crate) error: Option<String>,
    pub(crate) next: Option<Instant>,
}

impl Listings {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here can panic half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_due(&self, asked: &ListingKey) -> bool {
        let told = self.lock();
        let next = told.listings.get(asked).and_then(|listing| listing.next);
        next.is_none_or(|next| next <= Instant::now())
    }

    /// A listing was read to its end, or was not.
    pub(crate) fn ended(
        &self,
        asked: &ListingKey,
        now: Time,
        every: Duration,
        how: Result<u64, String>,
    ) {
        let mut told = self.lock();
        let listing = told.listings.entry(asked.clone()).or_default();
        let wait = match &how {
            Ok(_) => every,
            Err(_) => RETRY_AFTER_ERROR.min(every),
        };
        listing.next = Some(Instant::now() + wait);
        match how {
            Ok(count) => {
                listing.read = Some((now, count));
                listing.error = None;
            }
            Err(error) => listing.error = Some(error),
        }
    }
}

/// Finds hosts and repositories that nobody named.
pub struct Discovery {
    pub(crate) services: Arc<Services>,
    pub(crate) desks: Arc<Desks>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) following: Arc<Following>,
    pub(crate) tracking: Arc<Tracking>,
    pub(crate) settings: Arc<MirrorSettings>,
    pub(crate) listings: Arc<Listings>,
    /// Repositories that were found by a collection.
    pub(crate) found: FoundRepos,
}

impl Discovery {
    /// The relays that are asked: those of the configuration, followed or not, and
    /// those that are followed.
    fn relays(&self) -> BTreeSet<String> {
        let configured = self.settings.upstreams.iter();
        let configured = configured.filter(|one| one.kind == UpstreamKind::Relay);
        let mut relays: BTreeSet<String> = configured.map(|one| one.url.clone()).collect();
        let covers = self.services.upstreams.read();
        let followed = covers.iter().map(|(_, source)| &source.row);
        let followed = followed.filter(|row| row.kind == UpstreamKind::Relay);
        relays.extend(followed.map(|row| row.url.clone()));
        relays
    }

    /// Waits until listings are checked again. Returns `false` once the program ends.
    async fn wait(&self) -> bool {
        tokio::select! {
            () = tokio::time::sleep(CHECK_EVERY) => {}
            () = self.services.shutdown.begun() => return false,
        }
        !self.services.shutdown.has_begun()
    }
}
