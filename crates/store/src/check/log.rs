//! Checks the log: its numbers are dense, and its rows refer to repositories and
//! upstreams that exist.

use super::{CheckRun, Finding};
use crate::table::log::{self, FIRST_SEQ, LogKind};
use crate::table::{Table, key};
use crate::walk::TableReadError;
use gapless_core::ledger::Time;

const STAGE: &str = "log";

impl CheckRun<'_> {
    pub(super) fn check_log(&mut self) -> Result<(), TableReadError> {
        let table = Table::Log;
        let of = self.counters.next_seq.saturating_sub(FIRST_SEQ);
        let mut rows = self.table(table);
        // The number that the next row must begin with; none after a row whose
        // length cannot be read.
        let mut next = Some(FIRST_SEQ);
        let mut last_stamp = None;
        while let Some((place, bytes)) = rows.next()? {
            self.report.log_rows += 1;
            self.progress(STAGE, next.unwrap_or_default(), of);
            let first = match key::read_seq(&place) {
                Ok(first) => first,
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                    continue;
                }
            };
            match next {
                Some(next) if first > next => self.add(Finding::LogGap {
                    from: next,
                    until: first,
                }),
                Some(next) if first < next => self.add(Finding::LogOverlap {
                    first,
                    ends_at: next,
                }),
                _ => {}
            }
            next = match log::decode(&bytes) {
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                    None
                }
                Ok(row) => {
                    self.check_log_row(&place, &row);
                    // Rows of earlier formats have no stamp.
                    if row.stamp > Time(0) {
                        if last_stamp.is_some_and(|last| row.stamp <= last) {
                            let how = "its stamp is not above the stamps before it";
                            self.report_disagreement(table, &place, how);
                        }
                        last_stamp = Some(row.last_stamp());
                    }
                    Some(first.saturating_add(row.numbers()))
                }
            };
        }
        let next_seq = self.counters.next_seq;
        self.report.log_numbers = next_seq.saturating_sub(FIRST_SEQ);
        if let Some(ends_at) = next
            && ends_at != next_seq
        {
            self.add(Finding::LogEnd { ends_at, next_seq });
        }
        Ok(())
    }

    fn check_log_row(&mut self, place: &[u8], row: &log::LogRow) {
        let of_no_repo = matches!(row.kind, LogKind::Lost(_) | LogKind::Trimmed(_));
        match row.repo {
            None if of_no_repo => {}
            Some(repo) if self.known.has(repo.0) && !of_no_repo => {}
            _ => self.report_disagreement(
                Table::Log,
                place,
                "it is about a repository that does not exist",
            ),
        }
        if row
            .source
            .is_some_and(|source| source.upstream.0 >= self.counters.next_upstream)
        {
            self.report_disagreement(
                Table::Log,
                place,
                "it came from an upstream that does not exist",
            );
        }
    }
}
