//! The place where a test runs: an engine that can be closed and opened again.

use gapless_store::engine::{DiskEngine, DiskSettings, Engine, MemoryEngine};
use gapless_store::sync_writer::{NoSidecar, SyncWriter};

pub(crate) trait World {
    /// Opens what is there. The one before must be gone.
    fn engine(&self) -> Box<dyn Engine>;

    fn book(&self) -> SyncWriter {
        SyncWriter::open(self.engine(), Box::new(NoSidecar)).unwrap()
    }
}

pub(crate) struct Memory(MemoryEngine);

impl Memory {
    pub(crate) fn fresh() -> Memory {
        Memory(MemoryEngine::new())
    }
}

impl World for Memory {
    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.0.clone())
    }
}

pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    pub(crate) fn fresh() -> Disk {
        Disk(tempfile::tempdir().unwrap())
    }
}

impl World for Disk {
    fn engine(&self) -> Box<dyn Engine> {
        let settings = DiskSettings {
            cache_bytes: 8 << 20,
            ..DiskSettings::default()
        };
        Box::new(DiskEngine::open(&self.0.path().join("engine"), &settings).unwrap())
    }
}
