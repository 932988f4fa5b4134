//! Rows of repositories that need not be read from the engine: those that were
//! read or written lately, as bytes.
//!
//! Readers and the committer share them. A row that the committer has written is
//! the newest one there is, and a reader may have it once its view shows the batch
//! that wrote it. A row that a reader has left is the newest one unless somebody has
//! written the repository since the reader's view was taken; when in doubt it is
//! not kept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gapless_core::ledger::RepoId;

use crate::engine::Slice;

/// Places of a store that is written by many, about half a kilobyte each when all
/// are taken.
pub(crate) const PLACES: usize = 1 << 17;
/// Places where there is one repository at a time, and many stores: of tests and of
/// the simulator.
pub(crate) const FEW: usize = 1 << 4;

/// The newest row of a repository.
struct Kept {
    repo: RepoId,
    row: Slice,
    /// It is known to have been the row as of this batch, and ever since.
    since: u64,
}

#[derive(Default)]
struct Place {
    kept: Option<Kept>,
    /// The last batch in which one of the repositories of this place was written.
    written: u64,
}

/// A place holds one of the repositories that share it, the last.
pub(crate) struct RecentRows(Box<[Mutex<Place>]>);

impl RecentRows {
    pub fn new(places: usize) -> RecentRows {
        RecentRows((0..places.max(1)).map(|_| Mutex::default()).collect())
    }

    fn place(&self, repo: RepoId) -> MutexGuard<'_, Place> {
        let place = &self.0[(repo.0 % self.0.len() as u64) as usize];
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest row, durable or not: for the committer.
    pub fn newest(&self, repo: RepoId) -> Option<Slice> {
        let place = self.place(repo);
        let kept = place.kept.as_ref().filter(|kept| kept.repo == repo)?;
        Some(kept.row.clone())
    }

    /// The row as a view shows it whose last batch is this one.
    pub fn as_of(&self, repo: RepoId, batch: u64) -> Option<Slice> {
        let place = self.place(repo);
        let kept = place.kept.as_ref().filter(|kept| kept.repo == repo)?;
        (kept.since <= batch).then(|| kept.row.clone())
    }

    /// A view shows this row, and this batch as its last.
    pub fn leave(&self, repo: RepoId, batch: u64, row: &[u8]) {
        let mut place = self.place(repo);
        if place.written <= batch {
            // A copy: what the engine hands out keeps a whole block of its own.
            let (row, since) = (Slice::from(row), batch);
            place.kept = Some(Kept { repo, row, since });
        }
    }

    /// The committer writes this row, in this batch.
    pub fn write(&self, repo: RepoId, batch: u64, row: Slice) {
        let mut place = self.place(repo);
        place.written = batch;
        place.kept = Some(Kept {
            repo,
            row,
            since: batch,
        });
    }

    /// The committer does something else with it, in this batch.
    pub fn forget(&self, repo: RepoId, batch: u64) {
        let mut place = self.place(repo);
        place.written = batch;
        place.kept.take_if(|kept| kept.repo == repo);
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
        let rows = RecentRows::new(FEW);
        assert_eq!(rows.newest(ONE), None);
        rows.write(ONE, 7, Slice::from("a"));
        rows.write(ONE, 7, Slice::from("b"));
        assert_eq!(rows.newest(ONE), row("b"));
        assert_eq!(rows.as_of(ONE, 6), None, "that view does not show it");
        assert_eq!(rows.as_of(ONE, 7), row("b"));
        assert_eq!(rows.as_of(ONE, 9), row("b"));
        rows.forget(ONE, 8);
        assert_eq!((rows.newest(ONE), rows.as_of(ONE, 9)), (None, None));
    }

    #[test]
    fn what_was_read_is_good_unless_somebody_has_written_since() {
        let rows = RecentRows::new(FEW);
        rows.leave(ONE, 7, b"as of seven");
        assert_eq!(rows.newest(ONE), row("as of seven"));
        assert_eq!(rows.as_of(ONE, 6), None, "it may be younger than that view");
        assert_eq!(rows.as_of(ONE, 8), row("as of seven"));
        rows.write(ONE, 8, Slice::from("eight"));
        rows.leave(ONE, 7, b"as of seven");
        assert_eq!(rows.newest(ONE), row("eight"));
        rows.forget(ONE, 9);
        rows.leave(ONE, 8, b"as of eight");
        assert_eq!(rows.newest(ONE), None);
        rows.leave(ONE, 9, b"as of nine");
        assert_eq!(rows.newest(ONE), row("as of nine"));
    }

    #[test]
    fn those_that_share_a_place_are_told_apart() {
        let rows = RecentRows::new(FEW);
        let far = RepoId(ONE.0 + FEW as u64);
        rows.write(far, 3, Slice::from("far"));
        assert_eq!((rows.newest(ONE), rows.as_of(ONE, 9)), (None, None));
        rows.leave(ONE, 2, b"one");
        assert_eq!(rows.newest(ONE), None, "it may have been written in three");
        rows.leave(ONE, 3, b"one");
        assert_eq!((rows.newest(ONE), rows.newest(far)), (row("one"), None));
        rows.forget(far, 4);
        assert_eq!(rows.newest(ONE), row("one"));
    }
}
