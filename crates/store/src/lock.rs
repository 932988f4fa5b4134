//! One process for one data folder.
//!
//! The lock is the operating system's, on the file `lock`, so that it ends with
//! its process, however that ends. The file names the process for whoever is
//! refused; what it says is never trusted for anything else. Network file
//! systems that do not keep such locks are not protected.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The lock file's name in the data folder.
pub const LOCK_FILE: &str = "lock";

/// More than any process number has.
const PID_BYTES: u64 = 32;

/// Why the lock is not ours.
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

/// Held while the value lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Closing alone would do, but for a process that is just being started from
    /// this one and has the file for a moment longer.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock of a data folder that exists, or says who has it.
    pub fn acquire(folder: &Path) -> Result<Lock, LockError> {
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
    fn a_lock_file_left_behind_locks_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LOCK_FILE), "999999999999 and more text").unwrap();
        Lock::acquire(folder.path()).expect("nobody holds it");
        let text = std::fs::read_to_string(folder.path().join(LOCK_FILE)).unwrap();
        assert_eq!(text.trim(), std::process::id().to_string());
    }
}
