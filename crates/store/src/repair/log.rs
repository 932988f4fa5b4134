//! Repairs the log: missing, damaged and overlapping rows become `lost` rows.

use gapless_core::ledger::Time;

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
        // The last row that can be read.
        let mut last = None;
        while let Some((place, row)) = rows.next()? {
            let Ok(first) = key::read_seq(&place) else {
                self.remove(Table::Log, place)?;
                continue;
            };
            self.progress(STAGE, first, of);
            self.fill_gap(before, first, last.as_ref())?;
            let row = log::decode(&row).ok();
            let ends_at = row.as_ref().map(|row| first.saturating_add(row.numbers()));
            before = Some((first, ends_at));
            if let Some(row) = row {
                self.note_log_row(first, &row);
                last = Some(row);
            }
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
        last: Option<&LogRow>,
    ) -> Result<(), StoreError> {
        let (from, count) = match before {
            None => (FIRST_SEQ, next.saturating_sub(FIRST_SEQ)),
            Some((_, Some(ends_at))) if ends_at <= next => (ends_at, next - ends_at),
            // The previous row cannot be read, or overlaps the next one.
            Some((first, _)) => (first, next - first),
        };
        match count {
            0 => Ok(()),
            _ => {
                // The lost operations had stamps between those of their neighbours. After a row of
                // an earlier format, which has none, the time keeps the order.
                let (at, stamp) = match last {
                    Some(last) if last.stamp == Time(0) => (last.at, Time(0)),
                    Some(last) => (self.now.time, Time(last.last_stamp().0.saturating_add(1))),
                    None => (self.now.time, Time(1)),
                };
                self.write_lost(from, count, at, stamp)
            }
        }
    }

    /// Notes what other steps need to know of a row.
    fn note_log_row(&mut self, first: u64, row: &LogRow) {
        self.highest.stamp = self.highest.stamp.max(row.last_stamp());
        if matches!(row.kind, LogKind::Lost(_)) {
            // By an earlier repair, which may have been interrupted.
            let end = first.saturating_add(row.numbers());
            self.lost_ranges.push((first, end.saturating_sub(1)));
        } else if row.stamp > Time(0) {
            self.first_stamped.get_or_insert(first);
        }
    }

    /// Whether the row of the operation with this number is lost. 0 is a number that an earlier
    /// format did not keep.
    pub(super) fn is_lost(&self, seq: u64) -> bool {
        if seq == 0 {
            let numbered_from = self.first_stamped.unwrap_or(self.highest.next_seq);
            let first_lost = self.lost_ranges.first();
            return first_lost.is_some_and(|(first, _)| *first < numbered_from);
        }
        let at = self.lost_ranges.partition_point(|(_, last)| *last < seq);
        let inside = self
            .lost_ranges
            .get(at)
            .is_some_and(|(first, _)| *first <= seq);
        inside || seq >= self.highest.next_seq
    }

    fn write_lost(
        &mut self,
        from: u64,
        count: u64,
        at: Time,
        stamp: Time,
    ) -> Result<(), StoreError> {
        let row = LogRow {
            stamp,
            ..LogRow::new(LogKind::Lost(count), at)
        };
        self.report.lost_numbers.push((from, from + count - 1));
        self.lost_ranges.push((from, from + count - 1));
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
            let lost = matches!(row.kind, LogKind::Lost(_) | LogKind::Trimmed(_));
            let known = row.repo.is_some_and(|repo| self.known.has(repo.0));
            // `fix_log` may have replaced the row by a `lost` row already.
            let still = || self.tx.read(Table::Log, &place, log::decode);
            if known == lost && still()?.as_ref() == Some(&row) {
                self.write_lost(first, row.numbers(), row.at, row.stamp)?;
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
