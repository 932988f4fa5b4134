//! Rows of `meta`: every purge there was, for ever. What went, by whose word, and
//! how far what is left of it on the disk has been followed up.
//!
//! A purge takes the records at once. What they leave behind (the frames that
//! brought them, the paths in older rows of the log, dead letters, the engine's own
//! files) is taken afterwards, bit by bit; this row says how far that is, so that it
//! goes on after a crash.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{HostId, RepoId, Time};

use crate::codec::{RowFault, RowReader, RowWriter, read_row};

const VERSION: u8 = 1;

/// What the key of a purge begins with; the first log number that it took follows.
pub const PREFIX: &[u8] = b"purge/";

/// The key of the bytes that push others out of the engine's journal.
pub const FILLER_KEY: &[u8] = b"filler";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRow {
    pub repo: RepoId,
    pub did: Did,
    /// Where it lived.
    pub host: Option<HostId>,
    /// When its host, or the directory, was first heard to call it deleted.
    pub deleted_at: Option<Time>,
    pub purged_at: Time,
    pub records: u64,
    /// Bytes of them and of everything else that went with them.
    pub bytes: u64,
    /// Superseded records, claims and parked frames.
    pub others: u64,
    /// Every row of the log below this number was looked at.
    pub upto: u64,
    pub frames_redacted: u64,
    pub rows_redacted: u64,
    pub letters_redacted: u64,
    /// When nothing of it was left to be found.
    pub finished_at: Option<Time>,
    /// By then the engine's files were written anew; else their own compaction does
    /// that, in its time.
    pub compacted: bool,
}

pub fn key(first_seq: u64) -> Vec<u8> {
    [PREFIX, &first_seq.to_be_bytes()].concat()
}

pub fn read_key(key: &[u8]) -> Result<u64, RowFault> {
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
