//! Removes deleted bytes from the disk. The engine deletes a row by writing a
//! tombstone; the deleted bytes stay in its journals and tables until those are
//! rewritten, which may never happen by itself. The scourer makes it happen.
//!
//! The scourer uses handles of its own, so the writer does not wait for it. Limits:
//! - The engine deletes a journal only after `JOURNAL_BYTES` more were written, because it then
//!   begins a new one; the caller writes those bytes.
//! - Bytes that an open view may read stay until that view is closed; the caller has to close its
//!   views.
//! - A table larger than `TABLE_BYTES` is left to its regular compaction: no other
//!   compaction of a table runs while it is rewritten, and writers would stall.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fjall::{AbstractTree, Database, Keyspace, PersistMode};

use super::EngineError;
use super::disk::Latch;
use crate::table::Table;

/// The engine begins a new journal when one is larger than this.
pub const JOURNAL_BYTES: usize = 64_000_000;
/// A larger table is not rewritten in one go.
const TABLE_BYTES: u64 = 32 << 30;
/// The longest wait for a flush.
const FLUSH_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);
const JOURNAL_EXTENSION: &str = "jnl";

/// A handle that removes deleted bytes from the engine's files.
#[derive(Clone)]
pub struct Scourer {
    pub(super) database: Database,
    pub(super) tables: Arc<[Keyspace]>,
    pub(super) latch: Latch,
    pub(super) folder: PathBuf,
}

impl Scourer {
    /// The journal files that exist now.
    pub fn journals(&self) -> Vec<PathBuf> {
        let Ok(files) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let paths = files.filter_map(|file| file.ok().map(|file| file.path()));
        paths.filter(|path| is_journal(path)).collect()
    }

    /// Writes all memtables into tables, so that the engine can delete journals. Returns false if
    /// the flush takes longer than 120 seconds.
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
                // Only checks: fails if a worker has failed.
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

    /// Rewrites a table without its deleted rows. Returns false if the table is larger than
    /// `TABLE_BYTES`.
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

    /// A mark in the sequence of writes: everything written so far is before it.
    pub fn mark(&self) -> u64 {
        self.database.supervisor.snapshot_tracker.get()
    }

    /// Whether no view from before the mark is open, as far as the engine has noticed; the
    /// engine checks when it flushes. What such a view may read stays on the disk, in
    /// rewritten tables and in old ones.
    pub fn is_past(&self, mark: u64) -> bool {
        let tracker = &self.database.supervisor.snapshot_tracker;
        tracker.get_seqno_safe_to_gc() >= mark
    }
}

fn is_journal(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == JOURNAL_EXTENSION)
}
