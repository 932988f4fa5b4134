//! Deletes what was kept long enough and no consumer of the log needs: superseded records, and rows
//! at the front of the log. The store decides what the consumers hold back.
//!
//! While the disk is almost full, the consumer that holds back the lowest number is overrun, then
//! the next one, so that a consumer that has stopped does not stop the mirror.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gapless_core::ledger::Time;
use gapless_core::ledger::time::micros;
use gapless_core::retain::{self, Policies, When};
use gapless_store::change::{Change, ConsumerChange, Upkeep};
use gapless_store::error::StoreError;
use gapless_store::table::audit::AuditAct;

use crate::store_io::{blocking, write};
use crate::upkeep::{ROWS_PER_READ, UpkeepTask};

/// Superseded records that one change deletes.
const EXPIRED_PER_CHANGE: usize = ROWS_PER_READ / 10;
/// The names of the reads of this module in the log.
const EXPIRY_READ: &str = "looking for superseded records";
const CONSUMER_READ: &str = "reading the consumers of the log";
/// On a disk that stays almost full, the next consumer is overrun after this time: what the last one
/// released has to be deleted and compacted first.
const OVERRUN_EVERY: Duration = Duration::from_secs(60);

impl UpkeepTask {
    pub(super) fn when(&self) -> When {
        let now = self.services.clock.last_tick_now();
        When {
            time: now.time,
            lived: now.lived,
        }
    }

    /// The first number that was logged within the given time.
    async fn number_since(&self, kept: Duration) -> Result<u64, StoreError> {
        let now = self.services.clock.time();
        let since = Time(now.0.saturating_sub(micros(kept)));
        let store = self.services.store.clone();
        blocking(&self.services.metrics, EXPIRY_READ, move || {
            store.view().log_number_after(since)
        })
        .await
    }

    /// What the settings let go now; nothing while the clock is not believed. Rows whose frames are
    /// still in the window stay: the firehose serves them, and a purge finds a frame by its row.
    async fn policies(&self) -> Result<Policies, StoreError> {
        let clock = &self.services.clock;
        let mut policies = Policies {
            versions: 0,
            log: 0,
        };
        let keep = self.settings.keep_versions;
        if clock.is_believed(keep) {
            policies.versions = self.number_since(keep).await?;
        }
        if let Some(keep) = self.settings.keep_log
            && clock.is_believed(keep)
        {
            let framed = self.services.store.frames();
            let framed = framed.filter(|frames| frames.holds_any());
            let framed = framed.map_or(u64::MAX, |frames| frames.oldest_seq());
            policies.log = self.number_since(keep).await?.min(framed);
        }
        Ok(policies)
    }

    /// Deletes superseded records that were kept long enough.
    pub(super) async fn expire_versions(&self) -> Result<(), StoreError> {
        let below = self.policies().await?.versions;
        if below == 0 {
            return Ok(());
        }
        let mut from = Vec::new();
        loop {
            let store = self.services.store.clone();
            let start = from.clone();
            let (old, last) = blocking(&self.services.metrics, EXPIRY_READ, move || {
                let view = store.view();
                // Only to find fewer: the store decides with the consumers of the moment.
                let consumers = view.consumers()?;
                let policies = Policies {
                    versions: below,
                    log: 0,
                };
                let head = view.counters()?.next_seq;
                let floor = retain::floor(consumers.values(), policies, head);
                let (mut old, mut last) = (Vec::new(), None);
                for row in view.superseded_keys(&start).take(ROWS_PER_READ) {
                    let (place, by) = row?;
                    if by < floor.versions {
                        old.push(place.clone());
                    }
                    last = Some(place);
                }
                Ok((old, last))
            })
            .await?;
            let expired = old.len() as u64;
            for part in old.chunks(EXPIRED_PER_CHANGE) {
                let (keys, at) = (part.to_vec(), self.when());
                self.write(Upkeep::Expire { keys, below, at }).await?;
            }
            self.services.metrics.versions_expired.add(expired);
            let Some(mut last) = last.filter(|_| !self.services.shutdown.has_begun()) else {
                return Ok(());
            };
            // The least key above the last one.
            last.push(0);
            from = last;
        }
    }

    /// Trims rows from the front of the log that were kept long enough.
    pub(super) async fn trim_log(&self) -> Result<(), StoreError> {
        let below = self.policies().await?.log;
        let mut first = self.first_number().await?;
        while first < below && !self.services.shutdown.has_begun() {
            let at = self.when();
            self.write(Upkeep::Trim { below, at }).await?;
            let next = self.first_number().await?;
            if next == first {
                // A consumer needs the next row.
                break;
            }
            self.services.metrics.log_trimmed.add(next - first);
            first = next;
        }
        Ok(())
    }

    /// The first number of the log that is not trimmed.
    async fn first_number(&self) -> Result<u64, StoreError> {
        let store = self.services.store.clone();
        blocking(&self.services.metrics, EXPIRY_READ, move || {
            store.view().first_log_number()
        })
        .await
    }

    /// Overruns consumers that have not moved for longer than their hold, and reports every overrun.
    pub(super) async fn review_consumers(&self) -> Result<(), StoreError> {
        let store = self.services.store.clone();
        let consumers = blocking(&self.services.metrics, CONSUMER_READ, move || {
            store.view().consumers()
        });
        if !consumers.await?.is_empty() {
            let at = self.when();
            self.write(Upkeep::ReviewConsumers { at }).await?;
        }
        self.report_overruns().await
    }

    /// Overruns the consumer that holds back the lowest number, while the disk is almost full and the
    /// consumer holds what the settings would let go. The next pass deletes what that releases.
    pub(super) async fn relieve_disk(&self) -> Result<(), StoreError> {
        let lately = |at: Instant| at.elapsed() < OVERRUN_EVERY;
        if !self.services.disk.is_low() || self.relieved.lock().is_some_and(lately) {
            return Ok(());
        }
        let (store, policies) = (self.services.store.clone(), self.policies().await?);
        let next = blocking(&self.services.metrics, CONSUMER_READ, move || {
            let consumers = store.view().consumers()?;
            let rows = consumers.iter().map(|(key, row)| (*key, row));
            Ok(retain::next_to_overrun(rows, policies))
        });
        let Some(key) = next.await? else {
            return Ok(());
        };
        *self.relieved.lock() = Some(Instant::now());
        let at = self.when();
        let change = Change {
            tick: self.services.clock.now().tick,
            consumer: Some(ConsumerChange::Overrun { key, at }),
            ..Change::default()
        };
        write(&self.services.store, change).await?;
        self.released.store(true, Ordering::Relaxed);
        self.report_overruns().await
    }

    /// Begins to report overruns: those that are recorded from now on.
    pub(super) async fn begin_reporting(&self) -> Result<(), StoreError> {
        let store = self.services.store.clone();
        let next = blocking(&self.services.metrics, CONSUMER_READ, move || {
            Ok(store.view().counters()?.next_audit)
        });
        *self.audited.lock() = Some(next.await?);
        Ok(())
    }

    /// Logs the overruns that were recorded since the last call.
    async fn report_overruns(&self) -> Result<(), StoreError> {
        let Some(from) = *self.audited.lock() else {
            // The beginning could not be read: nothing is known to be new.
            return self.begin_reporting().await;
        };
        let store = self.services.store.clone();
        let (rows, next) = blocking(&self.services.metrics, CONSUMER_READ, move || {
            let view = store.view();
            let mut rows = Vec::new();
            let mut next = from;
            for row in view.audit(from) {
                let (number, row) = row?;
                next = number + 1;
                rows.push(row);
            }
            Ok((rows, next))
        })
        .await?;
        *self.audited.lock() = Some(next);
        for row in rows {
            if let AuditAct::Overrun { next, head } = row.act {
                self.services.metrics.consumers_overrun.inc();
                tracing::error!(
                    consumer = row.consumer,
                    next,
                    head,
                    disk_low = self.services.disk.is_low(),
                    "a consumer of the log is overrun: it stopped for longer than its hold, or the disk is \
                     almost full; Gapless keeps nothing for it until it moves again"
                );
            }
        }
        Ok(())
    }
}
