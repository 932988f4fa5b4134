//! Makes a group durable, in a fixed order.
//!
//! The writer writes frames first, then the batch that names them, then the acknowledged head in a
//! file of its own; only then does the caller publish the new state and report the changes as
//! durable. The first failure latches, because later groups build on the failed one: there is no
//! second try.

use std::sync::Arc;

#[cfg(feature = "engine")]
pub(crate) use on_disk::DiskSidecar;

use crate::engine::{Engine, View};
use crate::error::StoreError;
use crate::group::Group;

/// How far the store is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurableHead {
    pub batch: u64,
    /// Every log number below this one is durable and can be read.
    pub next_seq: u64,
}

/// Checks whether the disk has space for another group. The check runs before a group is applied:
/// an applied group must be written, because later groups build on it.
pub trait SpaceCheck: Send {
    fn check(&mut self) -> Result<(), StoreError>;

    /// Counts bytes that are on their way to the disk.
    fn count_taken(&mut self, bytes: u64);
}

/// The files beside the engine: what is written before and after the engine's own batch.
pub trait Sidecar: Send {
    /// The check for the disk that these files are on.
    fn space_check(&mut self) -> Box<dyn SpaceCheck>;

    /// Makes frames durable, each under its log number, in order.
    fn write_frames(&mut self, frames: &[(u64, Vec<u8>)]) -> Result<(), StoreError>;

    /// Overwrites the bytes of frames for good, by their log numbers. Numbers without a frame are
    /// ignored.
    fn redact_frames(&mut self, _numbers: &[u64]) -> Result<(), StoreError> {
        Ok(())
    }

    /// Records outside the engine that a batch is about to be acknowledged.
    fn acknowledge(&mut self, head: DurableHead) -> Result<(), StoreError>;

    /// Makes everything durable before the store ends.
    fn close(&mut self) -> Result<(), StoreError>;
}

/// No files beside the engine, and always enough space: for engines in memory.
pub struct NoSidecar;

impl SpaceCheck for NoSidecar {
    fn check(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn count_taken(&mut self, _: u64) {}
}

impl Sidecar for NoSidecar {
    fn space_check(&mut self) -> Box<dyn SpaceCheck> {
        Box::new(NoSidecar)
    }

    fn write_frames(&mut self, _: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
        Ok(())
    }

    fn acknowledge(&mut self, _: DurableHead) -> Result<(), StoreError> {
        Ok(())
    }

    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The only owner of an engine and its sidecar.
pub(crate) struct DiskWriter {
    engine: Box<dyn Engine>,
    sidecar: Box<dyn Sidecar>,
    /// The first failure, after which nothing is written.
    latched: Option<StoreError>,
}

impl DiskWriter {
    pub(crate) fn new(engine: Box<dyn Engine>, sidecar: Box<dyn Sidecar>) -> DiskWriter {
        DiskWriter {
            engine,
            sidecar,
            latched: None,
        }
    }

    pub(crate) fn space_check(&mut self) -> Box<dyn SpaceCheck> {
        self.sidecar.space_check()
    }

    pub(crate) fn snapshot(&self) -> Arc<dyn View> {
        self.engine.snapshot()
    }

    /// Makes a group durable. Returns everything written so far.
    pub(crate) fn write(&mut self, group: &Group) -> Result<Arc<dyn View>, StoreError> {
        if let Some(failure) = &self.latched {
            return Err(failure.clone());
        }
        match self.try_write(group) {
            Ok(()) => Ok(self.engine.snapshot()),
            Err(failure) => {
                // Final, because later groups build on this one: there is no second try.
                let failure = if failure.is_final() {
                    failure
                } else {
                    StoreError::System(failure.to_string().into())
                };
                self.latched = Some(failure.clone());
                Err(failure)
            }
        }
    }

    fn try_write(&mut self, group: &Group) -> Result<(), StoreError> {
        if group.is_empty() {
            return Ok(());
        }
        if !group.frames.is_empty() {
            self.sidecar.write_frames(&group.frames)?;
        }
        if !group.redact.is_empty() {
            // Before the batch that records the redaction: if that batch is lost, redact again.
            self.sidecar.redact_frames(&group.redact)?;
        }
        self.engine.commit(&group.batch)?;
        self.sidecar.acknowledge(group.head)
    }

    /// Closes the sidecar, or returns the latched failure.
    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        match self.latched.take() {
            Some(failure) => Err(failure),
            None => self.sidecar.close(),
        }
    }
}

/// The sidecar of a data folder.
#[cfg(feature = "engine")]
mod on_disk {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{DurableHead, Sidecar, SpaceCheck};
    use crate::error::StoreError;
    use crate::frames::{self, Frames};
    use crate::head::{AcknowledgedHead, HeadFile};
    use crate::lock::Lock;
    use crate::space::FreeSpace;

    /// How often the frames are checked for segments that are too old; more often if they are kept
    /// for a short time.
    const TRIM_EVERY: Duration = Duration::from_secs(60);

    /// How far the wall clock may deviate from the monotonic clock before it counts as set.
    const STEP_TOLERANCE_MS: u64 = 10_000;

    /// The files of a data folder beside the engine: the frames, and the acknowledged head.
    pub(crate) struct DiskSidecar {
        folder: PathBuf,
        min_free_disk_bytes: u64,
        frames: Frames,
        head: HeadFile,
        trimmed: Option<Instant>,
        trim_every: Duration,
        /// The wall clock at the last trim.
        wall_ms: u64,
        /// Held as long as anything can be written.
        _lock: Arc<Lock>,
    }

    impl DiskSidecar {
        pub(crate) fn new(
            folder: &Path,
            min_free_disk_bytes: u64,
            frames: Frames,
            head: HeadFile,
            lock: Arc<Lock>,
        ) -> DiskSidecar {
            let trim_every = TRIM_EVERY.min(frames.part_of_age());
            DiskSidecar {
                folder: folder.to_owned(),
                min_free_disk_bytes,
                frames,
                head,
                trimmed: None,
                trim_every,
                wall_ms: 0,
                _lock: lock,
            }
        }
    }

    impl DiskSidecar {
        /// Whether the wall clock was set since the last trim.
        fn is_clock_set(&self, at: Instant, now_ms: u64) -> bool {
            let Some(trimmed) = self.trimmed else {
                return false;
            };
            let passed_ms = at.saturating_duration_since(trimmed).as_millis() as u64;
            let due_ms = self.wall_ms.saturating_add(passed_ms);
            now_ms.abs_diff(due_ms) > STEP_TOLERANCE_MS
        }
    }

    impl Sidecar for DiskSidecar {
        fn space_check(&mut self) -> Box<dyn SpaceCheck> {
            Box::new(FreeSpace::new(&self.folder, self.min_free_disk_bytes))
        }

        fn write_frames(&mut self, frames: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
            for (seq, frame) in frames {
                self.frames.append(*seq, frame)?;
            }
            Ok(self.frames.sync()?)
        }

        fn redact_frames(&mut self, numbers: &[u64]) -> Result<(), StoreError> {
            self.frames.redact_all(numbers)?;
            Ok(())
        }

        fn acknowledge(&mut self, head: DurableHead) -> Result<(), StoreError> {
            self.head.write(AcknowledgedHead {
                batch: head.batch,
                next_seq: head.next_seq,
            })?;
            if self
                .trimmed
                .is_none_or(|at| at.elapsed() >= self.trim_every)
            {
                let (at, now_ms) = (Instant::now(), frames::now_ms());
                if self.is_clock_set(at, now_ms) {
                    // Whoever believes the clock again says so.
                    self.frames.reader().doubt_clock(true);
                }
                self.trimmed = Some(at);
                self.wall_ms = now_ms;
                self.frames.trim(now_ms)?;
            }
            Ok(())
        }

        fn close(&mut self) -> Result<(), StoreError> {
            Ok(self.head.sync()?)
        }
    }
}
