//! Repairs what the consumers of the log rely on: their rows, the purges that are under way, and
//! the rows that tell a consumer to compare what it has with the store.

use gapless_core::ledger::{Held, RepoId};
use gapless_core::retain::Consumer;

use super::fix::{BATCH_BYTES, RepairRun};
use crate::apply::{push_restated, record_purge};
use crate::engine::KeyRange;
use crate::error::StoreError;
use crate::table::repo::RepoRow;
use crate::table::{Table, audit, consumer, key, meta, purge, repo};

impl RepairRun<'_> {
    /// Removes rows about consumers of the log that cannot be read, or whose position is beyond the
    /// log. A consumer whose row is gone has to register again, and a store without identities gets
    /// new ones at its next start, so that consumers of the old log begin again.
    pub(super) fn fix_consumers(&mut self) -> Result<(), StoreError> {
        let head = self.highest_seq();
        let mut rows = self.table(Table::Consumer);
        while let Some((place, row)) = rows.next()? {
            let read = consumer::read_key(&place).and_then(|_| consumer::decode(&row));
            match read {
                Ok(row) if row.holds_from <= head => self.note_consumer(&row),
                _ => self.remove(Table::Consumer, place)?,
            }
        }
        let mut rows = self.table(Table::Audit);
        while let Some((place, row)) = rows.next()? {
            match key::read_seq(&place).and_then(|number| Ok((number, audit::decode(&row)?))) {
                Ok((number, _)) => self.highest.audit = self.highest.audit.max(number),
                Err(_) => self.remove(Table::Audit, place)?,
            }
        }
        let ids = self.view.get(Table::Meta, meta::IDS_KEY)?;
        if ids.is_some_and(|row| meta::decode_ids(&row).is_err()) {
            self.remove(Table::Meta, meta::IDS_KEY)?;
        }
        let lived = self.view.get(Table::Meta, meta::LIVED_KEY)?;
        if lived.is_some_and(|row| meta::decode_lived(&row).is_err()) {
            // Holds and periods of grace go on from the latest moment that is known.
            let lived = meta::encode_lived(self.highest.lived);
            self.mend_row(Table::Meta, meta::LIVED_KEY, lived)?;
        }
        Ok(())
    }

    fn note_consumer(&mut self, row: &Consumer) {
        let lived = row.moved.lived.max(row.registered.lived);
        self.highest.lived = self.highest.lived.max(lived);
    }

    /// Checks that a repository that is being purged names its purge. Otherwise the purge begins
    /// again, because nothing tells how far it has come.
    pub(super) fn fix_purging(&mut self, id: RepoId, row: &mut RepoRow) -> Result<(), StoreError> {
        if !row.repo.purging {
            row.purge = None;
            return Ok(());
        }
        row.repo.held = Held::Nothing;
        let recorded = match row.purge {
            None => false,
            Some(number) => {
                let found = self.view.get(Table::Meta, &purge::key(number))?;
                let found = found.and_then(|row| purge::decode(&row).ok());
                found.is_some_and(|purge| purge.repo == id)
            }
        };
        if !recorded {
            self.unrecorded_purges.insert(id.0);
            self.report.mended_rows += 1;
        }
        Ok(())
    }
}

/// Removes rows of purges that cannot be read, and ends purges whose repository is not being
/// purged.
pub(super) fn fix_purges(run: &mut RepairRun<'_>) -> Result<(), StoreError> {
    for row in run.view.range(Table::Meta, KeyRange::prefix(purge::PREFIX)) {
        let (place, row) = row?;
        let read = purge::read_key(&place).and_then(|key| Ok((key, purge::decode(&row)?)));
        let Ok((number, mut row)) = read else {
            run.remove(Table::Meta, place)?;
            continue;
        };
        let stored = run
            .tx
            .read(Table::Repo, &key::repo(row.repo), repo::decode)?;
        let named = stored.and_then(|row| row.purge);
        if row.deleting.is_some() && named != Some(number) {
            row.deleting = None;
            run.mend_row(Table::Meta, place, purge::encode(&row))?;
        }
    }
    Ok(())
}

/// Begins the purges again that are under way and not recorded any more.
pub(super) fn record_purges(run: &mut RepairRun<'_>) -> Result<(), StoreError> {
    for id in std::mem::take(&mut run.unrecorded_purges) {
        let id = RepoId(id);
        record_purge(&mut run.tx, id, run.now.time)?;
        run.flush_at(BATCH_BYTES)?;
    }
    Ok(())
}

/// Logs that consumers have to compare the repositories that hold something of which the log no
/// longer tells.
pub(super) fn log_restated(run: &mut RepairRun<'_>, lost: bool) -> Result<(), StoreError> {
    if !lost {
        return Ok(());
    }
    let mut rows = run.table(Table::Repo);
    while let Some((place, _)) = rows.next()? {
        let Ok(id) = key::read_repo(&place) else {
            continue;
        };
        if !run.restated.has(id.0) {
            continue;
        }
        let row = run.tx.read(Table::Repo, &place, repo::decode)?;
        if let Some(row) = row.filter(|row| matches!(row.repo.held, Held::Exactly(_))) {
            push_restated(&mut run.tx, id, &row.repo, run.now.time);
            run.flush_at(BATCH_BYTES)?;
        }
    }
    Ok(())
}
