//! A running repair: it reads rows as they were at its beginning and writes its
//! changes in batches as it proceeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Lived, Now, Time};

use super::consumers::{fix_purges, log_restated, record_purges};
use super::{RepairMode, RepairReport, describe_loss, now_at};
use crate::apply::log_lost_numbers;
use crate::check::{NumberSet, Progress};
use crate::diagnosis::{Diagnosis, Problem, begin_repair};
use crate::engine::{DiskEngine, Engine, Slice, View};
use crate::error::StoreError;
use crate::head::AcknowledgedHead;
use crate::table::Table;
use crate::table::meta::Counters;
use crate::tx::Tx;
use crate::walk::{TableReadError, TableRows};

/// The size at which a batch is written.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// The most damaged repositories that the report names.
const REPORTED_DIDS: usize = 1_000;
const PROGRESS_ROWS: u64 = 4_096;

/// How many numbers of each kind the lost batches may have assigned: more than fit into
/// the journals.
const LOST_REPOS: u64 = 1 << 24;
const LOST_HOSTS: u32 = 1 << 16;
const LOST_NUMBERS: u64 = 1 << 24;
const LOST_UPSTREAMS: u32 = 1 << 10;

/// The highest number of each kind that the repair has come across.
#[derive(Debug, Default)]
pub(super) struct HighestNumbers {
    pub repo: u64,
    pub host: u32,
    pub upstream: u32,
    pub dead: u64,
    /// The number after the last row of the log.
    pub next_seq: u64,
    /// The stamp of the last operation.
    pub stamp: Time,
    /// The time lived through.
    pub lived: Lived,
    pub audit: u64,
}

/// The state of a running repair.
pub(super) struct RepairRun<'r> {
    engine: DiskEngine,
    pub folder: &'r Path,
    /// The folder is marked, so that only a repair opens it.
    marked: bool,
    /// The tables as they were at the beginning.
    pub view: Arc<dyn View>,
    pub tx: Tx,
    pub mode: RepairMode,
    pub now: Now,
    acknowledged: Option<AcknowledgedHead>,
    /// The acknowledged head is unknown.
    head_unknown: bool,
    /// The counters as they were at the beginning.
    pub counters: Counters,
    pub highest: HighestNumbers,
    pub hosts: BTreeSet<u32>,
    /// The upstreams with their numbering.
    pub upstreams: BTreeMap<u32, u32>,
    /// The repositories that exist after the repair.
    pub known: NumberSet,
    /// The repositories that have a DID and no row.
    pub rowless: BTreeMap<u64, Did>,
    /// The ranges of log numbers whose rows are lost, first and last, also by earlier repairs.
    pub lost_ranges: Vec<(u64, u64)>,
    /// The first row of the log that has a stamp: records that it and later rows put have numbers.
    pub first_stamped: Option<u64>,
    /// The repositories that hold something that a lost row may have put there.
    pub restated: NumberSet,
    /// The repositories that are being purged, but whose purge is no longer recorded.
    pub unrecorded_purges: BTreeSet<u64>,
    pub report: RepairReport,
    tell: &'r mut dyn FnMut(Progress),
}

impl From<TableReadError> for StoreError {
    fn from(unread: TableReadError) -> StoreError {
        StoreError::System(
            format!(
                "the table '{}' cannot be read to its end ({}), and a repair has no other source. Restore the data folder from a copy, or start with an empty one",
                unread.table.name(),
                unread.error.cause
            )
            .into(),
        )
    }
}

impl<'r> RepairRun<'r> {
    pub(super) fn new(
        engine: DiskEngine,
        folder: &'r Path,
        mode: RepairMode,
        diagnosis: &Diagnosis,
        time: Time,
        mut report: RepairReport,
        tell: &'r mut dyn FnMut(Progress),
    ) -> Result<RepairRun<'r>, StoreError> {
        let view = engine.snapshot();
        let tx = Tx::new(view.clone())?;
        let counters = *tx.counters();
        report.looked = true;
        let acknowledged = diagnosis.acknowledged;
        report.lost = report
            .lost
            .or_else(|| describe_loss(acknowledged, counters.batch, counters.next_seq));
        let lost = report.lost.is_some();
        Ok(RepairRun {
            engine,
            folder,
            marked: diagnosis.problem.is_some(),
            view,
            tx,
            mode,
            now: now_at(time, counters.last_tick, lost),
            acknowledged,
            head_unknown: matches!(
                diagnosis.problem,
                Some(Problem::HeadMissing | Problem::HeadDamaged)
            ),
            counters,
            highest: HighestNumbers::default(),
            hosts: BTreeSet::new(),
            upstreams: BTreeMap::new(),
            known: NumberSet::below(counters.next_repo),
            rowless: BTreeMap::new(),
            lost_ranges: Vec::new(),
            first_stamped: None,
            restated: NumberSet::below(counters.next_repo),
            unrecorded_purges: BTreeSet::new(),
            report,
            tell,
        })
    }

    /// Repairs everything, in an order in which later steps can rely on earlier ones.
    pub(super) fn fix_all(&mut self) -> Result<(), StoreError> {
        self.fix_log()?;
        if !self.lost() && !self.report.lost_numbers.is_empty() {
            self.report.lost = Some("log numbers are missing".to_owned());
            self.now = now_at(self.now.time, self.counters.last_tick, true);
        }
        self.fix_hosts()?;
        self.fix_upstreams()?;
        self.fix_dead_letters()?;
        self.fix_filter()?;
        self.fix_consumers()?;
        self.find_rowless()?;
        self.fix_repos()?;
        fix_purges(self)?;
        self.fix_dids()?;
        self.fix_hosted()?;
        self.fix_log_references()?;
        self.fix_frames()
    }

    pub(super) fn lost(&self) -> bool {
        self.report.lost.is_some()
    }

    /// The number after the highest log number known to be assigned.
    pub(super) fn highest_seq(&self) -> u64 {
        let told = self.acknowledged.map_or(0, |told| told.next_seq);
        self.counters.next_seq.max(self.highest.next_seq).max(told)
    }

    pub(super) fn table(&self, table: Table) -> TableRows {
        TableRows::new(&*self.view, table)
    }

    pub(super) fn mend_row(
        &mut self,
        table: Table,
        key: impl Into<Slice>,
        row: impl Into<Slice>,
    ) -> Result<(), StoreError> {
        self.report.mended_rows += 1;
        self.put(table, key, row)
    }

    pub(super) fn put(
        &mut self,
        table: Table,
        key: impl Into<Slice>,
        row: impl Into<Slice>,
    ) -> Result<(), StoreError> {
        self.tx.put(table, key, row);
        self.flush_at(BATCH_BYTES)
    }

    pub(super) fn remove(&mut self, table: Table, key: impl Into<Slice>) -> Result<(), StoreError> {
        self.report.removed_rows += 1;
        self.tx.delete(table, key);
        self.flush_at(BATCH_BYTES)
    }

    pub(super) fn count_damaged(&mut self, did: &Did) {
        self.report.damaged_repos += 1;
        if self.report.damaged_dids.len() < REPORTED_DIDS {
            self.report.damaged_dids.push(did.to_string());
        }
    }

    pub(super) fn progress(&mut self, stage: &'static str, done: u64, of: u64) {
        if done.is_multiple_of(PROGRESS_ROWS) || done == of {
            (self.tell)(Progress { stage, done, of });
        }
    }

    /// Writes the batch once it has this many bytes, except in a dry run.
    pub(super) fn flush_at(&mut self, bytes: usize) -> Result<(), StoreError> {
        if self.tx.bytes() < bytes || self.mode == RepairMode::DryRun {
            return Ok(());
        }
        self.commit()?;
        self.tx = Tx::new(self.engine.snapshot())?;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        if !self.marked {
            begin_repair(self.folder, self.acknowledged).map_err(|error| {
                let folder = self.folder.display();
                StoreError::System(format!("cannot write in {folder}: {error}").into())
            })?;
            self.marked = true;
        }
        let next = Tx::new(self.view.clone())?;
        let batch = std::mem::replace(&mut self.tx, next);
        Ok(self.engine.commit(&batch.finish().0)?)
    }

    /// Writes the last batch: numbers continue above every number that was found or may
    /// have been assigned. Returns the new head, if anything was written.
    pub(super) fn finish(mut self) -> Result<(RepairReport, Option<AcknowledgedHead>), StoreError> {
        let lost = self.lost();
        let (highest, before) = (&self.highest, self.counters);
        let next_seq = if self.head_unknown {
            self.highest_seq().saturating_add(LOST_NUMBERS)
        } else if lost || !self.report.lost_numbers.is_empty() {
            // Beyond every number that was assigned: a consumer that has read everything meets the
            // `lost` row too, and learns that the store may have gone back.
            self.highest_seq().saturating_add(1)
        } else {
            self.highest_seq()
        };
        let ends_at = highest.next_seq;
        if next_seq > ends_at {
            self.report.lost_numbers.push((ends_at, next_seq - 1));
        }
        let small = |next: u32, met: u32, count: u32| {
            let next = next.max(met.saturating_add(1));
            next.saturating_add(if lost { count } else { 0 })
        };
        let wide = |next: u64, met: u64, count: u64| {
            let next = next.max(met.saturating_add(1));
            next.saturating_add(if lost { count } else { 0 })
        };
        let counters = Counters {
            batch: self.tx.counters().batch,
            next_seq: ends_at,
            next_repo: wide(before.next_repo, highest.repo, LOST_REPOS),
            next_host: small(before.next_host, highest.host, LOST_HOSTS),
            next_upstream: small(before.next_upstream, highest.upstream, LOST_UPSTREAMS),
            next_dead: wide(before.next_dead, highest.dead, LOST_REPOS),
            last_tick: self.now.tick,
            last_stamp: before.last_stamp.max(highest.stamp),
            next_audit: wide(before.next_audit, highest.audit, LOST_REPOS),
        };
        let ahead = Counters {
            batch: before.batch,
            next_seq: before.next_seq,
            last_tick: before.last_tick,
            ..counters
        };
        if !lost && ahead != before {
            self.report.mended_rows += 1;
        }
        let report = self.report.clone();
        if report.tables_are_sound() || self.mode == RepairMode::DryRun {
            return Ok((report, None));
        }
        self.tx.counters = counters;
        log_lost_numbers(&mut self.tx, counters.batch, next_seq, self.now.time);
        record_purges(&mut self)?;
        log_restated(&mut self, !report.lost_numbers.is_empty())?;
        let counters = *self.tx.counters();
        self.commit()?;
        let head = AcknowledgedHead {
            batch: counters.batch + 1,
            next_seq: counters.next_seq,
        };
        Ok((report, Some(head)))
    }
}
