//! Purges deleted repositories in parts, and removes what a purge leaves in the log. The store has
//! the progress, so a start continues.

use std::collections::BTreeMap;

use gapless_core::ledger::{Held, Lived, Repo, RepoId, account};
use gapless_core::retain::When;
use gapless_store::apply::is_redactable;
use gapless_store::change::{Change, Redaction, Upkeep};
use gapless_store::table::log::LogKind;
use gapless_store::table::purge::PurgeRow;

use super::SimMirror;
use super::log_event::LogEvent;
use crate::world::World;

/// The most rows that one change redacts.
const REDACTED: usize = 3;

impl SimMirror {
    /// Begins to purge the deleted repositories whose grace period is over, and returns them.
    pub fn purge(&mut self, world: &World) -> Vec<RepoId> {
        let now = self.last_tick_now(world);
        let rows = self.book.repo_rows();
        let due = rows.filter(|(id, repo)| {
            account::is_purge_due(now, repo, self.purge_grace) && self.has_anything(*id, repo)
        });
        let due: Vec<RepoId> = due.map(|(id, _)| id).collect();
        for id in &due {
            let only_others = self.book.repo_ref(*id).held == Held::Nothing;
            let now = self.tick(world);
            let mut tx = self.tx(*id);
            tx.purge(now);
            self.submit(world, tx);
            self.book.events.count(LogEvent::PurgeBegun);
            if only_others {
                self.book.events.count(LogEvent::ClaimsPurged);
            }
        }
        self.purged.extend(&due);
        if !self.purges_pause {
            self.finish_purges(world);
        }
        due
    }

    /// Whether anything is stored of a repository: records, a handle, parked frames or claims.
    fn has_anything(&self, id: RepoId, repo: &Repo) -> bool {
        repo.held != Held::Nothing
            || repo.handle.is_some()
            || !self.book.parked(id).is_empty()
            || self.book.view().claims(id).next().is_some()
    }

    fn purges(&self) -> impl Iterator<Item = (u64, PurgeRow)> + use<> {
        let rows = self.book.view().purges(0);
        rows.map(|row| row.expect("the double does not fail"))
    }

    /// The repositories that are being purged, each with the purge's first log number: the last
    /// purge of the repository, because an earlier one may still be cleaned up. Whether the cleanup
    /// has come to its end does not matter, because it may be faster than the end of the purge.
    pub fn purges_under_way(&self) -> Vec<(u64, RepoId)> {
        let open = self.purges();
        let open = open.filter(|(_, row)| self.book.repo_ref(row.repo).purging);
        let last: BTreeMap<RepoId, u64> = open.map(|(number, row)| (row.repo, number)).collect();
        last.into_iter()
            .map(|(repo, number)| (number, repo))
            .collect()
    }

    /// Deletes the next part of a repository that is being purged, or ends the purge.
    pub fn continue_purge(&mut self, world: &World, number: u64) {
        let row = self.purges().find(|(found, _)| *found == number);
        let (_, row) = row.expect("the purge is under way");
        if row.deleting.is_some() {
            let at = When {
                time: world.now,
                lived: Lived(world.now.0),
            };
            let part = Upkeep::DeletePurged { purge: number, at };
            self.write_upkeep(part);
            self.touched.insert(row.repo);
            return;
        }
        let mut tx = self.row_tx(row.repo);
        if !account::is_hidden(tx.repo.account) {
            self.book.events.count(LogEvent::BackDuringPurge);
        }
        tx.end_purge();
        let mut batch = self.batch().of_upkeep();
        self.finish(world, tx, &mut batch);
        self.commit(batch);
    }

    /// Continues every purge to its end.
    pub fn finish_purges(&mut self, world: &World) {
        while let Some((number, _)) = self.purges_under_way().first().copied() {
            self.continue_purge(world, number);
        }
    }

    /// Continues the purges that a crash has interrupted.
    pub(super) fn resume_purges(&mut self, world: &World) {
        for _ in self.purges_under_way() {
            self.book.events.count(LogEvent::PurgeCrashed);
        }
        if !self.purges_pause {
            self.finish_purges(world);
        }
    }

    /// Redacts the next rows that a purge leaves in the log, and notes when nothing is left. `overdue`:
    /// whether readers have had time enough to read the rows of the purge itself. Returns whether
    /// anything was done.
    pub fn clean_up_purge(&mut self, world: &World, overdue: bool) -> bool {
        let mut open = self.purges();
        let Some((number, row)) = open.find(|(_, row)| row.finished_at.is_none()) else {
            return false;
        };
        let at = when(world);
        if row.is_redacted(number) {
            let compacted = true;
            self.write_upkeep(Upkeep::Finish {
                purge: number,
                at: at.time,
                compacted,
            });
            self.book.events.count(LogEvent::PurgeFinished);
            return true;
        }
        // First what was logged before the purge, then the rows of the purge itself.
        let own = row.upto >= number;
        let end = if own { row.rows_end } else { number };
        if own && row.deleting.is_some() {
            return false;
        }
        let (rows, upto) = self.rows_to_redact(row.repo, row.upto, end, own);
        if overdue {
            self.overdue.extend(&rows);
        }
        self.write_upkeep(Upkeep::Redact(Redaction {
            purge: number,
            rows,
            overdue,
            at,
            upto,
            ..Redaction::default()
        }));
        let after = self.purges().find(|(found, _)| *found == number);
        let upto_now = after.map_or(upto, |(_, after)| after.upto);
        let event = if upto_now < upto {
            LogEvent::OwnRowsHeldBack
        } else if own && overdue && self.read_by_all() < upto {
            LogEvent::OwnRowsOverdue
        } else {
            LogEvent::Redacted
        };
        self.book.events.count(event);
        upto_now > row.upto
    }

    /// The first numbers of some rows of a purged repository, and the number up to which the log was
    /// searched.
    fn rows_to_redact(&self, repo: RepoId, from: u64, end: u64, own: bool) -> (Vec<u64>, u64) {
        let view = self.book.view();
        let log = view.log_summaries(from).expect("the double does not fail");
        let mut rows = Vec::new();
        for row in log {
            let (first, row) = row.expect("the double does not fail");
            if first >= end {
                break;
            }
            if rows.len() == REDACTED {
                return (rows, first);
            }
            let of_purge = matches!(row.kind, LogKind::Purged(_));
            if row.repo == Some(repo) && is_redactable(row.kind) && (of_purge || !own) {
                rows.push(first);
            }
        }
        (rows, end)
    }

    /// Writes a change of upkeep.
    pub(crate) fn write_upkeep(&mut self, upkeep: Upkeep) {
        self.book.write_upkeep(Change {
            upkeep: Some(upkeep),
            ..Change::default()
        });
    }
}

/// The present moment, as upkeep notes it.
pub(crate) fn when(world: &World) -> When {
    When {
        time: world.now,
        lived: super::lived(world),
    }
}
