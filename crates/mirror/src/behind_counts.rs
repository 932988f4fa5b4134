//! With how many repositories a host is behind, as far as it is remembered.
//!
//! It decides whether signed commits are given up, so a count may only err upwards:
//! one that is remembered grows with everybody who is found behind meanwhile, whoever
//! is listed as behind counts before anybody has asked, and whoever was given up counts
//! for another day. After a restart it is counted anew.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gapless_core::ledger::rollback::BehindShare;
use gapless_core::ledger::{HostId, Time};

/// How long a count of a host's repositories is good for.
const CENSUS_FOR: Duration = Duration::from_secs(60);
/// How long somebody counts as behind whose host's state was taken over.
const ADOPTED_FOR: Duration = Duration::from_secs(24 * 3600);

/// With how many repositories hosts are behind, as far as it is remembered.
#[derive(Default)]
pub struct BehindCounts {
    hosts: Mutex<HashMap<HostId, Remembered>>,
}

#[derive(Default)]
struct Remembered {
    counted: Option<(Time, BehindShare)>,
    /// How many were given up in a day, and when the first of them was.
    adopted: Option<(Time, u64)>,
    /// How many the last listing showed with an older rev than ours. Questions come at
    /// a host's pace, a listing tells of all at once.
    listed: u64,
}

impl Remembered {
    /// Whoever is listed as behind and was found so by asking is one, not two.
    fn told(&self, census: BehindShare) -> BehindShare {
        BehindShare {
            behind: census.behind.max(self.listed),
            ..census
        }
    }

    fn lately(&self, now: Time) -> u64 {
        let adopted = self
            .adopted
            .filter(|(since, _)| !now.passed(*since, ADOPTED_FOR));
        adopted.map_or(0, |(_, count)| count)
    }
}

impl BehindCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, Remembered>> {
        // Nothing in here can panic half way.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, now: Time, host: HostId) -> Option<BehindShare> {
        let hosts = self.lock();
        let remembered = hosts.get(&host)?;
        let (at, census) = remembered.counted?;
        (!now.passed(at, CENSUS_FOR)).then(|| remembered.told(census))
    }

    /// Counted from the store, as of then.
    pub fn counted(&self, at: Time, host: HostId, mut census: BehindShare) -> BehindShare {
        let mut hosts = self.lock();
        let remembered = hosts.entry(host).or_default();
        census.behind += remembered.lately(at);
        remembered.counted = Some((at, census));
        remembered.told(census)
    }

    /// A listing was read to its end.
    pub fn listed(&self, host: HostId, older: u64) {
        self.lock().entry(host).or_default().listed = older;
    }

    /// One more was found behind.
    pub fn one_more(&self, host: HostId) {
        if let Some((_, census)) = self
            .lock()
            .get_mut(&host)
            .and_then(|host| host.counted.as_mut())
        {
            census.behind += 1;
        }
    }

    /// A host's older state was taken over: it is behind with one less, by rows.
    pub fn adopted(&self, now: Time, host: HostId) {
        let mut hosts = self.lock();
        let remembered = hosts.entry(host).or_default();
        let before = remembered.lately(now);
        remembered.adopted = match remembered.adopted {
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
    fn a_remembered_count_grows_with_everybody_who_is_found_behind() {
        let censuses = BehindCounts::default();
        assert_eq!(censuses.get(START, HOST), None);
        censuses.counted(START, HOST, of_a_hundred(0));
        for _ in 0..12 {
            censuses.one_more(HOST);
        }
        assert_eq!(censuses.get(START, HOST), Some(of_a_hundred(12)));
        assert_eq!(censuses.get(START.after(CENSUS_FOR), HOST), None);
    }

    #[test]
    fn whoever_is_listed_as_behind_counts_before_anybody_has_asked() {
        let censuses = BehindCounts::default();
        censuses.listed(HOST, 30);
        assert_eq!(censuses.counted(START, HOST, of_a_hundred(1)).behind, 30);
        assert_eq!(censuses.counted(START, HOST, of_a_hundred(40)).behind, 40);
        censuses.listed(HOST, 0);
        assert_eq!(censuses.counted(START, HOST, of_a_hundred(1)).behind, 1);
        censuses.listed(HOST, 50);
        let remembered = || censuses.get(START, HOST).map(|census| census.behind);
        assert_eq!(remembered(), Some(50));
        censuses.listed(HOST, 2);
        censuses.one_more(HOST);
        assert_eq!(remembered(), Some(2), "listed and found is one");
    }

    #[test]
    fn whoever_was_given_up_counts_for_a_day() {
        let censuses = BehindCounts::default();
        for hour in 0..3 {
            let now = START.after(Duration::from_secs(hour * 3600));
            censuses.adopted(now, HOST);
        }
        let soon = START.after(ADOPTED_FOR / 2);
        assert_eq!(censuses.counted(soon, HOST, of_a_hundred(1)).behind, 4);
        let later = START.after(ADOPTED_FOR);
        assert_eq!(censuses.counted(later, HOST, of_a_hundred(1)).behind, 1);
        censuses.adopted(later, HOST);
        assert_eq!(censuses.counted(later, HOST, of_a_hundred(1)).behind, 2);
    }
}
