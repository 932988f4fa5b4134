//! Repairs the log: missing, damaged and overlapping rows become `lost` rows.

use super::fix::RepairRun;
use crate::error::StoreError;
use crate::table::log::{self, FIRST_SEQ, LogKind, LogRow};
use crate::table::{Table, key};

const STAGE: &str = "log";

impl RepairRun<'_> {
    pub(super) fn fix_log(&mut self) -> Result<(), StoreError> {
        let mut rows = self.table(Table::Log);
        let of = self.counters.next_seq;
        // The previous row: where it begins, and where it ends if it can be read.
        let mut before: Option<(u64, Option<u64>)> = None;
        while let Some((place, row)) = rows.next()? {
            let Ok(first) = key::read_seq(&place) else {
                self.remove(Table::Log, place)?;
                continue;
            };
            self.progress(STAGE, first, of);
            self.fill_gap(before, first)?;
            let ends_at = log::decode(&row).ok();
            let ends_at = ends_at.map(|row| first.saturating_add(row.numbers()));
            before = Some((first, ends_at));
        }
        self.highest.next_seq = match before {
            None => FIRST_SEQ,
            Some((_, Some(ends_at))) => ends_at,
            // The row's length is unknown: `finish` covers it up to the highest number.
            Some((first, None)) => {
                self.remove(Table::Log, key::seq(first))?;
                first
            }
        };
        Ok(())
    }

    /// Covers the gap between the previous row and the next with a `lost` row.
    fn fill_gap(
        &mut self,
        before: Option<(u64, Option<u64>)>,
        next: u64,
    ) -> Result<(), StoreError> {
        let (from, count) = match before {
            None => (FIRST_SEQ, next.saturating_sub(FIRST_SEQ)),
            Some((_, Some(ends_at))) if ends_at <= next => (ends_at, next - ends_at),
            // The previous row cannot be read, or overlaps the next one.
            Some((first, _)) => (first, next - first),
        };
        match count {
            0 => Ok(()),
            _ => self.write_lost(from, count),
        }
    }

    fn write_lost(&mut self, from: u64, count: u64) -> Result<(), StoreError> {
        let row = LogRow {
            kind: LogKind::Lost(count),
            at: self.now.time,
            repo: None,
            commit: None,
            last: true,
            new_lineage: false,
            source: None,
            ops: Vec::new(),
        };
        self.report.lost_numbers.push((from, from + count - 1));
        self.put(Table::Log, key::seq(from), log::encode(&row))
    }

    /// Turns rows about missing repositories into `lost` rows, and removes references to
    /// missing upstreams.
    pub(super) fn fix_log_references(&mut self) -> Result<(), StoreError> {
        let next_upstream = self.highest.upstream.saturating_add(1);
        let next_upstream = next_upstream.max(self.counters.next_upstream);
        let mut rows = self.table(Table::Log);
        while let Some((place, row)) = rows.next()? {
            let (Ok(first), Ok(mut row)) = (key::read_seq(&place), log::decode(&row)) else {
                continue;
            };
            let lost = matches!(row.kind, LogKind::Lost(_));
            let known = row.repo.is_some_and(|repo| self.known.has(repo.0));
            // `fix_log` may have replaced the row by a `lost` row already.
            let still = || self.tx.read(Table::Log, &place, log::decode);
            if known == lost && still()?.as_ref() == Some(&row) {
                self.write_lost(first, row.numbers())?;
            } else if row
                .source
                .is_some_and(|source| source.upstream.0 >= next_upstream)
                && still()?.as_ref() == Some(&row)
            {
                row.source = None;
                self.mend_row(Table::Log, place, log::encode(&row))?;
            }
        }
        Ok(())
    }
}
