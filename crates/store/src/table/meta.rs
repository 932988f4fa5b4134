//! `meta`: the counters, in one row that every batch writes: which numbers were
//! assigned.

use gapless_core::ledger::Tick;

use super::log::FIRST_SEQ;
use crate::codec::{RowFault, RowWriter, read_row};

const VERSION: u8 = 1;

/// The key of the row with the counters.
pub const KEY: &[u8] = b"counters";

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
    } = counters;
    let mut row = RowWriter::new(VERSION, 48);
    row.number(*batch).number(*next_seq).number(*next_repo);
    row.number((*next_host).into())
        .number((*next_upstream).into());
    row.number(*next_dead).tick(*last_tick);
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<Counters, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        Ok(Counters {
            batch: row.number()?,
            next_seq: row.number()?,
            next_repo: row.number()?,
            next_host: row.small()?,
            next_upstream: row.small()?,
            next_dead: row.number()?,
            last_tick: row.tick()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(wide in any::<[u64; 5]>(), small in any::<[u32; 2]>()) {
            let [batch, next_seq, next_repo, next_dead, tick] = wide;
            let [next_host, next_upstream] = small;
            let last_tick = Tick(tick);
            let counters = Counters {
                batch, next_seq, next_repo, next_host, next_upstream, next_dead, last_tick,
            };
            prop_assert_eq!(decode(&encode(&counters)), Ok(counters));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }
}
