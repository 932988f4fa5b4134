//! `log`: first number → one commit, one chunk of a snapshot, or one event of an
//! account. All consumers read this table.
//!
//! Every operation has a number of its own: the row's first number plus its index. A
//! row takes as many numbers as it has operations, and one if it has none; a `lost`
//! row takes the whole range that a damaged store lost, and a `redacted` row the
//! numbers that it had before. So the numbers are dense: a row begins where the
//! previous row ended, from 1 on, and no number is ever used twice.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Account, RepoId, Time};
pub use gapless_core::repo_tx::step::SourceEvent;

use super::repo::{account_code, account_of};
use crate::codec::{RowFault, RowReader, RowWriter, read_row};

const VERSION: u8 = 1;

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
    /// Claims of an unproven source.
    Claimed,
    /// The state of an account changed. If its repository was purged, the operations are the
    /// deletions.
    Account(Account),
    /// The host or the keys of an account changed.
    Identity,
    /// This many numbers whose content a damaged store lost.
    Lost(u64),
    /// This many numbers whose content a later purge deleted: a consumer that reads the row
    /// deletes everything it has of the repository.
    Redacted(u64),
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    pub kind: LogKind,
    pub at: Time,
    /// `None` only in a `lost` row.
    pub repo: Option<RepoId>,
    /// Rev and CID of the signed commit whose state this row leads to, or, of a
    /// chunk that is not the last, will have led to.
    pub commit: Option<(Rev, Cid)>,
    /// Whether this row reaches the state: it is the last chunk, or the only row.
    pub last: bool,
    /// Whether a new lineage begins with this row: the revs before it belong to an abandoned
    /// lineage.
    pub new_lineage: bool,
    pub source: Option<SourceEvent>,
    pub ops: Vec<LogOp>,
}

impl LogRow {
    /// How many numbers the row takes.
    pub fn numbers(&self) -> u64 {
        match self.kind {
            LogKind::Lost(count) | LogKind::Redacted(count) => count.max(1),
            _ => (self.ops.len() as u64).max(1),
        }
    }
}

/// A row without its operations: what it is about, and how many numbers it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRowSummary {
    pub kind: LogKind,
    pub at: Time,
    pub repo: Option<RepoId>,
    pub commit: Option<(Rev, Cid)>,
    pub last: bool,
    pub new_lineage: bool,
    pub numbers: u64,
}

/// Decodes a row up to its operations, which are counted and not decoded: this makes scans over
/// many rows fast.
pub(crate) fn decode_summary(bytes: &[u8]) -> Result<LogRowSummary, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        let (log, count) = read_beginning(row)?;
        row.remainder();
        Ok(LogRowSummary {
            kind: log.kind,
            at: log.at,
            repo: log.repo,
            commit: log.commit,
            last: log.last,
            new_lineage: log.new_lineage,
            numbers: match log.kind {
                LogKind::Lost(_) | LogKind::Redacted(_) => log.numbers(),
                _ => count.max(1),
            },
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
    writer.flag(row.last).flag(row.new_lineage).time(row.at);
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
        if let Some(cid) = &op.cid {
            writer.cid(cid);
        }
        if let Some(previous) = &op.previous {
            writer.cid(&previous.cid).rev(previous.rev);
        }
    }
}

pub fn decode(bytes: &[u8]) -> Result<LogRow, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        let (mut log, count) = read_beginning(row)?;
        log.ops.reserve_exact(count as usize);
        for _ in 0..count {
            log.ops.push(read_op(row)?);
        }
        Ok(log)
    })
}

/// Reads everything before the operations, and the number of operations.
fn read_beginning(row: &mut RowReader<'_>) -> Result<(LogRow, u64), RowFault> {
    let log = LogRow {
        kind: read_kind(row)?,
        last: row.flag()?,
        new_lineage: row.flag()?,
        at: row.time()?,
        repo: row.maybe(RowReader::repo)?,
        commit: row.maybe(|row| Ok((row.rev()?, row.cid()?)))?,
        source: row.maybe(|row| {
            Ok(SourceEvent {
                upstream: row.upstream()?,
                seq: row.number()?,
            })
        })?,
        ops: Vec::new(),
    };
    let count = row.number()?;
    // An operation has two bytes at least: a false count allocates nothing.
    if count > row.left() as u64 / 2 {
        return Err(RowFault::Short);
    }
    Ok((log, count))
}

fn read_op(row: &mut RowReader<'_>) -> Result<LogOp, RowFault> {
    let flags = row.byte()?;
    if flags > 3 {
        return Err(RowFault::Value("operation"));
    }
    let path = row.bytes()?.to_vec();
    let cid = match flags & 1 {
        0 => None,
        _ => Some(row.cid()?),
    };
    let previous = match flags & 2 {
        0 => None,
        _ => Some(PreviousRecord {
            cid: row.cid()?,
            rev: row.rev()?,
        }),
    };
    Ok(LogOp {
        path,
        cid,
        previous,
    })
}

fn write_kind(writer: &mut RowWriter, kind: LogKind) {
    match kind {
        LogKind::Live => writer.byte(0),
        LogKind::Backfill => writer.byte(1),
        LogKind::Repair => writer.byte(2),
        LogKind::Claimed => writer.byte(3),
        LogKind::Account(account) => writer.byte(4).byte(account_code(account)),
        LogKind::Identity => writer.byte(5),
        LogKind::Lost(count) => writer.byte(6).number(count),
        LogKind::Redacted(count) => writer.byte(7).number(count),
    };
}

fn read_kind(row: &mut RowReader<'_>) -> Result<LogKind, RowFault> {
    Ok(match row.byte()? {
        0 => LogKind::Live,
        1 => LogKind::Backfill,
        2 => LogKind::Repair,
        3 => LogKind::Claimed,
        4 => LogKind::Account(account_of(row.byte()?)?),
        5 => LogKind::Identity,
        6 => LogKind::Lost(row.number()?),
        7 => LogKind::Redacted(row.number()?),
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
        (path(), of(cid()), of((cid(), rev()))).prop_map(|(path, cid, previous)| LogOp {
            path,
            cid,
            previous: previous.map(|(cid, rev)| PreviousRecord { cid, rev }),
        })
    }

    fn any_row() -> impl Strategy<Value = LogRow> {
        let kind = prop_oneof![
            Just(LogKind::Live),
            Just(LogKind::Backfill),
            Just(LogKind::Repair),
            Just(LogKind::Claimed),
            account().prop_map(LogKind::Account),
            Just(LogKind::Identity),
            any::<u64>().prop_map(LogKind::Lost),
            any::<u64>().prop_map(LogKind::Redacted),
        ];
        (
            (kind, time(), of(any::<u64>().prop_map(RepoId))),
            of((rev(), cid())),
            (any::<bool>(), any::<bool>()),
            of((upstream(), any::<u64>())),
            prop::collection::vec(any_op(), 0..20),
        )
            .prop_map(
                |((kind, at, repo), commit, (last, new_lineage), source, ops)| LogRow {
                    kind,
                    at,
                    repo,
                    commit,
                    last,
                    new_lineage,
                    source: source.map(|(upstream, seq)| SourceEvent { upstream, seq }),
                    ops,
                },
            )
    }

    proptest! {
        #[test]
        fn round_trip(row in any_row()) {
            prop_assert_eq!(decode(&encode(&row)), Ok(row));
        }

        #[test]
        fn a_glance_sees_what_the_whole_row_says(row in any_row()) {
            let Ok(seen) = decode_summary(&encode(&row)) else {
                panic!("it is a row");
            };
            prop_assert_eq!(
                (seen.kind, seen.at, seen.repo, seen.commit, seen.last, seen.new_lineage),
                (row.kind, row.at, row.repo, row.commit, row.last, row.new_lineage)
            );
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
        let mut row = LogRow {
            kind: LogKind::Live,
            at: Time(0),
            repo: Some(RepoId(1)),
            commit: None,
            last: true,
            new_lineage: false,
            source: None,
            ops: Vec::new(),
        };
        assert_eq!(row.numbers(), 1);
        let op = LogOp {
            path: b"a/b".to_vec(),
            cid: None,
            previous: None,
        };
        row.ops = vec![op; 7];
        assert_eq!(row.numbers(), 7);
        row.kind = LogKind::Lost(1 << 40);
        assert_eq!(row.numbers(), 1 << 40);
    }
}
