//! Rows of `meta` for purges, kept for ever: what a purge deleted, when the account was
//! called deleted, and how far the traces on disk are removed.
//!
//! A purge deletes the records in parts, and then removes their traces (the frames that brought
//! them, the paths in rows of the log, dead letters, the engine's own files), step by step. This
//! row records the progress, so that the purge continues after a crash.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{HostId, Lived, RepoId, Time};

use crate::codec::{RowFault, RowReader, RowWriter, read_row};

/// Version 2 added what is still to be deleted, and the rows of the purge itself.
const VERSION: u8 = 2;

/// The prefix of a purge's key; the first log number of the purge follows.
pub const PREFIX: &[u8] = b"purge/";

/// The key of the filler bytes that push deleted ones out of the engine's journal.
pub(crate) const FILLER_KEY: &[u8] = b"filler";

/// A purge, and how far its traces are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRow {
    pub repo: RepoId,
    pub did: Did,
    /// The host of the repository when it was purged.
    pub host: Option<HostId>,
    /// When its host, or the directory, first called the account deleted.
    pub deleted_at: Option<Time>,
    pub purged_at: Time,
    /// The time lived through when the first part was deleted; `None` before, and in a row of an
    /// earlier format.
    pub purged_lived: Option<Lived>,
    pub records: u64,
    /// The bytes of the records and of everything else that was deleted with them.
    pub bytes: u64,
    /// The number of superseded records, claims and parked frames that were deleted.
    pub others: u64,
    /// What is still to be deleted; `None` once everything is, and in a row of an earlier format,
    /// which deleted everything at once.
    pub deleting: Option<Deleting>,
    /// The number after the last row that lists what the purge deleted; 0 if there is none.
    pub rows_end: u64,
    /// Every row of the log below this number has been processed; from the purge's number on, these
    /// are its own rows.
    pub upto: u64,
    pub frames_redacted: u64,
    pub rows_redacted: u64,
    pub letters_redacted: u64,
    /// When the last trace was removed.
    pub finished_at: Option<Time>,
    /// Whether the engine's files were rewritten by then; if not, the engine's own
    /// compaction removes the bytes later.
    pub compacted: bool,
}

/// How far a purge has deleted what the store held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleting {
    pub what: DeletedTable,
    /// Everything up to this key of the table is deleted.
    pub upto: Vec<u8>,
}

/// The tables that a purge deletes in parts, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedTable {
    Records,
    Versions,
}

impl PurgeRow {
    /// Whether every row of the log has been processed. `number`: the purge's first log number.
    pub fn is_redacted(&self, number: u64) -> bool {
        self.deleting.is_none() && self.upto >= number.max(self.rows_end)
    }
}

pub fn key(first_seq: u64) -> Vec<u8> {
    [PREFIX, &first_seq.to_be_bytes()].concat()
}

pub(crate) fn read_key(key: &[u8]) -> Result<u64, RowFault> {
    let number = key.strip_prefix(PREFIX);
    let number = number.and_then(|number| number.try_into().ok());
    number.map(u64::from_be_bytes).ok_or(RowFault::Value("key"))
}

pub fn encode(purge: &PurgeRow) -> Vec<u8> {
    let mut row = RowWriter::new(VERSION, 128);
    row.repo(purge.repo).text(purge.did.as_str());
    row.maybe(purge.host, |row, host| {
        row.host(host);
    });
    row.maybe(purge.deleted_at, |row, at| {
        row.time(at);
    });
    row.time(purge.purged_at);
    for number in [
        purge.records,
        purge.bytes,
        purge.others,
        purge.upto,
        purge.frames_redacted,
        purge.rows_redacted,
        purge.letters_redacted,
    ] {
        row.number(number);
    }
    row.maybe(purge.finished_at, |row, at| {
        row.time(at);
    });
    row.flag(purge.compacted);
    row.maybe(purge.deleting.as_ref(), |row, deleting| {
        row.flag(deleting.what == DeletedTable::Versions);
        row.bytes(&deleting.upto);
    });
    row.number(purge.rows_end);
    row.maybe(purge.purged_lived, |row, lived| {
        row.number(lived.0);
    });
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<PurgeRow, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        let mut purge = PurgeRow {
            repo: row.repo()?,
            did: Did::parse(row.text()?).map_err(|_| RowFault::Value("DID"))?,
            host: row.maybe(RowReader::host)?,
            deleted_at: row.maybe(RowReader::time)?,
            purged_lived: None,
            purged_at: row.time()?,
            records: row.number()?,
            bytes: row.number()?,
            others: row.number()?,
            deleting: None,
            rows_end: 0,
            upto: row.number()?,
            frames_redacted: row.number()?,
            rows_redacted: row.number()?,
            letters_redacted: row.number()?,
            finished_at: row.maybe(RowReader::time)?,
            compacted: row.flag()?,
        };
        if version >= 2 {
            purge.deleting = row.maybe(read_deleting)?;
            purge.rows_end = row.number()?;
            purge.purged_lived = row.maybe(|row| Ok(Lived(row.number()?)))?;
        }
        Ok(purge)
    })
}

fn read_deleting(row: &mut RowReader<'_>) -> Result<Deleting, RowFault> {
    let what = if row.flag()? {
        DeletedTable::Versions
    } else {
        DeletedTable::Records
    };
    let upto = row.bytes()?.to_vec();
    Ok(Deleting { what, upto })
}

#[cfg(test)]
mod tests {
    use proptest::option::of;
    use proptest::prelude::*;

    use super::super::arbitrary::time;
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            numbers in prop::array::uniform8(any::<u64>()),
            host in of(any::<u32>().prop_map(HostId)),
            deleted_at in of(time()),
            purged_at in time(),
            finished_at in of(time()),
            compacted in any::<bool>(),
            deleting in of((any::<bool>(), prop::collection::vec(any::<u8>(), 0..20))),
            (rows_end, purged_lived) in (any::<u64>(), of(any::<u64>())),
        ) {
            let [repo, records, bytes, others, upto, frames, rows, letters] = numbers;
            let row = PurgeRow {
                repo: RepoId(repo),
                did: Did::parse("did:plc:abcdefghijklmnopqrstuvwx").unwrap(),
                host,
                deleted_at,
                purged_lived: purged_lived.map(Lived),
                purged_at,
                records,
                bytes,
                others,
                deleting: deleting.map(|(versions, upto)| Deleting {
                    what: if versions { DeletedTable::Versions } else { DeletedTable::Records },
                    upto,
                }),
                rows_end,
                upto,
                frames_redacted: frames,
                rows_redacted: rows,
                letters_redacted: letters,
                finished_at,
                compacted,
            };
            prop_assert_eq!(decode(&encode(&row)), Ok(row));
            prop_assert_eq!(read_key(&key(repo)), Ok(repo));
        }

        #[test]
        fn rows_of_earlier_formats_have_deleted_everything(upto in any::<u64>(), purged_at in time()) {
            let mut old = RowWriter::new(1, 0);
            old.repo(RepoId(7)).text("did:plc:abcdefghijklmnopqrstuvwx").flag(false).flag(false);
            old.time(purged_at).number(1).number(2).number(3).number(upto);
            old.number(4).number(5).number(6).flag(false).flag(false);
            let row = decode(old.as_bytes()).unwrap();
            prop_assert_eq!((row.upto, row.deleting, row.rows_end), (upto, None, 0));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
            let _ = read_key(&bytes);
        }
    }
}
