//! Reads listings of the repositories with records in a collection
//! (`listReposByCollection`), page by page to the end, again after `discover.every`. An entry
//! is an unproven claim that may be outdated: it becomes a candidate.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use gapless_core::ledger::UpstreamKind;
use gapless_net::HostAddress;

use crate::admission::candidates::Candidate;
use crate::discover::{Discovery, ListingKey};
use gapless_core::filter::Pattern;

/// Pages of one listing; more than any network needs.
const MAX_PAGES: usize = 100_000;

/// Reads the listings that are due until the program shuts down.
pub(crate) async fn run(discovery: Arc<Discovery>) {
    for pattern in &discovery.services.admission.scope.collections {
        if let Pattern::Below(_) = pattern {
            tracing::info!(%pattern, "listings know only exact names of collections; Gapless finds repositories below this prefix by their next operation");
        }
    }
    while discovery.wait().await {
        for asked in discovery.collection_listings() {
            if discovery.listings.is_due(&asked) && !discovery.services.shutdown.has_begun() {
                discovery.list_collection(&asked).await;
            }
        }
    }
}

impl Discovery {
    /// All listings: each exact collection of each source.
    fn collection_listings(&self) -> Vec<ListingKey> {
        let config = &self.settings.discover;
        let mut sources: BTreeSet<String> = self.relays();
        let own = self.settings.upstreams.iter();
        sources.extend(
            own.filter(|one| one.kind == UpstreamKind::Pds)
                .map(|one| one.url.clone()),
        );
        sources.extend(config.collection_source.clone());
        let exact = config
            .collections
            .iter()
            .filter_map(|pattern| match pattern {
                Pattern::Exactly(name) => Some(name.clone()),
                Pattern::Below(_) => None,
            });
        let exact: Vec<String> = exact.collect();
        let all = sources.into_iter().flat_map(|url| {
            let exact = exact.clone().into_iter();
            exact.map(move |collection| ListingKey {
                url: url.clone(),
                collection: Some(collection),
            })
        });
        all.collect()
    }

    async fn list_collection(&self, asked: &ListingKey) {
        let metrics = &self.services.metrics;
        let how = self.read_collection(asked).await;
        match &how {
            // The next start reads the listing again.
            Err(_) if self.services.shutdown.has_begun() => return,
            Ok(_) => metrics.collection_listings.inc(),
            Err(error) => {
                metrics.collection_listing_failures.inc();
                tracing::warn!(source = %asked.url, collection = asked.collection, %error, "a listing of a collection was cut short; Gapless reads it again soon");
            }
        }
        let (now, every) = (self.services.clock.time(), self.settings.discover.every);
        self.listings.ended(asked, now, every, how);
    }

    /// Reads one listing. Returns the number of its entries.
    async fn read_collection(&self, asked: &ListingKey) -> Result<u64, String> {
        let source = HostAddress::configured(asked.url.clone());
        let collection: Arc<str> = asked.collection.as_deref().unwrap_or_default().into();
        let mut cursor: Option<String> = None;
        let mut cursors = HashSet::new();
        let mut count = 0;
        for _ in 0..MAX_PAGES {
            let net = &self.fetcher.net;
            let page = tokio::select! {
                page = net.list_by_collection(&source, &collection, cursor.as_deref()) => page,
                () = self.services.shutdown.begun() => return Err("Gapless shuts down".to_owned()),
            };
            let Some(page) = page.map_err(|error| error.to_string())? else {
                if self.listings.lock().without.insert(asked.url.clone()) {
                    tracing::info!(source = %asked.url, "the server does not offer listReposByCollection; Gapless finds repositories by live operations and by other servers");
                }
                return Ok(count);
            };
            for did in page.names {
                count += 1;
                if self.services.admission.is_tracked(&did)
                    || self.found_nothing_in(&did, &collection)
                {
                    continue;
                }
                let candidate = Candidate {
                    did,
                    collection: collection.clone(),
                    position: None,
                    since: Instant::now(),
                };
                tokio::select! {
                    () = self.services.admission.candidates.offer_when_free(candidate) => {}
                    () = self.services.shutdown.begun() => return Err("Gapless shuts down".to_owned()),
                }
            }
            let Some(next) = page.cursor else {
                return Ok(count);
            };
            if !cursors.insert(next.clone()) {
                return Err("the listing repeats a cursor".to_owned());
            }
            cursor = Some(next);
        }
        Err(format!("the listing has more than {MAX_PAGES} pages"))
    }
}
