//! Upkeep: redacts the traces of purged repositories and deletes superseded
//! records that are no longer needed.

use gapless_core::ledger::Lived;
use gapless_core::retain::Policies;

use super::ChangeEffects;
use super::consumer::floor;
use crate::change::{Redaction, TRIMMED_ROWS, Upkeep};
use crate::error::{Contradiction, StoreError};
use crate::table::dead::{self, Resolution};
use crate::table::log::{self, FIRST_SEQ, LogKind, LogRow};
use crate::table::{Table, key, meta, purge, version};
use crate::tx::Tx;

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
        Upkeep::Expire { keys, below, lived } => expire(tx, keys, below, lived),
        Upkeep::Trim { below, lived } => trim(tx, below, lived),
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
fn expire(tx: &mut Tx, keys: Vec<Vec<u8>>, below: u64, lived: Lived) -> Result<(), StoreError> {
    let all = Policies {
        versions: below,
        log: u64::MAX,
    };
    let floor = floor(tx, all, lived)?;
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
fn trim(tx: &mut Tx, below: u64, lived: Lived) -> Result<(), StoreError> {
    let allowed = Policies {
        versions: u64::MAX,
        log: below,
    };
    let floor = floor(tx, allowed, lived)?.log;
    let (mut gone, mut last) = (Vec::new(), None);
    let mut expected = FIRST_SEQ;
    for (place, row) in tx.first_rows(Table::Log, TRIMMED_ROWS)? {
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
    let Some((end, row)) = last.filter(|(_, row)| !matches!(row.kind, LogKind::Trimmed(_))) else {
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
    for seq in part.rows {
        let at = key::seq(seq);
        let Some(old) = tx.read(Table::Log, &at, log::decode)? else {
            continue;
        };
        // Trimmed or lost meanwhile.
        if matches!(old.kind, LogKind::Trimmed(_) | LogKind::Lost(_)) {
            continue;
        }
        if old.repo != Some(row.repo) || seq >= part.purge {
            return Err(Contradiction::OtherRepo.into());
        }
        if is_redactable(old.kind) {
            let kind = match old.kind {
                LogKind::Identity => LogKind::Identity,
                _ => LogKind::Redacted(old.numbers()),
            };
            let emptied = LogRow {
                kind,
                commit: None,
                identity: None,
                ops: Vec::new(),
                ..old
            };
            tx.put(Table::Log, at, log::encode(&emptied));
            row.rows_redacted += u64::from(kind != LogKind::Identity);
        }
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
    row.upto = row.upto.max(part.upto);
    effects.redact = part.frames;
    tx.put(Table::Meta, place, purge::encode(&row));
    Ok(())
}

/// Whether a log row of this kind describes the contents or the owner of a repository, so that it
/// must be redacted; an `identity` row keeps its kind. Account rows stay, including those that list what a purge
/// deleted: a consumer that holds those records must learn that they are gone.
pub fn is_redactable(kind: LogKind) -> bool {
    match kind {
        LogKind::Live
        | LogKind::Backfill
        | LogKind::Repair
        | LogKind::Claimed
        | LogKind::Identity => true,
        LogKind::Account(_)
        | LogKind::Lost(_)
        | LogKind::Redacted(_)
        | LogKind::Purged(_)
        | LogKind::Restated
        | LogKind::Unclaimed
        | LogKind::Trimmed(_) => false,
    }
}
