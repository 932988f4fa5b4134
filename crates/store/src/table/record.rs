//! `record`: repository, path → rev, CID and bytes of a record under the head's root.
//! The table has other records only while a snapshot is being written.
//!
//! A record that the filter excludes is stored with its CID and without its bytes,
//! because the root needs every key.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;

use crate::codec::{RowFault, RowWriter, read_row};
use crate::engine::Slice;

const VERSION: u8 = 1;
/// Version, rev, CID, and whether bytes follow.
const FIXED_BYTES: usize = 1 + 8 + 33 + 1;

/// A decoded row that borrows the record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRow<'a> {
    /// The rev of the commit or snapshot that brought the record.
    pub rev: Rev,
    pub cid: Cid,
    /// The record verbatim; `None` if only the key is kept.
    pub bytes: Option<&'a [u8]>,
}

pub fn encode(row: &RecordRow<'_>) -> Vec<u8> {
    let bytes = row.bytes.unwrap_or_default();
    let mut writer = RowWriter::new(VERSION, FIXED_BYTES + bytes.len());
    writer.rev(row.rev).cid(&row.cid);
    writer.flag(row.bytes.is_some()).raw(bytes);
    writer.finish()
}

pub fn decode(bytes: &[u8]) -> Result<RecordRow<'_>, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        Ok(RecordRow {
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
    pub rev: Rev,
    pub cid: Cid,
    has_bytes: bool,
}

impl Record {
    pub fn new(key: Slice, row: Slice) -> Result<Record, RowFault> {
        super::key::read_path(&key)?;
        let RecordRow { rev, cid, bytes } = decode(&row)?;
        let has_bytes = bytes.is_some();
        Ok(Record {
            key,
            row,
            rev,
            cid,
            has_bytes,
        })
    }

    /// The path of the record, normally `collection/rkey`.
    pub fn path(&self) -> &[u8] {
        self.key.get(8..).unwrap_or_default()
    }

    /// The record verbatim, unless only its key is kept.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.has_bytes {
            self.row.get(FIXED_BYTES..)
        } else {
            None
        }
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
            path in path(),
            rev in rev(),
            cid in cid(),
            bytes in prop::option::of(prop::collection::vec(any::<u8>(), 0..400)),
        ) {
            let row = RecordRow { rev, cid, bytes: bytes.as_deref() };
            let encoded = encode(&row);
            prop_assert_eq!(decode(&encoded), Ok(row));
            let record = Record::new(key::path(RepoId(id), &path).into(), encoded.into()).unwrap();
            prop_assert_eq!(record.path(), &path[..]);
            prop_assert_eq!(record.bytes(), bytes.as_deref());
            prop_assert_eq!((record.rev, record.cid), (rev, cid));
        }

        #[test]
        fn any_bytes(key in prop::collection::vec(any::<u8>(), 0..20), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Record::new(key.into(), bytes.into());
        }
    }
}
