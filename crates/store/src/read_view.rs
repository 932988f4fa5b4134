//! A read view: the store as of one moment.
//!
//! A view shows exactly the batches that were durable when it was taken. While it lives, it keeps
//! old rows on disk and in memory: take a view per question and drop it. A long scan reads in
//! parts, each from a view of its own. Iterators read lazily and yield errors in place of rows.

mod history;
mod root;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{
    Cursor, Debt, Host, HostId, Parked, Repo, RepoId, Time, Upstream, UpstreamId,
};

use crate::codec::RowFault;
use crate::engine::{KeyRange, RawRows, Slice, View};
use crate::error::StoreError;
use crate::ids::IdCache;
use crate::row_cache::RowCache;
use crate::table::claimed::{self, ClaimRow};
use crate::table::dead::{self, DeadLetter};
use crate::table::meta::Counters;
use crate::table::parked::{self, ParkedFrame};
use crate::table::record::Record;
use crate::table::repo::RepoWeight;
use crate::table::wish::{self, FilterRow, TrackedRow};
use crate::table::{Table, debt, did, host, key, repo, upstream, version};

pub use root::RootError;

/// The store as of one moment. Cheap to clone.
#[derive(Clone)]
pub struct ReadView {
    view: Arc<dyn View>,
    /// `None` for a view that shares no caches.
    base: Option<ViewBase>,
}

/// The caches that all views of a running store share, and the last batch of this view.
#[derive(Clone)]
struct ViewBase {
    ids: Arc<IdCache>,
    row_cache: Arc<RowCache>,
    /// The last batch that this view shows.
    batch: u64,
}

/// A row, from the cache or read from the engine.
enum RowOrigin {
    Cached(Slice),
    Read(Slice),
}

/// A record that a later one has replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupersededRecord {
    pub rev: Rev,
    pub cid: Cid,
    /// The number of the operation that had put the record there; 0 in a row of an earlier format.
    pub seq: u64,
    pub by_seq: u64,
    pub bytes: Option<Vec<u8>>,
}

/// The number of rows of each table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    pub repos: u64,
    pub records: u64,
    pub versions: u64,
    pub claims: u64,
    pub parked: u64,
    pub log_rows: u64,
    pub upstreams: u64,
    pub hosts: u64,
    pub debts: u64,
    pub dead: u64,
}

impl ReadView {
    pub fn new(view: Arc<dyn View>) -> ReadView {
        ReadView { view, base: None }
    }

    /// A view with the caches that all views of the store share. It shows all batches up to
    /// `batch`, and none after it.
    pub(crate) fn published(
        view: Arc<dyn View>,
        batch: u64,
        ids: Arc<IdCache>,
        row_cache: Arc<RowCache>,
    ) -> ReadView {
        let base = Some(ViewBase {
            ids,
            row_cache,
            batch,
        });
        ReadView { view, base }
    }

    /// The undecoded rows of this view.
    pub fn raw(&self) -> &dyn View {
        &*self.view
    }

    /// The numbers assigned so far.
    pub fn counters(&self) -> Result<Counters, StoreError> {
        crate::tx::counters(&*self.view)
    }

    fn read<T>(
        &self,
        table: Table,
        place: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T, RowFault>,
    ) -> Result<Option<T>, StoreError> {
        match self.view.get(table, place)? {
            None => Ok(None),
            Some(row) => match decode(&row) {
                Ok(value) => Ok(Some(value)),
                Err(fault) => Err(StoreError::row(table, place, fault)),
            },
        }
    }

    fn rows<T>(
        &self,
        table: Table,
        range: KeyRange,
        decode: fn(&Slice, &Slice) -> Result<T, RowFault>,
    ) -> impl DoubleEndedIterator<Item = Result<T, StoreError>> + Send + use<T> {
        let rows: RawRows = self.view.range(table, range);
        rows.map(move |row| {
            let (place, row) = row?;
            decode(&place, &row).map_err(|fault| StoreError::row(table, &place, fault))
        })
    }
}

/// Repositories and their records.
impl ReadView {
    pub fn repo_id(&self, did: &Did) -> Result<Option<RepoId>, StoreError> {
        self.read(Table::Did, &key::did(did), did::decode)
    }

    pub fn repo(&self, id: RepoId) -> Result<Option<Repo>, StoreError> {
        Ok(self.repo_and_row(id)?.map(|(repo, _)| repo))
    }

    /// A repository and its row, which may have come from the cache.
    fn repo_and_row(&self, id: RepoId) -> Result<Option<(Repo, RowOrigin)>, StoreError> {
        let place = key::repo(id);
        let found = match self.cached_row(id, &place)? {
            Some(row) => Some(RowOrigin::Cached(row)),
            None => self.view.get(Table::Repo, &place)?.map(RowOrigin::Read),
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let (RowOrigin::Cached(bytes) | RowOrigin::Read(bytes)) = &found;
        let failed = |fault| StoreError::row(Table::Repo, &place, fault);
        let row = repo::decode(bytes).map_err(failed)?;
        let mut repo = row.repo;
        if row.owes {
            let debt = self.read(Table::Debt, &place, debt::decode)?;
            repo.debt = debt.ok_or_else(|| failed(RowFault::Missing("its debt")))?;
        }
        Ok(Some((repo, found)))
    }

    /// The row, if it is cached. Debug builds read it too and compare.
    fn cached_row(&self, id: RepoId, place: &[u8]) -> Result<Option<Slice>, StoreError> {
        let Some(base) = &self.base else {
            return Ok(None);
        };
        let cached = base.row_cache.as_of(id, base.batch);
        if cfg!(debug_assertions) && cached.is_some() {
            let read = self.view.get(Table::Repo, place)?;
            assert_eq!(
                cached, read,
                "the row of {id:?} in the cache differs from the engine's"
            );
        }
        Ok(cached)
    }

    /// A repository by its DID. Caches the row, because callers of this method are likely to
    /// write the repository next.
    pub fn repo_by_did(&self, did: &Did) -> Result<Option<(RepoId, Repo)>, StoreError> {
        let guessed = self.base.as_ref().and_then(|base| base.ids.guess(did));
        if let Some(id) = guessed
            && let Some(repo) = self.repo_named(id, did)?
        {
            return Ok(Some((id, repo)));
        }
        let Some(id) = self.repo_id(did)? else {
            return Ok(None);
        };
        if let Some(base) = &self.base {
            base.ids.note(did, id);
        }
        Ok(self.repo_named(id, did)?.map(|repo| (id, repo)))
    }

    /// The repository with this number, if it has this DID.
    fn repo_named(&self, id: RepoId, did: &Did) -> Result<Option<Repo>, StoreError> {
        let found = self.repo_and_row(id)?;
        let Some((repo, row)) = found.filter(|(repo, _)| repo.did == *did) else {
            return Ok(None);
        };
        if let (Some(base), RowOrigin::Read(row)) = (&self.base, row) {
            base.row_cache.insert_read(id, base.batch, &row);
        }
        Ok(Some(repo))
    }

    /// Every repository from a number on, without its debt.
    pub fn repos(
        &self,
        from: RepoId,
    ) -> impl DoubleEndedIterator<Item = Result<(RepoId, Repo), StoreError>> + Send + use<> {
        let range = KeyRange::from(key::repo(from).to_vec());
        self.rows(Table::Repo, range, |place, row| {
            Ok((key::read_repo(place)?, repo::decode(row)?.repo))
        })
    }

    /// How much is held of a repository; `None` if its row is of an earlier format.
    pub fn weight(&self, id: RepoId) -> Result<Option<RepoWeight>, StoreError> {
        let row = self.read(Table::Repo, &key::repo(id), repo::decode)?;
        Ok(row.and_then(|row| row.weight))
    }

    /// The signed commit of the head, as a block, if the store has it.
    pub fn signed_commit(&self, id: RepoId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.read(Table::Repo, &key::repo(id), repo::decode)?;
        Ok(row
            .filter(|row| !row.commit.is_empty())
            .map(|row| row.commit.to_vec()))
    }

    pub fn record(&self, id: RepoId, path: &[u8]) -> Result<Option<Record>, StoreError> {
        let place = key::path(id, path);
        match self.view.get(Table::Record, &place)? {
            None => Ok(None),
            Some(row) => match Record::new(place.as_slice().into(), row) {
                Ok(record) => Ok(Some(record)),
                Err(fault) => Err(StoreError::row(Table::Record, &place, fault)),
            },
        }
    }

    /// Every record of a repository, in the order of its tree.
    pub fn records(
        &self,
        id: RepoId,
    ) -> impl DoubleEndedIterator<Item = Result<Record, StoreError>> + Send + use<> {
        self.records_with_prefix(id, b"")
    }

    /// The records whose path begins with a prefix, such as `collection/`.
    pub fn records_with_prefix(
        &self,
        id: RepoId,
        prefix: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<Record, StoreError>> + Send + use<> {
        let range = KeyRange::prefix(&key::path(id, prefix));
        self.rows(Table::Record, range, |place, row| {
            Record::new(place.clone(), row.clone())
        })
    }

    /// The records whose path is greater than this one.
    pub fn records_after(
        &self,
        id: RepoId,
        path: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<Record, StoreError>> + Send + use<> {
        let mut from = key::path(id, path).to_vec();
        // The lowest key above the path.
        from.push(0);
        let range = KeyRange::prefix_from(&key::path(id, b""), from);
        self.rows(Table::Record, range, |place, row| {
            Record::new(place.clone(), row.clone())
        })
    }

    /// The records from one path on, up to another path, which is excluded.
    pub fn records_between(
        &self,
        id: RepoId,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<Record, StoreError>> + Send + use<> {
        let range = KeyRange {
            start: Bound::Included(key::path(id, from).to_vec()),
            end: Bound::Excluded(key::path(id, to).to_vec()),
        };
        self.rows(Table::Record, range, |place, row| {
            Record::new(place.clone(), row.clone())
        })
    }

    /// The superseded versions of a record, newest rev last.
    pub fn versions(&self, id: RepoId, path: &[u8]) -> Result<Vec<SupersededRecord>, StoreError> {
        let range = KeyRange::prefix(&key::versions_of(id, path));
        self.rows(Table::Version, range, |place, row| {
            let (_, _, rev) = key::read_version(place)?;
            let row = version::decode(row)?;
            Ok(SupersededRecord {
                rev,
                cid: row.cid,
                seq: row.seq,
                by_seq: row.superseded_by,
                bytes: row.bytes.map(<[u8]>::to_vec),
            })
        })
        .collect()
    }

    /// One superseded record, as the log names it.
    pub fn version(
        &self,
        id: RepoId,
        path: &[u8],
        rev: Rev,
        cid: &Cid,
    ) -> Result<Option<SupersededRecord>, StoreError> {
        let place = key::version(id, path, rev, cid);
        self.read(Table::Version, &place, |row| {
            let row = version::decode(row)?;
            Ok(SupersededRecord {
                rev,
                cid: row.cid,
                seq: row.seq,
                by_seq: row.superseded_by,
                bytes: row.bytes.map(<[u8]>::to_vec),
            })
        })
    }

    pub fn claims(
        &self,
        id: RepoId,
    ) -> impl DoubleEndedIterator<Item = Result<(Vec<u8>, ClaimRow), StoreError>> + Send + use<>
    {
        let range = KeyRange::prefix(&key::repo(id));
        self.rows(Table::Claimed, range, |place, row| {
            Ok((key::read_path(place)?.1.to_vec(), claimed::decode(row)?))
        })
    }

    /// The claim about one path.
    pub fn claim(&self, id: RepoId, path: &[u8]) -> Result<Option<ClaimRow>, StoreError> {
        self.read(Table::Claimed, &key::path(id, path), claimed::decode)
    }

    /// The size in bytes of the record of each claim, for all repositories.
    pub fn claim_sizes(
        &self,
    ) -> impl DoubleEndedIterator<Item = Result<u64, StoreError>> + Send + use<> {
        self.rows(Table::Claimed, KeyRange::all(), |_, row| {
            let record = claimed::decode(row)?.claim.record;
            Ok(record.map_or(0, |(_, bytes)| bytes.len() as u64))
        })
    }

    /// The parked frames of a repository, without their bytes.
    pub fn parked(&self, id: RepoId) -> Result<BTreeMap<Rev, Parked>, StoreError> {
        let range = KeyRange::prefix(&key::repo(id));
        self.rows(Table::Parked, range, |place, row| {
            Ok((key::read_parked(place)?.1, parked::decode_parked(row)?))
        })
        .collect()
    }

    pub fn parked_frame(&self, id: RepoId, rev: Rev) -> Result<Option<ParkedFrame>, StoreError> {
        self.read(Table::Parked, &key::parked(id, rev), parked::decode)
    }
}

/// Upstreams, hosts, debts and dead letters.
impl ReadView {
    pub fn upstream(&self, id: UpstreamId) -> Result<Option<Upstream>, StoreError> {
        self.read(Table::Upstream, &key::upstream(id), upstream::decode)
    }

    /// The last event of an upstream up to which the effects of all events are
    /// durable.
    pub fn cursor(&self, id: UpstreamId) -> Result<Option<Cursor>, StoreError> {
        let Some(row) = self.upstream(id)? else {
            return Ok(None);
        };
        let place = key::cursor(id);
        let cursor = self.read(Table::Upstream, &place, upstream::decode_cursor)?;
        Ok(cursor
            .filter(|cursor| cursor.numbering == row.numbering)
            .map(|cursor| cursor.cursor))
    }

    pub fn upstreams(&self) -> Result<BTreeMap<UpstreamId, Upstream>, StoreError> {
        let mut all = BTreeMap::new();
        let rows =
            self.rows(
                Table::Upstream,
                KeyRange::all(),
                |place, row| match key::read_upstream(place)? {
                    (id, true) => Ok(Some((id, upstream::decode(row)?))),
                    (_, false) => Ok(None),
                },
            );
        for row in rows {
            all.extend(row?);
        }
        Ok(all)
    }

    pub fn host(&self, id: HostId) -> Result<Option<Host>, StoreError> {
        self.read(Table::Host, &key::host(id), host::decode)
    }

    pub fn host_id(&self, name: &str) -> Result<Option<HostId>, StoreError> {
        self.read(Table::HostName, name.as_bytes(), host::decode_id)
    }

    pub fn hosts(
        &self,
    ) -> impl DoubleEndedIterator<Item = Result<(HostId, Host), StoreError>> + Send + use<> {
        self.rows(Table::Host, KeyRange::all(), |place, row| {
            Ok((key::read_host(place)?, host::decode(row)?))
        })
    }

    /// The repositories of a host.
    pub fn hosted(
        &self,
        host: HostId,
    ) -> impl DoubleEndedIterator<Item = Result<RepoId, StoreError>> + Send + use<> {
        let range = KeyRange::prefix(&key::host(host));
        self.rows(Table::Hosted, range, |place, _| {
            Ok(key::read_hosted(place)?.1)
        })
    }

    /// The debts of all repositories.
    pub fn debts(
        &self,
    ) -> impl DoubleEndedIterator<Item = Result<(RepoId, Debt), StoreError>> + Send + use<> {
        self.rows(Table::Debt, KeyRange::all(), |place, row| {
            Ok((key::read_repo(place)?, debt::decode(row)?))
        })
    }

    /// The debts that may be tried at `now`. Reads every debt.
    pub fn debts_due(&self, now: Time) -> Result<Vec<(RepoId, Debt)>, StoreError> {
        let mut due = Vec::new();
        for row in self.debts() {
            let (id, debt) = row?;
            if debt.is_due(now) {
                due.push((id, debt));
            }
        }
        Ok(due)
    }

    /// The DIDs that are tracked by name.
    pub fn tracked(
        &self,
    ) -> impl DoubleEndedIterator<Item = Result<(Did, TrackedRow), StoreError>> + Send + use<> {
        let range = KeyRange::prefix(wish::TRACKED_PREFIX);
        self.rows(Table::Meta, range, |place, row| {
            Ok((wish::read_tracked_key(place)?, wish::decode_tracked(row)?))
        })
    }

    /// The filter that was last in force.
    pub fn filter(&self) -> Result<Option<FilterRow>, StoreError> {
        self.read(Table::Meta, wish::FILTER_KEY, wish::decode_filter)
    }

    /// The repositories that have parked frames, with the size of those frames in bytes.
    pub fn parked_repos(&self) -> Result<BTreeMap<RepoId, u64>, StoreError> {
        let mut repos = BTreeMap::new();
        let rows = self.rows(Table::Parked, KeyRange::all(), |place, row| {
            let bytes = parked::decode_parked(row)?.bytes;
            Ok((key::read_parked(place)?.0, u64::from(bytes)))
        });
        for row in rows {
            let (repo, bytes) = row?;
            *repos.entry(repo).or_default() += bytes;
        }
        Ok(repos)
    }

    pub fn dead_letters(
        &self,
    ) -> impl DoubleEndedIterator<Item = Result<(u64, DeadLetter), StoreError>> + Send + use<> {
        self.rows(Table::Dead, KeyRange::all(), |place, row| {
            Ok((key::read_seq(place)?, dead::decode(row)?))
        })
    }

    /// Counts all rows by reading them: for checks and tests only.
    pub fn counts(&self) -> Result<RowCounts, StoreError> {
        let count = |table| -> Result<u64, StoreError> {
            let mut count = 0;
            for row in self.view.range(table, KeyRange::all()) {
                row?;
                count += 1;
            }
            Ok(count)
        };
        Ok(RowCounts {
            repos: count(Table::Repo)?,
            records: count(Table::Record)?,
            versions: count(Table::Version)?,
            claims: count(Table::Claimed)?,
            parked: count(Table::Parked)?,
            log_rows: count(Table::Log)?,
            upstreams: self.upstreams()?.len() as u64,
            hosts: count(Table::Host)?,
            debts: count(Table::Debt)?,
            dead: count(Table::Dead)?,
        })
    }
}
