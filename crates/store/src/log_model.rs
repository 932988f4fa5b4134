//! A model of a consumer: a plain map that follows the log by the rules for every consumer, to be
//! compared with the store.
//!
//! The rules:
//! - Guard by log number and never by rev.
//! - Apply operations as they come.
//! - After a `restated` row, reconcile the repository. After a `lost` row, reconcile everything.
//! - After a `purged` or `redacted` row, let go of everything of the repository that is older.
//! - After a row that reaches a signed state, let go of older claims up to the rev of the state;
//!   after an `unclaimed` row, of all older claims.
//! - Move the position with the effects, and never skip a number.
//!
//! If the model differs from the store after it has read everything, either the store does not keep
//! the contract of its log, or the contract is wrong.

use std::collections::{BTreeMap, BTreeSet};

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Held, RepoId};

use crate::error::StoreError;
use crate::log_reader::{OpBytes, PageError, PageLimits, Walk, WalkPart, read_bytes, read_page};
use crate::read_view::ReadView;
use crate::table::log::{LogKind, LogRow};

/// A consumer that holds the CID of every record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogModel {
    /// The first number that is not processed yet.
    pub next: u64,
    /// Operations whose bytes were gone, because a later operation had replaced the record. Records
    /// that a purge deleted are not counted.
    pub superseded: u64,
    /// Operations whose stored bytes do not hash to their CID.
    pub spoilt: u64,
    repos: BTreeMap<RepoId, ModelRepo>,
}

/// What the model holds of a repository. Each entry has the number that put it there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ModelRepo {
    records: BTreeMap<Vec<u8>, (u64, Cid)>,
    claims: BTreeMap<Vec<u8>, ModelClaim>,
}

/// A claim as the model holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ModelClaim {
    seq: u64,
    /// The rev that the source reported.
    rev: Rev,
    /// The claimed record; `None`: claimed to be deleted.
    record: Option<Cid>,
}

/// A difference between the model and the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDifference {
    pub repo: RepoId,
    pub path: Vec<u8>,
    /// Whether a claim differs, or a record.
    pub claim: bool,
    pub model: Option<Cid>,
    pub store: Option<Cid>,
}

impl LogModel {
    /// Begins at the first number of the log.
    pub fn from_the_beginning() -> LogModel {
        LogModel {
            next: crate::table::log::FIRST_SEQ,
            ..LogModel::default()
        }
    }

    /// Begins late: takes part after part of a walk, and then follows the log.
    pub fn begin_walk(walk: &Walk) -> LogModel {
        LogModel {
            next: walk.follow_from,
            ..LogModel::default()
        }
    }

    /// Whether the model holds neither a record nor a claim.
    pub fn is_empty(&self) -> bool {
        let mut repos = self.repos.values();
        repos.all(|repo| repo.records.is_empty() && repo.claims.is_empty())
    }

    /// Whether the model holds no claim.
    pub fn claims_nothing(&self) -> bool {
        self.repos.values().all(|repo| repo.claims.is_empty())
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
        if part.ends {
            repo.claims.retain(|_, claim| claim.seq > part.seq);
            for (path, row) in &part.claims {
                repo.claims.entry(path.clone()).or_insert(ModelClaim {
                    seq: part.seq,
                    rev: row.claim.rev,
                    record: row.claim.record.as_ref().map(|(cid, _)| *cid),
                });
            }
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
            return self.reconcile_all(view);
        }
        let Some(id) = row.repo else {
            return Ok(());
        };
        self.check_bytes(view, first, row)?;
        let repo = self.repos.entry(id).or_default();
        match row.kind {
            LogKind::Purged(_) | LogKind::Redacted(_) => {
                repo.records.retain(|_, (seq, _)| *seq >= end);
                repo.claims.retain(|_, claim| claim.seq >= end);
            }
            LogKind::Unclaimed => repo.claims.retain(|_, claim| claim.seq >= first),
            LogKind::Restated => self.reconcile(view, id)?,
            LogKind::Claimed(rev) => {
                for (seq, op) in (first..).zip(&row.ops) {
                    let old = repo.claims.get(&op.path);
                    if old.is_some_and(|old| old.seq >= seq) {
                        continue;
                    }
                    let claim = ModelClaim {
                        seq,
                        rev: rev.unwrap_or(Rev::from_bits(0)),
                        record: op.cid,
                    };
                    repo.claims.insert(op.path.clone(), claim);
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
                if let Some((rev, _)) = row.commit.filter(|_| row.last) {
                    let settles = |claim: &ModelClaim| claim.seq < first && claim.rev <= rev;
                    repo.claims.retain(|_, claim| !settles(claim));
                }
            }
            LogKind::Identity | LogKind::Lost(_) | LogKind::Trimmed(_) => {}
        }
        Ok(())
    }

    /// Reads the bytes of the operations of a row, as a consumer does that needs them.
    fn check_bytes(&mut self, view: &ReadView, first: u64, row: &LogRow) -> Result<(), StoreError> {
        let mut superseded = 0;
        for op in &row.ops {
            match read_bytes(view, row, op)? {
                Some(OpBytes::Superseded { .. }) => superseded += 1,
                Some(OpBytes::Spoilt) => self.spoilt += 1,
                None | Some(OpBytes::Record(_) | OpBytes::KeyOnly | OpBytes::Redacted) => {}
            }
        }
        if superseded > 0 && !is_purged_later(view, row.repo, first)? {
            self.superseded += superseded;
        }
        Ok(())
    }

    /// Makes everything equal to what the view holds.
    fn reconcile_all(&mut self, view: &ReadView) -> Result<(), StoreError> {
        let mut walk = Walk::begin(view)?;
        let mut stored = BTreeSet::new();
        while let Some(part) = walk.next_part(view)? {
            stored.insert(part.id);
            self.take_part(&part);
        }
        self.repos.retain(|id, _| stored.contains(id));
        Ok(())
    }

    /// Makes one repository equal to what the view holds.
    fn reconcile(&mut self, view: &ReadView, id: RepoId) -> Result<(), StoreError> {
        let mut walk = Walk::of_repo(view, id)?;
        while let Some(part) = walk.next_part(view)? {
            self.take_part(&part);
        }
        Ok(())
    }

    /// The first difference to a view of the same moment. Repositories whose state is exact, or of
    /// which nothing is held, must have the same records and claims here. Claims may have given way
    /// in the store until the host has answered.
    pub fn difference(&self, view: &ReadView) -> Result<Option<ModelDifference>, StoreError> {
        let mut known = BTreeSet::new();
        for row in view.repos(RepoId(0)) {
            let (id, row) = row?;
            known.insert(id);
            if row.purging || !matches!(row.held, Held::Exactly(_) | Held::Nothing) {
                continue;
            }
            let empty = ModelRepo::default();
            let model = self.repos.get(&id).unwrap_or(&empty);
            let mut stored = BTreeMap::new();
            for record in view.records(id) {
                let record = record?;
                stored.insert(record.path().to_vec(), Some(record.cid));
            }
            let records = model.records.iter();
            let records = records.map(|(path, (_, cid))| (path, Some(*cid))).collect();
            let mut claimed = BTreeMap::new();
            for claim in view.claims(id) {
                let (path, row) = claim?;
                claimed.insert(path, row.claim.record.map(|(cid, _)| cid));
            }
            // While the host is still to be asked, claims may give way in the store.
            let owes = view.repo(id)?.is_some_and(|repo| !repo.debt.is_empty());
            let may_give_way = owes || row.held == Held::Nothing;
            let claims = model.claims.iter();
            let claims = claims.filter(|(path, _)| !may_give_way || claimed.contains_key(*path));
            let claims = claims.map(|(path, claim)| (path, claim.record)).collect();
            let different = first_difference(records, &stored)
                .map(|found| (found, false))
                .or_else(|| first_difference(claims, &claimed).map(|found| (found, true)));
            if let Some(((path, model, store), claim)) = different {
                return Ok(Some(ModelDifference {
                    repo: id,
                    path,
                    claim,
                    model: model.flatten(),
                    store: store.flatten(),
                }));
            }
        }
        let unknown = self.repos.iter().find(|(id, _)| !known.contains(id));
        Ok(unknown.map(|(id, _)| ModelDifference {
            repo: *id,
            path: Vec::new(),
            claim: false,
            model: None,
            store: None,
        }))
    }
}

/// Whether a purge of the repository begins after a number: its row is not redacted yet.
fn is_purged_later(view: &ReadView, repo: Option<RepoId>, first: u64) -> Result<bool, StoreError> {
    for purge in view.purges(first) {
        if repo == Some(purge?.1.repo) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is held at a path; the inner `None` is a claimed deletion.
type Entry = Option<Option<Cid>>;

/// The first path at which two maps differ, with both entries.
fn first_difference(
    model: BTreeMap<&Vec<u8>, Option<Cid>>,
    store: &BTreeMap<Vec<u8>, Option<Cid>>,
) -> Option<(Vec<u8>, Entry, Entry)> {
    let paths: BTreeSet<&Vec<u8>> = model.keys().copied().chain(store.keys()).collect();
    let mut entries = paths
        .into_iter()
        .map(|path| (path, model.get(path).copied(), store.get(path).copied()));
    let found = entries.find(|(_, here, there)| here != there);
    found.map(|(path, here, there)| (path.clone(), here, there))
}
