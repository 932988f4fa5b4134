//! Free space on the disk. While less than `min_free_disk` is free, the store refuses changes.
//! `/v1/status` and `/ready` report the shortage, and `/v1/status` also when it began.
//!
//! The shortage begins when the store refuses a change, or when the check of the file
//! system, once a second, finds too little free space. Only that check ends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gapless_core::ledger::Time;
use gapless_store::space::{DiskFull, free_bytes};

use crate::clock::Clock;
use crate::shutdown::Shutdown;
use gapless_store::sync::Mutex;

/// How often the file system is asked: one system call.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The disk is low while less than `min_free_disk` and this part of it is free. Then consumers of
/// the log that hold back old data are overrun, before nothing can be written.
const LOW_PART: u64 = 4;

/// Too little space is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub since: Time,
    /// What is missing, and what can be done.
    pub error: String,
}

/// Whether enough space is free on the disk of the data folder.
pub struct DiskSpace {
    folder: PathBuf,
    min_free_bytes: u64,
    shortage: Mutex<Option<Shortage>>,
    /// Whether the last check found little more than what must stay free.
    low: AtomicBool,
}

impl DiskSpace {
    pub(crate) fn new(folder: &Path, min_free_bytes: u64) -> DiskSpace {
        DiskSpace {
            folder: folder.to_owned(),
            min_free_bytes,
            shortage: Mutex::default(),
            low: AtomicBool::default(),
        }
    }

    /// Whether little more is free than what must stay free, or less.
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Returns how many bytes must stay free on the disk.
    pub fn min_free_bytes(&self) -> u64 {
        self.min_free_bytes
    }

    /// Returns the present shortage; `None` while enough space is free.
    pub fn shortage(&self) -> Option<Shortage> {
        self.lock().clone()
    }

    /// Records that the store refused a change because the disk is full.
    pub(crate) fn refused(&self, now: Time, full: &DiskFull) {
        let mut shortage = self.lock();
        if shortage.is_none() {
            let error = full.to_string();
            tracing::warn!(%error, "the disk is full; nothing is written until there is room on the disk");
            *shortage = Some(Shortage { since: now, error });
        }
    }

    /// Checks the file system. An error of the file system changes nothing.
    pub(crate) fn check(&self, now: Time) {
        // The result is read with `shortage`.
        let _ = self.require(now);
    }

    /// Checks the file system for an order that must not wait, and refuses the order if
    /// too little space is free.
    pub(crate) fn require(&self, now: Time) -> Result<(), DiskFull> {
        match free_bytes(&self.folder) {
            Ok(free_bytes) => self.found(now, free_bytes),
            Err(_) => Ok(()),
        }
    }

    fn found(&self, now: Time, free_bytes: u64) -> Result<(), DiskFull> {
        let margin = self.min_free_bytes / LOW_PART;
        let low = free_bytes < self.min_free_bytes.saturating_add(margin);
        self.low.store(low, Ordering::Relaxed);
        if free_bytes < self.min_free_bytes {
            let full = DiskFull {
                folder: self.folder.clone(),
                free_bytes,
                min_free_bytes: self.min_free_bytes,
            };
            self.refused(now, &full);
            return Err(full);
        }
        if let Some(ended) = self.lock().take() {
            let seconds = now.since(ended.since).as_secs();
            tracing::info!(seconds, "there is room on the disk again; writes continue");
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Shortage>> {
        self.shortage.lock()
    }
}

/// Checks the file system once a second until the shutdown begins, and notes the present
/// tick in the clock.
pub(crate) async fn watch(clock: Arc<Clock>, disk: Arc<DiskSpace>, shutdown: Arc<Shutdown>) {
    while !shutdown.has_begun() {
        let now = clock.last_tick_now();
        clock.tick_times().note(now);
        disk.check(now.time);
        tokio::select! {
            () = tokio::time::sleep(CHECK_EVERY) => {}
            () = shutdown.begun() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_is_known_from_its_beginning_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskSpace::new(folder.path(), 1000);
        disk.check(Time(1));
        assert_eq!(disk.shortage(), None, "this disk has room");
        disk.found(Time(5), 999).expect_err("too little");
        disk.found(Time(7), 3).expect_err("too little");
        let lack = disk.shortage().expect("too little");
        assert_eq!(lack.since, Time(5));
        assert!(lack.error.contains("min_free_disk"), "{}", lack.error);
        disk.found(Time(9), 1000).expect("enough");
        assert_eq!(disk.shortage(), None);
        assert!(disk.is_low(), "little more than what must stay free");
        disk.found(Time(9), 1250).expect("enough");
        assert!(!disk.is_low());
    }

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn its_beginning_and_its_end_are_each_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskSpace::new(folder.path(), 1000);
        let said = Said::default();
        let writer = said.clone();
        let log = tracing_subscriber::fmt().with_ansi(false);
        let log = log.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || {
            for free_bytes in [1000, 5, 7, 5, 1000, 1000, 2000] {
                let _ = disk.found(Time(1), free_bytes);
            }
        });
        let text = String::from_utf8(said.0.lock().clone()).unwrap();
        let said: Vec<&str> = text.lines().collect();
        assert_eq!(said.len(), 2, "{text}");
        assert!(said[0].contains("WARN") && said[0].contains("until there is room"));
        assert!(said[1].contains("INFO") && said[1].contains("room on the disk again"));
    }
}
