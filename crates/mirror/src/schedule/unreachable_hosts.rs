//! Hosts that nobody reaches. Some have millions of repositories by their documents: the
//! host is tried now and then, and not each of them.

use std::collections::HashMap;
use std::time::Duration;

use gapless_core::ledger::{HostId, Time};

/// Questions in a row that nobody was there to hear, until all wait for the host.
const SILENT_AFTER: u32 = 20;
/// How long it is left alone then, doubled with every further one.
const REST_FIRST: Duration = Duration::from_secs(5);
const REST_LONGEST: Duration = Duration::from_secs(3600);

/// The hosts that were not there when they were last asked.
#[derive(Default)]
pub struct SilentHosts {
    hosts: HashMap<HostId, Silent>,
}

#[derive(Clone, Copy)]
struct Silent {
    times: u32,
    until: Time,
}

impl SilentHosts {
    /// Nobody was there.
    pub fn unreachable(&mut self, now: Time, host: HostId) {
        let silent = self.hosts.entry(host).or_insert(Silent {
            times: 0,
            until: now,
        });
        silent.times = silent.times.saturating_add(1);
        if let Some(more) = silent.times.checked_sub(SILENT_AFTER) {
            let rest = REST_FIRST.saturating_mul(1 << more.min(16));
            silent.until = now.after(rest.min(REST_LONGEST));
        }
    }

    /// Somebody is. Returns whether anybody waited for that.
    pub fn reached(&mut self, host: HostId) -> bool {
        let before = self.hosts.remove(&host);
        before.is_some_and(|silent| silent.times >= SILENT_AFTER)
    }

    /// Whether a host has work done at it now, with so many at work there. Of one that
    /// is silent, one question finds out whether it is back.
    pub fn lets(&self, now: Time, host: HostId, at_work: usize) -> bool {
        match self.hosts.get(&host) {
            Some(silent) if silent.times >= SILENT_AFTER => silent.until <= now && at_work == 0,
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
        let mut silent = SilentHosts::default();
        let (mut now, mut asked) = (Time(1_000_000), 0u32);
        let end = now.after(Duration::from_secs(24 * 3600));
        // Every second somebody could be tried.
        while now < end {
            if silent.lets(now, HOST, 0) {
                asked += 1;
                silent.unreachable(now, HOST);
            }
            assert!(silent.lets(now, HostId(2), 0), "others are not concerned");
            now = now.after(Duration::from_secs(1));
        }
        assert!(
            (SILENT_AFTER..SILENT_AFTER + 40).contains(&asked),
            "{asked}"
        );
        let later = now.after(REST_LONGEST);
        assert!(silent.lets(later, HOST, 0), "it is never forgotten");
        assert!(!silent.lets(later, HOST, 1), "one question is enough");
        assert!(silent.reached(HOST) && silent.lets(now, HOST, 8));
        assert!(!silent.reached(HOST), "nobody waits any more");
    }
}
