//! `debt`: repository → what must be asked or fetched. A repository that owes
//! nothing, and never failed at paying, has no row.
//!
//! There is no second table in the order of the next try: a queue whose head is
//! deleted all the time is what this engine is worst at. Whoever works the debts
//! off keeps their order in memory and reads this table once.

use gapless_core::ledger::{Debt, Named, Oversize, Owed, Why};

use crate::codec::{Reader, RowFault, Writer, read_row};

/// 2 added what was too large to be taken.
const VERSION: u8 = 2;

/// Whether there is anything to write down.
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
    let mut row = Writer::new(VERSION, 80);
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

fn oversize(row: &mut Reader<'_>) -> Result<Oversize, RowFault> {
    Ok(Oversize {
        limit: row.number()?,
        until: row.time()?,
    })
}

fn owed(row: &mut Reader<'_>) -> Result<Owed, RowFault> {
    let at = row.tick()?;
    let why = of_code(row.byte()?).ok_or(RowFault::Value("reason"))?;
    Ok(Owed { at, why })
}

pub(super) fn write_named(row: &mut Writer, named: &Named) {
    row.rev(named.rev).cid(&named.commit);
}

pub(super) fn read_named(row: &mut Reader<'_>) -> Result<Named, RowFault> {
    Ok(Named {
        rev: row.rev()?,
        commit: row.cid()?,
    })
}

/// Numbers on disk: a new reason gets the next one, none is ever changed.
const WHYS: &[Why] = &[
    Why::FirstSighting,
    Why::BrokenChain,
    Why::Unresolved,
    Why::TooBig,
    Why::OtherRoot,
    Why::Legacy,
    Why::WhileInactive,
    Why::Unauthenticated,
    Why::Fork,
    Why::Misrouted,
    Why::OtherHost,
    Why::Abandoned,
    Why::IdentityEvent,
    Why::Moved,
    Why::AccountEvent,
    Why::ListedElsewhere,
    Why::ListedNewer,
    Why::NewerHead,
    Why::HostBehind,
    Why::Interrupted,
    Why::FilterChanged,
    Why::StoreRepaired,
    Why::Operator,
    Why::Closed,
    Why::Claimed,
];

fn of_code(code: u8) -> Option<Why> {
    WHYS.get(usize::from(code)).copied()
}

fn code(why: Why) -> u8 {
    match why {
        Why::FirstSighting => 0,
        Why::BrokenChain => 1,
        Why::Unresolved => 2,
        Why::TooBig => 3,
        Why::OtherRoot => 4,
        Why::Legacy => 5,
        Why::WhileInactive => 6,
        Why::Unauthenticated => 7,
        Why::Fork => 8,
        Why::Misrouted => 9,
        Why::OtherHost => 10,
        Why::Abandoned => 11,
        Why::IdentityEvent => 12,
        Why::Moved => 13,
        Why::AccountEvent => 14,
        Why::ListedElsewhere => 15,
        Why::ListedNewer => 16,
        Why::NewerHead => 17,
        Why::HostBehind => 18,
        Why::Interrupted => 19,
        Why::FilterChanged => 20,
        Why::StoreRepaired => 21,
        Why::Operator => 22,
        Why::Closed => 23,
        Why::Claimed => 24,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use gapless_core::ledger::Tick;
    use proptest::prelude::*;

    use super::super::arbitrary::{named, time};
    use super::*;

    fn any_owed() -> impl Strategy<Value = Owed> {
        (any::<u64>(), prop::sample::select(WHYS)).prop_map(|(at, why)| Owed { at: Tick(at), why })
    }

    pub fn any_debt() -> impl Strategy<Value = Debt> {
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
