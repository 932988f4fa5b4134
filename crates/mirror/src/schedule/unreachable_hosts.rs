//! Hosts that cannot be reached. A host may have millions of repositories in DID documents:
//! the host is tried now and then, and not once per repository.

use std::collections::HashMap;
use std::time::Duration;

use gapless_core::ledger::{HostId, Time};

/// Failures in a row after which all debts wait for the host.
const REST_AFTER: u32 = 20;
/// How long no request goes to the host then, doubled with every further failure.
const FIRST_REST: Duration = Duration::from_secs(5);
const MAX_REST: Duration = Duration::from_secs(3600);

/// The hosts that the last request did not reach.
#[derive(Default)]
pub(super) struct UnreachableHosts {
    hosts: HashMap<HostId, FailedRequests>,
}

#[derive(Clone, Copy)]
struct FailedRequests {
    in_a_row: u32,
    rest_until: Time,
}

impl UnreachableHosts {
    /// Counts a request that did not reach the host.
    pub(super) fn record_failure(&mut self, now: Time, host: HostId) {
        let failed = self.hosts.entry(host).or_insert(FailedRequests {
            in_a_row: 0,
            rest_until: now,
        });
        failed.in_a_row = failed.in_a_row.saturating_add(1);
        if let Some(more) = failed.in_a_row.checked_sub(REST_AFTER) {
            let rest = FIRST_REST.saturating_mul(1 << more.min(16));
            failed.rest_until = now.after(rest.min(MAX_REST));
        }
    }

    /// Removes a host that has answered. Returns whether debts were waiting for it.
    pub(super) fn remove(&mut self, host: HostId) -> bool {
        let failed = self.hosts.remove(&host);
        failed.is_some_and(|failed| failed.in_a_row >= REST_AFTER)
    }

    /// Whether one more request may go to the host beside `running` ones. While a host is
    /// unreachable, one request at a time finds out whether it is back.
    pub(super) fn may_ask(&self, now: Time, host: HostId, running: usize) -> bool {
        match self.hosts.get(&host) {
            Some(failed) if failed.in_a_row >= REST_AFTER => {
                failed.rest_until <= now && running == 0
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostId = HostId(1);

    #[test]
    fn a_silent_host_costs_a_question_now_and_then_however_much_it_owes() {
        let mut hosts = UnreachableHosts::default();
        let (mut now, mut asked) = (Time(1_000_000), 0u32);
        let end = now.after(Duration::from_secs(24 * 3600));
        // A repository of the host could be tried every second.
        while now < end {
            if hosts.may_ask(now, HOST, 0) {
                asked += 1;
                hosts.record_failure(now, HOST);
            }
            assert!(hosts.may_ask(now, HostId(2), 0), "others are not concerned");
            now = now.after(Duration::from_secs(1));
        }
        assert!((REST_AFTER..REST_AFTER + 40).contains(&asked), "{asked}");
        let later = now.after(MAX_REST);
        assert!(hosts.may_ask(later, HOST, 0), "it is never forgotten");
        assert!(!hosts.may_ask(later, HOST, 1), "one question is enough");
        assert!(hosts.remove(HOST) && hosts.may_ask(now, HOST, 8));
        assert!(!hosts.remove(HOST), "nobody waits any more");
    }
}
