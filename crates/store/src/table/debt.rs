//! `debt`: repository → what must be asked or fetched. A repository without debts and
//! without failed attempts has no row.
//!
//! There is no second table in the order of the next attempt: a queue whose head is
//! constantly deleted is the worst case for an LSM tree. The scheduler keeps the order
//! in memory and reads this table once, at the start.

use gapless_core::ledger::{Debt, DebtItem, DebtReason, NamedHead, Oversize};

use crate::codec::{RowFault, RowReader, RowWriter, read_row};

/// Version 2 added the size limit that a fetch exceeded.
const VERSION: u8 = 2;

/// Whether a debt needs no row.
pub fn is_empty(debt: &Debt) -> bool {
    *debt == Debt::default()
}

pub fn encode(debt: &Debt) -> Vec<u8> {
    let Debt {
        resolve,
        compare,
        fetch,
        named,
        since,
        attempts,
        next_try,
        oversize,
    } = debt;
    let mut row = RowWriter::new(VERSION, 80);
    for owed in [resolve, compare, fetch] {
        row.maybe(*owed, |row, owed| {
            row.tick(owed.at).byte(code(owed.why));
        });
    }
    row.maybe(*named, |row, named| {
        write_named(row, &named);
    });
    row.time(*since).number((*attempts).into()).time(*next_try);
    row.maybe(*oversize, |row, oversize| {
        row.number(oversize.limit).time(oversize.until);
    });
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<Debt, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        Ok(Debt {
            resolve: row.maybe(owed)?,
            compare: row.maybe(owed)?,
            fetch: row.maybe(owed)?,
            named: row.maybe(read_named)?,
            since: row.time()?,
            attempts: row.small()?,
            next_try: row.time()?,
            oversize: match version {
                1 => None,
                _ => row.maybe(oversize)?,
            },
        })
    })
}

fn oversize(row: &mut RowReader<'_>) -> Result<Oversize, RowFault> {
    Ok(Oversize {
        limit: row.number()?,
        until: row.time()?,
    })
}

fn owed(row: &mut RowReader<'_>) -> Result<DebtItem, RowFault> {
    let at = row.tick()?;
    let why = of_code(row.byte()?).ok_or(RowFault::Value("reason"))?;
    Ok(DebtItem { at, why })
}

pub(super) fn write_named(row: &mut RowWriter, named: &NamedHead) {
    row.rev(named.rev).cid(&named.commit);
}

pub(super) fn read_named(row: &mut RowReader<'_>) -> Result<NamedHead, RowFault> {
    Ok(NamedHead {
        rev: row.rev()?,
        commit: row.cid()?,
    })
}

/// The index of a reason is its number on disk: append new reasons, never change the order.
const WHYS: &[DebtReason] = &[
    DebtReason::FirstSighting,
    DebtReason::BrokenChain,
    DebtReason::Unresolved,
    DebtReason::TooBig,
    DebtReason::OtherRoot,
    DebtReason::Legacy,
    DebtReason::WhileInactive,
    DebtReason::Unauthenticated,
    DebtReason::Fork,
    DebtReason::Misrouted,
    DebtReason::OtherHost,
    DebtReason::Abandoned,
    DebtReason::IdentityEvent,
    DebtReason::Moved,
    DebtReason::AccountEvent,
    DebtReason::ListedElsewhere,
    DebtReason::ListedNewer,
    DebtReason::NewerHead,
    DebtReason::HostBehind,
    DebtReason::Interrupted,
    DebtReason::FilterChanged,
    DebtReason::StoreRepaired,
    DebtReason::Operator,
    DebtReason::Closed,
    DebtReason::Claimed,
];

fn of_code(code: u8) -> Option<DebtReason> {
    WHYS.get(usize::from(code)).copied()
}

fn code(why: DebtReason) -> u8 {
    match why {
        DebtReason::FirstSighting => 0,
        DebtReason::BrokenChain => 1,
        DebtReason::Unresolved => 2,
        DebtReason::TooBig => 3,
        DebtReason::OtherRoot => 4,
        DebtReason::Legacy => 5,
        DebtReason::WhileInactive => 6,
        DebtReason::Unauthenticated => 7,
        DebtReason::Fork => 8,
        DebtReason::Misrouted => 9,
        DebtReason::OtherHost => 10,
        DebtReason::Abandoned => 11,
        DebtReason::IdentityEvent => 12,
        DebtReason::Moved => 13,
        DebtReason::AccountEvent => 14,
        DebtReason::ListedElsewhere => 15,
        DebtReason::ListedNewer => 16,
        DebtReason::NewerHead => 17,
        DebtReason::HostBehind => 18,
        DebtReason::Interrupted => 19,
        DebtReason::FilterChanged => 20,
        DebtReason::StoreRepaired => 21,
        DebtReason::Operator => 22,
        DebtReason::Closed => 23,
        DebtReason::Claimed => 24,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use gapless_core::ledger::Tick;
    use proptest::prelude::*;

    use super::super::arbitrary::{named, time};
    use super::*;

    fn any_owed() -> impl Strategy<Value = DebtItem> {
        (any::<u64>(), prop::sample::select(WHYS))
            .prop_map(|(at, why)| DebtItem { at: Tick(at), why })
    }

    pub(crate) fn any_debt() -> impl Strategy<Value = Debt> {
        (
            prop::option::of(any_owed()),
            prop::option::of(any_owed()),
            prop::option::of(any_owed()),
            prop::option::of(named()),
            (time(), any::<u32>(), time()),
            prop::option::of((any::<u64>(), time())),
        )
            .prop_map(
                |(resolve, compare, fetch, named, (since, attempts, next_try), oversize)| Debt {
                    resolve,
                    compare,
                    fetch,
                    named,
                    since,
                    attempts,
                    next_try,
                    oversize: oversize.map(|(limit, until)| Oversize { limit, until }),
                },
            )
    }

    proptest! {
        #[test]
        fn round_trip(debt in any_debt()) {
            prop_assert_eq!(decode(&encode(&debt)), Ok(debt));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn every_reason_stands_where_its_number_says() {
        for (place, why) in WHYS.iter().enumerate() {
            assert_eq!(usize::from(code(*why)), place);
        }
        assert_eq!(of_code(WHYS.len() as u8), None);
    }
}
