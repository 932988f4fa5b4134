//! Writes the positions of the log's consumers, and enforces what they hold back.
//!
//! This module alone decides what goes: [`floor`] asks the pure rule with the consumers as the group
//! of changes leaves them. A consumer whose hold has passed is marked as overrun, and the overrun
//! recorded, in the batch in which something may go because of it.

use gapless_core::retain::{self, Consumer, ConsumerKey, Floor, Policies, PositionError, When};

use crate::change::ConsumerChange;
use crate::error::{ConsumerError, StoreError};
use crate::table::audit::{self, AuditAct, AuditRow};
use crate::table::{Table, consumer, key, meta};
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
            tx.delete(Table::Consumer, consumer::key(key));
            let next = row.next;
            record(tx, at, by, &row.name, AuditAct::Removed { next });
            Ok(())
        }
        ConsumerChange::Overrun { key, at } => {
            let row = read(tx, key)?;
            if !row.overrun {
                overrun(tx, key, row, at);
            }
            Ok(())
        }
    }
}

fn register(tx: &mut Tx, key: ConsumerKey, new: Consumer) -> Result<(), StoreError> {
    let place = consumer::key(key);
    if tx.get(Table::Consumer, &place)?.is_some() {
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
    let row = tx.read(Table::Consumer, &consumer::key(key), consumer::decode)?;
    row.ok_or_else(|| ConsumerError::Unknown { key }.into())
}

fn put(tx: &mut Tx, key: ConsumerKey, row: &Consumer) {
    tx.put(Table::Consumer, consumer::key(key), consumer::encode(row));
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
    tx.put(Table::Audit, key::seq(number), audit::encode(&row));
}

fn overrun(tx: &mut Tx, key: ConsumerKey, mut row: Consumer, at: When) {
    row.overrun = true;
    put(tx, key, &row);
    let (next, head) = (row.next, tx.counters.next_seq);
    let act = AuditAct::Overrun { next, head };
    record(tx, at, GAPLESS.to_owned(), &row.name, act);
}

/// Every consumer, as the group of changes leaves it.
fn consumers(tx: &Tx) -> Result<Vec<(ConsumerKey, Consumer)>, StoreError> {
    let rows = tx.prefix(Table::Consumer, &[])?.into_iter();
    let read = rows.map(|(place, row)| {
        let read = consumer::read_key(&place).and_then(|key| Ok((key, consumer::decode(&row)?)));
        read.map_err(|fault| StoreError::row(Table::Consumer, &place, fault))
    });
    read.collect()
}

/// Notes which consumers have nothing to read, and overruns those whose hold has passed.
pub(super) fn review_consumers(tx: &mut Tx, at: When) -> Result<(), StoreError> {
    let head = tx.counters.next_seq;
    for (key, mut row) in consumers(tx)? {
        if row.moved.lived > at.lived {
            // The time lived through was lost: without this, the hold would not pass for as long.
            row.moved = at;
            put(tx, key, &row);
        }
        if row.next >= head {
            row.is_at_head(at);
            put(tx, key, &row);
        } else if row.hold_has_passed(head, at.lived) {
            overrun(tx, key, row, at);
        }
    }
    Ok(())
}

/// What must stay, by the policies and for every consumer that holds.
pub(super) fn floor(tx: &Tx, policies: Policies) -> Result<Floor, StoreError> {
    let consumers = consumers(tx)?;
    let rows = consumers.iter().map(|(_, row)| row);
    Ok(retain::floor(rows, policies, tx.counters.next_seq))
}
