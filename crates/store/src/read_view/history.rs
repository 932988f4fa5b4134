//! Reads the history: the log, superseded records and purges.

use gapless_core::ledger::Time;

use super::ReadView;
use crate::engine::KeyRange;
use crate::error::StoreError;
use crate::table::log::{self, LogRow, LogRowSummary};
use crate::table::purge::{self, PurgeRow};
use crate::table::{Table, key, version};

/// The log.
impl ReadView {
    /// Rows of the log from the one that contains this number on, each with its first number.
    pub fn log_from(
        &self,
        seq: u64,
    ) -> Result<impl Iterator<Item = Result<(u64, LogRow), StoreError>> + Send + use<>, StoreError>
    {
        let range = self.log_range(seq)?;
        let rows = self.rows(Table::Log, range, |place, row| {
            Ok((key::read_seq(place)?, log::decode(row)?))
        });
        // The row found may end before the requested number.
        Ok(rows.skip_while(move |row| match row {
            Ok((first, row)) => first.saturating_add(row.numbers()) <= seq,
            Err(_) => false,
        }))
    }

    /// Rows of the log from the one that contains this number on, each with its first number and
    /// without its operations: for scans over many rows.
    pub fn log_summaries(
        &self,
        seq: u64,
    ) -> Result<
        impl Iterator<Item = Result<(u64, LogRowSummary), StoreError>> + Send + use<>,
        StoreError,
    > {
        let range = self.log_range(seq)?;
        let rows = self.rows(Table::Log, range, |place, row| {
            Ok((key::read_seq(place)?, log::decode_summary(row)?))
        });
        Ok(rows.skip_while(move |row| match row {
            Ok((first, row)) => first.saturating_add(row.numbers) <= seq,
            Err(_) => false,
        }))
    }

    /// The range from the last row that begins at or before this number.
    fn log_range(&self, seq: u64) -> Result<KeyRange, StoreError> {
        let before = KeyRange::up_to(key::seq(seq).to_vec());
        let start = match self.view.range(Table::Log, before).next_back() {
            None => key::seq(seq).to_vec(),
            Some(row) => row?.0.to_vec(),
        };
        Ok(KeyRange::from(start))
    }

    /// The first number logged after this time, provided that the clock never went back.
    pub fn log_number_after(&self, time: Time) -> Result<u64, StoreError> {
        let (mut low, mut high) = (log::FIRST_SEQ, self.counters()?.next_seq);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.log_summaries(middle)?.next().transpose()? {
                Some((first, row)) if row.at <= time => {
                    low = first.saturating_add(row.numbers).max(middle + 1);
                }
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

/// Purges and superseded records, for upkeep.
impl ReadView {
    /// Every purge from a log number on, each with its first log number.
    pub fn purges(
        &self,
        from: u64,
    ) -> impl DoubleEndedIterator<Item = Result<(u64, PurgeRow), StoreError>> + Send + use<> {
        let range = KeyRange::prefix_from(purge::PREFIX, purge::key(from));
        self.rows(Table::Meta, range, |place, row| {
            Ok((purge::read_key(place)?, purge::decode(row)?))
        })
    }

    /// The keys of superseded records from a key on, each with the log number that
    /// superseded the record.
    pub fn superseded_keys(
        &self,
        from: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<(Vec<u8>, u64), StoreError>> + Send + use<> {
        let range = KeyRange::from(from.to_vec());
        self.rows(Table::Version, range, |place, row| {
            Ok((place.to_vec(), version::decode(row)?.superseded_by))
        })
    }
}
