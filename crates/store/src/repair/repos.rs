//! Repairs repositories: compares the held records with the signed root, and makes the
//! other tables agree.

use gapless_atp::cid::Cid;
use gapless_atp::mst::Builder;
use gapless_atp::repo::Commit;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::{Debt, DebtReason, Head, Held, Repo, RepoId, UpstreamId, cover};

use super::fix::RepairRun;
use crate::check::is_commit_of;
use crate::engine::RawRow;
use crate::error::StoreError;
use crate::table::repo::{self, RepoRow, RepoWeight};
use crate::table::{Table, claimed, debt as debts, did, hosted, key, parked, record, version};
use crate::walk::{RepoRows, RepoTables};

const STAGE: &str = "repositories";

/// What the other tables hold of a repository, without the rows that cannot be read: the repair
/// removes those.
#[derive(Default)]
struct RepoContents {
    weight: RepoWeight,
    /// Whether a record was removed.
    broken: bool,
    root: Option<Cid>,
    claims: bool,
    /// Whether a claim was removed, which consumers of the log still have.
    lost_claims: bool,
    /// Whether a lost row of the log may have put or replaced anything here.
    unlogged: bool,
    debt: Option<Debt>,
}

impl RepairRun<'_> {
    /// Finds the repositories that have a DID and no row, because the row was lost or damaged.
    pub(super) fn find_rowless(&mut self) -> Result<(), StoreError> {
        let mut rows = self.table(Table::Did);
        while let Some((place, row)) = rows.next()? {
            let name = std::str::from_utf8(&place).ok();
            let name = name.and_then(|name| gapless_atp::syntax::Did::parse(name).ok());
            let (Ok(id), Some(name)) = (did::decode(&row), name) else {
                self.remove(Table::Did, place)?;
                continue;
            };
            self.highest.repo = self.highest.repo.max(id.0);
            let row = self.view.get(Table::Repo, &key::repo(id))?;
            let sound = row.is_some_and(|row| repo::decode(&row).is_ok());
            if !sound {
                self.rowless.insert(id.0, name);
            }
        }
        self.drop_claimed()
    }

    /// Drops the DIDs that are also in the row of another repository: such a DID leads to the wrong
    /// number, and no row is missing.
    fn drop_claimed(&mut self) -> Result<(), StoreError> {
        if self.rowless.is_empty() {
            return Ok(());
        }
        let mut rows = self.table(Table::Repo);
        while let Some((_, row)) = rows.next()? {
            if let Ok(row) = repo::decode(&row) {
                self.rowless.retain(|_, did| *did != row.repo.did);
            }
        }
        Ok(())
    }

    pub(super) fn fix_repos(&mut self) -> Result<(), StoreError> {
        let view = self.view.clone();
        let mut tables = RepoTables::new(&*view)?;
        let mut rows = RepoRows::new(&*view, Table::Repo)?;
        let of = self.counters.next_repo;
        while let Some(id) = lowest_id([rows.next_repo(), tables.next_repo(), self.next_rowless()])
        {
            self.progress(STAGE, id, of);
            self.highest.repo = self.highest.repo.max(id);
            let id = RepoId(id);
            let there = rows.next_up_to(id.0)?.map(|(_, (_, row))| row);
            let stored = there.as_ref().and_then(|row| repo::decode(row).ok());
            let named = self.rowless.remove(&id.0);
            let row = stored.clone().or_else(|| named.map(blank_row));
            let found = self.read_tables(id, &mut tables, row.is_some())?;
            self.report.repos += u64::from(row.is_some());
            if row.is_some() {
                self.known.insert(id.0);
            }
            match row {
                Some(row) => self.fix_repo(id, stored, row, found)?,
                None if there.is_some() => self.remove(Table::Repo, key::repo(id))?,
                None => {}
            }
        }
        Ok(())
    }

    fn next_rowless(&self) -> Option<u64> {
        self.rowless.keys().next().copied()
    }

    /// Reads what the other tables hold of a repository and removes what cannot be read,
    /// or everything if the repository does not exist (`keep` is false).
    fn read_tables(
        &mut self,
        id: RepoId,
        tables: &mut RepoTables,
        keep: bool,
    ) -> Result<RepoContents, StoreError> {
        let mut found = RepoContents::default();
        let mut builder = Builder::new(|_| {});
        while let Some(row) = self.next_of(id, &mut tables.record, keep)? {
            let (place, row) = row;
            let path = place.get(8..).unwrap_or_default();
            let sound = record::decode(&row).is_ok_and(|row| {
                found.unlogged |= self.is_lost(row.seq);
                row.seq < self.highest_seq()
                    && row.bytes.is_none_or(|bytes| row.cid.matches(bytes))
                    && builder.push(path, row.cid).is_ok()
            });
            if sound {
                found.weight.add(record::size(&row));
            } else {
                found.broken = true;
                self.remove(Table::Record, place)?;
            }
        }
        found.root = Some(builder.finish());
        while let Some((place, row)) = self.next_of(id, &mut tables.version, keep)? {
            let read = key::read_version(&place).and_then(|_| version::decode(&row));
            let sound = read.is_ok_and(|row| {
                found.unlogged |= self.is_lost(row.seq) || self.is_lost(row.superseded_by);
                row.seq.max(row.superseded_by) < self.highest_seq()
                    && row.bytes.is_none_or(|bytes| row.cid.matches(bytes))
            });
            if !sound {
                self.remove(Table::Version, place)?;
            }
        }
        while let Some((place, row)) = self.next_of(id, &mut tables.claimed, keep)? {
            match claimed::decode(&row) {
                Ok(row) if row.seq < self.highest_seq() => found.claims = true,
                _ => {
                    found.lost_claims = true;
                    self.remove(Table::Claimed, place)?;
                }
            }
        }
        while let Some((place, row)) = self.next_of(id, &mut tables.parked, keep)? {
            let read = key::read_parked(&place).and_then(|key| Ok((key, parked::decode(&row)?)));
            let sound = read.is_ok_and(|((_, rev), frame)| frame.parked.head.rev == rev);
            if !sound {
                self.remove(Table::Parked, place)?;
            }
        }
        while let Some((place, row)) = self.next_of(id, &mut tables.debt, keep)? {
            found.debt = debts::decode(&row).ok();
            if found.debt.is_none() {
                self.remove(Table::Debt, place)?;
            }
        }
        Ok(found)
    }

    /// The next row of a repository. Removes the rows before it, and the repository's own
    /// rows if `keep` is false.
    fn next_of(
        &mut self,
        id: RepoId,
        rows: &mut RepoRows,
        keep: bool,
    ) -> Result<Option<RawRow>, StoreError> {
        while let Some((of, (place, row))) = rows.next_up_to(id.0)? {
            if of == id.0 && keep {
                return Ok(Some((place, row)));
            }
            self.remove(rows.table(), place)?;
        }
        Ok(None)
    }

    fn fix_repo(
        &mut self,
        id: RepoId,
        stored: Option<RepoRow>,
        mut row: RepoRow,
        found: RepoContents,
    ) -> Result<(), StoreError> {
        let now = self.now;
        let owed = (row.owes, found.debt);
        row.repo.debt = found.debt.unwrap_or_default();
        if row.owes && found.debt.is_none() {
            debt::owe(
                now,
                &mut row.repo,
                DebtKind::Compare,
                DebtReason::StoreRepaired,
            );
        }
        row.claims |= found.claims;
        row.gave_way |= found.lost_claims;
        self.fix_purging(id, &mut row)?;
        if row.weight.is_some() && !row.repo.purging {
            row.weight = Some(found.weight);
        }
        if found.unlogged {
            self.restated.insert(id.0);
        }
        self.fix_references(&mut row.repo);
        if let Some(head) = signed_head(&row, found.root) {
            row.repo.held = Held::Exactly(head);
        }
        let whole = match &row.repo.held {
            Held::Exactly(head) => {
                let sound = if row.repo.filter.holds_all_keys() {
                    found.root == Some(head.data)
                } else {
                    // The root cannot be recomputed, so nothing proves the records.
                    !self.lost()
                };
                sound && !found.broken
            }
            // What the purge has not deleted yet.
            Held::Nothing if row.repo.purging => true,
            Held::Nothing => found.weight.records == 0 && !found.broken,
            // After a loss it is unknown which chunks were written.
            Held::Applying { .. } => !found.broken && !self.lost(),
            Held::Damaged { .. } => true,
        };
        if !whole {
            drop_head(&mut row);
            debt::owe_fetch(now, &mut row.repo, DebtReason::StoreRepaired);
            cover::unset_marker(now.tick, &mut row.repo);
            self.count_damaged(&row.repo.did);
        } else if let Held::Exactly(head) = row.repo.held
            && !row.commit.is_empty()
            && !is_commit_of(&row.commit, row.repo.did.as_str(), &head)
        {
            row.commit = Default::default();
            debt::owe_fetch(now, &mut row.repo, DebtReason::StoreRepaired);
        } else if stored.is_none() || owes_no_fetch_though_damaged(&row.repo) {
            debt::owe_fetch(now, &mut row.repo, DebtReason::StoreRepaired);
        }
        row.owes = !debts::is_empty(&row.repo.debt);
        self.write_repo(id, stored.as_ref(), &row, owed)
    }

    /// Removes references to hosts and upstreams that do not exist.
    fn fix_references(&mut self, repo: &mut Repo) {
        if repo.host.is_some_and(|host| !self.hosts.contains(&host.0)) {
            repo.host = None;
            debt::owe(self.now, repo, DebtKind::Resolve, DebtReason::StoreRepaired);
        }
        let known = |id: UpstreamId| self.upstreams.contains_key(&id.0);
        repo.relay = repo.relay.filter(|id| known(*id));
        if repo.cover.is_some_and(|id| !known(id))
            || repo.marker.is_some_and(|marker| !known(marker.cover))
        {
            repo.cover = None;
            repo.first_rev_since_reset = None;
            cover::unset_marker(self.now.tick, repo);
        }
    }

    fn write_repo(
        &mut self,
        id: RepoId,
        stored: Option<&RepoRow>,
        row: &RepoRow,
        (owed, debt): (bool, Option<Debt>),
    ) -> Result<(), StoreError> {
        let place = key::repo(id);
        let changed = stored.is_none_or(|stored| {
            let same = RepoRow {
                repo: Repo {
                    debt: Debt::default(),
                    ..row.repo.clone()
                },
                ..row.clone()
            };
            *stored != same
        });
        if changed {
            let encoded = repo::encode(row);
            self.mend_row(Table::Repo, place, encoded)?;
        }
        let wanted = row.owes.then_some(row.repo.debt);
        if wanted != debt || row.owes != owed {
            match wanted {
                Some(debt) => self.mend_row(Table::Debt, place, debts::encode(&debt))?,
                None => self.remove(Table::Debt, place)?,
            }
        }
        let name = key::did(&row.repo.did);
        let named = self.tx.get(Table::Did, &name)?;
        if named.and_then(|row| did::decode(&row).ok()) != Some(id) {
            self.mend_row(Table::Did, name, did::encode(id))?;
        }
        if let Some(host) = row.repo.host {
            let place = key::hosted(host, id);
            let listed = self.tx.get(Table::Hosted, &place)?;
            if listed.is_none_or(|row| hosted::decode(&row).is_err()) {
                self.mend_row(Table::Hosted, place, hosted::encode())?;
            }
        }
        Ok(())
    }

    /// Removes DIDs that lead to no repository or to another one.
    pub(super) fn fix_dids(&mut self) -> Result<(), StoreError> {
        let mut rows = self.table(Table::Did);
        while let Some((place, row)) = rows.next()? {
            let Ok(id) = did::decode(&row) else {
                continue;
            };
            let row = self.tx.read(Table::Repo, &key::repo(id), repo::decode)?;
            let same = row.is_some_and(|row| key::did(&row.repo.did) == place[..]);
            // A DID that was mended already leads to another repository, and stays.
            if !same && self.tx.read(Table::Did, &place, did::decode)? == Some(id) {
                self.remove(Table::Did, place)?;
            }
        }
        Ok(())
    }

    pub(super) fn fix_hosted(&mut self) -> Result<(), StoreError> {
        let mut rows = self.table(Table::Hosted);
        while let Some((place, _)) = rows.next()? {
            // If the key is right, `write_repo` has mended the row.
            let same = match key::read_hosted(&place) {
                Err(_) => false,
                Ok((host, id)) => {
                    let row = self.tx.read(Table::Repo, &key::repo(id), repo::decode)?;
                    row.is_some_and(|row| row.repo.host == Some(host))
                }
            };
            if !same {
                self.remove(Table::Hosted, place)?;
            }
        }
        Ok(())
    }
}

fn lowest_id(ids: [Option<u64>; 3]) -> Option<u64> {
    ids.into_iter().flatten().min()
}

fn owes_no_fetch_though_damaged(repo: &Repo) -> bool {
    matches!(repo.held, Held::Damaged { .. }) && repo.debt.fetch.is_none()
}

/// The head according to the signed commit, if the held records hash to the root that it
/// signs: then the commit is right even if the row differs.
fn signed_head(row: &RepoRow, root: Option<Cid>) -> Option<Head> {
    let Held::Exactly(head) = row.repo.held else {
        return None;
    };
    let commit = Commit::decode(&row.commit).ok()?;
    let signs = commit.did == row.repo.did.as_str() && Some(commit.data) == root;
    (signs && head.commit.matches(&row.commit)).then_some(Head {
        rev: commit.rev,
        data: commit.data,
        commit: head.commit,
    })
}

/// The row for a repository of which only the DID is left.
fn blank_row(did: gapless_atp::syntax::Did) -> RepoRow {
    RepoRow {
        repo: Repo::new(did),
        owes: false,
        claims: false,
        // Perhaps: nothing is known of the row.
        gave_way: true,
        weight: Some(RepoWeight::default()),
        restate: false,
        purge: None,
        commit: Default::default(),
    }
}

/// Marks the held state as damaged: the keys are kept for a comparison, and nothing else
/// is trusted.
fn drop_head(row: &mut RepoRow) {
    // The commit is signed, and the damage may be in the row, so the commit's rev comes first.
    let commit = Commit::decode(&row.commit).ok();
    let signed = commit.filter(|commit| commit.did == row.repo.did.as_str());
    let from = signed.map(|commit| commit.rev).or(row.repo.floor());
    let repo = &mut row.repo;
    repo.held = Held::Damaged { from };
    repo.proven = None;
    repo.swept = None;
    repo.confirmed_at = None;
    row.commit = Default::default();
}
