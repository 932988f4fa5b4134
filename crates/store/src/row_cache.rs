//! Caches repository rows, as bytes, that were read or written recently.
//!
//! Readers and the committer share the cache. A row that the committer has written is
//! the newest one; a reader may use it once its view shows the batch that wrote it. A
//! row that a reader inserts is the newest one unless the committer has written the
//! repository since the reader's view was taken; if that is possible, the row is not
//! cached.

use std::sync::MutexGuard;

use gapless_core::ledger::RepoId;

use crate::engine::Slice;
use crate::sync::Mutex;

/// Cells of a running store, about half a kilobyte each when all are full.
pub(crate) const STORE_CELLS: usize = 1 << 17;
/// Cells of a store in a test or in the simulator, where there are many stores with few
/// repositories each.
pub(crate) const SMALL_CELLS: usize = 1 << 4;

/// The newest row of a repository.
struct CachedRow {
    repo: RepoId,
    row: Slice,
    /// The row has been the newest one since this batch, or longer.
    since: u64,
}

/// Holds the row of one of the repositories that share the cell.
#[derive(Default)]
struct CacheCell {
    row: Option<CachedRow>,
    /// The last batch that wrote any of the repositories that share the cell.
    written: u64,
}

/// A fixed number of cells; a repository's number says which cell is its own.
pub(crate) struct RowCache(Box<[Mutex<CacheCell>]>);

impl RowCache {
    pub(crate) fn new(cells: usize) -> RowCache {
        RowCache((0..cells.max(1)).map(|_| Mutex::default()).collect())
    }

    fn bucket(&self, repo: RepoId) -> MutexGuard<'_, CacheCell> {
        self.0[(repo.0 % self.0.len() as u64) as usize].lock()
    }

    /// The newest row, durable or not: for the committer.
    pub(crate) fn newest(&self, repo: RepoId) -> Option<Slice> {
        let cell = self.bucket(repo);
        let cached = cell.row.as_ref().filter(|cached| cached.repo == repo)?;
        Some(cached.row.clone())
    }

    /// The row as shown by a view whose last batch is `batch`.
    pub(crate) fn as_of(&self, repo: RepoId, batch: u64) -> Option<Slice> {
        let cell = self.bucket(repo);
        let cached = cell.row.as_ref().filter(|cached| cached.repo == repo)?;
        (cached.since <= batch).then(|| cached.row.clone())
    }

    /// Caches a row that was read from a view whose last batch is `batch`.
    pub(crate) fn insert_read(&self, repo: RepoId, batch: u64, row: &[u8]) {
        let mut cell = self.bucket(repo);
        if cell.written <= batch {
            // A copy, because the engine's slice would keep a whole block in memory.
            let (row, since) = (Slice::from(row), batch);
            cell.row = Some(CachedRow { repo, row, since });
        }
    }

    /// Caches a row that the committer writes in this batch.
    pub(crate) fn insert_written(&self, repo: RepoId, batch: u64, row: Slice) {
        let mut cell = self.bucket(repo);
        cell.written = batch;
        cell.row = Some(CachedRow {
            repo,
            row,
            since: batch,
        });
    }

    /// Removes a repository's row, because the committer changes it in this batch in another way.
    pub(crate) fn forget(&self, repo: RepoId, batch: u64) {
        let mut cell = self.bucket(repo);
        cell.written = batch;
        cell.row.take_if(|cached| cached.repo == repo);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RepoId = RepoId(1);

    fn row(text: &str) -> Option<Slice> {
        Some(Slice::from(text))
    }

    #[test]
    fn what_was_written_is_the_newest_and_shown_once_it_is_durable() {
        let rows = RowCache::new(SMALL_CELLS);
        assert_eq!(rows.newest(ONE), None);
        rows.insert_written(ONE, 7, Slice::from("a"));
        rows.insert_written(ONE, 7, Slice::from("b"));
        assert_eq!(rows.newest(ONE), row("b"));
        assert_eq!(rows.as_of(ONE, 6), None, "that view does not show it");
        assert_eq!(rows.as_of(ONE, 7), row("b"));
        assert_eq!(rows.as_of(ONE, 9), row("b"));
        rows.forget(ONE, 8);
        assert_eq!((rows.newest(ONE), rows.as_of(ONE, 9)), (None, None));
    }

    #[test]
    fn a_row_that_was_read_is_cached_unless_it_was_written_since() {
        let rows = RowCache::new(SMALL_CELLS);
        rows.insert_read(ONE, 7, b"as of seven");
        assert_eq!(rows.newest(ONE), row("as of seven"));
        assert_eq!(rows.as_of(ONE, 6), None, "it may be younger than that view");
        assert_eq!(rows.as_of(ONE, 8), row("as of seven"));
        rows.insert_written(ONE, 8, Slice::from("eight"));
        rows.insert_read(ONE, 7, b"as of seven");
        assert_eq!(rows.newest(ONE), row("eight"));
        rows.forget(ONE, 9);
        rows.insert_read(ONE, 8, b"as of eight");
        assert_eq!(rows.newest(ONE), None);
        rows.insert_read(ONE, 9, b"as of nine");
        assert_eq!(rows.newest(ONE), row("as of nine"));
    }

    #[test]
    fn those_that_share_a_place_are_told_apart() {
        let rows = RowCache::new(SMALL_CELLS);
        let far = RepoId(ONE.0 + SMALL_CELLS as u64);
        rows.insert_written(far, 3, Slice::from("far"));
        assert_eq!((rows.newest(ONE), rows.as_of(ONE, 9)), (None, None));
        rows.insert_read(ONE, 2, b"one");
        assert_eq!(rows.newest(ONE), None, "it may have been written in three");
        rows.insert_read(ONE, 3, b"one");
        assert_eq!((rows.newest(ONE), rows.newest(far)), (row("one"), None));
        rows.forget(far, 4);
        assert_eq!(rows.newest(ONE), row("one"));
    }
}
