//! Rows of `meta` for purges, kept for ever: what a purge deleted, when the account was
//! called deleted, and how far the traces on disk are removed.
//!
//! A purge deletes the records at once. Their traces (the frames that brought them, the
//! paths in older rows of the log, dead letters, the engine's own files) are removed
//! afterwards, step by step; this row records the progress, so that the removal continues
//! after a crash.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{HostId, RepoId, Time};

use crate::codec::{RowFault, RowReader, RowWriter, read_row};

const VERSION: u8 = 1;

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
    pub records: u64,
    /// The bytes of the records and of everything else that was deleted with them.
    pub bytes: u64,
    /// The number of superseded records, claims and parked frames that were deleted.
    pub others: u64,
    /// Every row of the log below this number has been processed.
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
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<PurgeRow, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        Ok(PurgeRow {
            repo: row.repo()?,
            did: Did::parse(row.text()?).map_err(|_| RowFault::Value("DID"))?,
            host: row.maybe(RowReader::host)?,
            deleted_at: row.maybe(RowReader::time)?,
            purged_at: row.time()?,
            records: row.number()?,
            bytes: row.number()?,
            others: row.number()?,
            upto: row.number()?,
            frames_redacted: row.number()?,
            rows_redacted: row.number()?,
            letters_redacted: row.number()?,
            finished_at: row.maybe(RowReader::time)?,
            compacted: row.flag()?,
        })
    })
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
        ) {
            let [repo, records, bytes, others, upto, frames, rows, letters] = numbers;
            let row = PurgeRow {
                repo: RepoId(repo),
                did: Did::parse("did:plc:abcdefghijklmnopqrstuvwx").unwrap(),
                host,
                deleted_at,
                purged_at,
                records,
                bytes,
                others,
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
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
            let _ = read_key(&bytes);
        }
    }
}
