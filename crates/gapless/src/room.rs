//! Whether there is room on the disk. While there is none nothing is written, and
//! whoever asks how things are is told so, and since when.
//!
//! It is said when the store refuses for want of room, and by a look at the file
//! system every second. Only such a look ends it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gapless_core::ledger::Time;
use gapless_store::space::{Full, free_bytes};

use crate::shared::Shared;

/// How often the file system is asked: one system call.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// There is no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    pub since: Time,
    /// What is missing, and what can be done.
    pub error: String,
}

pub struct Room {
    folder: PathBuf,
    min_free_bytes: u64,
    lack: Mutex<Option<Lack>>,
}

impl Room {
    pub fn new(folder: &Path, min_free_bytes: u64) -> Room {
        Room {
            folder: folder.to_owned(),
            min_free_bytes,
            lack: Mutex::default(),
        }
    }

    /// Bytes of the disk that are left free.
    pub fn min_free_bytes(&self) -> u64 {
        self.min_free_bytes
    }

    /// None: there is room.
    pub fn lack(&self) -> Option<Lack> {
        self.lock().clone()
    }

    /// The store refused for want of room.
    pub fn lacks(&self, now: Time, full: &Full) {
        let mut lack = self.lock();
        if lack.is_none() {
            let error = full.to_string();
            tracing::warn!(%error, "nothing is written until there is room on the disk");
            *lack = Some(Lack { since: now, error });
        }
    }

    /// Asks the file system. One that does not answer changes nothing.
    pub fn look(&self, now: Time) {
        // Whoever wants to know reads the lack.
        let _ = self.require(now);
    }

    /// The same for an order that must not wait: refused when there is no room.
    pub fn require(&self, now: Time) -> Result<(), Full> {
        match free_bytes(&self.folder) {
            Ok(free_bytes) => self.found(now, free_bytes),
            Err(_) => Ok(()),
        }
    }

    fn found(&self, now: Time, free_bytes: u64) -> Result<(), Full> {
        if free_bytes < self.min_free_bytes {
            let full = Full {
                folder: self.folder.clone(),
                free_bytes,
                min_free_bytes: self.min_free_bytes,
            };
            self.lacks(now, &full);
            return Err(full);
        }
        if let Some(lack) = self.lock().take() {
            let seconds = now.since(lack.since).as_secs();
            tracing::info!(seconds, "there is room on the disk again; writing goes on");
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Lack>> {
        // Nothing in here can panic half way.
        self.lack.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for as long as the program runs, and notes which tick it was when.
pub async fn watch(shared: Arc<Shared>) {
    while !shared.end.is_ending() {
        let now = shared.clock.glance();
        shared.moments.note(now);
        shared.room.look(now.time);
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = shared.end.ended() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_is_known_from_its_beginning_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), 1000);
        room.look(Time(1));
        assert_eq!(room.lack(), None, "this disk has room");
        room.found(Time(5), 999).expect_err("too little");
        room.found(Time(7), 3).expect_err("too little");
        let lack = room.lack().expect("too little");
        assert_eq!(lack.since, Time(5));
        assert!(lack.error.contains("min_free_disk"), "{}", lack.error);
        room.found(Time(9), 1000).expect("enough");
        assert_eq!(room.lack(), None);
    }

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn its_beginning_and_its_end_are_each_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), 1000);
        let said = Said::default();
        let writer = said.clone();
        let log = tracing_subscriber::fmt().with_ansi(false);
        let log = log.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || {
            for free_bytes in [1000, 5, 7, 5, 1000, 1000, 2000] {
                let _ = room.found(Time(1), free_bytes);
            }
        });
        let text = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
        let said: Vec<&str> = text.lines().collect();
        assert_eq!(said.len(), 2, "{text}");
        assert!(said[0].contains("WARN") && said[0].contains("until there is room"));
        assert!(said[1].contains("INFO") && said[1].contains("room on the disk again"));
    }
}
