//! The answer to `gapless status`: counts, upstreams, debts and what is suspended.

use std::sync::atomic::Ordering;

use crate::api::{ApiError, DebtStatus, LogStatus, Status, StoreStatus, timestamp};
use crate::inspect::Inspector;
use crate::inspect::consumers::consumer_answers;

impl Inspector {
    pub(crate) fn status_now(&self) -> Result<Status, ApiError> {
        let counted = self.counter.count()?;
        let head = self.services.store.durable_head().next_seq.checked_sub(1);
        let mut suspended = Vec::new();
        self.services.hosts.each(|_, host| {
            if host.hiding_suspended {
                suspended.push(host.name.clone());
            }
        });
        let now = self.services.clock.time();
        let consumers = consumer_answers(&self.services.store.view(), now)?;
        Ok(Status {
            repos: counted.counts,
            log: LogStatus {
                head: head.filter(|head| *head > 0),
            },
            upstreams: self.upstream_answers()?,
            debt: DebtStatus {
                repos: counted.debts,
                oldest_seconds: counted.oldest_debt,
            },
            parked: counted.parked,
            claims: self.desks.totals().claims.count(),
            dead_letters: self.desks.totals().dead_letters.load(Ordering::Relaxed),
            hiding_suspended: suspended,
            store: match self.services.disk.shortage() {
                None => StoreStatus::default(),
                Some(lack) => StoreStatus {
                    writes: false,
                    since: timestamp(lack.since),
                    error: Some(lack.error),
                },
            },
            counted_at: timestamp(counted.time),
            discover: self.discover_status(),
            reach: self.reach()?,
            consumers: consumers.into_iter().map(|(_, answer)| answer).collect(),
        })
    }
}
