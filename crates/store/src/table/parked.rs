//! `parked`: repository, rev → a frame that waits for earlier ones, as it was
//! received, with what the ledger needs to know of it and where it was read.

use gapless_core::ledger::{Epoch, Parked, PriorState, UpstreamId};
pub use gapless_core::repo_tx::step::ParkedFrame;

use super::repo::{read_head, write_head};
use crate::codec::{RowFault, RowReader, RowWriter, read_row};

const VERSION: u8 = 1;

pub fn encode(row: &ParkedFrame) -> Vec<u8> {
    let Parked {
        head,
        before,
        origin,
        bytes,
    } = &row.parked;
    let mut writer = RowWriter::new(VERSION, 160 + row.frame.len());
    write_head(&mut writer, head);
    match before {
        PriorState::Root(root) => writer.byte(0).cid(root),
        PriorState::Recompute => writer.byte(1),
        PriorState::Untold => writer.byte(2),
        PriorState::Unjudged => writer.byte(3),
    };
    writer.maybe(*origin, |writer, host| {
        writer.host(host);
    });
    writer.number((*bytes).into()).upstream(row.upstream);
    writer.maybe(row.epoch, |writer, epoch| {
        writer.number(epoch.0);
    });
    writer.raw(&row.frame);
    writer.finish()
}

pub fn decode(bytes: &[u8]) -> Result<ParkedFrame, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        let (parked, upstream, epoch) = read_parked(row)?;
        Ok(ParkedFrame {
            parked,
            upstream,
            epoch,
            frame: row.remainder().to_vec(),
        })
    })
}

/// Decodes a row without its frame, which can be large.
pub(crate) fn decode_parked(bytes: &[u8]) -> Result<Parked, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        let (parked, _, _) = read_parked(row)?;
        row.remainder();
        Ok(parked)
    })
}

fn read_parked(row: &mut RowReader<'_>) -> Result<(Parked, UpstreamId, Option<Epoch>), RowFault> {
    let head = read_head(row)?;
    let before = match row.byte()? {
        0 => PriorState::Root(row.cid()?),
        1 => PriorState::Recompute,
        2 => PriorState::Untold,
        3 => PriorState::Unjudged,
        _ => return Err(RowFault::Value("link")),
    };
    let parked = Parked {
        head,
        before,
        origin: row.maybe(RowReader::host)?,
        bytes: row.small()?,
    };
    let upstream = row.upstream()?;
    let epoch = row.maybe(|row| Ok(Epoch(row.number()?)))?;
    Ok((parked, upstream, epoch))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::{cid, head, host, upstream};
    use super::*;

    fn any_parked() -> impl Strategy<Value = Parked> {
        let before = prop_oneof![
            cid().prop_map(PriorState::Root),
            Just(PriorState::Recompute),
            Just(PriorState::Untold),
            Just(PriorState::Unjudged),
        ];
        (head(), before, prop::option::of(host()), any::<u32>()).prop_map(
            |(head, before, origin, bytes)| Parked {
                head,
                before,
                origin,
                bytes,
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip(
            parked in any_parked(),
            upstream in upstream(),
            epoch in prop::option::of(any::<u64>().prop_map(Epoch)),
            frame in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let row = ParkedFrame { parked, upstream, epoch, frame };
            let bytes = encode(&row);
            prop_assert_eq!(decode_parked(&bytes), Ok(parked));
            prop_assert_eq!(decode(&bytes), Ok(row));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
            let _ = (decode(&bytes), decode_parked(&bytes));
        }
    }
}
