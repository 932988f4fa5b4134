//! Caches how many repositories of each host are behind.
//!
//! A count decides whether signed commits are abandoned, so it may only err upwards. A
//! cached count grows with every repository that is found behind meanwhile. Repositories
//! listed as behind count before their head is checked; repositories whose older state was
//! adopted count for 24 h. A restart forgets the counts, and the next question counts again.

use std::collections::HashMap;
use std::sync::MutexGuard;
use std::time::Duration;

use gapless_core::ledger::rollback::BehindShare;
use gapless_core::ledger::{HostId, Time};
use gapless_store::sync::Mutex;

/// How long a count of a host's repositories is used.
const MAX_COUNT_AGE: Duration = Duration::from_secs(60);
/// How long a repository counts as behind after its host's older state was adopted.
const ADOPTED_WINDOW: Duration = Duration::from_secs(24 * 3600);

/// The cached counts of all hosts.
#[derive(Default)]
pub struct BehindCounts {
    hosts: Mutex<HashMap<HostId, HostCounts>>,
}

#[derive(Default)]
struct HostCounts {
    /// The last count from the store, and its time.
    counted: Option<(Time, BehindShare)>,
    /// The time of the first adoption in the window, and the number of adoptions.
    adopted: Option<(Time, u64)>,
    /// Repositories that the last listing showed with an older rev than ours. A listing
    /// shows all at once, while questions come at the host's pace.
    listed: u64,
}

impl HostCounts {
    /// Merges a count with the listing. A repository that is listed as behind and was found
    /// behind counts once.
    fn with_listed(&self, share: BehindShare) -> BehindShare {
        BehindShare {
            behind: share.behind.max(self.listed),
            ..share
        }
    }

    fn adopted_lately(&self, now: Time) -> u64 {
        let adopted = self
            .adopted
            .filter(|(since, _)| !now.passed(*since, ADOPTED_WINDOW));
        adopted.map_or(0, |(_, count)| count)
    }
}

impl BehindCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, HostCounts>> {
        self.hosts.lock()
    }

    /// Returns the cached count of a host, unless the count is too old.
    pub fn get(&self, now: Time, host: HostId) -> Option<BehindShare> {
        let hosts = self.lock();
        let counts = hosts.get(&host)?;
        let (at, share) = counts.counted?;
        (!now.passed(at, MAX_COUNT_AGE)).then(|| counts.with_listed(share))
    }

    /// Caches a count from the store, and returns the count merged with the listing.
    pub(crate) fn record_count(
        &self,
        at: Time,
        host: HostId,
        mut share: BehindShare,
    ) -> BehindShare {
        let mut hosts = self.lock();
        let counts = hosts.entry(host).or_default();
        share.behind += counts.adopted_lately(at);
        counts.counted = Some((at, share));
        counts.with_listed(share)
    }

    /// Records how many repositories a complete listing showed with an older rev.
    pub(crate) fn record_listed(&self, host: HostId, older: u64) {
        self.lock().entry(host).or_default().listed = older;
    }

    /// Adds a repository that was found behind to the cached count.
    pub(crate) fn add_behind(&self, host: HostId) {
        if let Some((_, share)) = self
            .lock()
            .get_mut(&host)
            .and_then(|counts| counts.counted.as_mut())
        {
            share.behind += 1;
        }
    }

    /// Records that a host's older state was adopted. After an adoption, the repository's row no
    /// longer marks it as behind.
    pub(crate) fn record_adopted(&self, now: Time, host: HostId) {
        let mut hosts = self.lock();
        let counts = hosts.entry(host).or_default();
        let before = counts.adopted_lately(now);
        counts.adopted = match counts.adopted {
            Some((since, _)) if before > 0 => Some((since, before + 1)),
            _ => Some((now, 1)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostId = HostId(1);
    const START: Time = Time(1_000_000_000);

    fn of_a_hundred(behind: u64) -> BehindShare {
        BehindShare { repos: 100, behind }
    }

    #[test]
    fn a_cached_count_grows_with_every_repository_found_behind() {
        let counts = BehindCounts::default();
        assert_eq!(counts.get(START, HOST), None);
        counts.record_count(START, HOST, of_a_hundred(0));
        for _ in 0..12 {
            counts.add_behind(HOST);
        }
        assert_eq!(counts.get(START, HOST), Some(of_a_hundred(12)));
        assert_eq!(counts.get(START.after(MAX_COUNT_AGE), HOST), None);
    }

    #[test]
    fn a_repository_listed_as_behind_counts_before_its_head_is_checked() {
        let counts = BehindCounts::default();
        counts.record_listed(HOST, 30);
        assert_eq!(counts.record_count(START, HOST, of_a_hundred(1)).behind, 30);
        assert_eq!(
            counts.record_count(START, HOST, of_a_hundred(40)).behind,
            40
        );
        counts.record_listed(HOST, 0);
        assert_eq!(counts.record_count(START, HOST, of_a_hundred(1)).behind, 1);
        counts.record_listed(HOST, 50);
        let behind = || counts.get(START, HOST).map(|share| share.behind);
        assert_eq!(behind(), Some(50));
        counts.record_listed(HOST, 2);
        counts.add_behind(HOST);
        assert_eq!(behind(), Some(2), "listed and found is one");
    }

    #[test]
    fn an_adopted_repository_counts_for_a_day() {
        let counts = BehindCounts::default();
        for hour in 0..3 {
            let now = START.after(Duration::from_secs(hour * 3600));
            counts.record_adopted(now, HOST);
        }
        let soon = START.after(ADOPTED_WINDOW / 2);
        assert_eq!(counts.record_count(soon, HOST, of_a_hundred(1)).behind, 4);
        let later = START.after(ADOPTED_WINDOW);
        assert_eq!(counts.record_count(later, HOST, of_a_hundred(1)).behind, 1);
        counts.record_adopted(later, HOST);
        assert_eq!(counts.record_count(later, HOST, of_a_hundred(1)).behind, 2);
    }
}
