//! Prepares changes on the thread that submits them, to keep work off the committer.
//!
//! This module checks a change against itself and encodes its records as rows;
//! [`apply`](crate::apply) checks the change against what is held.

use gapless_atp::cid::Cid;
use gapless_atp::limits;
use gapless_core::ledger::{Head, Held, Repo};

use crate::change::{Change, EntryContent, LogEntry, RecordOp, Records, RepoChange};
use crate::error::Contradiction;
use crate::table::log::ROW_OPS;
use crate::table::record::{self, RecordRow};

/// The most bytes in one entry: a commit has at most 2.5 MB, and snapshots are written in
/// chunks that are limited by bytes as well as by records.
pub(crate) const ENTRY_BYTES: usize = 16 << 20;

/// A change that is consistent in itself, with its records encoded.
#[derive(Debug)]
pub struct PreparedChange {
    pub(crate) change: Box<Change>,
    /// The rows of the change's records, in the order of its operations, without their log
    /// numbers; `None` deletes.
    pub(crate) rows: Vec<Option<Vec<u8>>>,
    bytes: usize,
}

impl PreparedChange {
    /// The approximate size of the change in memory and on disk.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Checks a change against itself and encodes its records.
pub(crate) fn prepare(change: Change) -> Result<PreparedChange, Contradiction> {
    let mut change = Box::new(change);
    let bytes = change.bytes();
    let rows = match &mut change.repo {
        None => Vec::new(),
        Some(repo) => check_repo(repo)?,
    };
    Ok(PreparedChange {
        change,
        rows,
        bytes,
    })
}

fn check_repo(change: &mut RepoChange) -> Result<Vec<Option<Vec<u8>>>, Contradiction> {
    for frame in &change.park {
        check_frame(&frame.frame)?;
    }
    let Some(entry) = &mut change.entry else {
        return Ok(Vec::new());
    };
    check_entry(entry)?;
    match &mut entry.what {
        EntryContent::Records(records) => {
            let head = target_head(change.row.as_ref()).ok_or(Contradiction::NotExact)?;
            check_records(records, &head)?;
            Ok(encode_records(&mut records.ops, &head))
        }
        EntryContent::Claim(entry) => {
            check_path(&entry.path)?;
            Ok(Vec::new())
        }
        EntryContent::Account
        | EntryContent::Shown
        | EntryContent::Identity(_)
        | EntryContent::Purge => Ok(Vec::new()),
    }
}

fn check_entry(entry: &LogEntry) -> Result<(), Contradiction> {
    if entry.bytes() > ENTRY_BYTES {
        return Err(Contradiction::TooLarge);
    }
    match &entry.frame {
        Some(frame) => check_frame(frame),
        None => Ok(()),
    }
}

/// The head that records lead to, at once or after further chunks.
fn target_head(row: Option<&Repo>) -> Option<Head> {
    match row?.held {
        Held::Exactly(head) | Held::Applying { target: head, .. } => Some(head),
        Held::Nothing | Held::Damaged { .. } => None,
    }
}

fn check_records(records: &Records, head: &Head) -> Result<(), Contradiction> {
    if !records.commit.is_empty() && Cid::dag_cbor(&records.commit) != head.commit {
        return Err(Contradiction::OtherCommit);
    }
    check_count(records.ops.len())?;
    for op in &records.ops {
        check_path(&op.path)?;
    }
    if !records.ops.is_sorted_by(|a, b| a.path < b.path) {
        let mut paths: Vec<&[u8]> = records.ops.iter().map(|op| op.path.as_slice()).collect();
        paths.sort_unstable();
        if !paths.is_sorted_by(|a, b| a < b) {
            return Err(Contradiction::PathTwice);
        }
    }
    Ok(())
}

fn check_count(ops: usize) -> Result<(), Contradiction> {
    if ops > ROW_OPS {
        Err(Contradiction::TooLarge)
    } else {
        Ok(())
    }
}

fn check_path(path: &[u8]) -> Result<(), Contradiction> {
    match path.len() {
        1..=limits::KEY_BYTES => Ok(()),
        _ => Err(Contradiction::PathLength),
    }
}

fn check_frame(frame: &[u8]) -> Result<(), Contradiction> {
    if frame.len() > limits::FRAME_BYTES {
        Err(Contradiction::FrameTooLarge)
    } else {
        Ok(())
    }
}

/// Encodes the records as rows of the table, without their log numbers. Takes the records' bytes
/// out of the operations.
fn encode_records(ops: &mut [RecordOp], head: &Head) -> Vec<Option<Vec<u8>>> {
    let row = |op: &mut RecordOp| {
        let put = op.put.as_mut()?;
        let bytes = put.bytes.take();
        let row = RecordRow {
            seq: 0,
            rev: head.rev,
            cid: put.cid,
            bytes: bytes.as_deref(),
        };
        Some(record::encode(&row))
    };
    ops.iter_mut().map(row).collect()
}
