//! Makes a store that lost something sound again. It cannot bring back what is
//! gone; it makes sure that nothing is claimed that is not so, that no number is
//! used twice, and that everything is compared with its host.
//!
//! Damaged stretches of journals are taken out, the whole batches after them
//! kept. Every root is recomputed: a repository that does not hash to its head
//! loses the head; its keys stay, to be compared with the full fetch that it now
//! owes. What tables repeat of each other is made to agree. If anything may have
//! been lost, every upstream begins a new epoch without a cursor, which takes
//! every repository's completeness back with one row each until it was compared;
//! lost log numbers are covered by `lost` rows; and numbers of every kind go on
//! well above any that may have been given out. Frames that are damaged, or that no row
//! stands for, are taken out.
//!
//! It works alone on the folder, may be cut short at any time and run again, and
//! changes nothing in a store that is sound. Tables whose own checksums fail
//! cannot be repaired: then only a copy helps, or starting anew.

mod fix;
mod frames;
mod log;
mod names;
mod repos;

use std::path::{Path, PathBuf};

use gapless_core::ledger::{Now, Tick, Time};

use crate::check::Progress;
use crate::diagnosis::{self, Diagnosis, ENGINE_FOLDER, Problem};
use crate::engine::{DiskEngine, DiskSettings, Engine, RawBatch};
use crate::error::StoreError;
use crate::format;
use crate::head::{AcknowledgedHead, HeadFile};
use crate::journal::{self, DAMAGED_FOLDER};
use crate::lock::Lock;
use crate::table::Table;
use crate::table::meta::{self, Counters};
use crate::tx;
use fix::RepairRun;

/// Whether a repair writes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairMode {
    /// Only says what would be done. The engine opens its files as at any start;
    /// where they are damaged they are not opened, and it says no more than that.
    DryRun,
    Repair,
}

/// What a repair found, and what it did unless it was a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Why the store counts as having lost something; none if it did not.
    pub lost: Option<String>,
    /// Whether the tables were looked at.
    pub looked: bool,
    /// Journals that damage was taken out of; the damaged ones are kept.
    pub journals: Vec<PathBuf>,
    pub repos: u64,
    /// Repositories that must be fetched in full.
    pub damaged_repos: u64,
    /// The first of them.
    pub damaged_dids: Vec<String>,
    /// Log numbers whose content is gone: first and last.
    pub lost_numbers: Vec<(u64, u64)>,
    /// Upstreams that began a new epoch.
    pub resets: u64,
    /// Rows that contradicted others, or could not be read.
    pub mended_rows: u64,
    pub removed_rows: u64,
    /// Damaged stretches that were taken out of the frames.
    pub damaged_frames: u64,
    /// Frames that no row of the log stood for, and that went.
    pub stray_frames: u64,
}

impl RepairReport {
    /// Whether there was nothing to do.
    pub fn found_nothing(&self) -> bool {
        self.tables_are_sound() && self.damaged_frames == 0 && self.stray_frames == 0
    }

    /// Whether nothing is wrong but frames, if anything.
    fn tables_are_sound(&self) -> bool {
        self.lost.is_none()
            && self.journals.is_empty()
            && self.damaged_repos == 0
            && self.lost_numbers.is_empty()
            && self.mended_rows == 0
            && self.removed_rows == 0
    }
}

/// Repairs the store of a data folder. `now` is the wall clock.
pub fn repair(
    folder: &Path,
    settings: &DiskSettings,
    mode: RepairMode,
    now: Time,
    progress: &mut dyn FnMut(Progress),
) -> Result<RepairReport, StoreError> {
    let failed = |error: std::io::Error| {
        StoreError::System(format!("cannot use {}: {error}", folder.display()).into())
    };
    // Not even a lock is made in a folder that is not ours.
    format::read(folder)?;
    let _lock = Lock::acquire(folder)?;
    let found = format::read(folder)?;
    let diagnosis = Diagnosis::inspect(folder).map_err(failed)?;
    let mut repaired = RepairReport {
        lost: diagnosis.problem.as_ref().map(ToString::to_string),
        ..RepairReport::default()
    };
    if mode == RepairMode::DryRun && (repaired.lost.is_some() || !diagnosis.engine_made) {
        return Ok(repaired);
    }
    if mode == RepairMode::Repair {
        format::migrate(folder, found)?;
    }
    repaired.journals = ready_engine(folder, &diagnosis).map_err(failed)?;
    let engine_folder = folder.join(ENGINE_FOLDER);
    if matches!(diagnosis.problem, Some(Problem::TablesMissing { .. })) {
        // Makes the tables anew. Opened once more, the engine fills them with what
        // its journals have for their names: better now than at the next start.
        drop(DiskEngine::open(&engine_folder, settings)?);
    }
    let mut engine = DiskEngine::open(&engine_folder, settings)?;
    if let Err(fault) = tx::counters(&*engine.snapshot()) {
        repaired.lost.get_or_insert(fault.to_string());
        if mode == RepairMode::DryRun {
            return Ok(repaired);
        }
        diagnosis::begin_repair(folder, diagnosis.acknowledged).map_err(failed)?;
        engine.commit(&new_counters(&diagnosis))?;
    }
    let mut run = RepairRun::new(engine, folder, mode, &diagnosis, now, repaired, progress)?;
    run.fix_all()?;
    let (repaired, head) = run.finish()?;
    if let Some(head) = head {
        HeadFile::replace(folder, head)?;
        // Down to here a new start would have refused the folder.
        diagnosis::end_repair(folder).map_err(failed)?;
    }
    Ok(repaired)
}

/// Takes damage out of the journals. Whoever opens the folder from now on is told
/// to repair it: what is taken out no longer shows.
fn ready_engine(folder: &Path, diagnosis: &Diagnosis) -> std::io::Result<Vec<PathBuf>> {
    let mut rewritten = Vec::new();
    if diagnosis.problem.is_none() {
        diagnosis.prepare()?;
        return Ok(rewritten);
    }
    diagnosis::begin_repair(folder, diagnosis.acknowledged)?;
    let keep = folder.join(DAMAGED_FOLDER);
    for damaged in &diagnosis.journals {
        if journal::excise(damaged, &keep)? {
            rewritten.push(damaged.path.clone());
        }
    }
    diagnosis.prepare()?;
    Ok(rewritten)
}

/// Numbers to begin with where nobody knows them any more. What is met on the way
/// raises them.
fn new_counters(diagnosis: &Diagnosis) -> RawBatch {
    let newest = diagnosis
        .journals
        .iter()
        .filter_map(|journal| journal.newest);
    let counters = Counters {
        batch: newest.max().unwrap_or_default() + 1,
        ..Counters::default()
    };
    let mut batch = RawBatch::default();
    batch.put(Table::Meta, meta::KEY, meta::encode(&counters));
    batch
}

/// The order goes on above everything that may have been decided.
fn tick_after(last: Tick, lost: bool) -> Tick {
    const LOST_AT_MOST: u64 = 1 << 32;
    Tick(last.0.saturating_add(if lost { LOST_AT_MOST } else { 1 }))
}

fn now_at(time: Time, last: Tick, lost: bool) -> Now {
    Now {
        time,
        tick: tick_after(last, lost),
    }
}

/// Whether the engine is behind what was acknowledged.
fn describe_loss(
    acknowledged: Option<AcknowledgedHead>,
    batch: u64,
    next_seq: u64,
) -> Option<String> {
    let told = acknowledged?;
    (batch < told.batch || next_seq < told.next_seq).then(|| {
        format!(
            "batch {} with log numbers below {} was acknowledged, but only batch {batch} with numbers below {next_seq} is there",
            told.batch, told.next_seq
        )
    })
}
