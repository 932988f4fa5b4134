//! `meta`: the counters, in one row that every batch writes: which numbers were
//! assigned. Further rows say which log and which store this is, and how much time the store
//! has lived through.

use gapless_core::ledger::{Lived, Tick, Time};

use super::log::FIRST_SEQ;
use crate::codec::{RowFault, RowWriter, read_row};

/// Version 2 added the last stamp and the next audit number.
const VERSION: u8 = 2;
/// The version of the rows for identities and for the time lived through.
const ROW_VERSION: u8 = 1;

/// The key of the row with the counters.
pub const KEY: &[u8] = b"counters";
/// The key of the row with the identities.
pub(crate) const IDS_KEY: &[u8] = b"ids";
/// The key of the row with the time lived through.
pub(crate) const LIVED_KEY: &[u8] = b"lived";
/// Whether a row can be read.
type RowCheck = fn(&[u8]) -> Result<(), RowFault>;

/// The keys of the rows beside the counters that this module reads, each with a check of a row.
pub(crate) const SMALL_ROWS: [(&[u8], RowCheck); 2] = [
    (IDS_KEY, |row| decode_ids(row).map(drop)),
    (LIVED_KEY, |row| decode_lived(row).map(drop)),
];

/// The next number of each kind to assign. A number is assigned once and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Batches written so far; the first one is number 1.
    pub batch: u64,
    /// The number that the next row of the log begins with.
    pub next_seq: u64,
    pub next_repo: u64,
    pub next_host: u32,
    pub next_upstream: u32,
    pub next_dead: u64,
    /// The highest tick of any change.
    pub last_tick: Tick,
    /// The stamp of the last operation in the log. Zero in a store of an earlier format, until
    /// the first row is written.
    pub last_stamp: Time,
    pub next_audit: u64,
}

/// The identities of a store: 16 random bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreIds {
    /// Which log this is. A reader of the log keeps it beside its position.
    pub log: LogId,
    /// Which data folder this is.
    pub store: [u8; 16],
}

/// The identity of a log: log numbers of different logs have nothing to do with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub [u8; 16]);

impl std::fmt::Display for LogId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for LogId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogId({self})")
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            batch: 0,
            next_seq: FIRST_SEQ,
            next_repo: 1,
            next_host: 1,
            next_upstream: 1,
            next_dead: 1,
            last_tick: Tick(0),
            last_stamp: Time(0),
            next_audit: 1,
        }
    }
}

pub fn encode(counters: &Counters) -> Vec<u8> {
    let Counters {
        batch,
        next_seq,
        next_repo,
        next_host,
        next_upstream,
        next_dead,
        last_tick,
        last_stamp,
        next_audit,
    } = counters;
    let mut row = RowWriter::new(VERSION, 64);
    row.number(*batch).number(*next_seq).number(*next_repo);
    row.number((*next_host).into())
        .number((*next_upstream).into());
    row.number(*next_dead).tick(*last_tick);
    row.time(*last_stamp).number(*next_audit);
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<Counters, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        let mut counters = Counters {
            batch: row.number()?,
            next_seq: row.number()?,
            next_repo: row.number()?,
            next_host: row.small()?,
            next_upstream: row.small()?,
            next_dead: row.number()?,
            last_tick: row.tick()?,
            ..Counters::default()
        };
        if version >= 2 {
            counters.last_stamp = row.time()?;
            counters.next_audit = row.number()?;
        }
        Ok(counters)
    })
}

pub(crate) fn encode_ids(ids: &StoreIds) -> Vec<u8> {
    let mut row = RowWriter::new(ROW_VERSION, 33);
    row.raw(&ids.log.0).raw(&ids.store);
    row.finish()
}

pub(crate) fn decode_ids(bytes: &[u8]) -> Result<StoreIds, RowFault> {
    read_row(bytes, ROW_VERSION, |row, _| {
        Ok(StoreIds {
            log: LogId(row.array()?),
            store: row.array()?,
        })
    })
}

pub(crate) fn encode_lived(lived: Lived) -> Vec<u8> {
    let mut row = RowWriter::new(ROW_VERSION, 10);
    row.number(lived.0);
    row.finish()
}

pub(crate) fn decode_lived(bytes: &[u8]) -> Result<Lived, RowFault> {
    read_row(bytes, ROW_VERSION, |row, _| Ok(Lived(row.number()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            wide in any::<[u64; 7]>(), small in any::<[u32; 2]>(), ids in any::<[[u8; 16]; 2]>(),
        ) {
            let [batch, next_seq, next_repo, next_dead, tick, stamp, next_audit] = wide;
            let [next_host, next_upstream] = small;
            let (last_tick, last_stamp) = (Tick(tick), Time(stamp));
            let counters = Counters {
                batch, next_seq, next_repo, next_host, next_upstream, next_dead, last_tick,
                last_stamp, next_audit,
            };
            prop_assert_eq!(decode(&encode(&counters)), Ok(counters));
            let ids = StoreIds { log: LogId(ids[0]), store: ids[1] };
            prop_assert_eq!(decode_ids(&encode_ids(&ids)), Ok(ids));
            prop_assert_eq!(decode_lived(&encode_lived(Lived(tick))), Ok(Lived(tick)));
        }

        #[test]
        fn rows_of_earlier_formats_have_no_stamp_and_no_audit(wide in any::<[u64; 5]>()) {
            let mut old = RowWriter::new(1, 48);
            let [batch, next_seq, next_repo, next_dead, tick] = wide;
            old.number(batch).number(next_seq).number(next_repo).number(3).number(4);
            old.number(next_dead).number(tick);
            let counters = Counters {
                batch, next_seq, next_repo, next_host: 3, next_upstream: 4, next_dead,
                last_tick: Tick(tick), last_stamp: Time(0), next_audit: 1,
            };
            prop_assert_eq!(decode(old.as_bytes()), Ok(counters));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (decode(&bytes), decode_ids(&bytes), decode_lived(&bytes));
        }
    }
}
