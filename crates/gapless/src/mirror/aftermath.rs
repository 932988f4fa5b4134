//! After a purge: what it left behind goes too, bit by bit. The frames that brought
//! the records, what older rows of the log say of them, dead letters, and at last the
//! engine's own files.
//!
//! How far it is lies in the store, so that a purge that was cut short is followed up
//! at the next start. Each turn is small; whoever writes meanwhile waits for none of
//! them for long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless_core::ledger::time::micros;
use gapless_core::ledger::{RepoId, Time};
use gapless_store::Store;
use gapless_store::apply::is_redactable;
use gapless_store::change::{Change, Redact, Upkeep};
use gapless_store::engine::{JOURNAL_BYTES, Scourer};
use gapless_store::error::StoreError;
use gapless_store::frames::FramesError;
use gapless_store::table::Table;
use gapless_store::table::dead::Resolution;
use gapless_store::table::purge::PurgeRow;

use super::Mirror;
use crate::stop;
use crate::store_io::{blocking, write};

/// What the reads of this module are called in the log.
const PURGE_READ: &str = "cleaning up after a purge";

/// Rows of the log that are looked at by one reading.
const ROWS_AT_A_TIME: usize = 10_000;
/// Rows, frames or letters that one change takes away.
const REDACTED_AT_A_TIME: usize = 64;
/// The engine's files are not written anew more often than this, or than the time of
/// grace if that is less.
const SCOUR_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Bytes that are written at once to make the engine begin a new journal.
const FILL_BYTES: usize = 1 << 20;
/// How often it is looked whether the old journals have gone.
const JOURNAL_LOOKS: u32 = 20;
const JOURNAL_LOOK: Duration = Duration::from_millis(250);
/// How often it is looked whether old views have gone. Whoever reads for long takes a
/// new one now and then.
const VIEW_LOOKS: u32 = 20;
const VIEW_LOOK: Duration = Duration::from_millis(250);
/// What may hold something of a repository.
const TABLES: [Table; 9] = [
    Table::Record,
    Table::Version,
    Table::Claimed,
    Table::Parked,
    Table::Log,
    Table::Repo,
    Table::Debt,
    Table::Dead,
    Table::Meta,
];

/// Purges that are not over, by their first log number.
type Purges = Vec<(u64, PurgeRow)>;

impl Mirror {
    /// Goes on with whatever purges have left.
    pub(super) async fn follow_up(&self) -> Result<(), StoreError> {
        let store = self.shared.store.clone();
        let open = blocking(&self.shared.metrics, PURGE_READ, move || {
            let mut open = Purges::new();
            for row in store.view().purges(0) {
                let (number, purge) = row?;
                if purge.finished_at.is_none() {
                    open.push((number, purge));
                }
            }
            Ok(open)
        });
        let open = open.await?;
        if open.is_empty() {
            return Ok(());
        }
        stop::here("purge.unfollowed");
        self.redact_letters(&open).await?;
        if self.redact_log(&open).await? {
            self.scour(&open).await?;
        }
        Ok(())
    }

    async fn redact_letters(&self, open: &Purges) -> Result<(), StoreError> {
        let by_repo: BTreeMap<RepoId, u64> = open
            .iter()
            .map(|(number, purge)| (purge.repo, *number))
            .collect();
        let store = self.shared.store.clone();
        let letters = blocking(&self.shared.metrics, PURGE_READ, move || {
            let mut letters = Vec::new();
            for row in store.view().dead_letters() {
                let (number, letter) = row?;
                let purge = letter.repo.and_then(|repo| by_repo.get(&repo));
                if let Some(purge) = purge
                    && !letter.payload.is_empty()
                {
                    letters.push((*purge, number, letter.resolution == Resolution::Open));
                }
            }
            Ok(letters)
        });
        for (purge, number, is_open) in letters.await? {
            self.upkeep(Upkeep::Redact(Redact {
                purge,
                letters: vec![number],
                ..Redact::default()
            }))
            .await?;
            if is_open {
                self.shared.settle_dead_letter();
            }
        }
        Ok(())
    }

    /// Whether it has come to the end.
    async fn redact_log(&self, open: &Purges) -> Result<bool, StoreError> {
        let mut walk = Walk::over(open);
        while walk.next < walk.end {
            if self.shared.end.is_ending() {
                return Ok(false);
            }
            let store = self.shared.store.clone();
            let (walked, found) = blocking(&self.shared.metrics, PURGE_READ, move || {
                let found = walk.look(&store)?;
                Ok((walk, found))
            })
            .await?;
            walk = walked;
            for part in found {
                let metrics = &self.shared.metrics;
                metrics.purged_frames.add(part.frames.len() as u64);
                self.upkeep(Upkeep::Redact(part)).await?;
                stop::here("purge.redacting");
            }
        }
        for (number, purge) in open {
            if purge.upto < *number {
                self.upkeep(Upkeep::Redact(Redact {
                    purge: *number,
                    upto: *number,
                    ..Redact::default()
                }))
                .await?;
            }
        }
        Ok(true)
    }

    /// Gets the bytes off the disk, and says that it is done.
    async fn scour(&self, open: &Purges) -> Result<(), StoreError> {
        let every = self.config.purge_grace.min(SCOUR_EVERY);
        let lately = |at: Instant| at.elapsed() < every;
        let scoured = self.scoured.lock().ok().and_then(|at| *at);
        // With no room nothing is written, and a table written anew takes some.
        stop::here("purge.redacted");
        if scoured.is_some_and(lately) || self.shared.room.lack().is_some() {
            return Ok(());
        }
        let Some(scourer) = self.shared.store.scourer() else {
            return Ok(());
        };
        if let Ok(mut at) = self.scoured.lock() {
            *at = Some(Instant::now());
        }
        let scourer = Arc::new(scourer);
        let redacted = scourer.mark();
        if !self.drop_journals(&scourer).await? {
            self.put_off("the engine's journals still hold what was purged");
            return Ok(());
        }
        // What somebody reads is kept in the new tables, too.
        if !self.unseen(&scourer, redacted).await? {
            self.put_off("somebody still reads what was there before a purge");
            return Ok(());
        }
        let compacting = scourer.clone();
        let compacted = blocking(&self.shared.metrics, PURGE_READ, move || {
            let mut all = true;
            for table in TABLES {
                all &= compacting.compact(table)?;
            }
            Ok(all)
        });
        let compacted = compacted.await?;
        // And the old ones stay for as long as anybody reads them.
        if !self.unseen(&scourer, scourer.mark()).await? {
            self.put_off("somebody still reads tables that were written anew");
            return Ok(());
        }
        for (number, purge) in open {
            let at = self.shared.clock.time();
            self.upkeep(Upkeep::Finish {
                purge: *number,
                at,
                compacted,
            })
            .await?;
            self.shared.metrics.purges_finished.inc();
            tracing::info!(
                did = %purge.did, number, compacted,
                "nothing of a purged repository is left"
            );
        }
        Ok(())
    }

    fn put_off(&self, why: &'static str) {
        self.shared.metrics.purges_put_off.inc();
        tracing::info!(
            why,
            "the bytes of a purge are not off the disk yet; tried again later"
        );
    }

    /// Waits a while until nobody has a view from before that moment and the engine has
    /// let go of what it kept for them; whether that is so.
    async fn unseen(&self, scourer: &Arc<Scourer>, mark: u64) -> Result<bool, StoreError> {
        for _ in 0..VIEW_LOOKS {
            // Looked at before the flush: by what is so by then, the flush lets go.
            let past = scourer.is_past(mark);
            self.upkeep(Upkeep::Fill(Vec::new())).await?;
            let flushing = scourer.clone();
            blocking(&self.shared.metrics, PURGE_READ, move || {
                Ok(flushing.flush()?)
            })
            .await?;
            if past {
                return Ok(true);
            }
            tokio::time::sleep(VIEW_LOOK).await;
        }
        Ok(false)
    }

    /// Makes the engine begin a new journal, and waits until the old ones have gone.
    async fn drop_journals(&self, scourer: &Arc<Scourer>) -> Result<bool, StoreError> {
        let before = scourer.journals();
        for _ in 0..JOURNAL_BYTES / FILL_BYTES + 2 {
            self.upkeep(Upkeep::Fill(vec![0; FILL_BYTES])).await?;
        }
        self.upkeep(Upkeep::Fill(Vec::new())).await?;
        for _ in 0..JOURNAL_LOOKS {
            let flushing = scourer.clone();
            blocking(&self.shared.metrics, PURGE_READ, move || {
                Ok(flushing.flush()?)
            })
            .await?;
            if before.iter().all(|journal| !journal.exists()) {
                return Ok(true);
            }
            tokio::time::sleep(JOURNAL_LOOK).await;
            // Something new, so that there is something to flush.
            self.upkeep(Upkeep::Fill(Vec::new())).await?;
        }
        Ok(false)
    }

    async fn upkeep(&self, upkeep: Upkeep) -> Result<(), StoreError> {
        let change = Change {
            tick: self.shared.clock.now().tick,
            upkeep: Some(upkeep),
            ..Change::default()
        };
        write(&self.shared.store, change).await?;
        Ok(())
    }

    /// Superseded records that were kept long enough go.
    pub(super) async fn expire_versions(&self) -> Result<(), StoreError> {
        let keep = self.config.keep_versions;
        let now = self.shared.clock.time();
        let since = Time(now.0.saturating_sub(micros(keep)));
        let store = self.shared.store.clone();
        let below = blocking(&self.shared.metrics, PURGE_READ, move || {
            store.view().log_number_after(since)
        })
        .await?;
        let mut from = Vec::new();
        loop {
            let store = self.shared.store.clone();
            let start = from.clone();
            let (old, last) = blocking(&self.shared.metrics, PURGE_READ, move || {
                let (mut old, mut last) = (Vec::new(), None);
                for row in store.view().superseded(&start).take(ROWS_AT_A_TIME) {
                    let (place, by) = row?;
                    if by < below {
                        old.push(place.clone());
                    }
                    last = Some(place);
                }
                Ok((old, last))
            })
            .await?;
            let expired = old.len() as u64;
            for part in old.chunks(ROWS_AT_A_TIME / 10) {
                self.upkeep(Upkeep::Expire(part.to_vec())).await?;
            }
            self.shared.metrics.versions_expired.add(expired);
            let Some(mut last) = last.filter(|_| !self.shared.end.is_ending()) else {
                return Ok(());
            };
            // The least key above it.
            last.push(0);
            from = last;
        }
    }
}

/// A walk through the log for what purged repositories have in it.
struct Walk {
    next: u64,
    end: u64,
    /// Repository → its purges, lowest first.
    purges: BTreeMap<RepoId, Vec<u64>>,
}

impl Walk {
    fn over(open: &Purges) -> Walk {
        let mut purges: BTreeMap<RepoId, Vec<u64>> = BTreeMap::new();
        for (number, purge) in open {
            purges.entry(purge.repo).or_default().push(*number);
        }
        let begun = open.iter().filter(|(number, purge)| purge.upto < *number);
        Walk {
            next: begun
                .clone()
                .map(|(_, purge)| purge.upto)
                .min()
                .unwrap_or(0),
            end: begun.map(|(number, _)| *number).max().unwrap_or(0),
            purges,
        }
    }

    /// Looks at some rows, and says what of them has to go.
    fn look(&mut self, store: &Store) -> Result<Vec<Redact>, StoreError> {
        let view = store.view();
        let mut found: BTreeMap<u64, Vec<Redact>> = BTreeMap::new();
        let from = self.next;
        for row in view.log_glances(self.next)?.take(ROWS_AT_A_TIME) {
            let (first, row) = row?;
            self.next = first.saturating_add(row.numbers);
            if first >= self.end {
                break;
            }
            let purges = row.repo.and_then(|repo| self.purges.get(&repo));
            let purge = purges.and_then(|of| of.iter().find(|number| **number > first));
            let Some(purge) = purge.filter(|_| is_redactable(row.kind)) else {
                continue;
            };
            let parts = found.entry(*purge).or_default();
            let full = |part: &Redact| part.rows.len() >= REDACTED_AT_A_TIME;
            if parts.last().is_none_or(full) {
                parts.push(Redact {
                    purge: *purge,
                    ..Redact::default()
                });
            }
            if let Some(part) = parts.last_mut() {
                part.rows.push(first);
                if has_frame(store, first)? {
                    part.frames.push(first);
                }
            }
        }
        if self.next == from {
            // The log ends here; then there is no more to look for.
            self.next = self.end;
        }
        Ok(found.into_values().flatten().collect())
    }
}

/// Whether there are bytes under this number, whole or damaged.
fn has_frame(store: &Store, seq: u64) -> Result<bool, StoreError> {
    let Some(frames) = store.frames() else {
        return Ok(false);
    };
    if seq < frames.oldest_seq() {
        return Ok(false);
    }
    match frames.read(seq, seq + 1, 1) {
        Ok(page) => {
            let whole = page
                .frames
                .first()
                .is_some_and(|frame| frame.bytes.is_some());
            Ok(whole || !page.damaged.is_empty())
        }
        Err(FramesError::Gone { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
