//! Turns changes into rows. No other module does so.
//!
//! Live commits, backfills, repairs, claims, account states and purges all pass
//! through [`apply`]. It writes records and superseded versions, the log and its
//! numbers, the ledger's rows, and the rows derived from them (debts, and which
//! host has which repository), so those tables cannot disagree.
//!
//! [`apply`] refuses a change that contradicts itself or the store and undoes all
//! of it; such a contradiction is a bug in Gapless. The caller has verified that
//! the records lead to a signed root; `apply` checks that they start from the
//! state that the store holds.

mod records;
mod upkeep;

use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Held, Host, HostId, Repo, RepoId, Time, UpstreamId};

use crate::change::{
    Ack, DeadChange, EntryContent, HostChange, LogEntry, RepoChange, Subject, UpstreamChange,
    WishChange,
};
use crate::cursor::EventPosition;
use crate::engine::Slice;
use crate::error::{Contradiction, StoreError};
use crate::prepare::PreparedChange;
use crate::table::log::{self, LogKind, LogRow};
use crate::table::repo::RepoRow;
use crate::table::{Table, dead, host, hosted, key, parked, upstream, wish};
use crate::tx::{StoredRepo, Tx};
use records::{forget_claims, purge, write_claims, write_records};
pub use upkeep::is_redactable;
use upkeep::write_upkeep;

/// The effects of a change beyond its rows.
#[derive(Debug, Default)]
pub struct ChangeEffects {
    pub ack: Ack,
    /// A frame to store, with the log number of its row.
    pub frame: Option<(u64, Vec<u8>)>,
    pub done: Option<EventPosition>,
    /// Log numbers of the frames to overwrite before the change is durable.
    pub redact: Vec<u64>,
    /// The numbering in an upstream's new row.
    pub numbering: Option<(UpstreamId, u32)>,
}

/// Writes a change into a group, or refuses it and leaves the group untouched.
pub fn apply(tx: &mut Tx, prepared: PreparedChange) -> Result<ChangeEffects, StoreError> {
    match write(tx, prepared) {
        Ok(effects) => {
            tx.keep();
            Ok(effects)
        }
        Err(error) => {
            tx.undo();
            Err(error)
        }
    }
}

fn write(tx: &mut Tx, prepared: PreparedChange) -> Result<ChangeEffects, StoreError> {
    let PreparedChange {
        mut change, rows, ..
    } = prepared;
    let mut effects = ChangeEffects::default();
    if change.tick > tx.counters.last_tick {
        tx.counters.last_tick = change.tick;
    }
    let gone = match change.host.take() {
        Some(HostChange::Gone(host)) => Some(host),
        Some(host) => write_host(tx, host, &mut effects).map(|()| None)?,
        None => None,
    };
    if let Some(upstream) = change.upstream.take() {
        write_upstream(tx, upstream, &mut effects)?;
    }
    // Only now: the upstream's new row may no longer refer to the host.
    if let Some(host) = gone {
        forget_host(tx, host)?;
    }
    if let Some(repo) = &mut change.repo {
        write_repo(tx, repo, rows, &mut effects)?;
    }
    if let Some(dead) = change.dead.take() {
        write_dead(tx, dead, &mut effects)?;
    }
    match change.wish.take() {
        None => {}
        Some(WishChange::Track(did, since)) => write_tracked(tx, &did, since, None),
        Some(WishChange::Found(did, since, by)) => write_tracked(tx, &did, since, Some(by)),
        Some(WishChange::Untrack(did)) => tx.delete(Table::Meta, wish::tracked_key(&did)),
        Some(WishChange::Filter(filter)) => {
            tx.put(Table::Meta, wish::FILTER_KEY, wish::encode_filter(&filter));
        }
    }
    if let Some(upkeep) = change.upkeep.take() {
        write_upkeep(tx, upkeep, &mut effects)?;
    }
    if let Some(done) = &change.done
        && !tx.has_upstream(done.upstream)?
    {
        return Err(Contradiction::NoSuchUpstream(done.upstream.0).into());
    }
    effects.done = change.done;
    Ok(effects)
}

fn write_host(
    tx: &mut Tx,
    change: HostChange,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let id = match change {
        HostChange::Named(name) => tx.intern_host(&Host {
            name,
            ..Host::default()
        })?,
        HostChange::New(row) => tx.intern_host(&row)?,
        HostChange::Gone(id) => return forget_host(tx, id),
        HostChange::Row(id, row) => {
            let old = tx
                .read(Table::Host, &key::host(id), host::decode)?
                .ok_or(Contradiction::NoSuchHost(id.0))?;
            if old.name != row.name {
                return Err(Contradiction::Renamed.into());
            }
            tx.put(Table::Host, key::host(id), host::encode(&row));
            id
        }
    };
    effects.ack.host = Some(id);
    Ok(())
}

/// Deletes a host that no row refers to. Its number is not assigned again.
fn forget_host(tx: &mut Tx, id: HostId) -> Result<(), StoreError> {
    let row = tx
        .read(Table::Host, &key::host(id), host::decode)?
        .ok_or(Contradiction::NoSuchHost(id.0))?;
    let mut used = !tx.prefix(Table::Hosted, &key::host(id))?.is_empty();
    for (place, row) in tx.prefix(Table::Upstream, &[])? {
        let failed = |fault| StoreError::row(Table::Upstream, &place, fault);
        let (_, is_row) = key::read_upstream(&place).map_err(failed)?;
        used |= is_row && upstream::decode(&row).map_err(failed)?.host == Some(id);
    }
    if used {
        return Err(Contradiction::HostInUse(id.0).into());
    }
    tx.delete(Table::Host, key::host(id));
    tx.delete(Table::HostName, row.name.as_str());
    Ok(())
}

fn write_upstream(
    tx: &mut Tx,
    change: UpstreamChange,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let (id, row) = match change {
        UpstreamChange::New(row) => {
            let id = UpstreamId(tx.counters.next_upstream);
            tx.counters.next_upstream += 1;
            (id, row)
        }
        UpstreamChange::Row(id, row) => {
            let old = tx
                .read(Table::Upstream, &key::upstream(id), upstream::decode)?
                .ok_or(Contradiction::NoSuchUpstream(id.0))?;
            if row.numbering < old.numbering {
                return Err(Contradiction::NumberingBack.into());
            }
            if row.epoch < old.epoch {
                return Err(Contradiction::EpochBack.into());
            }
            (id, row)
        }
    };
    tx.put(Table::Upstream, key::upstream(id), upstream::encode(&row));
    effects.ack.upstream = Some(id);
    effects.numbering = Some((id, row.numbering));
    Ok(())
}

fn write_dead(
    tx: &mut Tx,
    change: DeadChange,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let (number, letter) = match change {
        DeadChange::New(mut letter) => {
            // This change may have just assigned the repository's number.
            letter.repo = letter.repo.or(effects.ack.repo);
            let number = tx.counters.next_dead;
            tx.counters.next_dead += 1;
            (number, letter)
        }
        DeadChange::Row(number, letter) => {
            if tx.get(Table::Dead, &key::seq(number))?.is_none() {
                return Err(Contradiction::NoSuchDeadLetter(number).into());
            }
            (number, letter)
        }
    };
    tx.put(Table::Dead, key::seq(number), dead::encode(&letter));
    effects.ack.dead = Some(number);
    Ok(())
}

/// A repository's row before and after a change.
struct RowChange<'a> {
    id: RepoId,
    stored: &'a Repo,
    next: &'a Repo,
}

fn write_repo(
    tx: &mut Tx,
    change: &mut RepoChange,
    rows: Vec<Option<Slice>>,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let mut found = find_repo(tx, change)?;
    let id = found.id;
    effects.ack.repo = Some(id);
    for rev in &change.unpark {
        tx.delete(Table::Parked, key::parked(id, *rev));
    }
    for frame in &change.park {
        let place = key::parked(id, frame.parked.head.rev);
        tx.put(Table::Parked, place, parked::encode(frame));
    }
    if change.row.is_none() && change.entry.is_none() {
        return Ok(());
    }
    let owed = found.row.owes;
    // Swapped because the row is too large to copy: from here on `change` has the old row.
    if let Some(row) = &mut change.row {
        std::mem::swap(row, &mut found.row.repo);
    }
    let RepoRow {
        repo: next,
        claims,
        commit,
        ..
    } = &mut found.row;
    let row_change = RowChange {
        id,
        stored: change.row.as_ref().unwrap_or(next),
        next,
    };
    if row_change.next.lineage < row_change.stored.lineage {
        return Err(Contradiction::LineageBack.into());
    }
    match &mut change.entry {
        None if keeps_held(&row_change) => {}
        None => return Err(Contradiction::Unfounded.into()),
        Some(entry) => write_entry(
            tx,
            &row_change,
            entry,
            rows,
            (&mut *claims, commit),
            effects,
        )?,
    }
    // If nothing is held, claims stay: only a purge deletes those.
    if *claims && row_change.next.debt.is_empty() && row_change.next.held != Held::Nothing {
        *claims = forget_claims(tx, id, None)?;
    }
    write_hosted(tx, &row_change)?;
    tx.put_repo(found, owed);
    Ok(())
}

/// The repository as it is stored, or a blank one if there is none yet.
fn find_repo(tx: &mut Tx, change: &RepoChange) -> Result<Box<StoredRepo>, StoreError> {
    let id = match &change.subject {
        Subject::Id(id) => *id,
        Subject::Did(did) => tx.intern_did(did)?,
    };
    let stored = match (tx.repo(id)?, &change.subject) {
        (Some(stored), _) => stored,
        (None, Subject::Did(_)) if change.row.is_none() && change.entry.is_none() => {
            return Err(Contradiction::NameWithoutRow.into());
        }
        (None, Subject::Did(did)) => {
            let row = RepoRow {
                repo: Repo::new(did.clone()),
                owes: false,
                claims: false,
                commit: Arc::default(),
            };
            Box::new(StoredRepo { id, row })
        }
        (None, Subject::Id(_)) => return Err(Contradiction::NoSuchRepo(id.0).into()),
    };
    match &change.row {
        Some(row) if row.did != stored.row.repo.did => Err(Contradiction::OtherRepo.into()),
        _ => Ok(stored),
    }
}

/// Whether a row may come without records: it holds what the stored row holds, or is damaged.
fn keeps_held(row_change: &RowChange<'_>) -> bool {
    row_change.stored.held == row_change.next.held
        || matches!(row_change.next.held, Held::Damaged { .. })
}

/// Moves the repository to the host that its new row names.
fn write_hosted(tx: &mut Tx, row_change: &RowChange<'_>) -> Result<(), StoreError> {
    let RowChange { id, stored, next } = *row_change;
    if stored.host == next.host {
        return Ok(());
    }
    if let Some(old) = stored.host {
        tx.delete(Table::Hosted, key::hosted(old, id));
    }
    if let Some(new) = next.host {
        if tx.get(Table::Host, &key::host(new))?.is_none() {
            return Err(Contradiction::NoSuchHost(new.0).into());
        }
        tx.put(Table::Hosted, key::hosted(new, id), hosted::encode());
    }
    Ok(())
}

/// The parts of a repository's row that are not the ledger's: whether it has claims, and the
/// signed commit.
type RowExtras<'a> = (&'a mut bool, &'a mut Arc<[u8]>);

fn write_entry(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    entry: &mut LogEntry,
    rows: Vec<Option<Slice>>,
    (claims, commit): RowExtras<'_>,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let first = tx.counters.next_seq;
    let mut row = LogRow {
        kind: LogKind::Identity,
        at: entry.at,
        repo: Some(row_change.id),
        commit: None,
        last: true,
        new_lineage: row_change.next.lineage > row_change.stored.lineage,
        source: entry.source,
        ops: Vec::new(),
    };
    match &mut entry.what {
        EntryContent::Records(records) => {
            write_records(tx, row_change, records, rows, (claims, commit), &mut row)?;
        }
        EntryContent::Purge => return purge(tx, row_change, (claims, commit), row, effects),
        _ if !keeps_held(row_change) => return Err(Contradiction::Unfounded.into()),
        EntryContent::Claims(said) => {
            row.kind = LogKind::Claimed;
            *claims = true;
            write_claims(tx, row_change.id, std::mem::take(said), &mut row);
        }
        EntryContent::Account => row.kind = LogKind::Account(row_change.next.account),
        EntryContent::Shown => return write_shown(tx, row_change, entry, row, effects),
        EntryContent::Identity => row.kind = LogKind::Identity,
    }
    effects.frame = entry.frame.take().map(|frame| (first, frame));
    push_log(tx, row);
    effects.ack.numbers = Some(first..tx.counters.next_seq);
    Ok(())
}

/// Logs that an account is shown again, and in a second row the head of its repository. A firehose
/// consumer did not receive the changes made while the account was hidden and cannot apply the
/// next commit without the second row, so both rows are in one batch.
fn write_shown(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    entry: &mut LogEntry,
    row: LogRow,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let Held::Exactly(head) = &row_change.next.held else {
        return Err(Contradiction::NotExact.into());
    };
    let first = tx.counters.next_seq;
    let told = LogRow {
        kind: LogKind::Account(row_change.next.account),
        ..row.clone()
    };
    push_log(tx, told);
    let at = tx.counters.next_seq;
    let is_at = LogRow {
        kind: LogKind::Repair,
        commit: Some((head.rev, head.commit)),
        ..row
    };
    push_log(tx, is_at);
    effects.frame = entry.frame.take().map(|frame| (at, frame));
    effects.ack.numbers = Some(first..tx.counters.next_seq);
    Ok(())
}

/// Appends a row to the log.
fn push_log(tx: &mut Tx, row: LogRow) {
    let first = tx.counters.next_seq;
    tx.counters.next_seq += row.numbers();
    tx.put_with(Table::Log, key::seq(first), |bytes| log::write(bytes, &row));
}

/// Writes a `lost` row over the log numbers that a store has acknowledged and lost, so that no
/// number is assigned twice.
pub fn log_lost_numbers(tx: &mut Tx, batch: u64, next_seq: u64, at: Time) {
    tx.counters.batch = tx.counters.batch.max(batch);
    let lost = next_seq.saturating_sub(tx.counters.next_seq);
    if lost > 0 {
        let row = LogRow {
            kind: LogKind::Lost(lost),
            at,
            repo: None,
            commit: None,
            last: true,
            new_lineage: false,
            source: None,
            ops: Vec::new(),
        };
        push_log(tx, row);
    }
    tx.keep();
}

/// Writes that a repository is tracked by name.
fn write_tracked(tx: &mut Tx, did: &Did, since: Time, found: Option<String>) {
    let row = wish::encode_tracked(&wish::TrackedRow { since, found });
    tx.put(Table::Meta, wish::tracked_key(did), row);
}
