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

mod append;
mod consumer;
mod purge;
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
use crate::error::{Contradiction, StoreError};
use crate::prepare::PreparedChange;
use crate::table::log::{Identity, IdentityParts, LogKind, LogRow};
use crate::table::repo::{RepoRow, RepoWeight};
use crate::table::{Table, dead, host, hosted, key, parked, upstream, wish};
use crate::tx::{StoredRepo, Tx};
pub use append::log_lost_numbers;
#[cfg(feature = "engine")]
pub(crate) use append::push_restated;
use append::{log_restated, log_unclaimed, push_log, strays_from_log};
use consumer::write_consumer;
#[cfg(feature = "engine")]
pub(crate) use purge::record_purge;
use purge::{begin_purge, check_purging};
use records::{forget_claims, write_claim, write_records};
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
    if let Some(consumer) = change.consumer.take() {
        write_consumer(tx, consumer)?;
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
    rows: Vec<Option<Vec<u8>>>,
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
        gave_way,
        weight,
        restate,
        purge,
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
    if row_change.stored.purging {
        check_purging(tx, &row_change, change.entry.as_ref(), purge)?;
    }
    let first = tx.counters.next_seq;
    // A row that follows from the state alone happens with the entry, or with what was logged last.
    let at = change.entry.as_ref().map(|entry| entry.at);
    let mut extras = RowExtras {
        claims,
        gave_way,
        weight,
        restate,
        purge,
        commit,
    };
    *extras.restate |= strays_from_log(&row_change);
    if matches!(row_change.next.held, Held::Damaged { .. }) {
        // Nothing tells how much is left.
        *extras.weight = None;
    }
    match &mut change.entry {
        None if keeps_held(&row_change) => {}
        None => return Err(Contradiction::Unfounded.into()),
        Some(entry) => write_entry(tx, &row_change, entry, rows, &mut extras, effects)?,
    }
    let at = at.unwrap_or(tx.counters.last_stamp);
    log_restated(tx, &row_change, at, &mut extras);
    log_unclaimed(tx, &row_change, at, &mut extras)?;
    if tx.counters.next_seq > first {
        effects.ack.numbers = Some(first..tx.counters.next_seq);
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
                gave_way: false,
                weight: Some(RepoWeight::default()),
                restate: false,
                purge: None,
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

/// The parts of a repository's row that are not the ledger's.
struct RowExtras<'a> {
    claims: &'a mut bool,
    gave_way: &'a mut bool,
    weight: &'a mut Option<RepoWeight>,
    /// Whether the log alone does not lead to what is held; see [`strays_from_log`].
    restate: &'a mut bool,
    purge: &'a mut Option<u64>,
    commit: &'a mut Arc<[u8]>,
}

fn write_entry(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    entry: &mut LogEntry,
    rows: Vec<Option<Vec<u8>>>,
    extras: &mut RowExtras<'_>,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let first = tx.counters.next_seq;
    let mut row = LogRow {
        repo: Some(row_change.id),
        lineage: row_change.next.lineage,
        source: entry.source,
        ..LogRow::new(LogKind::Identity, entry.at)
    };
    match &mut entry.what {
        EntryContent::Records(records) => {
            write_records(tx, row_change, records, rows, extras, &mut row)?;
        }
        EntryContent::Purge => return begin_purge(tx, row_change, extras, row),
        _ if !keeps_held(row_change) => return Err(Contradiction::Unfounded.into()),
        EntryContent::Claim(_) => {
            *extras.claims = true;
            let what = std::mem::replace(&mut entry.what, EntryContent::Account);
            if let EntryContent::Claim(claim) = what {
                *extras.gave_way |= write_claim(tx, row_change.id, claim, &mut row)?;
            }
        }
        EntryContent::Account => row.kind = LogKind::Account(row_change.next.account),
        EntryContent::Shown => return write_shown(tx, row_change, entry, extras, row, effects),
        EntryContent::Identity(changed) => {
            row.kind = LogKind::Identity;
            row.identity = Some(Box::new(identity(tx, row_change.next, *changed)?));
        }
    }
    effects.frame = entry.frame.take().map(|frame| (first, frame));
    push_log(tx, row);
    Ok(())
}

/// Logs that an account is shown again, and in a second row the head of its repository. A firehose
/// consumer did not receive the changes made while the account was hidden and cannot apply the
/// next commit without the second row, so both rows are in one batch.
fn write_shown(
    tx: &mut Tx,
    row_change: &RowChange<'_>,
    entry: &mut LogEntry,
    extras: &mut RowExtras<'_>,
    row: LogRow,
    effects: &mut ChangeEffects,
) -> Result<(), StoreError> {
    let Held::Exactly(head) = &row_change.next.held else {
        return Err(Contradiction::NotExact.into());
    };
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
    if *extras.claims {
        *extras.claims = forget_claims(tx, row_change.id, Some(head.rev))?.left;
    }
    effects.frame = entry.frame.take().map(|frame| (at, frame));
    Ok(())
}

/// The identity of an account, for the log.
fn identity(tx: &Tx, repo: &Repo, changed: IdentityParts) -> Result<Identity, StoreError> {
    let host = match repo.host {
        None => None,
        Some(id) => {
            let row = tx.read(Table::Host, &key::host(id), host::decode)?;
            row.map(|row| row.name)
        }
    };
    Ok(Identity {
        host,
        key: repo.signing.and_then(|signing| signing.key),
        handle: repo
            .handle
            .as_ref()
            .map(|handle| handle.as_str().to_owned()),
        changed,
    })
}

/// Writes that a repository is tracked by name.
fn write_tracked(tx: &mut Tx, did: &Did, since: Time, found: Option<String>) {
    let row = wish::encode_tracked(&wish::TrackedRow { since, found });
    tx.put(Table::Meta, wish::tracked_key(did), row);
}
