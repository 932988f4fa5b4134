//! Writes records: the rows, the superseded versions, and the claims that a new state settles.

use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Head, Held, Repo, RepoId};

use super::consumer::floor;
use super::upkeep::NO_POLICIES;
use super::{RowChange, RowExtras};
use crate::change::{ClaimEntry, RecordOp, Records, RecordsKind};
use crate::error::{Contradiction, StoreError};
use crate::table::claimed;
use crate::table::log::{LogKind, LogOp, LogRow, PreviousRecord};
use crate::table::record;
use crate::table::repo::RepoWeight;
use crate::table::version::{self, VersionRow};
use crate::table::{Table, key, wish};
use crate::tx::Tx;

pub(super) fn write_records(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    records: &mut Records,
    rows: Vec<Option<Vec<u8>>>,
    extras: &mut RowExtras<'_>,
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
        *extras.commit = records.commit.as_slice().into();
    }
    // With nothing held, no lookup can find a record.
    let empty = stored.held == Held::Nothing;
    if empty {
        *extras.weight = Some(RepoWeight::default());
    }
    let first = tx.counters.next_seq;
    row.ops.reserve_exact(records.ops.len());
    for (place, (op, new)) in records.ops.drain(..).zip(rows).enumerate() {
        let seq = first + place as u64;
        let op = write_record(tx, row_change, seq, op, new, empty)?;
        if let Some(weight) = extras.weight.as_mut() {
            weigh(weight, &op);
        }
        row.ops.push(op.log);
    }
    if *extras.claims && row.last {
        *extras.claims = forget_claims(tx, id, Some(head.rev))?.left;
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
    new: Option<Vec<u8>>,
    empty: bool,
) -> Result<WrittenOp, StoreError> {
    let id = row_change.id;
    let bytes = new.as_deref().map(record::size);
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
    let (mut previous, mut replaced) = (None, None);
    if let Some(old) = old {
        let old =
            record::decode(&old).map_err(|fault| StoreError::row(Table::Record, &place, fault))?;
        previous = Some(PreviousRecord {
            cid: old.cid,
            rev: old.rev,
        });
        replaced = Some(old.bytes.map_or(0, <[u8]>::len) as u64);
        if old.bytes.is_some() {
            let superseded = VersionRow {
                cid: old.cid,
                seq: old.seq,
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
        Some(mut row) => {
            record::set_seq(&mut row, seq);
            tx.put(Table::Record, place, row);
        }
    }
    Ok(WrittenOp {
        log: LogOp {
            path: op.path,
            cid: op.put.map(|put| put.cid),
            previous,
            bytes,
        },
        replaced,
    })
}

/// An operation as the log has it.
struct WrittenOp {
    log: LogOp,
    /// The bytes of the record that the operation replaced or deleted.
    replaced: Option<u64>,
}

/// Updates the weight of a repository by an operation.
fn weigh(weight: &mut RepoWeight, op: &WrittenOp) {
    if let Some(bytes) = op.replaced {
        weight.records = weight.records.saturating_sub(1);
        weight.bytes = weight.bytes.saturating_sub(bytes);
    }
    if let Some(bytes) = op.log.bytes {
        weight.add(bytes);
    }
}

/// Writes a claim, and drops older ones that give way to it, unless a consumer has not read them.
/// Returns whether any gave way.
pub(super) fn write_claim(
    tx: &mut Tx,
    id: RepoId,
    entry: ClaimEntry,
    row: &mut LogRow,
) -> Result<bool, StoreError> {
    let ClaimEntry {
        path,
        claim,
        give_way,
    } = entry;
    let mut gave_way = false;
    if !give_way.is_empty() {
        let read_by_all = floor(tx, NO_POLICIES)?.log;
        for path in give_way {
            let place = tx.path_key(id, &path);
            let old = tx.read(Table::Claimed, &place, claimed::decode)?;
            if old.is_some_and(|old| old.seq < read_by_all) {
                tx.delete(Table::Claimed, place);
                gave_way = true;
            }
        }
    }
    row.kind = LogKind::Claimed(Some(claim.rev));
    let place = tx.path_key(id, &path);
    let row_bytes = claimed::encode(tx.counters.next_seq, &claim);
    tx.put(Table::Claimed, place, row_bytes);
    let (cid, bytes) = claim.record.unzip();
    row.ops.push(LogOp {
        path,
        cid,
        previous: None,
        bytes: bytes.map(|bytes| bytes.len() as u32),
    });
    Ok(gave_way)
}

/// What became of the claims of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForgottenClaims {
    /// Whether any claim was deleted.
    pub any: bool,
    /// Whether any claim is left.
    pub left: bool,
}

/// Deletes claims up to the rev `upto`, because a proven state decides every path; without
/// `upto`, deletes all claims. Every claim comes with a debt to ask the host: once nothing is
/// owed, the host has answered and has no such commit.
pub(super) fn forget_claims(
    tx: &mut Tx,
    id: RepoId,
    upto: Option<Rev>,
) -> Result<ForgottenClaims, StoreError> {
    let mut claims = ForgottenClaims {
        any: false,
        left: false,
    };
    for (place, row) in tx.prefix(Table::Claimed, &key::repo(id))? {
        let claim = claimed::decode(&row)
            .map_err(|fault| StoreError::row(Table::Claimed, &place, fault))?;
        if upto.is_some_and(|rev| claim.rev > rev) {
            claims.left = true;
        } else {
            claims.any = true;
            tx.delete(Table::Claimed, place)
        }
    }
    Ok(claims)
}
