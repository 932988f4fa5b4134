//! Limits how many new hosts each naming source may add. A DID document can name any host,
//! so an attacker can make up any number of hosts; a real network has some thousands.
//!
//! An operator has no limit. Every other source has a share. Strangers together leave
//! a reserve to the documents of held or tracked repositories, so a flood exhausts only the
//! share of its source. The shares are counted from the rows, so a restart does not change
//! them; refusals are counted since the start.

use std::collections::{BTreeMap, HashMap};

use gapless_core::ledger::NamedBy;

use crate::metrics::Metrics;

/// Hosts that are remembered. Hosts that an operator names are not limited.
const MAX_HOSTS: usize = 100_000;
/// Hosts that are reserved for documents of held or tracked repositories.
const RESERVED_HOSTS: usize = 20_000;
/// Hosts that the documents of the held repositories of one host may name. A host that such
/// a document has named shares this limit; a limit of its own would grow with every move.
const MAX_BY_DOCUMENTS: usize = 10_000;
/// Hosts that one relay may list.
const MAX_BY_RELAY: usize = 30_000;
/// Hosts that documents of repositories without held state may name, for each relay that
/// brought these repositories.
const MAX_BY_STRANGERS: usize = 30_000;
/// Refused sources that are counted by name. Further refusals only count in the total.
const MAX_REFUSED_NAMERS: usize = 100;

/// Why a host is not remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaExceeded {
    /// The source has used up its share.
    Share,
    /// The remaining room is reserved for documents of held or tracked repositories.
    Reserve,
    /// [`MAX_HOSTS`] hosts are known.
    All,
}

impl QuotaExceeded {
    /// The label of the quota in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            QuotaExceeded::Share => "share",
            QuotaExceeded::Reserve => "reserve",
            QuotaExceeded::All => "all",
        }
    }

    /// Counts a host that was not remembered because of this quota.
    pub(crate) fn count(self, metrics: &Metrics) {
        metrics.hosts_refused.inc();
        metrics.hosts_over.inc(self.name());
    }
}

/// The number of host rows for each naming source, and the refusals.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    hosts: usize,
    shares: HashMap<NamedBy, usize>,
    refused: BTreeMap<NamedBy, u64>,
    refused_total: u64,
}

/// How many hosts a source may name; `None` means any number.
pub(crate) fn limit(by: &NamedBy) -> Option<usize> {
    match by {
        NamedBy::Operator | NamedBy::Unsaid => None,
        NamedBy::Document(_) => Some(MAX_BY_DOCUMENTS),
        NamedBy::Relay(_) => Some(MAX_BY_RELAY),
        NamedBy::Stranger(_) => Some(MAX_BY_STRANGERS),
    }
}

impl Quotas {
    /// Reserves room for one more host of a source.
    pub(crate) fn take(&mut self, by: &NamedBy) -> Result<(), QuotaExceeded> {
        let exceeded = self.exceeded(by);
        match exceeded {
            None => self.add(by),
            Some(exceeded) => {
                self.refused_total += 1;
                if self.refused.len() < MAX_REFUSED_NAMERS || self.refused.contains_key(by) {
                    *self.refused.entry(by.clone()).or_default() += 1;
                }
                return Err(exceeded);
            }
        }
        Ok(())
    }

    fn exceeded(&self, by: &NamedBy) -> Option<QuotaExceeded> {
        let share = limit(by)?;
        let reserved = match by {
            NamedBy::Relay(_) | NamedBy::Stranger(_) => RESERVED_HOSTS,
            NamedBy::Operator | NamedBy::Unsaid | NamedBy::Document(_) => 0,
        };
        if self.hosts >= MAX_HOSTS {
            Some(QuotaExceeded::All)
        } else if self.share(by) >= share {
            Some(QuotaExceeded::Share)
        } else if self.hosts + reserved >= MAX_HOSTS {
            Some(QuotaExceeded::Reserve)
        } else {
            None
        }
    }

    /// Counts one more host, without a limit.
    pub(crate) fn add(&mut self, by: &NamedBy) {
        self.hosts += 1;
        *self.shares.entry(by.clone()).or_default() += 1;
    }

    /// Counts one host less.
    pub(crate) fn give_back(&mut self, by: &NamedBy) {
        self.hosts = self.hosts.saturating_sub(1);
        if let Some(share) = self.shares.get_mut(by) {
            *share = share.saturating_sub(1);
            if *share == 0 {
                self.shares.remove(by);
            }
        }
    }

    /// How many host rows a source has named.
    pub(crate) fn share(&self, by: &NamedBy) -> usize {
        self.shares.get(by).copied().unwrap_or(0)
    }

    /// Refusals since the start: for each source, and in total.
    pub(crate) fn refused(&self) -> (&BTreeMap<NamedBy, u64>, u64) {
        (&self.refused, self.refused_total)
    }
}

#[cfg(test)]
mod tests {
    use gapless_core::ledger::HostId;

    use super::*;

    fn relay(name: &str) -> NamedBy {
        NamedBy::Relay(name.to_owned())
    }

    /// Takes up to `many` places. Returns how many were taken, and why no more.
    fn fill(quotas: &mut Quotas, by: &NamedBy, many: usize) -> (usize, Option<QuotaExceeded>) {
        for count in 0..many {
            if let Err(exceeded) = quotas.take(by) {
                return (count, Some(exceeded));
            }
        }
        (many, None)
    }

    #[test]
    fn a_share_ends_where_it_ends_and_others_have_theirs() {
        let mut quotas = Quotas::default();
        let hostile = NamedBy::Document(Some(HostId(1)));
        let filled = fill(&mut quotas, &hostile, 20_000);
        assert_eq!(filled, (10_000, Some(QuotaExceeded::Share)));
        for by in [NamedBy::Document(Some(HostId(2))), NamedBy::Document(None)] {
            assert_eq!(fill(&mut quotas, &by, 100), (100, None));
        }
        let filled = fill(&mut quotas, &relay("a"), 50_000);
        assert_eq!(filled, (30_000, Some(QuotaExceeded::Share)));
        let filled = fill(&mut quotas, &NamedBy::Stranger(Some("a".into())), 50_000);
        assert_eq!(filled, (30_000, Some(QuotaExceeded::Share)));
        assert_eq!(quotas.share(&hostile), 10_000);
        let (refused, total) = quotas.refused();
        assert_eq!((refused[&hostile], total), (1, 3));
    }

    #[test]
    fn strangers_leave_a_reserve_and_an_operator_needs_none() {
        let mut quotas = Quotas::default();
        for name in ["a", "b"] {
            fill(&mut quotas, &relay(name), 30_000);
        }
        let stranger = NamedBy::Stranger(None);
        let filled = fill(&mut quotas, &stranger, 30_000);
        assert_eq!(filled, (20_000, Some(QuotaExceeded::Reserve)));
        assert_eq!(quotas.take(&relay("c")), Err(QuotaExceeded::Reserve));
        for host in 1..=2 {
            let by = NamedBy::Document(Some(HostId(host)));
            assert_eq!(fill(&mut quotas, &by, 10_000), (10_000, None));
        }
        let last = NamedBy::Document(Some(HostId(3)));
        assert_eq!(quotas.take(&last), Err(QuotaExceeded::All));
        assert_eq!(fill(&mut quotas, &NamedBy::Operator, 100), (100, None));
        assert_eq!(quotas.take(&last), Err(QuotaExceeded::All));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut quotas = Quotas::default();
        let by = NamedBy::Document(None);
        fill(&mut quotas, &by, 10_000);
        assert!(quotas.take(&by).is_err());
        quotas.give_back(&by);
        assert_eq!(quotas.take(&by), Ok(()));
        assert!(quotas.take(&by).is_err());
        // More than there were is none.
        let (other, mut quotas) = (relay("a"), Quotas::default());
        quotas.give_back(&other);
        assert_eq!(quotas.share(&other), 0);
    }

    #[test]
    fn of_many_who_are_refused_some_are_named_and_all_are_counted() {
        let mut quotas = Quotas::default();
        fill(&mut quotas, &NamedBy::Operator, MAX_HOSTS);
        for host in 0..MAX_REFUSED_NAMERS as u32 + 50 {
            let by = NamedBy::Document(Some(HostId(host)));
            assert_eq!(quotas.take(&by), Err(QuotaExceeded::All));
        }
        let (refused, total) = quotas.refused();
        assert_eq!(
            (refused.len(), total),
            (MAX_REFUSED_NAMERS, MAX_REFUSED_NAMERS as u64 + 50)
        );
    }
}
