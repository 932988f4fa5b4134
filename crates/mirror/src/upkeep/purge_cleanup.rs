//! Removes what a purge leaves behind, in small steps: the frames that brought the records,
//! the entries of the log about them, dead letters, and finally the bytes in the engine's own
//! files.
//!
//! The progress is in the store, so an interrupted cleanup continues after the next start.
//! Each step is small, so other writes never wait long for a step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless_core::ledger::RepoId;
use gapless_store::Store;
use gapless_store::apply::is_redactable;
use gapless_store::change::{Redaction, Upkeep};
use gapless_store::engine::{JOURNAL_BYTES, Scourer};
use gapless_store::error::StoreError;
use gapless_store::frames::FramesError;
use gapless_store::table::Table;
use gapless_store::table::dead::Resolution;
use gapless_store::table::log::LogKind;
use gapless_store::table::purge::PurgeRow;

use crate::failpoints;
use crate::store_io::blocking;
use crate::upkeep::{ROWS_PER_READ, UpkeepTask};

/// The name of the reads of this module in the log.
const PURGE_READ: &str = "cleaning up after a purge";

/// Rows, frames or letters that one change redacts.
const REDACTED_PER_CHANGE: usize = 64;
/// The engine's files are not rewritten more often than this, or than the grace period if
/// that is less.
const SCOUR_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Bytes that are written at once to make the engine begin a new journal.
const FILL_BYTES: usize = 1 << 20;
/// How often, and at which interval, the cleanup checks whether the old journals are gone.
const JOURNAL_CHECKS: u32 = 20;
const JOURNAL_CHECK_EVERY: Duration = Duration::from_millis(250);
/// How often, and at which interval, the cleanup checks whether old views are gone. Long
/// reads take a new view now and then.
const VIEW_CHECKS: u32 = 20;
const VIEW_CHECK_EVERY: Duration = Duration::from_millis(250);
/// The tables that may hold something of a repository.
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

/// Purges whose cleanup is not finished, by their first log number.
type OpenPurges = Vec<(u64, PurgeRow)>;

impl UpkeepTask {
    /// Goes on with the cleanup of all open purges.
    pub(crate) async fn clean_up_purges(&self) -> Result<(), StoreError> {
        let store = self.services.store.clone();
        let open = blocking(&self.services.metrics, PURGE_READ, move || {
            let mut open = OpenPurges::new();
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
        failpoints::here("purge.unfollowed");
        self.redact_letters(&open).await?;
        if !self.redact_log(&open).await? {
            return Ok(());
        }
        let mut redacted = OpenPurges::new();
        for (number, purge) in open {
            // A purge that has not ended is not finished, so that the next start finds it.
            let under_way = self.is_under_way(purge.repo)?;
            if !under_way && let Some(purge) = self.redact_own_rows(number, purge).await? {
                redacted.push((number, purge));
            }
        }
        if redacted.is_empty() {
            return Ok(());
        }
        self.scour(&redacted).await
    }

    /// Whether a purge of the repository deletes records now.
    fn is_under_way(&self, repo: RepoId) -> Result<bool, StoreError> {
        let repo = self.services.store.view().repo(repo)?;
        Ok(repo.is_some_and(|repo| repo.purging))
    }

    async fn redact_letters(&self, open: &OpenPurges) -> Result<(), StoreError> {
        let by_repo: BTreeMap<RepoId, u64> = open
            .iter()
            .map(|(number, purge)| (purge.repo, *number))
            .collect();
        let store = self.services.store.clone();
        let letters = blocking(&self.services.metrics, PURGE_READ, move || {
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
            self.write(Upkeep::Redact(Redaction {
                purge,
                letters: vec![number],
                ..Redaction::default()
            }))
            .await?;
            if is_open {
                self.desks.totals().resolve_dead_letter();
            }
        }
        Ok(())
    }

    /// Redacts the log. Returns whether it has come to the end.
    async fn redact_log(&self, open: &OpenPurges) -> Result<bool, StoreError> {
        let mut scan = RedactionScan::new(open);
        while scan.next < scan.end {
            if self.services.shutdown.has_begun() {
                return Ok(false);
            }
            let store = self.services.store.clone();
            let (scanned, found) = blocking(&self.services.metrics, PURGE_READ, move || {
                let found = scan.next_redactions(&store)?;
                Ok((scan, found))
            })
            .await?;
            scan = scanned;
            for part in found {
                let metrics = &self.services.metrics;
                metrics.purged_frames.add(part.frames.len() as u64);
                self.write(Upkeep::Redact(part)).await?;
                failpoints::here("purge.redacting");
            }
        }
        for (number, purge) in open {
            if purge.upto < *number {
                self.write(Upkeep::Redact(Redaction {
                    purge: *number,
                    upto: *number,
                    ..Redaction::default()
                }))
                .await?;
            }
        }
        Ok(true)
    }

    /// Empties the rows in which a purge lists what it deleted, once every consumer of the log has
    /// read them, and at the latest after another grace period. Returns the purge once nothing of it
    /// is left in the log.
    async fn redact_own_rows(
        &self,
        number: u64,
        mut purge: PurgeRow,
    ) -> Result<Option<PurgeRow>, StoreError> {
        let grace = self.settings.purge_grace;
        while !purge.is_redacted(number) && !self.services.shutdown.has_begun() {
            let (store, repo) = (self.services.store.clone(), purge.repo);
            let (from, end) = (purge.upto.max(number), purge.rows_end);
            let (rows, upto) = blocking(&self.services.metrics, PURGE_READ, move || {
                own_rows(&store, repo, from, end)
            })
            .await?;
            let at = self.when();
            let waited = |purged| at.lived.since(purged) >= grace;
            let overdue = purge.purged_lived.is_none_or(waited);
            let frames = Vec::new();
            let part = Redaction {
                purge: number,
                rows,
                overdue,
                at,
                frames,
                upto,
                letters: Vec::new(),
            };
            self.write(Upkeep::Redact(part)).await?;
            failpoints::here("purge.redacting");
            let Some(after) = self.read_purge(number).await? else {
                return Ok(None);
            };
            let held = after.upto < upto;
            purge = after;
            if held {
                // A consumer of the log still needs the next row.
                return Ok(None);
            }
        }
        Ok(purge.is_redacted(number).then_some(purge))
    }

    /// Rewrites the engine's files without the purged bytes, and finishes the purges.
    async fn scour(&self, open: &OpenPurges) -> Result<(), StoreError> {
        let every = self.settings.purge_grace.min(SCOUR_EVERY);
        let lately = |at: Instant| at.elapsed() < every;
        let scoured = *self.scoured.lock();
        // On a full disk nothing is written, and rewriting a table takes room.
        failpoints::here("purge.redacted");
        if scoured.is_some_and(lately) || self.services.disk.shortage().is_some() {
            return Ok(());
        }
        let Some(scourer) = self.services.store.scourer() else {
            return Ok(());
        };
        *self.scoured.lock() = Some(Instant::now());
        let scourer = Arc::new(scourer);
        let redacted = scourer.mark();
        if !self.drop_journals(&scourer).await? {
            self.put_off("the engine's journals still hold what was purged");
            return Ok(());
        }
        // The new tables keep what an open view can still read.
        if !self.wait_for_views(&scourer, redacted).await? {
            self.put_off("an open view still reads data from before the purge");
            return Ok(());
        }
        let compacting = scourer.clone();
        let compacted = blocking(&self.services.metrics, PURGE_READ, move || {
            let mut all = true;
            for table in TABLES {
                all &= compacting.compact(table)?;
            }
            Ok(all)
        });
        let compacted = compacted.await?;
        // The old tables stay while an open view reads them.
        if !self.wait_for_views(&scourer, scourer.mark()).await? {
            self.put_off("an open view still reads the old tables");
            return Ok(());
        }
        for (number, purge) in open {
            let at = self.services.clock.time();
            self.write(Upkeep::Finish {
                purge: *number,
                at,
                compacted,
            })
            .await?;
            self.services.metrics.purges_finished.inc();
            tracing::info!(
                did = %purge.did, number, compacted,
                "nothing of a purged repository is left"
            );
        }
        Ok(())
    }

    fn put_off(&self, why: &'static str) {
        self.services.metrics.purges_put_off.inc();
        tracing::info!(
            why,
            "the bytes of a purge are still on the disk; Gapless tries again later"
        );
    }

    /// Waits a while until no view from before `mark` is open and the engine has dropped what it
    /// kept for such views. Returns whether both happened in time.
    async fn wait_for_views(&self, scourer: &Arc<Scourer>, mark: u64) -> Result<bool, StoreError> {
        for _ in 0..VIEW_CHECKS {
            // Checked before the flush: the flush drops what was released by then.
            let past = scourer.is_past(mark);
            self.write(Upkeep::Fill(Vec::new())).await?;
            let flushing = scourer.clone();
            blocking(&self.services.metrics, PURGE_READ, move || {
                Ok(flushing.flush()?)
            })
            .await?;
            if past {
                return Ok(true);
            }
            tokio::time::sleep(VIEW_CHECK_EVERY).await;
        }
        Ok(false)
    }

    /// Makes the engine begin a new journal, and waits until the old journals are deleted. Returns
    /// whether that happened in time.
    async fn drop_journals(&self, scourer: &Arc<Scourer>) -> Result<bool, StoreError> {
        let before = scourer.journals();
        for _ in 0..JOURNAL_BYTES / FILL_BYTES + 2 {
            self.write(Upkeep::Fill(vec![0; FILL_BYTES])).await?;
        }
        self.write(Upkeep::Fill(Vec::new())).await?;
        for _ in 0..JOURNAL_CHECKS {
            let flushing = scourer.clone();
            blocking(&self.services.metrics, PURGE_READ, move || {
                Ok(flushing.flush()?)
            })
            .await?;
            if before.iter().all(|journal| !journal.exists()) {
                return Ok(true);
            }
            tokio::time::sleep(JOURNAL_CHECK_EVERY).await;
            // Write an entry, so that there is something to flush.
            self.write(Upkeep::Fill(Vec::new())).await?;
        }
        Ok(false)
    }
}

/// A scan of the log for rows of purged repositories.
struct RedactionScan {
    next: u64,
    end: u64,
    /// Repository → its purges, lowest first.
    purges: BTreeMap<RepoId, Vec<u64>>,
}

impl RedactionScan {
    fn new(open: &OpenPurges) -> RedactionScan {
        let mut purges: BTreeMap<RepoId, Vec<u64>> = BTreeMap::new();
        for (number, purge) in open {
            purges.entry(purge.repo).or_default().push(*number);
        }
        let begun = open.iter().filter(|(number, purge)| purge.upto < *number);
        RedactionScan {
            next: begun
                .clone()
                .map(|(_, purge)| purge.upto)
                .min()
                .unwrap_or(0),
            end: begun.map(|(number, _)| *number).max().unwrap_or(0),
            purges,
        }
    }

    /// Reads some rows and returns those that must be redacted.
    fn next_redactions(&mut self, store: &Store) -> Result<Vec<Redaction>, StoreError> {
        let view = store.view();
        let mut found: BTreeMap<u64, Vec<Redaction>> = BTreeMap::new();
        let from = self.next;
        for row in view.log_summaries(self.next)?.take(ROWS_PER_READ) {
            let (first, row) = row?;
            self.next = first.saturating_add(row.numbers);
            if first >= self.end {
                break;
            }
            let purges = row.repo.and_then(|repo| self.purges.get(&repo));
            let purge = purges.and_then(|of| of.iter().find(|number| **number > first));
            // The rows of an earlier purge wait for the consumers of the log.
            let wanted = is_redactable(row.kind) && !matches!(row.kind, LogKind::Purged(_));
            let Some(purge) = purge.filter(|_| wanted) else {
                continue;
            };
            let parts = found.entry(*purge).or_default();
            let full = |part: &Redaction| part.rows.len() >= REDACTED_PER_CHANGE;
            if parts.last().is_none_or(full) {
                parts.push(Redaction {
                    purge: *purge,
                    ..Redaction::default()
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
            // The log ends here, so the scan is complete.
            self.next = self.end;
        }
        Ok(found.into_values().flatten().collect())
    }
}

/// The first numbers of some rows in which a purge lists what it deleted, from `from` on and below
/// `end`, and the number up to which the log was searched.
fn own_rows(
    store: &Store,
    repo: RepoId,
    from: u64,
    end: u64,
) -> Result<(Vec<u64>, u64), StoreError> {
    let (mut rows, mut upto) = (Vec::new(), end);
    let view = store.view();
    for row in view.log_summaries(from)?.take(ROWS_PER_READ) {
        let (first, row) = row?;
        if first >= end {
            return Ok((rows, end));
        }
        if rows.len() == REDACTED_PER_CHANGE {
            return Ok((rows, first));
        }
        upto = first.saturating_add(row.numbers);
        if row.repo == Some(repo) && matches!(row.kind, LogKind::Purged(_)) {
            rows.push(first);
        }
    }
    Ok((rows, upto))
}

/// Whether the frame log has bytes under a number, whole or damaged.
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
