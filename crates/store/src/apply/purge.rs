//! Purges a repository in parts: the first change says that the purge is under way, and each
//! further change deletes at most [`ROW_OPS`] records and about [`DELETED_BYTES`].
//!
//! From the first change on nothing is held of the repository, so no reader shows or reads its
//! records. Until the last part is deleted nothing is written to the repository. The row of the
//! purge in `meta` has the progress, so a purge continues after a crash.

use std::sync::Arc;

use gapless_core::ledger::{Held, Repo, RepoId, Time};
use gapless_core::retain::When;

use super::append::push_log;
use super::{ChangeEffects, RowChange, RowExtras};
use crate::change::{DELETED_BYTES, EntryContent, LogEntry};
use crate::engine::{KeyRange, RawRow};
use crate::error::{Contradiction, StoreError};
use crate::table::log::{LogKind, LogOp, LogRow, PreviousRecord, ROW_OPS};
use crate::table::purge::{self, DeletedTable, Deleting, PurgeRow};
use crate::table::{Table, key, record, repo};
use crate::tx::{RowLimits, Tx};

/// Begins a purge: logs the state of the account and deletes claims and parked frames, of which a
/// repository has few.
pub(super) fn begin_purge(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    extras: &mut RowExtras<'_>,
    mut row: LogRow,
) -> Result<(), StoreError> {
    let RowChange { id, next, .. } = *row_change;
    if next.held != Held::Nothing || !next.purging {
        return Err(Contradiction::PurgeHolds.into());
    }
    let number = tx.counters.next_seq;
    row.kind = LogKind::Account(next.account);
    let mut purge = new_purge(id, next, row.at);
    for table in [Table::Claimed, Table::Parked] {
        for (place, row) in tx.prefix(table, &key::repo(id))? {
            purge.others += 1;
            purge.bytes += row.len() as u64;
            tx.delete(table, place);
        }
    }
    push_log(tx, row);
    tx.put(Table::Meta, purge::key(number), purge::encode(&purge));
    *extras.purge = Some(number);
    *extras.claims = false;
    *extras.gave_way = false;
    *extras.restate = false;
    *extras.weight = Some(Default::default());
    *extras.commit = Arc::default();
    Ok(())
}

/// A purge that has deleted nothing yet.
fn new_purge(id: RepoId, repo: &Repo, at: Time) -> PurgeRow {
    PurgeRow {
        repo: id,
        did: repo.did.clone(),
        host: repo.host,
        deleted_at: repo.deleted_at,
        purged_lived: None,
        purged_at: at,
        records: 0,
        bytes: 0,
        others: 0,
        deleting: Some(Deleting {
            what: DeletedTable::Records,
            upto: Vec::new(),
        }),
        rows_end: 0,
        upto: 0,
        frames_redacted: 0,
        rows_redacted: 0,
        letters_redacted: 0,
        finished_at: None,
        compacted: false,
    }
}

/// Records a purge that is under way as one that begins now, for a repair.
#[cfg(feature = "engine")]
pub(crate) fn record_purge(tx: &mut Tx, id: RepoId, at: Time) -> Result<(), StoreError> {
    let place = key::repo(id);
    let Some(mut stored) = tx.read(Table::Repo, &place, repo::decode)? else {
        return Ok(());
    };
    let number = tx.counters.next_seq;
    let row = LogRow {
        repo: Some(id),
        lineage: stored.repo.lineage,
        ..LogRow::new(LogKind::Account(stored.repo.account), at)
    };
    push_log(tx, row);
    let purge = new_purge(id, &stored.repo, at);
    tx.put(Table::Meta, purge::key(number), purge::encode(&purge));
    stored.purge = Some(number);
    tx.put(Table::Repo, place, repo::encode(&stored));
    Ok(())
}

/// Deletes the next part of what was held of a repository.
pub(super) fn delete_purged(
    tx: &mut Tx,
    number: u64,
    at: When,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let place = purge::key(number);
    let mut purge = tx
        .read(Table::Meta, &place, purge::decode)?
        .ok_or(Contradiction::NoSuchPurge(number))?;
    let Some(deleting) = purge.deleting.take() else {
        return Ok(());
    };
    purge.purged_lived.get_or_insert(at.lived);
    let stored = tx.read(Table::Repo, &key::repo(purge.repo), repo::decode)?;
    let repo = stored.filter(|row| row.repo.purging);
    let repo = repo.ok_or(Contradiction::NotPurging(number))?.repo;
    let table = match deleting.what {
        DeletedTable::Records => Table::Record,
        DeletedTable::Versions => Table::Version,
    };
    // Not from the beginning each time: the engine would pass over all that is deleted already.
    let range = KeyRange::prefix_from(&key::repo(purge.repo), deleting.upto);
    let limits = RowLimits {
        rows: ROW_OPS,
        bytes: DELETED_BYTES,
    };
    let part = tx.first_rows(table, range, limits)?;
    let deleted = part.rows.iter().map(|(_, row)| row.len() as u64);
    purge.bytes += deleted.sum::<u64>();
    let upto = part.rows.last().map(|(place, _)| place.to_vec());
    match deleting.what {
        DeletedTable::Records => {
            purge.records += part.rows.len() as u64;
            // Consumers learn by the first row that the claims are gone, also without a record.
            if !part.rows.is_empty() || purge.rows_end == 0 {
                let first = tx.counters.next_seq;
                let row = LogRow {
                    repo: Some(purge.repo),
                    lineage: repo.lineage,
                    last: !part.more,
                    ops: deletes(&part.rows),
                    ..LogRow::new(LogKind::Purged(part.rows.len().max(1) as u64), at.time)
                };
                push_log(tx, row);
                purge.rows_end = tx.counters.next_seq;
                effects.ack.numbers = Some(first..tx.counters.next_seq);
            }
        }
        DeletedTable::Versions => purge.others += part.rows.len() as u64,
    }
    for (place, _) in part.rows {
        tx.delete(table, place);
    }
    purge.deleting = match (part.more, deleting.what) {
        (true, what) => Some(Deleting {
            what,
            upto: upto.unwrap_or_default(),
        }),
        (false, DeletedTable::Records) => Some(Deleting {
            what: DeletedTable::Versions,
            upto: Vec::new(),
        }),
        (false, DeletedTable::Versions) => None,
    };
    tx.put(Table::Meta, place, purge::encode(&purge));
    Ok(())
}

/// The operations that delete these records. A row that cannot be decoded is deleted too.
fn deletes(rows: &[RawRow]) -> Vec<LogOp> {
    let ops = rows.iter().map(|(place, row)| LogOp {
        path: place.get(key::REPO_BYTES..).unwrap_or_default().to_vec(),
        cid: None,
        previous: record::decode(row).ok().map(|old| PreviousRecord {
            cid: old.cid,
            rev: old.rev,
        }),
        bytes: None,
    });
    ops.collect()
}

/// Checks that a change of a repository that is being purged writes nothing that the purge would
/// have to delete, and ends the purge only once everything is deleted.
pub(super) fn check_purging(
    tx: &Tx,
    row_change: &RowChange<'_>,
    entry: Option<&LogEntry>,
    purge: &mut Option<u64>,
) -> Result<(), StoreError> {
    let writes = entry.is_some_and(|entry| {
        matches!(
            entry.what,
            EntryContent::Records(_) | EntryContent::Claim(_) | EntryContent::Purge
        )
    });
    if writes || row_change.next.held != Held::Nothing {
        return Err(Contradiction::Purging.into());
    }
    if row_change.next.purging {
        return Ok(());
    }
    if let Some(number) = *purge {
        let row = tx.read(Table::Meta, &purge::key(number), purge::decode)?;
        if row.is_some_and(|row| row.deleting.is_some()) {
            return Err(Contradiction::Purging.into());
        }
    }
    *purge = None;
    Ok(())
}
