//! `host`: host → its name, the state of its sweep, and the source that named it; and
//! `host_name`: name → host. A number is assigned once and never to another host.

use gapless_core::ledger::{Host, HostId, HostSweep, NamedBy};

use crate::codec::{RowFault, RowReader, RowWriter, read_row};

/// Version 2 added which source named the host and when, and whether the host has answered.
const VERSION: u8 = 2;
const ID_VERSION: u8 = 1;

pub fn encode(host: &Host) -> Vec<u8> {
    let Host {
        name,
        swept,
        hiding_suspended,
        named,
        since,
        reached,
    } = host;
    let mut row = RowWriter::new(VERSION, 32 + name.len());
    row.text(name);
    row.maybe(*swept, |row, swept| {
        row.tick(swept.tick).time(swept.at);
    });
    row.flag(*hiding_suspended);
    match named {
        NamedBy::Unsaid => row.byte(0),
        NamedBy::Operator => row.byte(1),
        NamedBy::Document(from) => row.byte(2).maybe(*from, |row, from| {
            row.host(from);
        }),
        NamedBy::Relay(url) => row.byte(3).text(url),
        NamedBy::Stranger(by) => row.byte(4).maybe(by.as_deref(), |row, url| {
            row.text(url);
        }),
    };
    row.maybe(*since, |row, since| {
        row.time(since);
    });
    row.flag(*reached);
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<Host, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        let mut host = Host {
            name: row.text()?.to_owned(),
            swept: row.maybe(|row| {
                Ok(HostSweep {
                    tick: row.tick()?,
                    at: row.time()?,
                })
            })?,
            hiding_suspended: row.flag()?,
            ..Host::default()
        };
        if version == 1 {
            // Version 1 does not say; a host that was swept has probably answered.
            host.reached = host.swept.is_some();
            return Ok(host);
        }
        host.named = named_by(row)?;
        host.since = row.maybe(RowReader::time)?;
        host.reached = row.flag()?;
        Ok(host)
    })
}

fn named_by(row: &mut RowReader<'_>) -> Result<NamedBy, RowFault> {
    Ok(match row.byte()? {
        0 => NamedBy::Unsaid,
        1 => NamedBy::Operator,
        2 => NamedBy::Document(row.maybe(RowReader::host)?),
        3 => NamedBy::Relay(row.text()?.to_owned()),
        4 => NamedBy::Stranger(row.maybe(|row| row.text().map(str::to_owned))?),
        _ => return Err(RowFault::Value("naming source")),
    })
}

pub(crate) fn encode_id(host: HostId) -> Vec<u8> {
    let mut row = RowWriter::new(ID_VERSION, 8);
    row.host(host);
    row.finish()
}

pub(crate) fn decode_id(bytes: &[u8]) -> Result<HostId, RowFault> {
    read_row(bytes, ID_VERSION, |row, _| row.host())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::{tick, time};
    use super::*;

    fn named() -> impl Strategy<Value = NamedBy> {
        let url = "[a-z:/.]{1,20}";
        prop_oneof![
            Just(NamedBy::Unsaid),
            Just(NamedBy::Operator),
            prop::option::of(any::<u32>().prop_map(HostId)).prop_map(NamedBy::Document),
            url.prop_map(NamedBy::Relay),
            prop::option::of(url).prop_map(NamedBy::Stranger),
        ]
    }

    #[test]
    fn a_row_of_before_is_read_as_what_it_says() {
        // Version, the length of the name and the name, swept at tick 3 and time 4, and
        // that hiding is not suspended.
        let (swept, never) = (b"\x01\x01a\x01\x03\x04\x00", b"\x01\x01a\x00\x00");
        let old = decode(swept).expect("it can be read");
        assert!(old.reached && old.swept.is_some());
        assert_eq!((old.named, old.since), (NamedBy::Unsaid, None));
        let old = decode(never).expect("it can be read");
        assert!(!old.reached);
    }

    proptest! {
        #[test]
        fn round_trip(
            name in "[a-z0-9.:]{1,60}",
            swept in prop::option::of((tick(), time())),
            hiding_suspended in any::<bool>(),
            named in named(),
            since in prop::option::of(time()),
            reached in any::<bool>(),
            id in any::<u32>(),
        ) {
            let swept = swept.map(|(tick, at)| HostSweep { tick, at });
            let host = Host { name, swept, hiding_suspended, named, since, reached };
            prop_assert_eq!(decode(&encode(&host)), Ok(host));
            prop_assert_eq!(decode_id(&encode_id(HostId(id))), Ok(HostId(id)));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (decode(&bytes), decode_id(&bytes));
        }
    }
}
