//! Upkeep: redacts the traces of purged repositories and deletes superseded
//! records that are no longer needed.

use super::ChangeEffects;
use crate::change::{Redaction, Upkeep};
use crate::error::{Contradiction, StoreError};
use crate::table::dead::{self, Resolution};
use crate::table::log::{self, LogKind, LogRow};
use crate::table::{Table, key, purge};
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
        Upkeep::Expire(keys) => {
            for place in keys {
                tx.delete(Table::Version, place);
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
        if old.repo != Some(row.repo) || seq >= part.purge {
            return Err(Contradiction::OtherRepo.into());
        }
        if is_redactable(old.kind) {
            let emptied = LogRow {
                kind: LogKind::Redacted(old.numbers()),
                commit: None,
                ops: Vec::new(),
                ..old
            };
            tx.put(Table::Log, at, log::encode(&emptied));
            row.rows_redacted += 1;
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

/// Whether a log row of this kind describes the contents of a repository, so that it
/// must be redacted. Account rows stay, including those that list what a purge
/// deleted: a consumer that holds those records must learn that they are gone.
pub fn is_redactable(kind: LogKind) -> bool {
    match kind {
        LogKind::Live | LogKind::Backfill | LogKind::Repair | LogKind::Claimed => true,
        LogKind::Account(_) | LogKind::Identity | LogKind::Lost(_) | LogKind::Redacted(_) => false,
    }
}
