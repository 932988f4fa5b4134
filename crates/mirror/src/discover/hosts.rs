//! Reads the relays' listings of hosts (`listHosts`), page by page to the end, again after
//! `discover.every`. A new host is swept soon; a host that is no longer listed is kept.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use gapless_core::ledger::{HostId, NamedBy};
use gapless_net::HostAddress;
use gapless_store::error::StoreError;

use crate::discover::{Discovery, ListingKey};
use crate::hosts::quota::QuotaExceeded;

/// Pages of one listing; more than the quota of a relay allows.
const MAX_PAGES: usize = 200;
/// New hosts that are written to the store at the same time.
const CONCURRENT_WRITES: usize = 64;

/// Reads the listings that are due until the program shuts down.
pub(crate) async fn run(discovery: Arc<Discovery>) {
    while discovery.wait().await {
        for relay in discovery.relays() {
            let asked = ListingKey {
                url: relay,
                collection: None,
            };
            if discovery.listings.is_due(&asked) && discovery.list_hosts(&asked).await.is_err() {
                // The store cannot be written; the task that saw it has reported it.
                return;
            }
        }
    }
}

impl Discovery {
    /// Reads the listing of one relay. Hosts from before an error are kept.
    async fn list_hosts(&self, asked: &ListingKey) -> Result<(), StoreError> {
        let metrics = &self.services.metrics;
        let mut count = 0;
        let how = self.read_hosts(asked, &mut count).await;
        let how = match how {
            Ok(how) => how,
            Err(error) if error.is_final() => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        match &how {
            // The next start reads the listing again.
            Err(_) if self.services.shutdown.has_begun() => return Ok(()),
            Ok(()) => metrics.host_listings.inc(),
            Err(error) => {
                metrics.host_listing_failures.inc();
                tracing::warn!(relay = %asked.url, %error, "a relay's listing of hosts was cut short; Gapless reads it again soon");
            }
        }
        let now = self.services.clock.time();
        let every = self.settings.discover.every;
        self.listings.ended(asked, now, every, how.map(|()| count));
        Ok(())
    }

    async fn read_hosts(
        &self,
        asked: &ListingKey,
        count: &mut u64,
    ) -> Result<Result<(), String>, StoreError> {
        // Relays are configured by the operator, so their address is trusted.
        let relay = HostAddress::configured(asked.url.clone());
        let name: Arc<str> = asked.url.as_str().into();
        let mut cursor: Option<String> = None;
        let mut cursors = HashSet::new();
        for _ in 0..MAX_PAGES {
            let page = tokio::select! {
                page = self.fetcher.net.list_hosts(&relay, cursor.as_deref()) => page,
                () = self.services.shutdown.begun() => return Ok(Err("Gapless shuts down".to_owned())),
            };
            let page = match page {
                Ok(page) => page,
                Err(error) => return Ok(Err(error.to_string())),
            };
            self.services.metrics.hosts_refused.add(page.skipped);
            *count += self.register_hosts(&name, page.names).await?;
            let Some(next) = page.cursor else {
                return Ok(Ok(()));
            };
            if !cursors.insert(next.clone()) {
                return Ok(Err("the listing repeats a cursor".to_owned()));
            }
            cursor = Some(next);
        }
        Ok(Err(format!("the listing has more than {MAX_PAGES} pages")))
    }

    /// Adds the hosts that a relay lists. Returns how many of them are known now.
    async fn register_hosts(
        &self,
        relay: &Arc<str>,
        names: Vec<String>,
    ) -> Result<u64, StoreError> {
        let hosts = &self.services.hosts;
        let before = hosts.len();
        let by = NamedBy::Relay(relay.to_string());
        let named: Vec<Result<Result<HostId, QuotaExceeded>, StoreError>> = stream::iter(names)
            .map(|name| {
                let by = by.clone();
                async move { hosts.register_named(&name, by).await }
            })
            .buffer_unordered(CONCURRENT_WRITES)
            .collect()
            .await;
        let mut known = 0;
        for host in named {
            let host = match host? {
                Ok(host) => host,
                Err(exceeded) => {
                    exceeded.count(&self.services.metrics);
                    continue;
                }
            };
            known += 1;
            let mut told = self.listings.lock();
            told.listed_by
                .entry(host)
                .or_default()
                .insert(relay.clone());
        }
        if hosts.len() > before {
            self.fetcher.sweep_wake.notify_one();
        }
        Ok(known)
    }
}
