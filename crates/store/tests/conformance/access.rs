//! Shortcuts for the tests to read a store and to alter a change.

use gapless_store::change::{Change, EntryContent, RepoChange};
use gapless_store::check::{self, Finding};
use gapless_store::error::{Contradiction, StoreError};
use gapless_store::sync_writer::SyncWriter;
use gapless_store::table::log::LogRow;

pub(crate) fn log(book: &SyncWriter) -> Vec<(u64, LogRow)> {
    let rows = book.view().log_from(0).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

pub(crate) fn cursor(book: &SyncWriter, upstream: gapless_core::ledger::UpstreamId) -> Option<u64> {
    book.view()
        .cursor(upstream)
        .unwrap()
        .map(|cursor| cursor.seq)
}

pub(crate) fn refusal(book: &mut SyncWriter, change: Change) -> Contradiction {
    match book.write(change) {
        Err(StoreError::Refused(why)) => why,
        other => panic!("should be refused: {other:?}"),
    }
}

pub(crate) fn set_entry(change: &mut Change, set: impl FnOnce(&mut RepoChange)) {
    set(change.repo.as_mut().unwrap());
}

pub(crate) fn set_records(
    change: &mut Change,
    set: impl FnOnce(&mut gapless_store::change::Records),
) {
    set_entry(change, |repo| {
        match &mut repo.entry.as_mut().unwrap().what {
            EntryContent::Records(records) => set(records),
            _ => panic!("records"),
        }
    });
}

/// The whole check finds nothing.
pub(crate) fn check_clean(book: &SyncWriter) {
    let report = check::check(&book.view(), &mut |_| {}).unwrap();
    // The commits of these owners are no commits.
    let mut others = report.findings.iter();
    let other = others.find(|finding| !matches!(finding, Finding::Commit { .. }));
    assert_eq!(other, None);
}
