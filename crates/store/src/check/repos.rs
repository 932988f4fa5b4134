//! Checks repositories: the row, the records and their root, and the data that other
//! tables repeat. Tables whose keys begin with the repository are read side by side,
//! in one pass.

use gapless_atp::cid::Cid;
use gapless_atp::mst::Builder;
use gapless_atp::repo::Commit;
use gapless_core::ledger::{Head, Held, RepoId, UpstreamId};

use super::{CheckRun, Finding};
use crate::table::record::RecordRow;
use crate::table::repo::{self, RepoRow, RepoWeight};
use crate::table::{Table, claimed, debt, did, hosted, key, parked, purge, record, version};
use crate::walk::{self, RepoRows, TableReadError};

const STAGE: &str = "repositories";

/// What the tables other than `repo` hold of one repository.
#[derive(Default)]
struct RepoSummary {
    weight: RepoWeight,
    /// The root of the held keys, or why there is none.
    root: Option<Result<Cid, String>>,
    debt: Option<bool>,
    claims: u64,
}

impl CheckRun<'_> {
    pub(super) fn check_repos(&mut self) -> Result<(), TableReadError> {
        let mut tables = walk::RepoTables::new(self.view.raw())?;
        let table = Table::Repo;
        let mut rows = self.table(table);
        let of = self.counters.next_repo.saturating_sub(1);
        while let Some((place, row)) = rows.next()? {
            self.report.repos += 1;
            self.progress(STAGE, self.report.repos, of);
            let read = key::read_repo(&place).and_then(|id| Ok((id, repo::decode(&row)?)));
            match read {
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                    if let Ok(id) = key::read_repo(&place) {
                        self.known.insert(id.0);
                        self.summarize(id.0, true, &mut tables)?;
                    }
                }
                Ok((id, row)) => {
                    self.check_given_out("repository", id.0, self.counters.next_repo);
                    self.known.insert(id.0);
                    let summary = self.summarize(id.0, true, &mut tables)?;
                    self.check_repo(id, &row, &summary)?;
                }
            }
        }
        self.summarize(u64::MAX, false, &mut tables)?;
        self.check_dids()?;
        self.check_hosted()
    }

    /// Reads the other tables up to a repository. Rows before it belong to no
    /// repository.
    fn summarize(
        &mut self,
        repo: u64,
        exists: bool,
        tables: &mut walk::RepoTables,
    ) -> Result<RepoSummary, TableReadError> {
        let mut summary = RepoSummary::default();
        let mut builder = Builder::new(|_| {});
        let mut broken = None;
        self.walk_table(&mut tables.record, repo, exists, |run, (place, row)| {
            summary.weight.add(record::size(row));
            run.report.records += 1;
            if let Some(record) = run.check_record(place, row)
                && let Some(path) = place.get(key::REPO_BYTES..)
                && let Err(fault) = builder.push(path, record)
            {
                broken.get_or_insert(fault.to_string());
            }
        })?;
        summary.root = Some(match broken {
            None => Ok(builder.finish()),
            Some(cause) => Err(cause),
        });
        self.walk_table(&mut tables.version, repo, exists, |run, (place, row)| {
            run.check_version(place, row);
        })?;
        self.walk_table(&mut tables.claimed, repo, exists, |run, (place, row)| {
            summary.claims += 1;
            match claimed::decode(row) {
                Err(fault) => run.report_row(Table::Claimed, place, fault),
                Ok(claim) if claim.seq >= run.counters.next_seq => {
                    let how = "reported by a number that is not assigned yet";
                    run.report_disagreement(Table::Claimed, place, how);
                }
                Ok(_) => {}
            }
        })?;
        self.walk_table(&mut tables.parked, repo, exists, |run, (place, row)| {
            let read = key::read_parked(place).and_then(|key| Ok((key, parked::decode(row)?)));
            match read {
                Err(fault) => run.report_row(Table::Parked, place, fault),
                Ok(((_, rev), frame)) if frame.parked.head.rev != rev => {
                    run.report_disagreement(Table::Parked, place, "its key has another rev");
                }
                Ok(_) => {}
            }
        })?;
        self.walk_table(
            &mut tables.debt,
            repo,
            exists,
            |run, (place, row)| match debt::decode(row) {
                Err(fault) => run.report_row(Table::Debt, place, fault),
                Ok(debt) => summary.debt = Some(!debt::is_empty(&debt)),
            },
        )?;
        Ok(summary)
    }

    fn walk_table(
        &mut self,
        walk: &mut RepoRows,
        repo: u64,
        exists: bool,
        mut each: impl FnMut(&mut Self, (&[u8], &[u8])),
    ) -> Result<(), TableReadError> {
        let table = walk.table();
        let mut orphans: Option<(u64, u64)> = None;
        while let Some((id, (place, row))) = walk.next_up_to(repo)? {
            if id == repo && exists {
                each(self, (&place, &row));
                continue;
            }
            match &mut orphans {
                Some((of, rows)) if *of == id => *rows += 1,
                _ => {
                    self.report_orphans(table, orphans);
                    orphans = Some((id, 1));
                }
            }
        }
        self.report_orphans(table, orphans);
        Ok(())
    }

    fn report_orphans(&mut self, table: Table, orphans: Option<(u64, u64)>) {
        if let Some((repo, rows)) = orphans {
            let repo = RepoId(repo);
            self.add(Finding::Orphans { table, repo, rows });
        }
    }

    fn report_row(&mut self, table: Table, key: &[u8], fault: crate::codec::RowFault) {
        let key = key.to_vec();
        self.add(Finding::Row { table, key, fault });
    }

    /// The CID of a record whose row can be read.
    fn check_record(&mut self, place: &[u8], row: &[u8]) -> Option<Cid> {
        match record::decode(row) {
            Err(fault) => {
                self.report_row(Table::Record, place, fault);
                None
            }
            Ok(RecordRow {
                seq, cid, bytes, ..
            }) => {
                if seq >= self.counters.next_seq {
                    let how = "put by a number that is not assigned yet";
                    self.report_disagreement(Table::Record, place, how);
                }
                if bytes.is_some_and(|bytes| !cid.matches(bytes))
                    && let Ok((repo, path)) = key::read_path(place)
                {
                    let path = path.to_vec();
                    self.add(Finding::RecordBytes { repo, path });
                }
                Some(cid)
            }
        }
    }

    fn check_version(&mut self, place: &[u8], row: &[u8]) {
        let read = key::read_version(place).and_then(|_| version::decode(row));
        match read {
            Err(fault) => self.report_row(Table::Version, place, fault),
            Ok(row) if row.superseded_by.max(row.seq) >= self.counters.next_seq => {
                self.report_disagreement(
                    Table::Version,
                    place,
                    "superseded by a number that is not assigned yet",
                );
            }
            Ok(row) if row.bytes.is_some_and(|bytes| !row.cid.matches(bytes)) => {
                self.report_disagreement(Table::Version, place, "its bytes do not hash to its CID");
            }
            Ok(_) => {}
        }
    }

    fn check_repo(
        &mut self,
        id: RepoId,
        row: &RepoRow,
        summary: &RepoSummary,
    ) -> Result<(), TableReadError> {
        let place = key::repo(id);
        match row.repo.held {
            Held::Exactly(head) => self.check_exact(id, row, &head, summary),
            // What a purge has not deleted yet.
            Held::Nothing if row.repo.purging => {}
            Held::Nothing if summary.weight.records > 0 => self.add(Finding::Unfounded {
                repo: id,
                did: row.repo.did.clone(),
                records: summary.weight.records,
            }),
            // Between two states, or known to be damaged: no root to compare.
            Held::Nothing | Held::Applying { .. } | Held::Damaged { .. } => {}
        }
        self.check_purging(id, row)?;
        let weighed = row.weight.filter(|_| !row.repo.purging);
        if weighed.is_some_and(|weight| weight != summary.weight) {
            self.report_disagreement(Table::Repo, &place, "its records are more or fewer");
        }
        match (row.owes, summary.debt) {
            (true, Some(true)) | (false, None) => {}
            (true, None) => {
                self.report_disagreement(Table::Repo, &place, "it owes, but has no debt")
            }
            (true, Some(false)) => self.report_disagreement(Table::Debt, &place, "an empty debt"),
            (false, Some(_)) => {
                self.report_disagreement(Table::Repo, &place, "it has a debt, but does not owe");
            }
        }
        if summary.claims > 0 && !row.claims {
            self.report_disagreement(Table::Repo, &place, "it has claims, but does not say so");
        }
        if self.repo_of_did(&row.repo.did)? != Some(id) {
            self.report_disagreement(Table::Repo, &place, "its DID does not lead back to it");
        }
        if let Some(host) = row.repo.host {
            if !self.has(Table::Host, &key::host(host))? {
                self.report_disagreement(Table::Repo, &place, "its host does not exist");
            }
            if !self.has(Table::Hosted, &key::hosted(host, id))? {
                self.report_disagreement(Table::Repo, &place, "its host does not list it");
            }
        }
        let upstreams = [
            row.repo.relay,
            row.repo.cover,
            row.repo.marker.map(|marker| marker.cover),
        ];
        let next = self.counters.next_upstream;
        let known = |id: &UpstreamId| id.0 < next;
        if !upstreams.iter().flatten().all(known) {
            self.report_disagreement(
                Table::Repo,
                &place,
                "it names an upstream that does not exist",
            );
        }
        Ok(())
    }

    /// Checks that a purge is recorded for a repository that is being purged.
    fn check_purging(&mut self, id: RepoId, row: &RepoRow) -> Result<(), TableReadError> {
        let sound = match row.purge {
            None => !row.repo.purging,
            Some(number) => {
                let table = Table::Meta;
                let found = self.view.raw().get(table, &purge::key(number));
                let found = found.map_err(|error| TableReadError { table, error })?;
                let purge = found.and_then(|row| purge::decode(&row).ok());
                row.repo.purging && purge.is_some_and(|purge| purge.repo == id)
            }
        };
        if !sound {
            let how = "its purge is not recorded";
            self.report_disagreement(Table::Repo, &key::repo(id), how);
        }
        Ok(())
    }

    fn check_exact(&mut self, id: RepoId, row: &RepoRow, head: &Head, summary: &RepoSummary) {
        let did = || row.repo.did.clone();
        match &summary.root {
            Some(Ok(_)) if !row.repo.filter.holds_all_keys() => self.report.not_recomputable += 1,
            Some(Ok(root)) if *root == head.data => self.report.proven += 1,
            Some(Ok(root)) => self.add(Finding::Root {
                repo: id,
                did: did(),
                held: *root,
                signed: head.data,
            }),
            Some(Err(cause)) => self.add(Finding::NoTree {
                repo: id,
                did: did(),
                cause: cause.clone(),
            }),
            None => {}
        }
        if !row.commit.is_empty() && !is_commit_of(&row.commit, row.repo.did.as_str(), head) {
            self.add(Finding::Commit {
                repo: id,
                did: did(),
            });
        }
    }

    fn repo_of_did(
        &self,
        did: &gapless_atp::syntax::Did,
    ) -> Result<Option<RepoId>, TableReadError> {
        let table = Table::Did;
        match self.view.raw().get(table, &key::did(did)) {
            Ok(row) => Ok(row.and_then(|row| did::decode(&row).ok())),
            Err(error) => Err(TableReadError { table, error }),
        }
    }

    fn check_dids(&mut self) -> Result<(), TableReadError> {
        let table = Table::Did;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            match did::decode(&row) {
                Err(fault) => self.report_row(table, &place, fault),
                Ok(id) if !self.known.has(id.0) => {
                    self.report_disagreement(
                        table,
                        &place,
                        "it names a repository that does not exist",
                    );
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn check_hosted(&mut self) -> Result<(), TableReadError> {
        let table = Table::Hosted;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            let read = key::read_hosted(&place).and_then(|key| hosted::decode(&row).map(|()| key));
            let (host, id) = match read {
                Ok(read) => read,
                Err(fault) => {
                    self.report_row(table, &place, fault);
                    continue;
                }
            };
            let found = self.view.raw().get(Table::Repo, &key::repo(id));
            let found = found.map_err(|error| TableReadError { table, error })?;
            let lives_on = found
                .and_then(|row| repo::decode(&row).ok())
                .and_then(|row| row.repo.host);
            if lives_on != Some(host) {
                self.report_disagreement(
                    table,
                    &place,
                    "the repository does not live on this host",
                );
            }
        }
        Ok(())
    }
}

/// Whether a block is the commit that the head names, with that DID and the head's rev and root.
pub(crate) fn is_commit_of(block: &[u8], did: &str, head: &Head) -> bool {
    let says =
        |commit: Commit<'_>| (commit.did, commit.rev, commit.data) == (did, head.rev, head.data);
    head.commit.matches(block) && Commit::decode(block).is_ok_and(says)
}
