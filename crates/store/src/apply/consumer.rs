//! Writes the positions of the log's consumers, and enforces what they hold back.
//!
//! This module alone decides what goes: [`floor`] asks the pure rule with the consumers as the group
//! of changes leaves them.

use gapless_core::ledger::Lived;
use gapless_core::retain::{self, Consumer, ConsumerKey, Floor, Policies, PositionError, When};

use crate::change::ConsumerChange;
use crate::error::{ConsumerError, StoreError};
use crate::table::audit::{self, AuditAct, AuditRow};
use crate::table::{Table, consumer, meta};
use crate::tx::Tx;

/// Who is named as the author of an overrun.
const GAPLESS: &str = "gapless";

pub(super) fn write_consumer(tx: &mut Tx, change: ConsumerChange) -> Result<(), StoreError> {
    match change {
        ConsumerChange::Register { key, consumer, log } => {
            check_log(tx, &consumer.name, log)?;
            register(tx, key, consumer)
        }
        ConsumerChange::Move {
            key,
            next,
            holds_from,
            log,
            at,
        } => {
            let mut row = read(tx, key)?;
            check_log(tx, &row.name, log)?;
            let head = tx.counters.next_seq;
            let moved = row.advance(next, holds_from, head, at);
            moved.map_err(|error| refused(&row, error))?;
            put(tx, key, &row);
            Ok(())
        }
        ConsumerChange::Seek { key, to, by, at } => {
            let mut row = read(tx, key)?;
            let (from, head) = (row.next, tx.counters.next_seq);
            let sought = row.seek(to, head, at);
            sought.map_err(|error| refused(&row, error))?;
            put(tx, key, &row);
            record(tx, at, by, &row.name, AuditAct::Sought { from, to });
            Ok(())
        }
        ConsumerChange::Remove { key, by, at } => {
            let row = read(tx, key)?;
            tx.delete(Table::Meta, consumer::key(key));
            let next = row.next;
            record(tx, at, by, &row.name, AuditAct::Removed { next });
            Ok(())
        }
        ConsumerChange::Overrun { key, at } => {
            let mut row = read(tx, key)?;
            if row.overrun {
                return Ok(());
            }
            row.overrun = true;
            put(tx, key, &row);
            let (next, head) = (row.next, tx.counters.next_seq);
            let act = AuditAct::Overrun { next, head };
            record(tx, at, GAPLESS.to_owned(), &row.name, act);
            Ok(())
        }
    }
}

fn register(tx: &mut Tx, key: ConsumerKey, new: Consumer) -> Result<(), StoreError> {
    let place = consumer::key(key);
    if tx.get(Table::Meta, &place)?.is_some() {
        return Err(ConsumerError::Registered {
            name: new.name.into(),
        }
        .into());
    }
    let head = tx.counters.next_seq;
    if new.next.max(new.holds_from) > head {
        let next = new.next.max(new.holds_from);
        return Err(refused(&new, PositionError::Ahead { next, head }));
    }
    if new.holds_from < new.next {
        let (holds_from, next) = (new.holds_from, new.next);
        return Err(refused(
            &new,
            PositionError::NeedsPassed { holds_from, next },
        ));
    }
    put(tx, key, &new);
    Ok(())
}

/// Refuses a consumer that has followed another log.
fn check_log(tx: &Tx, name: &str, given: Option<meta::LogId>) -> Result<(), StoreError> {
    let Some(given) = given else {
        return Ok(());
    };
    let ids = tx.read(Table::Meta, meta::IDS_KEY, meta::decode_ids)?;
    match ids.map(|ids| ids.log) {
        Some(log) if log == given => Ok(()),
        log => Err(ConsumerError::OtherLog {
            name: name.into(),
            given,
            log,
        }
        .into()),
    }
}

fn refused(row: &Consumer, error: PositionError) -> StoreError {
    let name = row.name.as_str().into();
    ConsumerError::Position { name, error }.into()
}

fn read(tx: &Tx, key: ConsumerKey) -> Result<Consumer, StoreError> {
    let row = tx.read(Table::Meta, &consumer::key(key), consumer::decode)?;
    row.ok_or_else(|| ConsumerError::Unknown { key }.into())
}

fn put(tx: &mut Tx, key: ConsumerKey, row: &Consumer) {
    tx.put(Table::Meta, consumer::key(key), consumer::encode(row));
}

fn record(tx: &mut Tx, at: When, by: String, consumer: &str, act: AuditAct) {
    let number = tx.counters.next_audit;
    tx.counters.next_audit += 1;
    let row = AuditRow {
        at: at.time,
        by,
        consumer: consumer.to_owned(),
        act,
    };
    tx.put(Table::Meta, audit::key(number), audit::encode(&row));
}

/// What must stay, by the policies and for every consumer that holds.
pub(super) fn floor(tx: &Tx, policies: Policies, lived: Lived) -> Result<Floor, StoreError> {
    let mut consumers = Vec::new();
    for (place, row) in tx.prefix(Table::Meta, consumer::PREFIX)? {
        let row = consumer::decode(&row);
        consumers.push(row.map_err(|fault| StoreError::row(Table::Meta, &place, fault))?);
    }
    let head = tx.counters.next_seq;
    Ok(retain::floor(&consumers, policies, head, lived))
}
