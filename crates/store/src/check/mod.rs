//! Checks a whole store for what must hold at any moment, including after a crash.
//!
//! The log covers every number from 1 on exactly once. The keys held of a
//! repository hash to the root that its owner signed, and the bytes of a record
//! to its CID. Data that two tables repeat is equal in both. No row refers to a
//! missing row, and no number is in use that would be assigned again. Every frame
//! belongs to a row of the log.
//!
//! Limits: a check reads everything once and keeps one bit per repository in
//! memory. It cannot tell whether a cursor is ahead of events that left no row;
//! only a caller that knows the events can. The report keeps the first 1,000
//! findings and counts all of them.

mod finding;
#[cfg(feature = "engine")]
mod frames;
mod log;
mod names;
mod repos;

use std::collections::BTreeSet;

pub use finding::Finding;
#[cfg(feature = "engine")]
pub(crate) use frames::covers_others;
#[cfg(feature = "engine")]
pub(crate) use repos::is_commit_of;

use crate::error::StoreError;
use crate::read_view::ReadView;
use crate::table::Table;
use crate::table::meta::Counters;
use crate::walk::{TableReadError, TableRows};

/// The number of findings that a report keeps.
const KEPT_FINDINGS: usize = 1_000;
/// The most 64-bit words in a set: room for 4,000 million repositories.
const MOST_WORDS: usize = 1 << 26;
/// Rows between two calls of the progress callback.
const PROGRESS_ROWS: u64 = 4_096;

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: &'static str,
    pub done: u64,
    /// The approximate total of this stage.
    pub of: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The first 1,000 findings.
    pub findings: Vec<Finding>,
    /// The number of all findings.
    pub found: u64,
    pub repos: u64,
    /// Repositories whose root was recomputed and is the signed one.
    pub proven: u64,
    /// Repositories whose root cannot be recomputed, because the configuration keeps only some
    /// of their keys.
    pub not_recomputable: u64,
    pub records: u64,
    pub log_rows: u64,
    pub log_numbers: u64,
    pub frames: u64,
}

impl CheckReport {
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }

    fn add(&mut self, finding: Finding) {
        self.found += 1;
        if self.findings.len() < KEPT_FINDINGS {
            self.findings.push(finding);
        }
    }
}

/// Checks everything that can be read through a view.
pub fn check(
    view: &ReadView,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport, StoreError> {
    let mut run = CheckRun::new(view, progress)?;
    // A table that cannot be read ends the check: the engine reads no more.
    let ran = run
        .check_names()
        .and_then(|()| run.check_repos())
        .and_then(|()| run.check_log());
    if let Err(TableReadError { table, error }) = ran {
        let cause = error.cause.to_string();
        run.report.add(Finding::Unreadable { table, cause });
    }
    Ok(run.report)
}

/// Checks everything that can be read through a view, and the frames beside the engine.
#[cfg(feature = "engine")]
pub fn check_with_frames(
    view: &ReadView,
    frames: &crate::frames::FramesReader,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport, StoreError> {
    let mut report = check(view, progress)?;
    let unreadable = |finding: &Finding| matches!(finding, Finding::Unreadable { .. });
    if !report.findings.iter().any(unreadable) {
        frames::check(view, frames, &mut report, progress)?;
    }
    Ok(report)
}

/// The state of a running check.
struct CheckRun<'c> {
    view: &'c ReadView,
    counters: Counters,
    /// The repositories that exist.
    known: NumberSet,
    report: CheckReport,
    tell: &'c mut dyn FnMut(Progress),
}

impl<'c> CheckRun<'c> {
    fn new(
        view: &'c ReadView,
        tell: &'c mut dyn FnMut(Progress),
    ) -> Result<CheckRun<'c>, StoreError> {
        let counters = view.counters()?;
        Ok(CheckRun {
            view,
            counters,
            known: NumberSet::below(counters.next_repo),
            report: CheckReport::default(),
            tell,
        })
    }

    fn add(&mut self, finding: Finding) {
        self.report.add(finding);
    }

    fn progress(&mut self, stage: &'static str, done: u64, of: u64) {
        if done.is_multiple_of(PROGRESS_ROWS) || done == of {
            (self.tell)(Progress { stage, done, of });
        }
    }

    fn table(&self, table: Table) -> TableRows {
        TableRows::new(self.view.raw(), table)
    }

    fn has(&self, table: Table, key: &[u8]) -> Result<bool, TableReadError> {
        match self.view.raw().get(table, key) {
            Ok(found) => Ok(found.is_some()),
            Err(error) => Err(TableReadError { table, error }),
        }
    }

    /// Reports a number that is in use although it was never assigned.
    fn check_given_out(&mut self, what: &'static str, number: u64, next: u64) {
        if number >= next {
            self.add(Finding::NotGivenOut { what, number, next });
        }
    }
}

/// A set of numbers that were assigned in order, one bit each. Higher numbers, which occur only
/// through damage, are in a tree.
#[derive(Debug, Default)]
pub(crate) struct NumberSet {
    bits: Vec<u64>,
    beyond: BTreeSet<u64>,
}

impl NumberSet {
    pub(crate) fn below(next: u64) -> NumberSet {
        let words = usize::try_from(next / 64 + 1).unwrap_or(0);
        NumberSet {
            bits: vec![0; words.min(MOST_WORDS)],
            beyond: BTreeSet::new(),
        }
    }

    pub(crate) fn insert(&mut self, number: u64) {
        let place = usize::try_from(number / 64).ok();
        match place.and_then(|place| self.bits.get_mut(place)) {
            Some(word) => *word |= 1 << (number % 64),
            None => {
                self.beyond.insert(number);
            }
        }
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        let place = usize::try_from(number / 64).ok();
        match place.and_then(|place| self.bits.get(place)) {
            Some(word) => word & (1 << (number % 64)) != 0,
            None => self.beyond.contains(&number),
        }
    }
}
