//! Writes records: the rows, the superseded versions, the claims that a new state
//! settles, and purges.

use std::sync::Arc;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Head, Held, Repo, RepoId};

use super::{ChangeEffects, RowChange, RowExtras, push_log};
use crate::change::{RecordOp, Records, RecordsKind};
use crate::engine::Slice;
use crate::error::{Contradiction, StoreError};
use crate::table::claimed::{self, Claim};
use crate::table::log::{LogKind, LogOp, LogRow, PreviousRecord, ROW_OPS};
use crate::table::purge::{self, PurgeRow};
use crate::table::record;
use crate::table::version::{self, VersionRow};
use crate::table::{Table, key, wish};
use crate::tx::Tx;

pub(super) fn write_records(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    records: &mut Records,
    rows: Vec<Option<Slice>>,
    (claims, commit): RowExtras<'_>,
    row: &mut LogRow,
) -> Result<(), StoreError> {
    let RowChange { id, stored, next } = *row_change;
    if records.before != stored.held {
        return Err(Contradiction::OtherState.into());
    }
    let head = check_state(stored, next, records.kind)?;
    row.kind = match records.kind {
        RecordsKind::Live => LogKind::Live,
        RecordsKind::Backfill => LogKind::Backfill,
        RecordsKind::Repair => LogKind::Repair,
    };
    row.commit = Some((head.rev, head.commit));
    row.last = matches!(next.held, Held::Exactly(_));
    if row.last {
        *commit = records.commit.as_slice().into();
    }
    // With nothing held, no lookup can find a record.
    let empty = stored.held == Held::Nothing;
    let first = tx.counters.next_seq;
    row.ops.reserve_exact(records.ops.len());
    for (place, (op, new)) in records.ops.drain(..).zip(rows).enumerate() {
        let seq = first + place as u64;
        row.ops
            .push(write_record(tx, row_change, seq, op, new, empty)?);
    }
    if *claims && row.last {
        *claims = forget_claims(tx, id, Some(head.rev))?;
    }
    Ok(())
}

/// Checks that records may lead from one state to the other. Returns the head that
/// they lead to.
fn check_state(stored: &Repo, next: &Repo, kind: RecordsKind) -> Result<Head, Contradiction> {
    let head = match &next.held {
        Held::Exactly(head) => head,
        Held::Applying { target, .. } if kind != RecordsKind::Live => target,
        _ => return Err(Contradiction::NotExact),
    };
    let starts_exact = matches!(stored.held, Held::Exactly(_) | Held::Nothing);
    if kind == RecordsKind::Live && !starts_exact {
        return Err(Contradiction::NotExact);
    }
    let above = match (stored.floor(), kind) {
        (None, _) => true,
        (Some(floor), RecordsKind::Live) => head.rev > floor,
        // A snapshot of the held rev is written too: it may repair damage.
        (Some(floor), _) => head.rev >= floor,
    };
    if above || next.lineage > stored.lineage {
        Ok(*head)
    } else {
        Err(Contradiction::NotAbove)
    }
}

/// Whether a record may exist although it is not held, because the filter in force
/// differs from the one that the repository was fetched under.
fn was_dropped(tx: &Tx, stored: &Repo) -> Result<bool, StoreError> {
    let (table, key) = (Table::Meta, wish::FILTER_KEY);
    let Some(row) = tx.get(table, key)? else {
        return Ok(false);
    };
    let filter = wish::decode_filter(&row).map_err(|fault| StoreError::row(table, key, fault))?;
    Ok(filter.generation != stored.filter)
}

fn write_record(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    seq: u64,
    op: RecordOp,
    new: Option<Slice>,
    empty: bool,
) -> Result<LogOp, StoreError> {
    let id = row_change.id;
    let place = tx.path_key(id, &op.path);
    let known = empty || op.fresh;
    let old = if known && !cfg!(debug_assertions) {
        None
    } else {
        tx.get(Table::Record, &place)?
    };
    if known && old.is_some() {
        return Err(Contradiction::NotFresh.into());
    }
    let mut previous = None;
    if let Some(old) = old {
        let old =
            record::decode(&old).map_err(|fault| StoreError::row(Table::Record, &place, fault))?;
        previous = Some(PreviousRecord {
            cid: old.cid,
            rev: old.rev,
        });
        if old.bytes.is_some() {
            let superseded = VersionRow {
                cid: old.cid,
                superseded_by: seq,
                bytes: old.bytes,
            };
            let before = key::version(id, &op.path, old.rev, &old.cid);
            tx.put_with(Table::Version, before, |row| {
                version::write(row, &superseded)
            });
        }
    }
    match new {
        None if previous.is_none() && !was_dropped(tx, row_change.stored)? => {
            return Err(Contradiction::NothingToDelete.into());
        }
        None => tx.delete(Table::Record, place),
        Some(row) => tx.put(Table::Record, place, row),
    }
    Ok(LogOp {
        path: op.path,
        cid: op.put.map(|put| put.cid),
        previous,
    })
}

pub(super) fn write_claims(
    tx: &mut Tx,
    id: RepoId,
    claims: Vec<(Vec<u8>, Claim)>,
    row: &mut LogRow,
) {
    for (path, claim) in claims {
        let place = tx.path_key(id, &path);
        tx.put(Table::Claimed, place, claimed::encode(&claim));
        row.ops.push(LogOp {
            path,
            cid: claim.record.map(|(cid, _)| cid),
            previous: None,
        });
    }
}

/// Deletes claims up to the rev `upto`, because a proven state decides every path; without
/// `upto`, deletes all claims. Every claim comes with a debt to ask the host: once nothing is
/// owed, the host has answered and has no such commit. Returns whether any claims are left.
pub(super) fn forget_claims(
    tx: &mut Tx,
    id: RepoId,
    upto: Option<Rev>,
) -> Result<bool, StoreError> {
    let mut newer = false;
    for (place, row) in tx.prefix(Table::Claimed, &key::repo(id))? {
        let claim = claimed::decode(&row)
            .map_err(|fault| StoreError::row(Table::Claimed, &place, fault))?;
        if upto.is_some_and(|rev| claim.rev > rev) {
            newer = true;
        } else {
            tx.delete(Table::Claimed, place)
        }
    }
    Ok(newer)
}

/// Deletes everything held of a repository, superseded versions, claims and parked
/// frames included. The log lists the deleted paths, not their contents.
pub(super) fn purge(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    (claims, commit): RowExtras<'_>,
    mut row: LogRow,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let RowChange { id, next, .. } = *row_change;
    if next.held != Held::Nothing {
        return Err(Contradiction::PurgeHolds.into());
    }
    let first = tx.counters.next_seq;
    row.kind = LogKind::Account(next.account);
    let records = tx.prefix(Table::Record, &key::repo(id))?;
    let mut audit = PurgeRow {
        repo: id,
        did: next.did.clone(),
        host: next.host,
        deleted_at: next.deleted_at,
        purged_at: row.at,
        records: records.len() as u64,
        bytes: records.iter().map(|(_, row)| row.len() as u64).sum(),
        others: 0,
        upto: 0,
        frames_redacted: 0,
        rows_redacted: 0,
        letters_redacted: 0,
        finished_at: None,
        compacted: false,
    };
    let mut chunks = records.chunks(ROW_OPS).peekable();
    while let Some(chunk) = chunks.next() {
        let mut part = row.clone();
        part.last = chunks.peek().is_none();
        for (place, bytes) in chunk {
            let failed = |fault| StoreError::row(Table::Record, place, fault);
            let (_, path) = key::read_path(place).map_err(failed)?;
            let old = record::decode(bytes).map_err(failed)?;
            part.ops.push(LogOp {
                path: path.to_vec(),
                cid: None,
                previous: Some(PreviousRecord {
                    cid: old.cid,
                    rev: old.rev,
                }),
            });
            tx.delete(Table::Record, place.clone());
        }
        push_log(tx, part);
    }
    if records.is_empty() {
        push_log(tx, row);
    }
    for table in [Table::Version, Table::Claimed, Table::Parked] {
        for (place, row) in tx.prefix(table, &key::repo(id))? {
            audit.others += 1;
            audit.bytes += row.len() as u64;
            tx.delete(table, place);
        }
    }
    tx.put(Table::Meta, purge::key(first), purge::encode(&audit));
    *claims = false;
    *commit = Arc::default();
    effects.ack.numbers = Some(first..tx.counters.next_seq);
    Ok(())
}
