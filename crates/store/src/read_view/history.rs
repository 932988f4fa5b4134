//! Reads the history: the log, superseded records and purges.

use std::collections::BTreeMap;

use gapless_core::ledger::{Lived, Time};
use gapless_core::retain::{Consumer, ConsumerKey};

use super::ReadView;
use crate::engine::KeyRange;
use crate::error::StoreError;
use crate::table::audit::{self, AuditRow};
use crate::table::log::{self, LogRow, LogRowSummary};
use crate::table::meta::{self, StoreIds};
use crate::table::purge::{self, PurgeRow};
use crate::table::{Table, consumer, key, version};

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

    /// The first number that is not trimmed.
    pub fn first_log_number(&self) -> Result<u64, StoreError> {
        match self.log_summaries(log::FIRST_SEQ)?.next().transpose()? {
            Some((first, row)) if matches!(row.kind, log::LogKind::Trimmed(_)) => {
                Ok(first.saturating_add(row.numbers))
            }
            _ => Ok(log::FIRST_SEQ),
        }
    }

    /// The first number logged after this time. Rows of formats before 4 have no stamp: among them the
    /// answer is right provided that the clock never went back.
    pub fn log_number_after(&self, time: Time) -> Result<u64, StoreError> {
        let (mut low, mut high) = (log::FIRST_SEQ, self.counters()?.next_seq);
        // The rows that stay: a search among the trimmed numbers would pass over deleted rows.
        if let Some((first, row)) = self.log_summaries(low)?.next().transpose()?
            && matches!(row.kind, log::LogKind::Trimmed(_))
        {
            if row.time_in_order() > time {
                return Ok(low);
            }
            low = first.saturating_add(row.numbers);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.log_summaries(middle)?.next().transpose()? {
                Some((first, row)) if row.time_in_order() <= time => {
                    low = first.saturating_add(row.numbers).max(middle + 1);
                }
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

/// The consumers of the log, and what the store is.
impl ReadView {
    /// The identities of the log and of the store; `None` until the first start of format 4.
    pub fn ids(&self) -> Result<Option<StoreIds>, StoreError> {
        self.read(Table::Meta, meta::IDS_KEY, meta::decode_ids)
    }

    /// The time that the store has lived through.
    pub fn lived(&self) -> Result<Lived, StoreError> {
        let lived = self.read(Table::Meta, meta::LIVED_KEY, meta::decode_lived)?;
        Ok(lived.unwrap_or_default())
    }

    /// Every consumer of the log.
    pub fn consumers(&self) -> Result<BTreeMap<ConsumerKey, Consumer>, StoreError> {
        self.rows(Table::Consumer, KeyRange::all(), |place, row| {
            Ok((consumer::read_key(place)?, consumer::decode(row)?))
        })
        .collect()
    }

    /// Orders about consumers, and overruns, from a number on.
    pub fn audit(
        &self,
        from: u64,
    ) -> impl DoubleEndedIterator<Item = Result<(u64, AuditRow), StoreError>> + Send + use<> {
        let range = KeyRange::from(key::seq(from).to_vec());
        self.rows(Table::Audit, range, |place, row| {
            Ok((key::read_seq(place)?, audit::decode(row)?))
        })
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
