//! The engine on disk: fjall, with the rules that keep it safe.
//!
//! Every batch is one write to the engine's journal and one fsync; only then
//! does the engine put it into its memtables and let snapshots see it, so no
//! view ever shows what a power cut could take back. The first error of any
//! kind latches: the engine itself never recovers within a process once it is
//! poisoned, and after a failed fsync the pages are lost whether or not a second
//! try succeeds.
//!
//! fjall stalls a writer that is ahead of its flushes and compactions in a loop
//! that does not check whether its workers are still alive. This module waits for
//! the workers before each batch and does check.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PinningPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable,
};

use super::scour::Scourer;
use super::{Engine, EngineError, KeyRange, RawBatch, RawRow, RawRows, Slice, View};
use crate::table::{Table, Tuning};

/// Where the engine keeps one folder for each table.
pub(crate) const KEYSPACES_FOLDER: &str = "keyspaces";
/// The smallest journal size that the engine accepts.
const JOURNAL_LEAST_BYTES: u64 = 64 << 20;
/// A batch waits while a table has this many memtables to flush; at one more the engine
/// would stall in its loop.
const SEALED_MEMTABLES: usize = 3;
/// A batch waits while a table has this many runs to merge; the engine halts at 30.
const UNMERGED_RUNS: usize = 20;
const STALL_POLL: Duration = Duration::from_millis(2);

/// The resources that the engine may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    /// Memory for blocks read from disk.
    pub cache_bytes: u64,
    /// The approximate maximum size of the journals: what a start after a crash replays,
    /// and what the memtables hold together.
    pub journal_bytes: u64,
    /// Threads that flush and compact.
    pub workers: usize,
}

impl Default for DiskSettings {
    fn default() -> DiskSettings {
        DiskSettings {
            cache_bytes: 64 << 20,
            journal_bytes: 384 << 20,
            workers: 2,
        }
    }
}

/// Tables in a folder. The store's lock ensures that there is one owner.
pub struct DiskEngine {
    database: Database,
    tables: Arc<[Keyspace]>,
    latch: Latch,
    folder: PathBuf,
}

/// The first failure of the engine, which every later call returns.
#[derive(Clone, Default)]
pub(super) struct Latch(Arc<OnceLock<EngineError>>);

impl Latch {
    pub(super) fn check(&self) -> Result<(), EngineError> {
        match self.0.get() {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }

    pub(super) fn fail(&self, doing: &'static str, error: &fjall::Error) -> EngineError {
        self.0
            .get_or_init(|| EngineError::new(doing, explain(error)))
            .clone()
    }
}

fn explain(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Poisoned => {
            "an earlier write, flush or compaction failed; the disk may be full or broken".into()
        }
        fjall::Error::Locked => "another process has it open".into(),
        fjall::Error::JournalRecovery(cause) => {
            format!("its journal is damaged ({cause:?})")
        }
        other => other.to_string(),
    }
}

impl DiskEngine {
    /// Opens or creates the tables, replaying the journal.
    pub fn open(dir: &Path, settings: &DiskSettings) -> Result<DiskEngine, EngineError> {
        let failed = |error: fjall::Error| EngineError::new("opening its files", explain(&error));
        let database = Database::builder(dir)
            .cache_size(settings.cache_bytes)
            .max_journaling_size(settings.journal_bytes.max(JOURNAL_LEAST_BYTES))
            .worker_threads(settings.workers.max(1))
            // To verify a batch the engine compresses its values again; another
            // version of the compressor may produce other bytes.
            .journal_compression(CompressionType::None)
            .open()
            .map_err(failed)?;
        let mut tables = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            let keyspace = database
                .keyspace(table.name(), || options(&table.tuning()))
                .map_err(failed)?;
            tables.push(keyspace);
        }
        // The engine syncs every folder that it creates, but not the folder's name: a
        // power cut could delete whole tables, and the engine silently skips what the
        // journal holds for a missing table.
        crate::durable::sync_folder(&dir.join(KEYSPACES_FOLDER))
            .map_err(|error| EngineError::new("making its tables durable", error))?;
        Ok(DiskEngine {
            database,
            tables: tables.into(),
            latch: Latch::default(),
            folder: dir.to_owned(),
        })
    }

    /// Returns a handle that removes deleted bytes from the disk.
    pub fn scourer(&self) -> Scourer {
        Scourer {
            database: self.database.clone(),
            tables: self.tables.clone(),
            latch: self.latch.clone(),
            folder: self.folder.clone(),
        }
    }

    /// Whether flushes or compactions are still under way.
    pub fn is_busy(&self) -> bool {
        self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0
    }

    /// Waits until the engine's workers have caught up. Fails if one has failed.
    fn await_workers(&self, batch: &RawBatch) -> Result<(), EngineError> {
        let mut touched = [false; Table::ALL.len()];
        for write in &batch.writes {
            touched[write.table as usize] = true;
        }
        for (table, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
            let tree = &self.tables[table].tree;
            while tree.sealed_memtable_count() >= SEALED_MEMTABLES
                || tree.l0_run_count() >= UNMERGED_RUNS
            {
                // Only checks: fails if a worker has failed.
                self.database
                    .persist(PersistMode::Buffer)
                    .map_err(|error| self.latch.fail("flushing and merging its tables", &error))?;
                std::thread::sleep(STALL_POLL);
            }
        }
        Ok(())
    }
}

fn options(tuning: &Tuning) -> KeyspaceCreateOptions {
    let compression = if tuning.compressed {
        // Compress the first level too, although it is short-lived: smaller tables sync sooner, and
        // nothing else can be synced meanwhile.
        CompressionPolicy::all(CompressionType::Lz4)
    } else {
        CompressionPolicy::disabled()
    };
    let (filters, indexes) = if tuning.reads_hit {
        // Reads are frequent, so pin filters and indexes: no read then waits for the cache.
        (PinningPolicy::all(true), PinningPolicy::all(true))
    } else {
        (
            PinningPolicy::new([true, false]),
            PinningPolicy::new([true, true, false]),
        )
    };
    KeyspaceCreateOptions::default()
        .filter_block_pinning_policy(filters)
        .index_block_pinning_policy(indexes)
        .max_memtable_size(tuning.memtable_bytes)
        .data_block_size_policy(BlockSizePolicy::all(tuning.block_bytes))
        .data_block_compression_policy(compression)
        .expect_point_read_hits(tuning.reads_hit)
        .filter_policy(FilterPolicy::new([
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        ]))
}

impl Engine for DiskEngine {
    fn commit(&mut self, batch: &RawBatch) -> Result<(), EngineError> {
        self.latch.check()?;
        self.await_workers(batch)?;
        let count = batch.writes.len();
        let mut writes = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), count)
            .durability(Some(PersistMode::SyncData));
        for write in &batch.writes {
            let keyspace = &self.tables[write.table as usize];
            let key = write.key.backing();
            match &write.value {
                Some(value) => writes.insert(keyspace, key, value.backing()),
                None => writes.remove(keyspace, key),
            }
        }
        writes
            .commit()
            .map_err(|error| self.latch.fail("writing a batch", &error))
    }

    fn snapshot(&self) -> Arc<dyn View> {
        Arc::new(DiskView {
            snapshot: self.database.snapshot(),
            tables: self.tables.clone(),
            latch: self.latch.clone(),
        })
    }
}

struct DiskView {
    snapshot: fjall::Snapshot,
    tables: Arc<[Keyspace]>,
    latch: Latch,
}

impl View for DiskView {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>, EngineError> {
        self.latch.check()?;
        match self.snapshot.get(&self.tables[table as usize], key) {
            Ok(found) => Ok(found.map(Slice::from)),
            Err(error) => Err(self.latch.fail("reading a row", &error)),
        }
    }

    fn range(&self, table: Table, range: KeyRange) -> RawRows {
        if range.is_empty() {
            return Box::new(std::iter::empty());
        }
        let rows = self
            .snapshot
            .range(&self.tables[table as usize], (range.start, range.end));
        let latch = self.latch.clone();
        Box::new(rows.map(move |guard| read(&latch, guard)))
    }
}

fn read(latch: &Latch, guard: fjall::Guard) -> Result<RawRow, EngineError> {
    latch.check()?;
    match guard.into_inner() {
        Ok((key, value)) => Ok((key.into(), value.into())),
        Err(error) => Err(latch.fail("reading rows", &error)),
    }
}
