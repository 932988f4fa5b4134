//! Appends rows to the log: numbers, stamps, and the rows that follow from the state of a
//! repository alone.

use gapless_core::ledger::{Held, Repo, RepoId, Time};

use super::records::forget_claims;
use super::{RowChange, RowExtras};
use crate::error::StoreError;
use crate::table::log::{self, LogKind, LogRow};
use crate::table::{Table, key};
use crate::tx::Tx;

/// Whether the log alone no longer leads to what the store holds: records were lost, or a snapshot
/// that was interrupted is replaced by another one.
pub(super) fn strays_from_log(row_change: &RowChange<'_>) -> bool {
    let RowChange { stored, next, .. } = row_change;
    let damaged = |held: &Held| matches!(held, Held::Damaged { .. });
    let replaced = match (&stored.held, &next.held) {
        (Held::Applying { target, .. }, Held::Applying { target: other, .. })
        | (Held::Applying { target, .. }, Held::Exactly(other)) => target != other,
        _ => false,
    };
    damaged(&stored.held) || damaged(&next.held) || replaced
}

/// Logs that consumers have to compare what they have with the store, once the store holds a signed
/// state again.
pub(super) fn log_restated(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    at: Time,
    extras: &mut RowExtras<'_>,
) {
    if *extras.restate && matches!(row_change.next.held, Held::Exactly(_)) {
        *extras.restate = false;
        push_restated(tx, row_change.id, row_change.next, at);
    }
}

/// Writes a `restated` row for a repository that is held exactly.
pub(crate) fn push_restated(tx: &mut Tx, id: RepoId, repo: &Repo, at: Time) {
    let row = LogRow {
        repo: Some(id),
        lineage: repo.lineage,
        commit: repo.head().map(|head| (head.rev, head.commit)),
        ..LogRow::new(LogKind::Restated, at)
    };
    push_log(tx, row);
}

/// Withdraws all claims once nothing is owed, because the host has answered. If nothing is held,
/// claims stay until a purge.
pub(super) fn log_unclaimed(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    at: Time,
    extras: &mut RowExtras<'_>,
) -> Result<(), StoreError> {
    let RowChange { id, next, .. } = *row_change;
    let some = *extras.claims || *extras.gave_way;
    if !some || !next.debt.is_empty() || next.held == Held::Nothing {
        return Ok(());
    }
    let forgotten = forget_claims(tx, id, None)?;
    *extras.claims = false;
    // Consumers still have the claims that gave way.
    if std::mem::take(extras.gave_way) || forgotten.any {
        let row = LogRow {
            repo: Some(id),
            lineage: next.lineage,
            ..LogRow::new(LogKind::Unclaimed, at)
        };
        push_log(tx, row);
    }
    Ok(())
}

/// Appends a row to the log, with the next numbers and stamps.
pub(super) fn push_log(tx: &mut Tx, mut row: LogRow) {
    let first = tx.counters.next_seq;
    tx.counters.next_seq += row.numbers();
    row.stamp = Time(row.at.0.max(tx.counters.last_stamp.0.saturating_add(1)));
    tx.counters.last_stamp = row.last_stamp();
    tx.put_with(Table::Log, key::seq(first), |bytes| log::write(bytes, &row));
}

/// Writes a `lost` row over the log numbers that a store has acknowledged and lost, so that no
/// number is assigned twice.
pub fn log_lost_numbers(tx: &mut Tx, batch: u64, next_seq: u64, at: Time) {
    tx.counters.batch = tx.counters.batch.max(batch);
    let lost = next_seq.saturating_sub(tx.counters.next_seq);
    if lost > 0 {
        push_log(tx, LogRow::new(LogKind::Lost(lost), at));
    }
    tx.keep();
}
