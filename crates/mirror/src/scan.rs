//! Scans the rows of many repositories in chunks, each from a view of its own: a view
//! that stays open keeps all that is written meanwhile in memory.

use std::ops::ControlFlow;

use gapless_core::ledger::RepoId;

/// Rows that are read from one view.
pub const ROWS_PER_VIEW: usize = 1_000;

/// Calls `visit` for every row from a number on, until it returns `Break`.
pub fn scan_rows<T, E, I: Iterator<Item = Result<(RepoId, T), E>>>(
    rows_per_view: usize,
    mut from: RepoId,
    read: impl Fn(RepoId) -> I,
    mut visit: impl FnMut(RepoId, T) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    loop {
        let mut count = 0;
        for row in read(from).take(rows_per_view) {
            let (id, row) = row?;
            if visit(id, row)?.is_break() {
                return Ok(());
            }
            from = RepoId(id.0 + 1);
            count += 1;
        }
        if count < rows_per_view {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    type Row = Result<(RepoId, u64), ()>;

    /// The rows that are visited of so many, and how many one view brings at most.
    fn visited(rows: u64, from: u64, enough: usize) -> (Vec<u64>, u32) {
        let most = Cell::new(0);
        let read = |from: RepoId| {
            let (taken, most) = (Cell::new(0), &most);
            (from.0..rows).map(move |id| -> Row {
                taken.set(taken.get() + 1);
                most.set(most.get().max(taken.get()));
                Ok((RepoId(id), id))
            })
        };
        let mut seen = Vec::new();
        let scanned = scan_rows(4, RepoId(from), read, |id, row| {
            assert_eq!(id.0, row);
            seen.push(row);
            Ok(if seen.len() < enough {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        });
        scanned.expect("it can be read");
        (seen, most.get())
    }

    #[test]
    fn all_rows_are_looked_at_once_and_few_by_one_reading() {
        for rows in [0u64, 1, 3, 4, 8, 9] {
            let (seen, most) = visited(rows, 0, usize::MAX);
            assert_eq!(seen, (0..rows).collect::<Vec<_>>());
            assert!(most <= 4, "{most} by one reading");
        }
    }

    #[test]
    fn it_begins_where_it_is_told_and_ends_when_enough_is_seen() {
        assert_eq!(visited(9, 3, usize::MAX).0, [3, 4, 5, 6, 7, 8]);
        assert_eq!(visited(9, 3, 5).0, [3, 4, 5, 6, 7]);
        assert_eq!(visited(9, 9, 1).0, [0u64; 0]);
    }
}
