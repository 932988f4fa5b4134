//! Discovers hosts and repositories that no operator named. In the order of the data:
//!
//! | module | what it does |
//! |---|---|
//! | `hosts` | reads the relays' listings of hosts |
//! | `streams` | follows each host by a stream of its own, if configured |
//! | `collections` | reads listings of the repositories with records in a collection |
//! | `found_repos` | tracks the repositories that a collection named, once the directory knows them |
//! | `newcomers` | asks the directory about unknown repositories beyond the limit of an upstream |
//!
//! Discovery only adds names; the regular sweeps compare the hosts that it finds. A listing
//! is a claim: a host is believed only about its own repositories, and a DID only when the
//! directory knows it.

pub(crate) mod collections;
pub(crate) mod found_repos;
pub(crate) mod hosts;
pub(crate) mod newcomers;
pub(crate) mod streams;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use gapless_core::ledger::{HostId, Time, UpstreamKind};

use crate::desk::Desks;
use crate::following::Following;
use crate::repair::worker::Fetcher;
use crate::services::Services;
use crate::settings::MirrorSettings;
use crate::tracking::Tracking;
pub(crate) use found_repos::FoundRepos;
use gapless_store::sync::Mutex;

/// How often the tasks check whether a listing is due.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How soon a listing is read again after an error, unless it is due before.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(60);

/// The results of listings since the start.
#[derive(Default)]
pub(crate) struct Listings {
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(crate) struct Inner {
    /// Each listing with its last result.
    pub(crate) listings: BTreeMap<ListingKey, Listing>,
    /// The relays that list a host.
    pub(crate) listed_by: HashMap<HostId, BTreeSet<Arc<str>>>,
    /// Servers that do not offer `listReposByCollection`. The log reports each once.
    pub(crate) without: HashSet<String>,
}

/// Identifies a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListingKey {
    pub(crate) url: String,
    /// The collection; `None` for a listing of hosts.
    pub(crate) collection: Option<String>,
}

/// The last result of a listing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listing {
    /// When the listing was last read to the end, and its number of entries.
    pub(crate) read: Option<(Time, u64)>,
    /// Why the last read failed; `None` if it succeeded.
    pub(crate) error: Option<String>,
    pub(crate) next: Option<Instant>,
}

impl Listings {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(crate) fn is_due(&self, asked: &ListingKey) -> bool {
        let told = self.lock();
        let next = told.listings.get(asked).and_then(|listing| listing.next);
        next.is_none_or(|next| next <= Instant::now())
    }

    /// Records the result of reading a listing.
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

/// Finds hosts and repositories that no operator named.
pub(crate) struct Discovery {
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
    /// The relays that are asked: the relays of the configuration, followed or not, and all
    /// relays that are followed.
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

    /// Waits until listings are checked again. Returns `false` once the program shuts down.
    async fn wait(&self) -> bool {
        tokio::select! {
            () = tokio::time::sleep(CHECK_EVERY) => {}
            () = self.services.shutdown.begun() => return false,
        }
        !self.services.shutdown.has_begun()
    }
}
