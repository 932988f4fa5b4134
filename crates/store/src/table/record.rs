//! `record`: repository, path → log number, rev, CID and bytes of a record under the head's root.
//! The table has other records only while a snapshot is being written.
//!
//! A record that the filter excludes is stored with its CID and without its bytes,
//! because the root needs every key.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;

use crate::codec::{RowFault, RowWriter, read_row};
use crate::engine::Slice;

/// Version 2 added the log number.
const VERSION: u8 = 2;
/// Version, log number, rev, CID, and whether bytes follow.
const FIXED_BYTES: usize = SEQ_AT + SEQ_BYTES + 8 + 33 + 1;
/// The place of the log number, which has a fixed size: rows are encoded before the numbers of
/// their operations are known.
const SEQ_AT: usize = 1;
const SEQ_BYTES: usize = 8;

/// A decoded row that borrows the record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRow<'a> {
    /// The log number of the operation that put the record here; 0 in a row of an earlier format.
    pub seq: u64,
    /// The rev of the commit or snapshot that brought the record.
    pub rev: Rev,
    pub cid: Cid,
    /// The record verbatim; `None` if only the key is kept.
    pub bytes: Option<&'a [u8]>,
}

pub fn encode(row: &RecordRow<'_>) -> Vec<u8> {
    let bytes = row.bytes.unwrap_or_default();
    let mut writer = RowWriter::new(VERSION, FIXED_BYTES + bytes.len());
    writer.wide(row.seq).rev(row.rev).cid(&row.cid);
    writer.flag(row.bytes.is_some()).raw(bytes);
    writer.finish()
}

/// The size of the record in a sound row; 0 if only its key is kept.
pub(crate) fn size(row: &[u8]) -> u32 {
    let fixed = match row {
        [1, ..] => FIXED_BYTES - SEQ_BYTES,
        _ => FIXED_BYTES,
    };
    row.len().saturating_sub(fixed) as u32
}

/// Sets the log number of an encoded row.
pub(crate) fn set_seq(row: &mut [u8], seq: u64) {
    if let Some(place) = row.get_mut(SEQ_AT..SEQ_AT + SEQ_BYTES) {
        place.copy_from_slice(&seq.to_be_bytes());
    }
}

pub fn decode(bytes: &[u8]) -> Result<RecordRow<'_>, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        Ok(RecordRow {
            seq: if version >= 2 { row.wide()? } else { 0 },
            rev: row.rev()?,
            cid: row.cid()?,
            bytes: if row.flag()? {
                Some(row.remainder())
            } else {
                None
            },
        })
    })
}

/// A record read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    key: Slice,
    row: Slice,
    /// The log number of the operation that put the record here; 0 in a row of an earlier format.
    pub seq: u64,
    pub rev: Rev,
    pub cid: Cid,
    /// Where the bytes begin; `None` if only the key is kept.
    bytes_at: Option<usize>,
}

impl Record {
    pub fn new(key: Slice, row: Slice) -> Result<Record, RowFault> {
        super::key::read_path(&key)?;
        let RecordRow {
            seq,
            rev,
            cid,
            bytes,
        } = decode(&row)?;
        let bytes_at = bytes.map(|bytes| row.len() - bytes.len());
        Ok(Record {
            key,
            row,
            seq,
            rev,
            cid,
            bytes_at,
        })
    }

    /// The path of the record, normally `collection/rkey`.
    pub fn path(&self) -> &[u8] {
        self.key.get(8..).unwrap_or_default()
    }

    /// The record verbatim, unless only its key is kept.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.row.get(self.bytes_at?..)
    }
}

#[cfg(test)]
mod tests {
    use gapless_core::ledger::RepoId;
    use proptest::prelude::*;

    use super::super::arbitrary::{cid, path, rev};
    use super::super::key;
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            id in any::<u64>(),
            seq in any::<u64>(),
            path in path(),
            rev in rev(),
            cid in cid(),
            bytes in prop::option::of(prop::collection::vec(any::<u8>(), 0..400)),
        ) {
            let row = RecordRow { seq, rev, cid, bytes: bytes.as_deref() };
            let mut encoded = encode(&RecordRow { seq: 0, ..row });
            set_seq(&mut encoded, seq);
            prop_assert_eq!(&encoded, &encode(&row));
            prop_assert_eq!(size(&encoded) as usize, bytes.as_ref().map_or(0, Vec::len));
            prop_assert_eq!(decode(&encoded), Ok(row));
            let record = Record::new(key::path(RepoId(id), &path).into(), encoded.into()).unwrap();
            prop_assert_eq!(record.path(), &path[..]);
            prop_assert_eq!(record.bytes(), bytes.as_deref());
            prop_assert_eq!((record.seq, record.rev, record.cid), (seq, rev, cid));
        }

        #[test]
        fn rows_of_earlier_formats_have_no_number(rev in rev(), cid in cid()) {
            let mut old = RowWriter::new(1, 0);
            old.rev(rev).cid(&cid).flag(true).raw(b"bytes");
            let row = RecordRow { seq: 0, rev, cid, bytes: Some(b"bytes") };
            prop_assert_eq!(decode(old.as_bytes()), Ok(row));
            prop_assert_eq!(size(old.as_bytes()), 5);
            let key = key::path(RepoId(1), b"a/b").into();
            let record = Record::new(key, old.finish().into()).unwrap();
            prop_assert_eq!(record.bytes(), row.bytes);
        }

        #[test]
        fn any_bytes(key in prop::collection::vec(any::<u8>(), 0..20), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Record::new(key.into(), bytes.into());
        }
    }
}
