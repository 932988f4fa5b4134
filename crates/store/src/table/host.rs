//! `host`: host → its name and the state of its sweep; and `host_name`: name →
//! host. A number is given once and never taken back.

use gapless_core::ledger::{Host, HostId, HostSwept};

use crate::codec::{RowFault, Writer, read_row};

const VERSION: u8 = 1;

pub fn encode(host: &Host) -> Vec<u8> {
    let Host {
        name,
        swept,
        hiding_suspended,
    } = host;
    let mut row = Writer::new(VERSION, 32 + name.len());
    row.text(name);
    row.maybe(*swept, |row, swept| {
        row.tick(swept.tick).time(swept.at);
    });
    row.flag(*hiding_suspended);
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<Host, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        Ok(Host {
            name: row.text()?.to_owned(),
            swept: row.maybe(|row| {
                Ok(HostSwept {
                    tick: row.tick()?,
                    at: row.time()?,
                })
            })?,
            hiding_suspended: row.flag()?,
        })
    })
}

pub fn encode_id(host: HostId) -> Vec<u8> {
    let mut row = Writer::new(VERSION, 8);
    row.host(host);
    row.finish()
}

pub fn decode_id(bytes: &[u8]) -> Result<HostId, RowFault> {
    read_row(bytes, VERSION, |row, _| row.host())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::{tick, time};
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            name in "[a-z0-9.:]{1,60}",
            swept in prop::option::of((tick(), time())),
            hiding_suspended in any::<bool>(),
            id in any::<u32>(),
        ) {
            let swept = swept.map(|(tick, at)| HostSwept { tick, at });
            let host = Host { name, swept, hiding_suspended };
            prop_assert_eq!(decode(&encode(&host)), Ok(host));
            prop_assert_eq!(decode_id(&encode_id(HostId(id))), Ok(HostId(id)));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (decode(&bytes), decode_id(&bytes));
        }
    }
}
