//! `consumer`: a consumer of the log → its position, and what it holds back.
//!
//! The key is the class, the number and the lane of the consumer, big-endian, so that the lanes of
//! a consumer stand together.

use std::time::Duration;

use gapless_core::ledger::Lived;
use gapless_core::ledger::time::micros;
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};

use crate::codec::{RowFault, RowReader, RowWriter, read_row};

const VERSION: u8 = 1;

pub fn key(consumer: ConsumerKey) -> Vec<u8> {
    let ConsumerKey { class, id, lane } = consumer;
    let id = id.to_be_bytes();
    let lane = lane.to_be_bytes();
    [&[class_code(class)][..], &id, &lane].concat()
}

pub(crate) fn read_key(key: &[u8]) -> Result<ConsumerKey, RowFault> {
    let mut row = RowReader::new(key);
    let class = class_of(row.byte()?)?;
    let id = u32::from_be_bytes(row.array()?);
    let lane = row.wide()?;
    match row.left() {
        0 => Ok(ConsumerKey { class, id, lane }),
        _ => Err(RowFault::Long),
    }
}

pub fn encode(consumer: &Consumer) -> Vec<u8> {
    let Consumer {
        name,
        next,
        holds_from,
        registered,
        moved,
        hold,
        needs,
        overrun,
    } = consumer;
    let mut row = RowWriter::new(VERSION, 48);
    row.text(name).number(*next).number(*holds_from);
    for when in [registered, moved] {
        row.time(when.time).number(when.lived.0);
    }
    let hold = match hold {
        Hold::Always => None,
        Hold::For(hold) => Some(micros(*hold)),
    };
    row.maybe(hold, |row, hold| {
        row.number(hold);
    });
    row.flag(*needs == ConsumerNeeds::LogAndVersions);
    row.flag(*overrun);
    row.finish()
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Consumer, RowFault> {
    let when = |row: &mut RowReader<'_>| {
        Ok(When {
            time: row.time()?,
            lived: Lived(row.number()?),
        })
    };
    read_row(bytes, VERSION, |row, _| {
        Ok(Consumer {
            name: row.text()?.to_owned(),
            next: row.number()?,
            holds_from: row.number()?,
            registered: when(row)?,
            moved: when(row)?,
            hold: match row.maybe(RowReader::number)? {
                None => Hold::Always,
                Some(hold) => Hold::For(Duration::from_micros(hold)),
            },
            needs: if row.flag()? {
                ConsumerNeeds::LogAndVersions
            } else {
                ConsumerNeeds::Log
            },
            overrun: row.flag()?,
        })
    })
}

fn class_code(class: ConsumerClass) -> u8 {
    match class {
        ConsumerClass::Index => 1,
        ConsumerClass::Recipient => 2,
        ConsumerClass::Crawler => 3,
        ConsumerClass::Backup => 4,
        ConsumerClass::Window => 5,
    }
}

fn class_of(code: u8) -> Result<ConsumerClass, RowFault> {
    Ok(match code {
        1 => ConsumerClass::Index,
        2 => ConsumerClass::Recipient,
        3 => ConsumerClass::Crawler,
        4 => ConsumerClass::Backup,
        5 => ConsumerClass::Window,
        _ => return Err(RowFault::Value("consumer's class")),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::time;
    use super::*;

    fn class() -> impl Strategy<Value = ConsumerClass> {
        (1..6u8).prop_map(|code| class_of(code).unwrap())
    }

    fn when() -> impl Strategy<Value = When> {
        (time(), any::<u64>()).prop_map(|(time, lived)| When {
            time,
            lived: Lived(lived),
        })
    }

    proptest! {
        #[test]
        fn round_trip(
            (class, id, lane) in (class(), any::<u32>(), any::<u64>()),
            name in "[a-z]{0,12}",
            (next, holds_from) in any::<(u64, u64)>(),
            (registered, moved) in (when(), when()),
            hold in prop::option::of(any::<u64>()),
            (needs_versions, overrun) in any::<(bool, bool)>(),
        ) {
            let place = ConsumerKey { class, id, lane };
            prop_assert_eq!(read_key(&key(place)), Ok(place));
            let consumer = Consumer {
                name, next, holds_from, registered, moved, overrun,
                hold: hold.map_or(Hold::Always, |hold| Hold::For(Duration::from_micros(hold))),
                needs: if needs_versions { ConsumerNeeds::LogAndVersions } else { ConsumerNeeds::Log },
            };
            prop_assert_eq!(decode(&encode(&consumer)), Ok(consumer));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (decode(&bytes), read_key(&bytes));
        }
    }
}
