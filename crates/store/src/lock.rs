//! Locks a data folder, so that only one process uses it.
//!
//! The lock is a lock of the operating system on the file `lock`, so it ends with its
//! process, however the process ends. The file contains the process number, which is
//! used only in the error for a second process. Network file systems that ignore such
//! locks are not protected.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The lock file's name in the data folder.
pub(crate) const LOCK_FILE: &str = "lock";

/// The most bytes to read of the file; no process number is longer.
const PID_BYTES: u64 = 32;

/// Why a data folder could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "{} is in use by {}; two processes on one data folder would destroy it. Stop the other one, or choose another folder",
        folder.display(),
        holder(*pid)
    )]
    Held { folder: PathBuf, pid: Option<u32> },
    #[error("cannot lock {}: {source}", folder.display())]
    Io { folder: PathBuf, source: io::Error },
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

/// The lock of a data folder, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Unlocks explicitly: closing the file is not enough if a child process that is
    /// just being started has inherited it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Locks an existing data folder. Fails with the number of the process that holds the lock,
    /// if another does.
    pub(crate) fn acquire(folder: &Path) -> Result<Lock, LockError> {
        let io = |source| LockError::Io {
            folder: folder.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(LOCK_FILE))
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held {
                    folder: folder.to_owned(),
                    pid: read_pid(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        write_pid(&mut file).map_err(io)?;
        Ok(Lock { file })
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_and_told_by_whom() {
        let folder = tempfile::tempdir().unwrap();
        let first = Lock::acquire(folder.path()).unwrap();
        let refused = Lock::acquire(folder.path()).unwrap_err();
        let LockError::Held { pid, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(*pid, Some(std::process::id()));
        assert!(
            refused
                .to_string()
                .contains(&format!("process {}", std::process::id()))
        );
        drop(first);
        Lock::acquire(folder.path()).expect("free again");
    }

    #[test]
    fn a_lock_file_left_behind_holds_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LOCK_FILE), "999999999999 and more text").unwrap();
        Lock::acquire(folder.path()).expect("nobody holds it");
        let text = std::fs::read_to_string(folder.path().join(LOCK_FILE)).unwrap();
        assert_eq!(text.trim(), std::process::id().to_string());
    }
}
