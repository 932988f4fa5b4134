//! A model of a consumer: a plain map that follows the log by the rules for every consumer, to be
//! compared with the store.
//!
//! The rules: guard by log number and never by rev; apply operations as they come; reconcile a
//! repository after `restated` and everything from the range of a `lost` row; let go of what is older
//! than a `purged`, `redacted` or `unclaimed` row; move the position with the effects; and never skip
//! a number. If the model differs from the store after it has read everything, either the store
//! does not keep the contract of its log, or the contract is wrong.

use std::collections::BTreeMap;

use gapless_atp::cid::Cid;
use gapless_core::ledger::{Held, RepoId};

use crate::error::StoreError;
use crate::log_reader::{PageError, PageLimits, Walk, WalkPart, read_page};
use crate::read_view::ReadView;
use crate::table::log::{LogKind, LogRow};

/// A consumer that holds the CID of every record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogModel {
    /// The first number that is not processed yet.
    pub next: u64,
    repos: BTreeMap<RepoId, ModelRepo>,
}

/// What the model holds of a repository. Each entry has the number that put it there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ModelRepo {
    records: BTreeMap<Vec<u8>, (u64, Cid)>,
    /// Claimed records; `None`: claimed to be deleted.
    claims: BTreeMap<Vec<u8>, (u64, Option<Cid>)>,
}

/// A difference between the model and the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDifference {
    pub repo: RepoId,
    pub path: Vec<u8>,
    pub model: Option<Cid>,
    pub store: Option<Cid>,
}

impl LogModel {
    /// Begins at the first number of the log.
    pub fn from_the_beginning() -> LogModel {
        LogModel {
            next: crate::table::log::FIRST_SEQ,
            repos: BTreeMap::new(),
        }
    }

    /// Begins late: takes part after part of a walk, and then follows the log.
    pub fn begin_walk(walk: &Walk) -> LogModel {
        LogModel {
            next: walk.follow_from,
            repos: BTreeMap::new(),
        }
    }

    /// Takes a part of a walk: what the store holds in the part's range of paths replaces everything
    /// older there.
    pub fn take_part(&mut self, part: &WalkPart) {
        let repo = self.repos.entry(part.id).or_default();
        let last = part.records.last().map(|record| record.path());
        let within = |path: &[u8]| {
            part.after.as_deref().is_none_or(|after| path > after)
                && (part.ends || last.is_some_and(|last| path <= last))
        };
        repo.records
            .retain(|path, (seq, _)| !within(path) || *seq > part.seq);
        for record in &part.records {
            let entry = repo.records.entry(record.path().to_vec());
            entry.or_insert((part.seq, record.cid));
        }
        let settled = part.repo.debt.is_empty() && part.repo.held != Held::Nothing;
        if part.ends && settled {
            repo.claims.retain(|_, (seq, _)| *seq > part.seq);
        }
    }

    /// Reads one page and processes its rows. Returns whether the view has more.
    pub fn follow(&mut self, view: &ReadView, limits: PageLimits) -> Result<bool, PageError> {
        let page = read_page(view, self.next, limits)?;
        for (first, row) in page.rows {
            self.process(view, first, &row)?;
            self.next = first.saturating_add(row.numbers());
        }
        Ok(page.more)
    }

    fn process(&mut self, view: &ReadView, first: u64, row: &LogRow) -> Result<(), StoreError> {
        let end = first.saturating_add(row.numbers());
        if let LogKind::Lost(_) = row.kind {
            return self.reconcile_range(view, first, end);
        }
        let Some(id) = row.repo else {
            return Ok(());
        };
        let repo = self.repos.entry(id).or_default();
        match row.kind {
            LogKind::Purged(_) | LogKind::Redacted(_) => {
                repo.records.retain(|_, (seq, _)| *seq >= end);
                repo.claims.retain(|_, (seq, _)| *seq >= end);
            }
            LogKind::Unclaimed => repo.claims.retain(|_, (seq, _)| *seq >= first),
            LogKind::Restated => return self.reconcile(view, id),
            LogKind::Claimed => {
                for (seq, op) in (first..).zip(&row.ops) {
                    repo.claims.insert(op.path.clone(), (seq, op.cid));
                }
            }
            LogKind::Live | LogKind::Backfill | LogKind::Repair | LogKind::Account(_) => {
                for (seq, op) in (first..).zip(&row.ops) {
                    if repo.records.get(&op.path).is_some_and(|(at, _)| *at >= seq) {
                        continue;
                    }
                    match op.cid {
                        Some(cid) => {
                            repo.records.insert(op.path.clone(), (seq, cid));
                        }
                        None => {
                            repo.records.remove(&op.path);
                        }
                    }
                }
            }
            LogKind::Identity | LogKind::Lost(_) | LogKind::Trimmed(_) => {}
        }
        Ok(())
    }

    fn reconcile_range(&mut self, view: &ReadView, first: u64, end: u64) -> Result<(), StoreError> {
        let lost = |seq: u64| (first..end).contains(&seq);
        let touched: Vec<RepoId> = self
            .repos
            .iter()
            .filter(|(_, repo)| {
                repo.records.values().any(|(seq, _)| lost(*seq))
                    || repo.claims.values().any(|(seq, _)| lost(*seq))
            })
            .map(|(id, _)| *id)
            .collect();
        touched
            .into_iter()
            .try_for_each(|id| self.reconcile(view, id))
    }

    /// Makes one repository equal to what the view holds.
    fn reconcile(&mut self, view: &ReadView, id: RepoId) -> Result<(), StoreError> {
        let mut walk = Walk::of_repo(view, id)?;
        while let Some(part) = walk.next_part(view)? {
            self.take_part(&part);
        }
        Ok(())
    }

    /// The first difference to a view of the same moment: a repository whose state is exact, or of
    /// which nothing is held, must have the same records here.
    pub fn difference(&self, view: &ReadView) -> Result<Option<ModelDifference>, StoreError> {
        for row in view.repos(RepoId(0)) {
            let (repo, row) = row?;
            if !matches!(row.held, Held::Exactly(_) | Held::Nothing) {
                continue;
            }
            let empty = ModelRepo::default();
            let model = &self.repos.get(&repo).unwrap_or(&empty).records;
            let mut stored = BTreeMap::new();
            if !row.purging {
                for record in view.records(repo) {
                    let record = record?;
                    stored.insert(record.path().to_vec(), record.cid);
                }
            }
            let paths = model.keys().chain(stored.keys());
            for path in paths {
                let here = model.get(path).map(|(_, cid)| *cid);
                let there = stored.get(path).copied();
                if here != there {
                    return Ok(Some(ModelDifference {
                        repo,
                        path: path.clone(),
                        model: here,
                        store: there,
                    }));
                }
            }
        }
        Ok(None)
    }
}
