//! The engine in memory, for tests and for the simulator. It keeps the promises of
//! [`Engine`].
//!
//! It keeps every version of a key that a view or a crash could still need, and it
//! can lose data on demand: between [`MemoryEngine::hold`] and
//! [`MemoryEngine::sync`] commits are visible but not durable, and
//! [`MemoryEngine::crash`] drops all but the first few of them, whole batches
//! only, as a disk that lost power would. There is no randomness: equal calls give
//! equal contents.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use super::{Engine, EngineError, KeyRange, RawBatch, RawRow, RawRows, RawWrite, Slice, View};
use crate::sync::Mutex;
use crate::table::Table;

/// A handle to tables in memory. Clones share the tables, so that a test can crash an
/// engine that a store is using.
#[derive(Clone, Default)]
pub struct MemoryEngine {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    tables: BTreeMap<Table, BTreeMap<Slice, Versions>>,
    /// The number of the newest batch. A number is never used twice, even after a crash.
    version: u64,
    /// Batches up to this one survive a crash.
    synced: u64,
    hold: bool,
    /// Batches after `synced`, with the keys they wrote, in order.
    unsynced: Vec<(u64, Vec<TableKey>)>,
    /// Keys that may have versions which no view and no crash can need.
    stale: Vec<TableKey>,
    /// The number of views at each version.
    views: BTreeMap<u64, usize>,
    failure: Option<EngineError>,
}

/// A table and a key in it.
type TableKey = (Table, Slice);

/// The values of a key, each with the batch that wrote it; the newest last.
type Versions = Vec<(u64, Option<Slice>)>;

impl MemoryEngine {
    pub fn new() -> MemoryEngine {
        MemoryEngine::default()
    }

    /// Holds back durability: later commits are not durable until [`MemoryEngine::sync`].
    pub fn hold(&self) {
        self.inner().hold = true;
    }

    /// Makes everything committed so far durable.
    pub fn sync(&self) {
        let mut inner = self.inner();
        inner.synced = inner.version;
        let settled = std::mem::take(&mut inner.unsynced);
        for (_, keys) in settled {
            inner.stale.extend(keys);
        }
        inner.prune();
    }

    /// The number of batches that a crash could lose now.
    pub fn unsynced(&self) -> usize {
        self.inner().unsynced.len()
    }

    /// Drops the unsynced batches after the first `keep`. What is left is durable: it
    /// is what a new start finds. Views taken before are no longer valid.
    pub fn crash(&self, keep: usize) {
        let mut inner = self.inner();
        let keep = keep.min(inner.unsynced.len());
        let lost = inner.unsynced.split_off(keep);
        for (version, keys) in lost.into_iter().rev() {
            for (table, key) in keys {
                inner.forget(table, &key, version);
            }
        }
        let kept = std::mem::take(&mut inner.unsynced);
        for (_, keys) in kept {
            inner.stale.extend(keys);
        }
        inner.synced = inner.version;
        inner.failure = None;
        inner.prune();
    }

    /// Makes every later call fail with `cause`, as after an I/O error.
    pub fn fail(&self, cause: &str) {
        self.inner().failure = Some(EngineError::new("doing as a test told it", cause));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    fn commit(&mut self, batch: &RawBatch) {
        self.version += 1;
        let version = self.version;
        let mut keys = Vec::with_capacity(batch.writes.len());
        for RawWrite { table, key, value } in &batch.writes {
            let rows = self.tables.entry(*table).or_default();
            let versions = rows.entry(key.clone()).or_default();
            match versions.last_mut() {
                Some(last) if last.0 == version => last.1 = value.clone(),
                _ => {
                    versions.push((version, value.clone()));
                    keys.push((*table, key.clone()));
                }
            }
        }
        if self.hold {
            self.unsynced.push((version, keys));
        } else {
            self.synced = version;
            self.stale.extend(keys);
        }
        self.prune();
    }

    fn forget(&mut self, table: Table, key: &[u8], version: u64) {
        let Some(rows) = self.tables.get_mut(&table) else {
            return;
        };
        if let Some(versions) = rows.get_mut(key) {
            versions.retain(|(at, _)| *at < version);
            if versions.is_empty() {
                rows.remove(key);
            }
        }
    }

    /// Drops versions below the one that the oldest view, or a crash, would see.
    fn prune(&mut self) {
        let oldest_view = self.views.keys().next().copied().unwrap_or(u64::MAX);
        let floor = oldest_view.min(self.synced);
        let mut stale = std::mem::take(&mut self.stale);
        stale.retain(|(table, key)| {
            let Some(rows) = self.tables.get_mut(table) else {
                return false;
            };
            let Some(versions) = rows.get_mut(key) else {
                return false;
            };
            let newer = versions.partition_point(|(at, _)| *at <= floor);
            versions.drain(..newer.saturating_sub(1));
            let deleted = matches!(versions.as_slice(), [(at, None)] if *at <= floor);
            if deleted {
                rows.remove(key);
                return false;
            }
            versions.len() > 1 || matches!(versions.as_slice(), [(_, None)])
        });
        self.stale = stale;
    }
}

fn visible(versions: &Versions, at: u64) -> Option<&Slice> {
    let newer = versions.partition_point(|(version, _)| *version <= at);
    let (_, value) = versions.get(newer.checked_sub(1)?)?;
    value.as_ref()
}

impl Engine for MemoryEngine {
    fn commit(&mut self, batch: &RawBatch) -> Result<(), EngineError> {
        let mut inner = self.inner();
        if let Some(failure) = &inner.failure {
            return Err(failure.clone());
        }
        if !batch.writes.is_empty() {
            inner.commit(batch);
        }
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn View> {
        let mut inner = self.inner();
        let at = inner.version;
        *inner.views.entry(at).or_default() += 1;
        Arc::new(MemoryView {
            engine: self.clone(),
            at,
        })
    }
}

struct MemoryView {
    engine: MemoryEngine,
    at: u64,
}

impl Clone for MemoryView {
    fn clone(&self) -> MemoryView {
        *self.engine.inner().views.entry(self.at).or_default() += 1;
        MemoryView {
            engine: self.engine.clone(),
            at: self.at,
        }
    }
}

impl Drop for MemoryView {
    fn drop(&mut self) {
        let mut inner = self.engine.inner();
        if let Some(count) = inner.views.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                inner.views.remove(&self.at);
            }
        }
    }
}

impl View for MemoryView {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>, EngineError> {
        let inner = self.engine.inner();
        if let Some(failure) = &inner.failure {
            return Err(failure.clone());
        }
        let found = inner
            .tables
            .get(&table)
            .and_then(|rows| rows.get(key))
            .and_then(|versions| visible(versions, self.at));
        Ok(found.cloned())
    }

    fn range(&self, table: Table, range: KeyRange) -> RawRows {
        Box::new(MemoryRows {
            view: self.clone(),
            table,
            rest: range,
        })
    }
}

/// Iterates by looking up the next key at each step: the map may change between two
/// steps, and the view keeps the versions that it needs.
struct MemoryRows {
    view: MemoryView,
    table: Table,
    rest: KeyRange,
}

impl MemoryRows {
    fn step(&mut self, from_the_end: bool) -> Option<Result<RawRow, EngineError>> {
        use std::ops::Bound::Excluded;
        if self.rest.is_empty() {
            return None;
        }
        let inner = self.view.engine.inner();
        if let Some(failure) = &inner.failure {
            return Some(Err(failure.clone()));
        }
        let rows = inner.tables.get(&self.table)?;
        let bounds = (
            self.rest.start.as_ref().map(Vec::as_slice),
            self.rest.end.as_ref().map(Vec::as_slice),
        );
        let mut range = rows
            .range::<[u8], _>(bounds)
            .filter_map(|(key, versions)| Some((key, visible(versions, self.view.at)?)));
        let (key, value) = if from_the_end {
            range.next_back()?
        } else {
            range.next()?
        };
        let passed = Excluded(key.to_vec());
        let row = (key.clone(), value.clone());
        if from_the_end {
            self.rest.end = passed;
        } else {
            self.rest.start = passed;
        }
        Some(Ok(row))
    }
}

impl Iterator for MemoryRows {
    type Item = Result<RawRow, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl DoubleEndedIterator for MemoryRows {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(engine: &mut MemoryEngine, key: &str, value: &str) {
        let mut batch = RawBatch::default();
        batch.put(Table::Meta, key, value);
        engine.commit(&batch).unwrap();
    }

    fn delete(engine: &mut MemoryEngine, key: &str) {
        let mut batch = RawBatch::default();
        batch.delete(Table::Meta, key);
        engine.commit(&batch).unwrap();
    }

    fn get(engine: &MemoryEngine, key: &str) -> Option<String> {
        let found = engine.get(Table::Meta, key.as_bytes()).unwrap()?;
        Some(String::from_utf8(found.to_vec()).unwrap())
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_the_batches_it_was_told_to() {
        let mut engine = MemoryEngine::new();
        put(&mut engine, "a", "synced");
        engine.hold();
        put(&mut engine, "a", "first");
        delete(&mut engine, "a");
        put(&mut engine, "b", "third");
        assert_eq!(engine.unsynced(), 3);
        engine.crash(1);
        assert_eq!(get(&engine, "a").as_deref(), Some("first"));
        assert_eq!(get(&engine, "b"), None);
        put(&mut engine, "b", "again");
        engine.sync();
        put(&mut engine, "a", "lost");
        engine.crash(0);
        assert_eq!(get(&engine, "a").as_deref(), Some("first"));
        assert_eq!(get(&engine, "b").as_deref(), Some("again"));
    }

    #[test]
    fn versions_that_no_snapshot_can_read_are_dropped() {
        let mut engine = MemoryEngine::new();
        let view = engine.snapshot();
        for round in 0..100 {
            put(&mut engine, "a", &round.to_string());
        }
        put(&mut engine, "gone", "soon");
        delete(&mut engine, "gone");
        assert_eq!(view.get(Table::Meta, b"a").unwrap(), None);
        drop(view);
        put(&mut engine, "b", "x");
        let inner = engine.inner();
        let rows = &inner.tables[&Table::Meta];
        assert_eq!(rows.len(), 2);
        assert!(rows.values().all(|versions| versions.len() == 1));
        assert!(inner.stale.is_empty());
    }

    #[test]
    fn a_failed_engine_stays_failed_until_a_new_start() {
        let mut engine = MemoryEngine::new();
        put(&mut engine, "a", "1");
        engine.fail("no more disk");
        let mut batch = RawBatch::default();
        batch.put(Table::Meta, "a", "2");
        let error = engine.commit(&batch).unwrap_err();
        assert!(error.to_string().contains("no more disk"));
        assert!(engine.get(Table::Meta, b"a").is_err());
        engine.crash(0);
        assert_eq!(get(&engine, "a").as_deref(), Some("1"));
    }
}
