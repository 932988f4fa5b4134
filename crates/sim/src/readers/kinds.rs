//! The kinds of rows of the log, with a count of how often a reader has read one.

use std::collections::BTreeMap;

use gapless_store::table::log::LogKind;

/// A kind of row, without what the row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogRowKind {
    Live,
    Backfill,
    Repair,
    Claimed,
    Account,
    Identity,
    Lost,
    Redacted,
    Purged,
    Restated,
    Unclaimed,
    /// Met as the beginning of a log that was trimmed past the reader.
    Trimmed,
}

impl LogRowKind {
    pub const ALL: [LogRowKind; 12] = [
        LogRowKind::Live,
        LogRowKind::Backfill,
        LogRowKind::Repair,
        LogRowKind::Claimed,
        LogRowKind::Account,
        LogRowKind::Identity,
        LogRowKind::Lost,
        LogRowKind::Redacted,
        LogRowKind::Purged,
        LogRowKind::Restated,
        LogRowKind::Unclaimed,
        LogRowKind::Trimmed,
    ];

    pub(super) fn of(kind: LogKind) -> LogRowKind {
        match kind {
            LogKind::Live => LogRowKind::Live,
            LogKind::Backfill => LogRowKind::Backfill,
            LogKind::Repair => LogRowKind::Repair,
            LogKind::Claimed(_) => LogRowKind::Claimed,
            LogKind::Account(_) => LogRowKind::Account,
            LogKind::Identity => LogRowKind::Identity,
            LogKind::Lost(_) => LogRowKind::Lost,
            LogKind::Redacted(_) => LogRowKind::Redacted,
            LogKind::Purged(_) => LogRowKind::Purged,
            LogKind::Restated => LogRowKind::Restated,
            LogKind::Unclaimed => LogRowKind::Unclaimed,
            LogKind::Trimmed(_) => LogRowKind::Trimmed,
        }
    }
}

/// How often a row of each kind was read.
#[derive(Debug, Clone, Default)]
pub struct KindCounts(BTreeMap<LogRowKind, u64>);

impl KindCounts {
    pub(super) fn count(&mut self, kind: LogRowKind) {
        *self.0.entry(kind).or_default() += 1;
    }

    pub fn times(&self, kind: LogRowKind) -> u64 {
        self.0.get(&kind).copied().unwrap_or(0)
    }
}
