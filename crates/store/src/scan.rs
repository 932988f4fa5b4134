//! Scans many rows in chunks, each from a view of its own: a view that stays open keeps
//! everything that is written meanwhile in memory.

use std::iter;

use gapless_core::ledger::{Repo, RepoId};

use crate::error::StoreError;
use crate::store::Store;

/// Rows of repositories that are read from one view.
pub const ROWS_PER_VIEW: usize = 1_000;

/// Iterates over rows in chunks. `read` opens a new view and returns the rows from a place on.
/// After `rows_per_view` rows, `read` is called again with the place that `after` returns for the
/// last row. The first error ends the scan.
///
/// A view is open until the caller has taken its last row. If the caller works on a row for long,
/// `read` has to collect its rows before it returns them.
pub fn scan<P, T, E, I: Iterator<Item = Result<T, E>>>(
    rows_per_view: usize,
    from: P,
    mut read: impl FnMut(&P) -> I,
    after: impl Fn(&T) -> P,
) -> impl Iterator<Item = Result<T, E>> {
    let mut from = from;
    let mut rows = None;
    let mut count = 0;
    let mut ended = false;
    iter::from_fn(move || {
        if ended {
            return None;
        }
        let row = rows.get_or_insert_with(|| read(&from)).next();
        if let Some(Ok(row)) = &row {
            count += 1;
            if count == rows_per_view {
                from = after(row);
                (rows, count) = (None, 0);
            }
        } else {
            ended = true;
            rows = None;
        }
        row
    })
}

impl Store {
    /// Every repository from a number on, without the debts, each as it is when its chunk
    /// is read.
    pub fn scan_repos(
        &self,
        from: RepoId,
    ) -> impl Iterator<Item = Result<(RepoId, Repo), StoreError>> {
        let read = |from: &RepoId| self.view().repos(*from);
        scan(ROWS_PER_VIEW, from, read, |(id, _)| RepoId(id.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// The rows that a scan brings of so many, how many views it opens, and how many rows
    /// one of them brings at most.
    fn scanned(rows: u64, from: u64, enough: usize) -> (Vec<u64>, usize, u32) {
        let (views, most) = (RefCell::new(Vec::new()), Cell::new(0));
        let read = |from: &u64| {
            views.borrow_mut().push(*from);
            let (taken, most) = (Cell::new(0), &most);
            (*from..rows).map(move |row| {
                taken.set(taken.get() + 1);
                most.set(most.get().max(taken.get()));
                Ok::<u64, ()>(row)
            })
        };
        let seen = scan(4, from, read, |row| row + 1).take(enough);
        let seen: Result<Vec<u64>, ()> = seen.collect();
        let views = views.borrow().len();
        (seen.expect("it can be read"), views, most.get())
    }

    #[test]
    fn all_rows_are_looked_at_once_and_few_by_one_reading() {
        for rows in [0u64, 1, 3, 4, 8, 9] {
            let (seen, views, most) = scanned(rows, 0, usize::MAX);
            assert_eq!(seen, (0..rows).collect::<Vec<_>>());
            assert_eq!(views as u64, rows / 4 + 1);
            assert!(most <= 4, "{most} by one reading");
        }
    }

    #[test]
    fn it_begins_where_it_is_told_and_ends_when_enough_is_seen() {
        assert_eq!(scanned(9, 3, usize::MAX).0, [3, 4, 5, 6, 7, 8]);
        assert_eq!(scanned(9, 3, 5), (vec![3, 4, 5, 6, 7], 2, 4));
        assert_eq!(scanned(9, 9, 1).0, [0u64; 0]);
    }

    #[test]
    fn the_first_error_ends_a_scan() {
        let read =
            |from: &u64| (*from..9).map(|row| if row == 5 { Err("broken") } else { Ok(row) });
        let seen: Vec<_> = scan(4, 3, read, |row| row + 1).collect();
        assert_eq!(seen, [Ok(3), Ok(4), Err("broken")]);
    }

    #[test]
    fn a_scan_has_no_view_open_while_the_caller_has_a_last_row() {
        let open = Cell::new(0);
        struct View<'a>(&'a Cell<i32>, std::ops::Range<u64>);
        impl Iterator for View<'_> {
            type Item = Result<u64, ()>;
            fn next(&mut self) -> Option<Self::Item> {
                self.1.next().map(Ok)
            }
        }
        impl Drop for View<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let read = |from: &u64| {
            open.set(open.get() + 1);
            View(&open, *from..9)
        };
        for row in scan(4, 0, read, |row| row + 1) {
            let last_of_its_view = row.expect("it can be read") % 4 == 3;
            assert_eq!(open.get(), i32::from(!last_of_its_view));
        }
        assert_eq!(open.get(), 0);
    }
}
