//! Answers about hosts: which are known, the state of each, and what discovery has found.

use std::collections::HashMap;

use gapless_core::ledger::{Host, HostId, NamedBy, Tick, Upstream, UpstreamId};

use crate::api::{
    DiscoverStatus, HostAnswer, HostsPage, ListingAnswer, NamerAnswer, followed_name, timestamp,
};
use crate::hosts::quota;
use crate::inspect::Inspector;
use crate::services::Services;
use crate::sweep::is_whole;
use crate::sweep::queue::SweepState;

/// What an answer says about a host beside its row.
struct HostNotes {
    followed: Option<&'static str>,
    by_operator: bool,
}

impl Inspector {
    /// Whether a relay's listing of hosts was read to the end since the start.
    pub(crate) fn knows_hosts(&self) -> bool {
        let told = self.listings.lock();
        let mut listings = told.listings.iter();
        listings.any(|(asked, listing)| asked.collection.is_none() && listing.read.is_some())
    }

    pub(crate) fn hosts_page(
        &self,
        after: Option<u64>,
        limit: usize,
        failing_only: bool,
    ) -> HostsPage {
        let streams = host_streams(&self.services);
        let mut all = self.services.hosts.all();
        all.sort_by_key(|(id, _)| *id);
        let (over, refused) = self.services.hosts.over_quota();
        let refused_by = over.into_iter().map(|(by, hosts, refused)| NamerAnswer {
            named_by: self.services.hosts.describe_namer(&by),
            hosts: hosts as u64,
            limit: quota::limit(&by).map(|limit| limit as u64),
            refused,
        });
        let mut page = HostsPage {
            total: all.len() as u64,
            refused,
            refused_by: refused_by.collect(),
            ..HostsPage::default()
        };
        for (id, host) in all {
            let sweep = self.sweeps.get(id).unwrap_or_default();
            page.swept += u64::from(host.swept.is_some());
            page.failing += u64::from(sweep.failing.is_some());
            let shown = !failing_only || sweep.failing.is_some();
            if !shown || after.is_some_and(|after| u64::from(id.0) <= after) {
                continue;
            }
            if page.hosts.len() < limit {
                page.hosts
                    .push(self.host_answer(id, &host, &sweep, streams.get(&id)));
            } else if page.cursor.is_none() {
                page.cursor = page.hosts.last().map(|last| last.number);
            }
        }
        page
    }

    fn host_answer(
        &self,
        id: HostId,
        host: &Host,
        sweep: &SweepState,
        stream: Option<&(UpstreamId, HostNotes)>,
    ) -> HostAnswer {
        let listed_by: Vec<String> = {
            let told = self.listings.lock();
            let by = told.listed_by.get(&id).into_iter().flatten();
            by.map(|relay| relay.to_string()).collect()
        };
        let known = stream.map(|(_, known)| known);
        let failing = sweep.failing.as_ref();
        let state = match (sweep.running, failing, host.swept) {
            (true, ..) => "sweeping",
            (_, Some(_), _) => "failing",
            (_, None, Some(_)) => "swept",
            (_, None, None) if is_asked(&self.services, id) => "waiting",
            (_, None, None) => "idle",
        };
        let now = self.services.clock.time();
        HostAnswer {
            number: u64::from(id.0),
            host: host.name.clone(),
            known_by: match &host.named {
                _ if known.is_some_and(|known| known.by_operator) => "configured",
                _ if !listed_by.is_empty() => "listed",
                NamedBy::Operator => "operator",
                NamedBy::Relay(_) => "listed",
                NamedBy::Document(_) | NamedBy::Stranger(_) | NamedBy::Unsaid => "document",
            }
            .to_owned(),
            named_by: match &host.named {
                NamedBy::Unsaid => None,
                by => Some(self.services.hosts.describe_namer(by)),
            },
            never_reached_since: if host.reached {
                None
            } else {
                host.since.and_then(timestamp)
            },
            listed_by,
            followed: known.and_then(|known| known.followed).map(str::to_owned),
            state: state.to_owned(),
            repos_listed: sweep.listed,
            last_sweep: host.swept.and_then(|swept| timestamp(swept.at)),
            failing_since: failing.and_then(|failing| timestamp(failing.since)),
            failures: sweep.failures(),
            error: failing.map(|failing| failing.error.clone()),
            next_try: failing.and_then(|_| timestamp(now.after(sweep.rests_for()))),
        }
    }

    pub(crate) fn discover_status(&self) -> DiscoverStatus {
        let scope = &self.services.admission.scope;
        let (mut hosts, mut swept, mut repos) = (0, 0, 0);
        self.services.hosts.each(|id, host| {
            hosts += 1;
            swept += u64::from(host.swept.is_some());
            repos += self.sweeps.listed(id).unwrap_or(0);
        });
        let listings = self.listings.lock().listings.clone();
        let listings = listings.into_iter().map(|(asked, listing)| ListingAnswer {
            url: asked.url,
            collection: asked.collection,
            read_at: listing.read.and_then(|(at, _)| timestamp(at)),
            entries: listing.read.map(|(_, count)| count),
            error: listing.error,
        });
        DiscoverStatus {
            scope: scope.name().to_owned(),
            follow: if scope.by_hosts {
                "hosts".to_owned()
            } else {
                "relays".to_owned()
            },
            collections: scope.collections.iter().map(ToString::to_string).collect(),
            hosts,
            hosts_swept: swept,
            hosts_failing: self.sweeps.failing_count() as u64,
            repos_listed: repos,
            found: self.services.admission.found_dids().len() as u64,
            found_dropped: self.services.metrics.found_dropped.get(),
            listings: listings.collect(),
        }
    }
}

/// The last tick at which a stream of many hosts missed events. Only later listings of a
/// host show what was missed.
fn wide_reset(services: &Services) -> Tick {
    let covers = services.upstreams.read();
    let wide = covers
        .iter()
        .filter(|(_, source)| source.row.host.is_none());
    let resets = wide.map(|(_, source)| source.row.reset_at);
    resets.max().unwrap_or_default()
}

/// The hosts of the network that were not listed since a relay last missed events.
pub(crate) fn unlisted_hosts(services: &Services) -> Vec<HostId> {
    let mut unlisted = Vec::new();
    if services.admission.scope.network {
        let reset = wide_reset(services);
        services.hosts.each(|id, host| {
            if host.swept.is_none_or(|swept| swept.tick <= reset) {
                unlisted.push(id);
            }
        });
    }
    unlisted
}

/// The streams that follow a single host, by host.
fn host_streams(services: &Services) -> HashMap<HostId, (UpstreamId, HostNotes)> {
    let covers = services.upstreams.read();
    let own = covers.iter().filter_map(|(id, source)| {
        let known = HostNotes {
            followed: Some(followed_name(source.row.followed)),
            by_operator: source.row.followed.is_by_operator(),
        };
        Some((source.row.host?, (id, known)))
    });
    own.collect()
}

/// Whether Gapless sends requests to a host: the whole host is wanted, or a known
/// repository lives there.
fn is_asked(services: &Services, id: HostId) -> bool {
    let covers = services.upstreams.read();
    let own = |row: &Upstream| row.host == Some(id) && is_whole(row);
    let whole = covers
        .possible_covers(id)
        .any(|(_, source)| own(&source.row));
    drop(covers);
    whole || services.admission.scope.network || services.store.view().hosted(id).next().is_some()
}
