//! The reach of the mirror: how many repositories are known, which hosts were listed
//! whole and when, and which upstreams bring only active accounts.

use std::collections::{BTreeMap, HashSet};

use gapless_core::ledger::{HostId, Time, UpstreamKind};

use crate::api::{ApiError, ListedHost, Reach, timestamp};
use crate::inspect::Inspector;
use crate::inspect::ready::hosts::is_listed;

/// Hosts that an answer lists. Further hosts only count in the total.
const HOSTS_NAMED: usize = 100;

impl Inspector {
    pub(crate) fn reach(&self) -> Result<Reach, ApiError> {
        let repos = self.count()?.counts.total;
        let mut listed: BTreeMap<HostId, (Time, String)> = BTreeMap::new();
        if self.services.admission.scope.network {
            let unlisted: HashSet<HostId> = self.unlisted_hosts().into_iter().collect();
            self.services.hosts.each(|id, host| {
                if let Some(swept) = host.swept.filter(|_| !unlisted.contains(&id)) {
                    listed.insert(id, (swept.at, host.name.clone()));
                }
            });
        }
        for (id, row) in self.whole() {
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
            relays: self.upstreams_of_kind(UpstreamKind::Relay),
            jetstreams: self.upstreams_of_kind(UpstreamKind::Jetstream),
            scope: self.services.admission.scope.name().to_owned(),
            says: String::new(),
        };
        Ok(reach.in_words())
    }

    /// The upstreams of a kind that are followed.
    fn upstreams_of_kind(&self, kind: UpstreamKind) -> Vec<String> {
        let covers = self.services.upstreams.read();
        let of_kind = covers
            .iter()
            .filter(|(_, source)| source.row.kind == kind)
            .map(|(_, source)| source.row.url.clone());
        of_kind.collect()
    }
}
