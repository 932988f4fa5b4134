//! `audit`: number → an order about a consumer of the log that loses or repeats something, or an
//! overrun. Rows are kept for ever.

use gapless_core::ledger::Time;

use crate::codec::{RowFault, RowWriter, read_row};

const VERSION: u8 = 1;

/// An order about a consumer, or an overrun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub at: Time,
    /// Who gave the order: an operator's name, or `gapless` for an overrun.
    pub by: String,
    /// The consumer's name.
    pub consumer: String,
    pub act: AuditAct,
}

/// What happened to a consumer's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAct {
    /// The position was set from one number to another.
    Sought { from: u64, to: u64 },
    /// The consumer was removed at this position.
    Removed { next: u64 },
    /// The consumer holds nothing any more; it was at this position, and the log at `head`.
    Overrun { next: u64, head: u64 },
}

pub(crate) fn encode(audit: &AuditRow) -> Vec<u8> {
    let AuditRow {
        at,
        by,
        consumer,
        act,
    } = audit;
    let mut row = RowWriter::new(VERSION, 48);
    row.time(*at).text(by).text(consumer);
    match act {
        AuditAct::Sought { from, to } => row.byte(0).number(*from).number(*to),
        AuditAct::Removed { next } => row.byte(1).number(*next),
        AuditAct::Overrun { next, head } => row.byte(2).number(*next).number(*head),
    };
    row.finish()
}

pub(crate) fn decode(bytes: &[u8]) -> Result<AuditRow, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        Ok(AuditRow {
            at: row.time()?,
            by: row.text()?.to_owned(),
            consumer: row.text()?.to_owned(),
            act: match row.byte()? {
                0 => AuditAct::Sought {
                    from: row.number()?,
                    to: row.number()?,
                },
                1 => AuditAct::Removed {
                    next: row.number()?,
                },
                2 => AuditAct::Overrun {
                    next: row.number()?,
                    head: row.number()?,
                },
                _ => return Err(RowFault::Value("audit act")),
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::time;
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            at in time(), by in "[a-z]{0,9}", consumer in "[a-z]{0,9}",
            (from, to) in any::<(u64, u64)>(), which in 0..3u8,
        ) {
            let act = match which {
                0 => AuditAct::Sought { from, to },
                1 => AuditAct::Removed { next: from },
                _ => AuditAct::Overrun { next: from, head: to },
            };
            let row = AuditRow { at, by, consumer, act };
            prop_assert_eq!(decode(&encode(&row)), Ok(row));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
        }
    }
}
