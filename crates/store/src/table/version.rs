//! `version`: repository, path, rev → the bytes of a record that a later operation
//! replaced or deleted, until every consumer of the log has passed that operation.
//!
//! The rev and the CID in the key are those of the superseded record. The log names them
//! in the row that wrote the record and in the row that superseded it.

use gapless_atp::cid::Cid;

use crate::codec::{RowFault, RowWriter, read_row};

/// Version 2 added the log number of the operation that put the record there.
const VERSION: u8 = 2;

/// A decoded row that borrows the superseded record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRow<'a> {
    pub cid: Cid,
    /// The log number of the operation that had put the record there; 0 in a row of an earlier
    /// format.
    pub seq: u64,
    /// The log number of the operation that superseded the record.
    pub superseded_by: u64,
    /// The record verbatim; `None` if only the key was kept.
    pub bytes: Option<&'a [u8]>,
}

pub fn encode(row: &VersionRow<'_>) -> Vec<u8> {
    let mut writer = RowWriter::default();
    write(&mut writer, row);
    writer.finish()
}

pub fn write(writer: &mut RowWriter, row: &VersionRow<'_>) {
    writer.restart(VERSION);
    writer.cid(&row.cid).number(row.superseded_by);
    writer.number(row.seq);
    writer
        .flag(row.bytes.is_some())
        .raw(row.bytes.unwrap_or_default());
}

pub fn decode(bytes: &[u8]) -> Result<VersionRow<'_>, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        let (cid, superseded_by) = (row.cid()?, row.number()?);
        Ok(VersionRow {
            cid,
            seq: if version >= 2 { row.number()? } else { 0 },
            superseded_by,
            bytes: if row.flag()? {
                Some(row.remainder())
            } else {
                None
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::cid;
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            cid in cid(),
            seq in any::<u64>(),
            superseded_by in any::<u64>(),
            bytes in prop::option::of(prop::collection::vec(any::<u8>(), 0..400)),
        ) {
            let row = VersionRow { cid, seq, superseded_by, bytes: bytes.as_deref() };
            let encoded = encode(&row);
            prop_assert_eq!(decode(&encoded), Ok(row));
        }

        #[test]
        fn rows_of_earlier_formats_have_no_number(cid in cid(), superseded_by in any::<u64>()) {
            let mut old = RowWriter::new(1, 0);
            old.cid(&cid).number(superseded_by).flag(true).raw(b"bytes");
            let row = VersionRow { cid, seq: 0, superseded_by, bytes: Some(b"bytes") };
            prop_assert_eq!(decode(old.as_bytes()), Ok(row));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
        }
    }
}
