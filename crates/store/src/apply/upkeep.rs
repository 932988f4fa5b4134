//! Upkeep: redacts the traces of purged repositories and deletes superseded
//! records that are no longer needed.

use gapless_core::retain::{Policies, When};

use super::ChangeEffects;
use super::consumer::{floor, review_consumers};
use super::purge::delete_purged;
use crate::change::{DELETED_BYTES, Redaction, TRIMMED_ROWS, Upkeep};
use crate::engine::KeyRange;
use crate::error::{Contradiction, StoreError};
use crate::table::dead::{self, Resolution};
use crate::table::log::{self, FIRST_SEQ, LogKind, LogRow};
use crate::table::purge::{self, PurgeRow};
use crate::table::{Table, key, meta, version};
use crate::tx::{RowLimits, Tx};

/// Policies that keep nothing: only consumers hold something back.
pub(super) const NO_POLICIES: Policies = Policies {
    versions: u64::MAX,
    log: u64::MAX,
};

/// Replaces the error text of a redacted dead letter.
const REDACTED: &str = "redacted: its repository was purged";

pub(super) fn write_upkeep(
    tx: &mut Tx,
    upkeep: Upkeep,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    match upkeep {
        Upkeep::Redact(part) => redact(tx, part, effects),
        Upkeep::Finish {
            purge: number,
            at,
            compacted,
        } => {
            let place = purge::key(number);
            let mut row = tx
                .read(Table::Meta, &place, purge::decode)?
                .ok_or(Contradiction::NoSuchPurge(number))?;
            row.finished_at = Some(at);
            row.compacted = compacted;
            tx.put(Table::Meta, place, purge::encode(&row));
            Ok(())
        }
        Upkeep::DeletePurged { purge, at } => delete_purged(tx, purge, at, effects),
        Upkeep::Expire { keys, below, at } => expire(tx, keys, below, at),
        Upkeep::Trim { below, at } => trim(tx, below, at),
        Upkeep::ReviewConsumers { at } => review_consumers(tx, at),
        Upkeep::Identify(ids) => {
            if tx.get(Table::Meta, meta::IDS_KEY)?.is_none() {
                tx.put(Table::Meta, meta::IDS_KEY, meta::encode_ids(&ids));
            }
            Ok(())
        }
        Upkeep::Live(lived) => {
            let before = tx.read(Table::Meta, meta::LIVED_KEY, meta::decode_lived)?;
            if before.is_none_or(|before| before < lived) {
                tx.put(Table::Meta, meta::LIVED_KEY, meta::encode_lived(lived));
            }
            Ok(())
        }
        Upkeep::Fill(bytes) => {
            if bytes.is_empty() {
                tx.delete(Table::Meta, purge::FILLER_KEY)
            } else {
                tx.put(Table::Meta, purge::FILLER_KEY, bytes)
            }
            Ok(())
        }
    }
}

/// Deletes superseded records that an operation below `below` superseded, except those that a
/// consumer holds.
fn expire(tx: &mut Tx, keys: Vec<Vec<u8>>, below: u64, at: When) -> Result<(), StoreError> {
    review_consumers(tx, at)?;
    let policies = Policies {
        versions: below,
        ..NO_POLICIES
    };
    let floor = floor(tx, policies)?;
    for place in keys {
        let by = tx.read(Table::Version, &place, |row| {
            Ok(version::decode(row)?.superseded_by)
        })?;
        if by.is_some_and(|by| by < floor.versions) {
            tx.delete(Table::Version, place);
        }
    }
    Ok(())
}

/// Trims whole rows from the front of the log, and leaves one row that covers their numbers. A
/// row that begins below the floor and ends above it stays.
fn trim(tx: &mut Tx, below: u64, at: When) -> Result<(), StoreError> {
    review_consumers(tx, at)?;
    let policies = Policies {
        log: below,
        ..NO_POLICIES
    };
    let floor = floor(tx, policies)?.log;
    let (mut gone, mut last) = (Vec::new(), None);
    let before = tx.read(Table::Log, &key::seq(FIRST_SEQ), log::decode_summary)?;
    let before = before.filter(|row| matches!(row.kind, LogKind::Trimmed(_)));
    // Not from the beginning: the engine would pass over all rows that are trimmed already.
    let mut expected = FIRST_SEQ + before.map_or(0, |row| row.numbers);
    let range = KeyRange::from(key::seq(expected).to_vec());
    let limits = RowLimits {
        rows: TRIMMED_ROWS,
        bytes: DELETED_BYTES,
    };
    for (place, row) in tx.first_rows(Table::Log, range, limits)?.rows {
        let failed = |fault| StoreError::row(Table::Log, &place, fault);
        let first = key::read_seq(&place).map_err(failed)?;
        let row = log::decode(&row).map_err(failed)?;
        let end = first.saturating_add(row.numbers());
        // A hole is damage, which a trim must not cover.
        if end > floor || first != expected {
            break;
        }
        expected = end;
        gone.push(place);
        last = Some((end, row));
    }
    let Some((end, row)) = last else {
        return Ok(());
    };
    for place in gone {
        tx.delete(Table::Log, place);
    }
    // The time and the stamp of the last row that goes: both ascend across the rows that stay.
    let trimmed = LogRow {
        stamp: row.last_stamp(),
        ..LogRow::new(LogKind::Trimmed(end - FIRST_SEQ), row.at)
    };
    tx.put(Table::Log, key::seq(FIRST_SEQ), log::encode(&trimmed));
    Ok(())
}

/// Redacts part of what a purged repository left behind. The log rows keep their numbers.
fn redact(tx: &mut Tx, part: Redaction, effects: &mut ChangeEffects) -> Result<(), StoreError> {
    let place = purge::key(part.purge);
    let mut row = tx
        .read(Table::Meta, &place, purge::decode)?
        .ok_or(Contradiction::NoSuchPurge(part.purge))?;
    let mut upto = part.upto;
    let mut read_by_all = 0;
    if part.rows.iter().any(|seq| *seq >= part.purge) {
        review_consumers(tx, part.at)?;
        read_by_all = floor(tx, NO_POLICIES)?.log;
    }
    for seq in part.rows {
        let Some(old) = tx.read(Table::Log, &key::seq(seq), log::decode)? else {
            continue;
        };
        let end = seq.saturating_add(old.numbers());
        if seq >= part.purge && !part.overdue && read_by_all < end {
            // A consumer still needs this row, and all that follow.
            upto = upto.min(seq);
            break;
        }
        redact_row(tx, part.purge, seq, old, &mut row)?;
    }
    for number in part.letters {
        let at = key::seq(number);
        let Some(mut letter) = tx.read(Table::Dead, &at, dead::decode)? else {
            continue;
        };
        if letter.repo != Some(row.repo) {
            return Err(Contradiction::OtherRepo.into());
        }
        letter.payload = Vec::new();
        letter.error = REDACTED.to_owned();
        if letter.resolution == Resolution::Open {
            letter.resolution = Resolution::Superseded;
        }
        tx.put(Table::Dead, at, dead::encode(&letter));
        row.letters_redacted += 1;
    }
    row.frames_redacted += part.frames.len() as u64;
    row.upto = row.upto.max(upto);
    effects.redact = part.frames;
    tx.put(Table::Meta, place, purge::encode(&row));
    Ok(())
}

/// Empties one row of the log. A row of the purge itself keeps its kind and its count.
fn redact_row(
    tx: &mut Tx,
    purge: u64,
    seq: u64,
    old: LogRow,
    row: &mut PurgeRow,
) -> Result<(), StoreError> {
    // Trimmed or lost meanwhile.
    if matches!(old.kind, LogKind::Trimmed(_) | LogKind::Lost(_)) {
        return Ok(());
    }
    let of_purge = matches!(old.kind, LogKind::Purged(_)) && seq < row.rows_end;
    if old.repo != Some(row.repo) || (seq >= purge && !of_purge) {
        return Err(Contradiction::OtherRepo.into());
    }
    if !is_redactable(old.kind) {
        return Ok(());
    }
    let kind = match old.kind {
        LogKind::Identity | LogKind::Purged(_) => old.kind,
        _ => LogKind::Redacted(old.numbers()),
    };
    let emptied = LogRow {
        kind,
        commit: None,
        identity: None,
        ops: Vec::new(),
        ..old
    };
    tx.put(Table::Log, key::seq(seq), log::encode(&emptied));
    row.rows_redacted += u64::from(kind != LogKind::Identity);
    Ok(())
}

/// Whether a log row of this kind describes the contents or the owner of a repository, so that it
/// must be redacted. An `identity` row and a row of a purge keep their kinds. Account rows stay,
/// also those in which an earlier format listed what a purge deleted.
pub fn is_redactable(kind: LogKind) -> bool {
    match kind {
        LogKind::Live
        | LogKind::Backfill
        | LogKind::Repair
        | LogKind::Claimed(_)
        | LogKind::Purged(_)
        | LogKind::Restated
        | LogKind::Identity => true,
        LogKind::Account(_)
        | LogKind::Lost(_)
        | LogKind::Redacted(_)
        | LogKind::Unclaimed
        | LogKind::Trimmed(_) => false,
    }
}
