//! Repairs a store that has lost data. A repair cannot restore lost data, but ensures
//! that the store claims nothing false, that no number is used twice, and that every
//! repository is compared with its host.
//!
//! - Damaged ranges are cut out of journals; the whole batches after them are kept.
//! - Every root is recomputed. A repository that does not hash to its head loses the
//!   head and owes a full fetch; its keys stay, to be compared with that fetch.
//! - Data that two tables repeat is made equal.
//! - Damaged frames, and frames without a row of the log, are removed.
//!
//! If anything may have been lost, also:
//! - Every upstream begins a new epoch without a cursor. One row per upstream thus
//!   revokes the completeness of its repositories until they are compared.
//! - Lost log numbers are covered by `lost` rows.
//! - Numbers of every kind continue well above any that may have been assigned.
//!
//! A repair is the only user of the folder, may be interrupted at any time and run
//! again, and changes nothing in a sound store. Tables whose own checksums fail cannot
//! be repaired: restore a copy, or start with an empty folder.

mod consumers;
mod fix;
mod frames;
mod log;
mod names;
mod repos;

use std::path::{Path, PathBuf};

use gapless_core::ledger::{Lived, Now, Tick, Time};

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
    /// Only reports what a repair would do. The engine opens its files as at any start;
    /// if the diagnosis finds damage, the engine is not opened, and the report says only that.
    DryRun,
    /// Repairs the store.
    Repair,
}

/// What a repair found, and what it did unless it was a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Why the store counts as having lost data; `None` if it did not.
    pub lost: Option<String>,
    /// Whether the tables were checked.
    pub looked: bool,
    /// Journals that were rewritten without damage; the damaged files are kept.
    pub journals: Vec<PathBuf>,
    pub repos: u64,
    /// Repositories that must be fetched in full.
    pub damaged_repos: u64,
    /// The DIDs of the first 1,000 damaged repositories.
    pub damaged_dids: Vec<String>,
    /// Ranges of log numbers whose content is lost: first and last.
    pub lost_numbers: Vec<(u64, u64)>,
    /// Upstreams that began a new epoch.
    pub resets: u64,
    /// Rows rewritten because they were missing, contradicted others or could not be read.
    pub mended_rows: u64,
    pub removed_rows: u64,
    /// Damaged ranges that were removed from the frames.
    pub damaged_frames: u64,
    /// Frames that were removed because no row of the log belongs to them.
    pub stray_frames: u64,
}

impl RepairReport {
    /// Whether there was nothing to do.
    pub fn found_nothing(&self) -> bool {
        self.tables_are_sound() && self.damaged_frames == 0 && self.stray_frames == 0
    }

    /// Whether nothing but the frames needed a repair.
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
    // Read the format first: not even a lock file is created in a folder that is not a data folder.
    format::read(folder)?;
    let _lock = Lock::acquire(folder)?;
    let found = format::read(folder)?;
    let diagnosis = Diagnosis::inspect(folder, found.version).map_err(failed)?;
    let mut repaired = RepairReport {
        lost: diagnosis.problem.as_ref().map(ToString::to_string),
        ..RepairReport::default()
    };
    if mode == RepairMode::DryRun && (repaired.lost.is_some() || !diagnosis.engine_made) {
        return Ok(repaired);
    }
    repaired.journals = ready_engine(folder, &diagnosis).map_err(failed)?;
    let engine_folder = folder.join(ENGINE_FOLDER);
    if matches!(diagnosis.problem, Some(Problem::TablesMissing { .. })) {
        // Creates the missing tables. When the engine opens again, it fills them from its
        // journals; this way that happens now and not at the next start.
        drop(DiskEngine::open(&engine_folder, settings)?);
    }
    let mut engine = DiskEngine::open(&engine_folder, settings)?;
    if mode == RepairMode::Repair {
        format::migrate(folder, found)?;
    }
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
        // Until this line, a start refuses the folder.
        diagnosis::end_repair(folder).map_err(failed)?;
    }
    Ok(repaired)
}

/// Cuts damage out of the journals. Marks the folder first, so that only a repair opens
/// it, because the damage can no longer be seen afterwards.
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

/// The counters to begin with if the stored ones cannot be read. The repair raises them above
/// every number that it finds.
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

/// A tick above every tick that may have been used.
fn tick_after(last: Tick, lost: bool) -> Tick {
    const LOST_AT_MOST: u64 = 1 << 32;
    Tick(last.0.saturating_add(if lost { LOST_AT_MOST } else { 1 }))
}

fn now_at(time: Time, last: Tick, lost: bool) -> Now {
    Now {
        time,
        tick: tick_after(last, lost),
        // A repair lives through no time that counts, and begins no grace period.
        lived: Lived::default(),
    }
}

/// What was lost, if the engine is behind the acknowledged head.
fn describe_loss(
    acknowledged: Option<AcknowledgedHead>,
    batch: u64,
    next_seq: u64,
) -> Option<String> {
    let told = acknowledged?;
    (batch < told.batch || next_seq < told.next_seq).then(|| {
        format!(
            "batch {} with log numbers below {} was acknowledged, but the last batch found is {batch} with numbers below {next_seq}",
            told.batch, told.next_seq
        )
    })
}
