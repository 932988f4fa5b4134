//! Opens a data folder: lock, format, head, journals, engine, frames, in the order
//! in which they can be trusted.
//!
//! A check that refuses the folder changes nothing. A store that has lost
//! acknowledged data is refused too: to continue would hide the loss and assign log
//! numbers a second time.

use std::path::Path;
use std::sync::Arc;

use crate::diagnosis::{Diagnosis, ENGINE_FOLDER};
use crate::engine::{DiskEngine, DiskSettings};
use crate::error::StoreError;
use crate::frames::{FRAMES_FOLDER, Frames, FramesSettings};
use crate::head::{AcknowledgedHead, HeadFile};
use crate::lock::Lock;
use crate::queue::GroupLimits;
use crate::store::Store;
use crate::writer::DiskSidecar;
use crate::{durable, format};

/// The settings of a store on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub engine: DiskSettings,
    pub frames: FramesSettings,
    pub group: GroupLimits,
    /// Writing stops while less than this is free.
    pub min_free_disk_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            engine: DiskSettings::default(),
            frames: FramesSettings::default(),
            group: GroupLimits::default(),
            min_free_disk_bytes: 2 << 30,
        }
    }
}

impl Store {
    /// Opens a data folder, or creates one.
    pub fn open(folder: &Path, settings: &Settings) -> Result<Store, StoreError> {
        durable::create_folder(folder).map_err(|error| {
            StoreError::System(format!("cannot create {}: {error}", folder.display()).into())
        })?;
        format::check(folder)?;
        let lock = Arc::new(Lock::acquire(folder)?);
        let found = format::check_or_write(folder)?;
        let failed = |error: std::io::Error| {
            StoreError::System(format!("cannot use {}: {error}", folder.display()).into())
        };
        let diagnosis = Diagnosis::inspect(folder, found.version).map_err(failed)?;
        if let Some(problem) = diagnosis.problem {
            return Err(StoreError::lost(problem));
        }
        // Open the head file before the engine writes anything: the diagnosis reports engine data
        // without a head file as a problem.
        let head = HeadFile::open(folder)?;
        diagnosis.prepare().map_err(failed)?;
        let engine = DiskEngine::open(&folder.join(ENGINE_FOLDER), &settings.engine)?;
        // Only now that the engine has created the tables of this format: the diagnosis of a folder
        // expects every table of its format.
        format::migrate(folder, found)?;
        let next_seq = check_head(&engine, head.last())?;
        let frames = Frames::open(&folder.join(FRAMES_FOLDER), settings.frames, next_seq)?;
        let reader = frames.reader();
        let scourer = engine.scourer();
        let min_free = settings.min_free_disk_bytes;
        let sidecar = DiskSidecar::new(folder, min_free, frames, head, lock.clone());
        let store = Store::start(Box::new(engine), Box::new(sidecar), settings.group)?;
        Ok(store.with_files(reader, scourer, lock))
    }
}

/// Checks, once the journals are replayed, that everything acknowledged is there.
/// Returns the next log number.
fn check_head(
    engine: &DiskEngine,
    acknowledged: Option<AcknowledgedHead>,
) -> Result<u64, StoreError> {
    use crate::engine::Engine;
    let found = crate::tx::counters(&*engine.snapshot())?;
    match acknowledged {
        Some(told) if found.batch < told.batch || found.next_seq < told.next_seq => {
            Err(StoreError::lost(format!(
                "batch {} with log numbers below {} was acknowledged, but the last batch found is {} with numbers below {}",
                told.batch, told.next_seq, found.batch, found.next_seq
            )))
        }
        _ => Ok(found.next_seq),
    }
}
