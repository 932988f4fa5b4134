//! Gets deleted bytes off the disk. The engine deletes by writing that something is
//! deleted; the bytes themselves stay in its journals and tables until those are
//! written anew, which may be never. This asks for it.
//!
//! Nobody who writes waits for it: it works beside the one writer, on handles of its
//! own. Limits: a journal goes only when so much was written after it that the
//! engine begins a new one (`JOURNAL_BYTES`), which is for the caller to do; what an open
//! view may read stays until that is closed, which is for the caller to see; a table
//! larger than `TABLE_BYTES` is left to its own compaction, because while one is
//! written anew no other compaction of it runs, and writers would wait in the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fjall::{AbstractTree, Database, Keyspace, PersistMode};

use super::EngineError;
use super::disk::Latch;
use crate::table::Table;

/// The engine begins a new journal when one is larger than this.
pub const JOURNAL_BYTES: usize = 64_000_000;
/// A table that is larger is not written anew in one go.
const TABLE_BYTES: u64 = 32 << 30;
/// A flush has ended by then, or is left for later.
const FLUSH_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);
const JOURNAL_EXTENSION: &str = "jnl";

/// A handle of the engine for this alone.
#[derive(Clone)]
pub struct Scourer {
    pub(super) database: Database,
    pub(super) tables: Arc<[Keyspace]>,
    pub(super) latch: Latch,
    pub(super) folder: PathBuf,
}

impl Scourer {
    /// The journals that there are.
    pub fn journals(&self) -> Vec<PathBuf> {
        let Ok(files) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let paths = files.filter_map(|file| file.ok().map(|file| file.path()));
        paths.filter(|path| is_journal(path)).collect()
    }

    /// Writes everything in memory into tables, so that journals can go. Whether it
    /// was done in time.
    pub fn flush(&self) -> Result<bool, EngineError> {
        for keyspace in self.tables.iter() {
            self.latch.check()?;
            keyspace
                .rotate_memtable()
                .map_err(|error| self.latch.fail("flushing a table", &error))?;
        }
        let began = Instant::now();
        for keyspace in self.tables.iter() {
            while keyspace.tree.sealed_memtable_count() > 0 {
                // Fails when a worker has failed, and does nothing else.
                self.database
                    .persist(PersistMode::Buffer)
                    .map_err(|error| self.latch.fail("flushing its tables", &error))?;
                if began.elapsed() > FLUSH_WITHIN {
                    return Ok(false);
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(true)
    }

    /// Writes a table anew, without what is deleted. False if it is too large.
    pub fn compact(&self, table: Table) -> Result<bool, EngineError> {
        self.latch.check()?;
        let keyspace = &self.tables[table as usize];
        if keyspace.disk_space() > TABLE_BYTES {
            return Ok(false);
        }
        keyspace
            .major_compact()
            .map_err(|error| self.latch.fail("writing a table anew", &error))?;
        Ok(true)
    }

    /// A moment: everything that is written by now is before it.
    pub fn mark(&self) -> u64 {
        self.database.supervisor.snapshot_tracker.get()
    }

    /// Whether nobody has a view from before that moment any more, as far as the engine
    /// has noticed; it looks when it flushes. What such a view may read stays on the disk,
    /// in tables written anew and in the old ones.
    pub fn is_past(&self, mark: u64) -> bool {
        let tracker = &self.database.supervisor.snapshot_tracker;
        tracker.get_seqno_safe_to_gc() >= mark
    }

    /// Bytes that all tables take together.
    pub fn table_bytes(&self) -> u64 {
        let tables = self.tables.iter();
        tables.map(|keyspace| keyspace.disk_space()).sum()
    }
}

fn is_journal(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == JOURNAL_EXTENSION)
}
