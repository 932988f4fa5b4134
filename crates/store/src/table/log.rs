//! `log`: first number → one commit, one chunk of a snapshot, or one event of an
//! account. All consumers read this table.
//!
//! Every operation has a number of its own: the row's first number plus its index. A
//! row takes as many numbers as it has operations, and one if it has none; a `lost`
//! row takes the whole range that a damaged store lost, a `redacted` or `purged` row the
//! numbers that it had before, and a `trimmed` row the numbers that the log began with. So
//! the numbers are dense: a row begins where the previous row ended, from 1 on, and no
//! number is ever used twice.
//!
//! Every operation has a stamp too: the row's stamp plus its index. Stamps are times that
//! strictly ascend, whatever the clock does.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Account, KeyBytes, RepoId, Time};
pub use gapless_core::repo_tx::step::{IdentityParts, SourceEvent};

use super::repo::{account_code, account_of, read_key, write_key};
use crate::codec::{RowFault, RowReader, RowWriter, read_row};

/// Version 2 added the lineage (in place of a flag for a new one), the stamp and the size of each
/// operation.
const VERSION: u8 = 2;

/// The most operations in one row: snapshots are written in chunks.
pub const ROW_OPS: usize = 1_000;

/// The first number of the log.
pub const FIRST_SEQ: u64 = 1;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// A commit that came over a stream and led from the held root to its own.
    Live,
    /// A snapshot of a repository of which nothing was held.
    Backfill,
    /// A snapshot that differed from what was held, or an older state adopted.
    Repair,
    /// A claim of an unproven source, which reported this rev. A later row that reaches a signed
    /// state withdraws claims up to its own rev. `None` in a row of an earlier format.
    Claimed(Option<Rev>),
    /// The state of an account changed. In rows of formats before 4, a purge is such a row too, and
    /// the operations are its deletions.
    Account(Account),
    /// The host, the signing key or the handle of an account changed.
    Identity,
    /// This many numbers whose content a damaged store lost, and which nothing can tell any more: a
    /// consumer compares everything that it has with the store.
    Lost(u64),
    /// This many numbers whose content a later purge deleted: a consumer that reads the row
    /// deletes everything it has of the repository with a lower number.
    Redacted(u64),
    /// This many numbers of a purge: the repository is emptied, and the operations are its
    /// deletions, until they are redacted too. A consumer deletes everything that it has of the
    /// repository with a lower number.
    Purged(u64),
    /// The rows before this one do not lead to the state that the store holds of the repository:
    /// a consumer compares what it has of the repository with the store.
    Restated,
    /// All claims of the repository were withdrawn.
    Unclaimed,
    /// This many numbers that were trimmed from the beginning of the log.
    Trimmed(u64),
}

/// The identity of an account as of a row of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the host.
    pub host: Option<String>,
    /// The signing key.
    pub key: Option<KeyBytes>,
    /// The handle that the DID document claims, not verified.
    pub handle: Option<String>,
    /// Which of these the row changed.
    pub changed: IdentityParts,
}

/// The record that an operation replaced or deleted: its key in the table `version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousRecord {
    pub cid: Cid,
    pub rev: Rev,
}

/// One operation. A create has no `previous`, an update has one, and a delete has no CID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOp {
    pub path: Vec<u8>,
    pub cid: Option<Cid>,
    pub previous: Option<PreviousRecord>,
    /// The size of the record that the operation put; 0 if only its key is kept. `None` for a
    /// delete, and in rows of formats before 4.
    pub bytes: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    pub kind: LogKind,
    pub at: Time,
    /// The stamp of the first operation: `at`, or more if an earlier operation has that stamp. Zero in
    /// rows of formats before 4, also once they are rewritten.
    pub stamp: Time,
    /// `None` only in a `lost` and in a `trimmed` row.
    pub repo: Option<RepoId>,
    /// Rev and CID of the signed commit whose state this row leads to, or, of a
    /// chunk that is not the last, will have led to.
    pub commit: Option<(Rev, Cid)>,
    /// Whether this row reaches the state: it is the last chunk, or the only row.
    pub last: bool,
    /// The lineage of the repository's revs: revs of different lineages cannot be compared. 0 in a
    /// row of an earlier format.
    pub lineage: u32,
    pub source: Option<SourceEvent>,
    /// The new values, in an `identity` row; `None` in rows of formats before 4, and once the
    /// repository was purged.
    pub identity: Option<Box<Identity>>,
    pub ops: Vec<LogOp>,
}

impl LogRow {
    /// A row without a repository, a commit and operations.
    pub fn new(kind: LogKind, at: Time) -> LogRow {
        LogRow {
            kind,
            at,
            stamp: at,
            repo: None,
            commit: None,
            last: true,
            lineage: 0,
            source: None,
            identity: None,
            ops: Vec::new(),
        }
    }

    /// How many numbers the row takes.
    pub fn numbers(&self) -> u64 {
        self.kind.count().unwrap_or(self.ops.len() as u64).max(1)
    }

    /// The stamp of the last operation; zero if the row has no stamp.
    pub fn last_stamp(&self) -> Time {
        match self.stamp {
            Time(0) => Time(0),
            Time(stamp) => {
                let after_first = self.ops.len().saturating_sub(1) as u64;
                Time(stamp.saturating_add(after_first))
            }
        }
    }
}

impl LogKind {
    /// How many numbers a row of this kind takes, if its operations do not tell.
    fn count(self) -> Option<u64> {
        match self {
            LogKind::Lost(count)
            | LogKind::Redacted(count)
            | LogKind::Purged(count)
            | LogKind::Trimmed(count) => Some(count),
            _ => None,
        }
    }
}

/// A row without its operations: what it is about, and how many numbers it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRowSummary {
    pub kind: LogKind,
    pub at: Time,
    pub stamp: Time,
    pub repo: Option<RepoId>,
    pub commit: Option<(Rev, Cid)>,
    pub last: bool,
    pub lineage: u32,
    pub numbers: u64,
}

impl LogRowSummary {
    /// A time that ascends from row to row: the stamp, or in rows of formats before 4 the time.
    pub fn time_in_order(&self) -> Time {
        match self.stamp {
            Time(0) => self.at,
            stamp => stamp,
        }
    }
}

/// Decodes a row up to its operations, which are counted and not decoded: this makes scans over
/// many rows fast.
pub(crate) fn decode_summary(bytes: &[u8]) -> Result<LogRowSummary, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        let (log, ops) = read_beginning(row, version)?;
        row.remainder();
        Ok(LogRowSummary {
            numbers: log.kind.count().unwrap_or(ops).max(1),
            kind: log.kind,
            at: log.at,
            stamp: log.stamp,
            repo: log.repo,
            commit: log.commit,
            last: log.last,
            lineage: log.lineage,
        })
    })
}

pub fn encode(row: &LogRow) -> Vec<u8> {
    let mut writer = RowWriter::default();
    write(&mut writer, row);
    writer.finish()
}

pub fn write(writer: &mut RowWriter, row: &LogRow) {
    writer.restart(VERSION);
    write_kind(writer, row.kind);
    if row.kind == LogKind::Identity {
        writer.maybe(row.identity.as_deref(), write_identity);
    }
    writer.flag(row.last).number(row.lineage.into());
    writer.time(row.at).time(row.stamp);
    writer.maybe(row.repo, |writer, repo| {
        writer.repo(repo);
    });
    writer.maybe(row.commit.as_ref(), |writer, (rev, cid)| {
        writer.rev(*rev).cid(cid);
    });
    writer.maybe(row.source, |writer, source| {
        writer.upstream(source.upstream).number(source.seq);
    });
    writer.number(row.ops.len() as u64);
    for op in &row.ops {
        let flags = [
            (op.cid.is_some(), HAS_CID),
            (op.previous.is_some(), HAS_PREVIOUS),
            (op.bytes.is_some(), HAS_SIZE),
        ];
        let flags = flags.iter().filter(|(has, _)| *has);
        writer.byte(flags.fold(0, |all, (_, flag)| all | flag));
        writer.bytes(&op.path);
        if let Some(cid) = &op.cid {
            writer.cid(cid);
        }
        if let Some(previous) = &op.previous {
            writer.cid(&previous.cid).rev(previous.rev);
        }
        if let Some(bytes) = op.bytes {
            writer.number(bytes.into());
        }
    }
}

/// The parts of an operation that its flags announce.
const HAS_CID: u8 = 1;
const HAS_PREVIOUS: u8 = 2;
/// Since version 2.
const HAS_SIZE: u8 = 4;

pub fn decode(bytes: &[u8]) -> Result<LogRow, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        let (mut log, count) = read_beginning(row, version)?;
        log.ops.reserve_exact(count as usize);
        for _ in 0..count {
            log.ops.push(read_op(row, version)?);
        }
        Ok(log)
    })
}

/// Reads everything before the operations, and the number of operations.
fn read_beginning(row: &mut RowReader<'_>, version: u8) -> Result<(LogRow, u64), RowFault> {
    let kind = read_kind(row, version)?;
    let identity = if kind == LogKind::Identity && version >= 2 {
        row.maybe(read_identity)?
    } else {
        None
    };
    let last = row.flag()?;
    let lineage = if version >= 2 {
        row.small()?
    } else {
        // Whether a new lineage began, which nothing reads any more.
        row.flag()?;
        0
    };
    let at = row.time()?;
    let stamp = if version >= 2 { row.time()? } else { Time(0) };
    let log = LogRow {
        kind,
        last,
        lineage,
        at,
        stamp,
        repo: row.maybe(RowReader::repo)?,
        commit: row.maybe(|row| Ok((row.rev()?, row.cid()?)))?,
        source: row.maybe(|row| {
            Ok(SourceEvent {
                upstream: row.upstream()?,
                seq: row.number()?,
            })
        })?,
        identity,
        ops: Vec::new(),
    };
    let count = row.number()?;
    // An operation has two bytes at least: a false count allocates nothing.
    if count > row.left() as u64 / 2 {
        return Err(RowFault::Short);
    }
    Ok((log, count))
}

fn read_op(row: &mut RowReader<'_>, version: u8) -> Result<LogOp, RowFault> {
    let flags = row.byte()?;
    let all = HAS_CID | HAS_PREVIOUS | if version >= 2 { HAS_SIZE } else { 0 };
    if flags > all {
        return Err(RowFault::Value("operation"));
    }
    let path = row.bytes()?.to_vec();
    let cid = match flags & HAS_CID {
        0 => None,
        _ => Some(row.cid()?),
    };
    let previous = match flags & HAS_PREVIOUS {
        0 => None,
        _ => Some(PreviousRecord {
            cid: row.cid()?,
            rev: row.rev()?,
        }),
    };
    let bytes = match flags & HAS_SIZE {
        0 => None,
        _ => Some(row.small()?),
    };
    Ok(LogOp {
        path,
        cid,
        previous,
        bytes,
    })
}

fn write_kind(writer: &mut RowWriter, kind: LogKind) {
    match kind {
        LogKind::Live => writer.byte(0),
        LogKind::Backfill => writer.byte(1),
        LogKind::Repair => writer.byte(2),
        LogKind::Claimed(rev) => {
            writer.byte(3);
            writer.maybe(rev, |writer, rev| {
                writer.rev(rev);
            });
            writer
        }
        LogKind::Account(account) => writer.byte(4).byte(account_code(account)),
        LogKind::Identity => writer.byte(5),
        LogKind::Lost(count) => writer.byte(6).number(count),
        LogKind::Redacted(count) => writer.byte(7).number(count),
        LogKind::Purged(count) => writer.byte(8).number(count),
        LogKind::Restated => writer.byte(9),
        LogKind::Unclaimed => writer.byte(10),
        LogKind::Trimmed(count) => writer.byte(11).number(count),
    };
}

fn write_identity(writer: &mut RowWriter, identity: &Identity) {
    let Identity {
        host,
        key,
        handle,
        changed,
    } = identity;
    for text in [host, handle] {
        writer.maybe(text.as_deref(), |writer, text| {
            writer.text(text);
        });
    }
    writer.maybe(*key, write_key);
    for changed in [changed.host, changed.key, changed.handle] {
        writer.flag(changed);
    }
}

fn read_identity(row: &mut RowReader<'_>) -> Result<Box<Identity>, RowFault> {
    let text = |row: &mut RowReader<'_>| Ok(row.text()?.to_owned());
    Ok(Box::new(Identity {
        host: row.maybe(text)?,
        handle: row.maybe(text)?,
        key: row.maybe(read_key)?,
        changed: IdentityParts {
            host: row.flag()?,
            key: row.flag()?,
            handle: row.flag()?,
        },
    }))
}

fn read_kind(row: &mut RowReader<'_>, version: u8) -> Result<LogKind, RowFault> {
    Ok(match row.byte()? {
        0 => LogKind::Live,
        1 => LogKind::Backfill,
        2 => LogKind::Repair,
        3 if version >= 2 => LogKind::Claimed(row.maybe(RowReader::rev)?),
        3 => LogKind::Claimed(None),
        4 => LogKind::Account(account_of(row.byte()?)?),
        5 => LogKind::Identity,
        6 => LogKind::Lost(row.number()?),
        7 => LogKind::Redacted(row.number()?),
        8 if version >= 2 => LogKind::Purged(row.number()?),
        9 if version >= 2 => LogKind::Restated,
        10 if version >= 2 => LogKind::Unclaimed,
        11 if version >= 2 => LogKind::Trimmed(row.number()?),
        _ => return Err(RowFault::Value("kind")),
    })
}

#[cfg(test)]
mod tests {
    use proptest::option::of;
    use proptest::prelude::*;

    use super::super::arbitrary::{account, cid, path, rev, time, upstream};
    use super::*;

    fn any_op() -> impl Strategy<Value = LogOp> {
        let put = (of(cid()), of(any::<u32>()));
        (path(), put, of((cid(), rev()))).prop_map(|(path, (cid, bytes), previous)| LogOp {
            path,
            cid,
            previous: previous.map(|(cid, rev)| PreviousRecord { cid, rev }),
            bytes,
        })
    }

    fn any_identity() -> impl Strategy<Value = Box<Identity>> {
        let text = || of("[a-z]{1,9}\\.[a-z]{2,5}");
        let key = of((any::<u8>(), any::<[u8; 33]>()));
        (text(), key, text(), any::<[bool; 3]>()).prop_map(|(host, key, handle, changed)| {
            let [is_host, is_key, is_handle] = changed;
            Box::new(Identity {
                host,
                key: key.map(|(curve, point)| KeyBytes { curve, point }),
                handle,
                changed: IdentityParts {
                    host: is_host,
                    key: is_key,
                    handle: is_handle,
                },
            })
        })
    }

    fn any_row() -> impl Strategy<Value = LogRow> {
        let kind = prop_oneof![
            Just(LogKind::Live),
            Just(LogKind::Backfill),
            Just(LogKind::Repair),
            of(rev()).prop_map(LogKind::Claimed),
            account().prop_map(LogKind::Account),
            Just(LogKind::Identity),
            any::<u64>().prop_map(LogKind::Lost),
            any::<u64>().prop_map(LogKind::Redacted),
            any::<u64>().prop_map(LogKind::Purged),
            Just(LogKind::Restated),
            Just(LogKind::Unclaimed),
            any::<u64>().prop_map(LogKind::Trimmed),
        ];
        (
            (kind, of(any_identity()), of(any::<u64>().prop_map(RepoId))),
            (time(), time(), of((rev(), cid()))),
            (any::<bool>(), any::<u32>()),
            of((upstream(), any::<u64>())),
            prop::collection::vec(any_op(), 0..20),
        )
            .prop_map(
                |((kind, identity, repo), (at, stamp, commit), (last, lineage), source, ops)| {
                    let has_identity = kind == LogKind::Identity;
                    LogRow {
                        kind,
                        at,
                        stamp,
                        repo,
                        commit,
                        last,
                        lineage,
                        source: source.map(|(upstream, seq)| SourceEvent { upstream, seq }),
                        identity: identity.filter(|_| has_identity),
                        ops,
                    }
                },
            )
    }

    /// A row as formats 1 to 3 wrote it.
    fn encode_version_1(row: &LogRow) -> Vec<u8> {
        let mut writer = RowWriter::new(1, 0);
        match row.kind {
            LogKind::Claimed(_) => {
                writer.byte(3);
            }
            kind => write_kind(&mut writer, kind),
        }
        writer.flag(row.last).flag(row.lineage > 0).time(row.at);
        writer.maybe(row.repo, |writer, repo| {
            writer.repo(repo);
        });
        writer.maybe(row.commit.as_ref(), |writer, (rev, cid)| {
            writer.rev(*rev).cid(cid);
        });
        writer.maybe(row.source, |writer, source| {
            writer.upstream(source.upstream).number(source.seq);
        });
        writer.number(row.ops.len() as u64);
        for op in &row.ops {
            writer.byte(u8::from(op.cid.is_some()) | u8::from(op.previous.is_some()) << 1);
            writer.bytes(&op.path);
            op.cid.iter().for_each(|cid| {
                writer.cid(cid);
            });
            op.previous.iter().for_each(|previous| {
                writer.cid(&previous.cid).rev(previous.rev);
            });
        }
        writer.finish()
    }

    proptest! {
        #[test]
        fn round_trip(row in any_row()) {
            prop_assert_eq!(decode(&encode(&row)), Ok(row));
        }

        #[test]
        fn rows_of_earlier_formats_have_no_lineage_no_sizes_and_no_stamp(row in any_row()) {
            use LogKind::{Purged, Restated, Trimmed, Unclaimed};
            let new = matches!(row.kind, Purged(_) | Restated | Unclaimed | Trimmed(_));
            let bytes = encode_version_1(&row);
            if new {
                prop_assert_eq!(decode(&bytes), Err(RowFault::Value("kind")));
            } else {
                let kind = match row.kind {
                    LogKind::Claimed(_) => LogKind::Claimed(None),
                    kind => kind,
                };
                let ops = row.ops.into_iter().map(|op| LogOp { bytes: None, ..op }).collect();
                let old = LogRow { lineage: 0, stamp: Time(0), identity: None, kind, ops, ..row };
                prop_assert_eq!(decode(&bytes), Ok(old));
            }
        }

        #[test]
        fn a_glance_sees_what_the_whole_row_says(row in any_row()) {
            let Ok(seen) = decode_summary(&encode(&row)) else {
                panic!("it is a row");
            };
            prop_assert_eq!(
                (seen.kind, seen.at, seen.repo, seen.commit, seen.last, seen.lineage),
                (row.kind, row.at, row.repo, row.commit, row.last, row.lineage)
            );
            prop_assert_eq!(seen.stamp, row.stamp);
            prop_assert_eq!(seen.numbers, row.numbers());
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = decode_summary(&bytes);
        }

        #[test]
        fn a_broken_row_is_never_taken_for_whole(
            row in any_row(),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = encode(&row);
            prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        }
    }

    #[test]
    fn a_row_takes_a_number_for_each_operation_and_one_at_least() {
        let mut row = LogRow::new(LogKind::Live, Time(0));
        assert_eq!(row.numbers(), 1);
        let op = LogOp {
            path: b"a/b".to_vec(),
            cid: None,
            previous: None,
            bytes: None,
        };
        row.ops = vec![op; 7];
        assert_eq!(row.numbers(), 7);
        row.kind = LogKind::Lost(1 << 40);
        assert_eq!(row.numbers(), 1 << 40);
    }
}
