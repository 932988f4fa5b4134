//! Checks the free disk space, so that writing stops before the disk is full.
//!
//! The engine cannot continue after a write that failed for lack of space, and it
//! needs space to compact. So the committer checks before each group. Asking the file
//! system costs a system call; between calls, the bytes written since are subtracted
//! from the last answer, twice, because what is written to the journal is written
//! again to tables.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::writer::SpaceCheck;

/// How long an answer of the file system is used.
const ANSWER_AGE: Duration = Duration::from_secs(1);
/// The assumed number of bytes on disk for each byte written, until the next answer.
const WRITE_AMPLIFICATION: u64 = 2;

/// The disk has less free space than `min_free_disk`. Nothing is broken: the store continues as
/// soon as there is enough space again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the disk of {} has {free_bytes} bytes free, less than min_free_disk ({min_free_bytes}): Gapless writes nothing until there is more. Free some space, or lower min_free_disk",
    folder.display()
)]
pub struct DiskFull {
    pub folder: PathBuf,
    pub free_bytes: u64,
    pub min_free_bytes: u64,
}

/// Watches the free space of the file system that a folder is on.
#[derive(Debug)]
pub struct FreeSpace {
    folder: PathBuf,
    min_free_bytes: u64,
    /// The free bytes by the last answer, minus the bytes written since.
    free_bytes: u64,
    answered: Option<Instant>,
}

impl FreeSpace {
    pub fn new(folder: &Path, min_free_bytes: u64) -> FreeSpace {
        FreeSpace {
            folder: folder.to_owned(),
            min_free_bytes,
            free_bytes: 0,
            answered: None,
        }
    }

    /// Fails if less than the minimum is free. If the file system does not answer, the
    /// check passes, and the write itself fails if it must.
    pub fn check(&mut self) -> Result<(), DiskFull> {
        let fresh = self.answered.is_some_and(|at| at.elapsed() < ANSWER_AGE)
            && pretended::get(&self.folder).is_none();
        // If the disk is full only by the estimate, ask the file system again.
        if !fresh || self.free_bytes < self.min_free_bytes {
            match free_bytes(&self.folder) {
                Ok(free_bytes) => self.free_bytes = free_bytes,
                Err(_) => return Ok(()),
            }
            self.answered = Some(Instant::now());
        }
        if self.free_bytes < self.min_free_bytes {
            return Err(DiskFull {
                folder: self.folder.clone(),
                free_bytes: self.free_bytes,
                min_free_bytes: self.min_free_bytes,
            });
        }
        Ok(())
    }

    /// Counts bytes that go to the engine and to the sidecar's files.
    pub(crate) fn count_written(&mut self, bytes: u64) {
        let on_disk = bytes.saturating_mul(WRITE_AMPLIFICATION);
        self.free_bytes = self.free_bytes.saturating_sub(on_disk);
    }
}

impl SpaceCheck for FreeSpace {
    fn check(&mut self) -> Result<(), StoreError> {
        Ok(FreeSpace::check(self)?)
    }

    fn count_taken(&mut self, bytes: u64) {
        self.count_written(bytes);
    }
}

/// The bytes that an unprivileged user can still write to the folder's file system.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    if let Some(free_bytes) = pretended::get(folder) {
        return Ok(free_bytes);
    }
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(not(debug_assertions))]
mod pretended {
    #[inline(always)]
    pub(super) fn get(_: &super::Path) -> Option<u64> {
        None
    }
}

/// Lets tests override the free space of a disk. Release builds always ask the disk.
#[cfg(debug_assertions)]
pub mod pretended {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    use crate::sync::Mutex;

    /// The environment variable that names a file with a number of free bytes, for programs
    /// that tests run. Without the file, the disk is asked.
    const VARIABLE: &str = "FREE_BYTES_FILE";

    static FREE: Mutex<BTreeMap<PathBuf, u64>> = Mutex::new(BTreeMap::new());

    /// Sets the number of free bytes on the disk of a folder; `None` restores the real
    /// number.
    pub fn set(folder: &Path, free_bytes: Option<u64>) {
        let mut free = FREE.lock();
        match free_bytes {
            Some(free_bytes) => free.insert(folder.to_owned(), free_bytes),
            None => free.remove(folder),
        };
    }

    pub(super) fn get(folder: &Path) -> Option<u64> {
        let free = FREE.lock();
        free.get(folder).copied().or_else(from_test_file)
    }

    /// The number in the file that the environment names, for programs that tests run.
    fn from_test_file() -> Option<u64> {
        static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
        let file = FILE.get_or_init(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        let text = std::fs::read_to_string(file.as_ref()?).ok()?;
        text.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_said_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let mut space = FreeSpace::new(folder.path(), u64::MAX);
        let full = space.check().unwrap_err();
        assert_eq!(full.min_free_bytes, u64::MAX);
        assert!(full.free_bytes > 0);
        assert!(full.to_string().contains("min_free_disk"));
        FreeSpace::new(folder.path(), 0)
            .check()
            .expect("room enough");
    }

    #[test]
    fn what_was_written_counts_before_the_next_answer() {
        let folder = tempfile::tempdir().unwrap();
        let free = free_bytes(folder.path()).unwrap();
        let mut space = FreeSpace::new(folder.path(), free / 2);
        space.check().unwrap();
        space.count_written(free / 3);
        assert!(space.free_bytes < free / 2, "reckoned without asking");
        // Asked again, because by reckoning it is full; the disk knows better.
        space.check().unwrap();
        assert!(space.free_bytes > free / 2);
    }

    #[test]
    fn an_answer_is_used_again_while_it_is_fresh() {
        let folder = tempfile::tempdir().unwrap();
        let mut space = FreeSpace::new(folder.path(), 1000);
        space.check().unwrap();
        space.free_bytes = 5000;
        space.check().unwrap();
        assert_eq!(space.free_bytes, 5000, "not asked");
    }
}
