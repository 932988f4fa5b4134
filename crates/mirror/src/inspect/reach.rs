//! The reach of the mirror: how many repositories are known, which hosts were listed
//! whole and when, and which upstreams bring only active accounts.

use std::collections::{BTreeMap, HashSet};

use gapless_core::ledger::{HostId, Time, UpstreamKind};

use crate::api::{ApiError, ListedHost, Reach, timestamp};
use crate::inspect::Inspector;
use crate::inspect::hosts::unlisted_hosts;
use crate::inspect::ready::hosts::{is_listed, whole_upstreams};
use crate::services::Services;

/// Hosts that an answer lists. Further hosts only count in the total.
const HOSTS_NAMED: usize = 100;

impl Inspector {
    pub(crate) fn reach(&self) -> Result<Reach, ApiError> {
        let repos = self.counter.count()?.counts.total;
        let mut listed: BTreeMap<HostId, (Time, String)> = BTreeMap::new();
        if self.services.admission.scope.network {
            let unlisted: HashSet<HostId> = unlisted_hosts(&self.services).into_iter().collect();
            self.services.hosts.each(|id, host| {
                if let Some(swept) = host.swept.filter(|_| !unlisted.contains(&id)) {
                    listed.insert(id, (swept.at, host.name.clone()));
                }
            });
        }
        for (id, row) in whole_upstreams(&self.services) {
            let host = self.services.hosts.get(id).unwrap_or_default();
            // The own stream of the host may have missed events since the listing.
            match host.swept.filter(|_| is_listed(&row, &host)) {
                Some(swept) => listed.insert(id, (swept.at, host.name)),
                None => listed.remove(&id),
            };
        }
        let mut listed: Vec<(Time, String)> = listed.into_values().collect();
        listed.sort();
        let reach = Reach {
            repos,
            listed_total: listed.len() as u64,
            listed: listed
                .into_iter()
                .take(HOSTS_NAMED)
                .map(|(at, host)| ListedHost {
                    host,
                    until: timestamp(at),
                })
                .collect(),
            relays: upstreams_of_kind(&self.services, UpstreamKind::Relay),
            jetstreams: upstreams_of_kind(&self.services, UpstreamKind::Jetstream),
            scope: self.services.admission.scope.name().to_owned(),
            says: String::new(),
        };
        Ok(reach.in_words())
    }
}

/// The upstreams of a kind that are followed.
fn upstreams_of_kind(services: &Services, kind: UpstreamKind) -> Vec<String> {
    let covers = services.upstreams.read();
    let of_kind = covers
        .iter()
        .filter(|(_, source)| source.row.kind == kind)
        .map(|(_, source)| source.row.url.clone());
    of_kind.collect()
}
