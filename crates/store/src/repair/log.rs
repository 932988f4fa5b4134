//! The log: what is missing, damaged or doubled becomes `lost`.

use super::fix::RepairRun;
use crate::error::StoreError;
use crate::table::log::{self, FIRST_SEQ, LogKind, LogRow};
use crate::table::{Table, key};

const STAGE: &str = "log";

impl RepairRun<'_> {
    pub(super) fn fix_log(&mut self) -> Result<(), StoreError> {
        let mut rows = self.table(Table::Log);
        let of = self.counters.next_seq;
        // The row before: where it begins, and where it ends if it can be read.
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
            // Nobody knows how long it was; what was given out tells.
            Some((first, None)) => {
                self.remove(Table::Log, key::seq(first))?;
                first
            }
        };
        Ok(())
    }

    /// Makes one row end where the next begins.
    fn fill_gap(
        &mut self,
        before: Option<(u64, Option<u64>)>,
        next: u64,
    ) -> Result<(), StoreError> {
        let (from, count) = match before {
            None => (FIRST_SEQ, next.saturating_sub(FIRST_SEQ)),
            Some((_, Some(ends_at))) if ends_at <= next => (ends_at, next - ends_at),
            // It cannot be read, or goes on where the next one begins.
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

    /// Rows about a repository that is not there tell nobody anything.
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
            // A row that was made `lost` above says so in the meantime.
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
