//! Hosts whose repositories may not all be known or compared: hosts that are followed
//! whole and whose listing was not read yet, and hosts whose last sweep failed. Completeness
//! is a statement about known repositories; this module reports where others may exist.

use std::collections::BTreeMap;
use std::time::Duration;

use gapless_core::ledger::{Host, HostId, Time, Upstream};

use crate::api::{HostGap, HostReason, seconds_between, timestamp};
use crate::inspect::Inspector;
use crate::inspect::hosts::unlisted_hosts;
use crate::services::Services;
use crate::sweep::is_whole;
use crate::sweep::queue::SweepFailures;

/// Hosts that an answer lists. Further hosts only count in the total.
const HOSTS_NAMED: usize = 100;

/// The share of the hosts of a network that may be unswept: one in ten.
const UNLISTED_ONE_IN: usize = 10;

/// Why the repositories of a host may not all be known or compared.
#[derive(Default)]
struct HostDoubt {
    whole: bool,
    unlisted: bool,
    unlisted_since: Option<Time>,
    failing: Option<SweepFailures>,
}

impl HostDoubt {
    fn since(&self) -> Option<Time> {
        let failing = self.failing.as_ref().map(|failing| failing.since);
        self.unlisted_since.into_iter().chain(failing).min()
    }

    fn reasons(&self) -> Vec<HostReason> {
        let unlisted = self.unlisted.then_some(HostReason::NotListed);
        let failing = self.failing.as_ref().map(|_| HostReason::SweepFailing);
        unlisted.into_iter().chain(failing).collect()
    }
}

/// Whether the whole listing of an upstream's host was read after the upstream was added
/// and after its stream last missed events. Then all repositories on the host are known.
pub(crate) fn is_listed(row: &Upstream, host: &Host) -> bool {
    host.swept.is_some_and(|swept| swept.tick > row.reset_at)
}

impl Inspector {
    /// The hosts in doubt and their total number. Hosts that are followed whole come
    /// first.
    pub(crate) fn host_gaps(&self) -> (Vec<HostGap>, u64) {
        let mut doubts: BTreeMap<HostId, HostDoubt> = BTreeMap::new();
        for (host, failing) in self.sweeps.failing() {
            doubts.entry(host).or_default().failing = Some(failing);
        }
        for (host, row) in whole_upstreams(&self.services) {
            let listed = self
                .services
                .hosts
                .get(host)
                .is_some_and(|found| is_listed(&row, &found));
            if !listed {
                let since = self.services.clock.tick_times().time_of(row.reset_at);
                let since = since.unwrap_or_else(|| self.services.clock.time());
                let doubt = doubts.entry(host).or_default();
                doubt.unlisted = true;
                doubt.unlisted_since = Some(since);
            }
            if let Some(doubt) = doubts.get_mut(&host) {
                doubt.whole = true;
            }
        }
        for host in unlisted_hosts(&self.services) {
            doubts.entry(host).or_default().unlisted = true;
        }
        let total = doubts.len() as u64;
        let mut doubts: Vec<(HostId, HostDoubt)> = doubts.into_iter().collect();
        doubts.sort_by_key(|(host, doubt)| (!doubt.whole, doubt.since(), *host));
        doubts.truncate(HOSTS_NAMED);
        let told = doubts
            .into_iter()
            .map(|(host, doubt)| self.host_gap(host, doubt));
        (told.collect(), total)
    }

    fn host_gap(&self, host: HostId, doubt: HostDoubt) -> HostGap {
        let name = self.services.hosts.get(host).unwrap_or_default().name;
        let sweep = self.sweeps.get(host).unwrap_or_default();
        let next = self.services.clock.time().after(sweep.rests_for());
        HostGap {
            failures: sweep.failures(),
            next_try: sweep.failing.as_ref().and_then(|_| timestamp(next)),
            since: doubt.since().and_then(timestamp),
            error: doubt.failing.as_ref().map(|failing| failing.error.clone()),
            ..HostGap::new(name, &doubt.reasons())
        }
    }

    /// Adds a reason for every host of the operator that is followed whole and whose listing
    /// was never read, was read too long ago, or cannot be read since the stream missed
    /// events; and for the hosts of the network if too many of them are unswept.
    pub(crate) fn add_unswept_hosts(&self, reasons: &mut Vec<String>) {
        let now = self.services.clock.time();
        let unlisted = unlisted_hosts(&self.services).len();
        let known = self.services.hosts.len();
        if self.services.admission.scope.network && !self.knows_hosts() {
            reasons.push("no relay's list of hosts has been read yet".to_owned());
        }
        if unlisted * UNLISTED_ONE_IN > known {
            reasons.push(format!(
                "{unlisted} of {known} hosts of the network have not been swept yet, or not since the stream of a relay was interrupted"
            ));
        }
        // Some hosts of a network are always unreachable: only the hosts of the operator count.
        let named = |row: &Upstream| row.followed.is_by_operator();
        for (id, row) in whole_upstreams(&self.services)
            .into_iter()
            .filter(|(_, row)| named(row))
        {
            let host = self.services.hosts.get(id).unwrap_or_default();
            let state = self.sweeps.get(id).unwrap_or_default();
            let why = match &state.failing {
                None => String::new(),
                Some(failing) => format!(": {}", failing.error),
            };
            let url = &row.url;
            let Some(swept) = host.swept else {
                reasons.push(format!("the listing of {url} has not been read yet{why}"));
                continue;
            };
            let age = now.since(swept.at);
            let longest = self
                .settings
                .ready
                .max_sweep_age
                .max(self.sweep_every() * 2);
            if age > longest {
                reasons.push(format!(
                    "{url} was last swept {} s ago (ready.max_sweep_age is {} s){why}",
                    age.as_secs(),
                    self.settings.ready.max_sweep_age.as_secs()
                ));
            } else if !is_listed(&row, &host) && state.failing.is_some() {
                reasons.push(format!(
                    "the listing of {url} has not been read since its stream was interrupted{why}"
                ));
            }
        }
    }

    /// How often hosts are swept.
    pub(crate) fn sweep_every(&self) -> Duration {
        let stretched = self.sweeps.every();
        stretched.max(self.services.rules.settings.sweep_every)
    }
}

/// Upstreams that are followed for all repositories on their hosts.
pub(crate) fn whole_upstreams(services: &Services) -> Vec<(HostId, Upstream)> {
    let covers = services.upstreams.read();
    let whole = covers.iter().filter(|(_, source)| is_whole(&source.row));
    whole
        .filter_map(|(_, source)| Some((source.row.host?, source.row.clone())))
        .collect()
}

/// Seconds since the last sweep of the host of each upstream, by the URL of the upstream.
pub(crate) fn sweep_ages(services: &Services) -> Vec<(String, u64)> {
    let now = services.clock.time();
    let covers = services.upstreams.read();
    let swept = covers.iter().filter_map(|(_, source)| {
        let host = services.hosts.get(source.row.host?)?;
        let age = seconds_between(host.swept?.at, now);
        Some((source.row.url.clone(), age))
    });
    swept.collect()
}
