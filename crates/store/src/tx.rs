//! The transaction of a group of changes: reads fall through to the previous group, if
//! that is not durable yet, and then to a view; writes stay in memory until they become
//! one batch.
//!
//! Later changes of a group see what earlier ones wrote. A change that fails is undone
//! completely, the numbers it assigned included, and the group continues without it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Host, HostId, RepoId, Time, UpstreamId};

use crate::codec::{RowFault, RowWriter};
use crate::engine::{KeyRange, RawBatch, RawRow, RawWrite, Slice, View};
use crate::error::StoreError;
use crate::row_cache::{RowCache, SMALL_CELLS};
use crate::table::meta::{self, Counters};
use crate::table::repo::{self, RepoRow};
use crate::table::{Table, debt, did, host, key, log};

type Overlay = BTreeMap<OverlayKey, Option<Slice>>;

/// A key of an overlay, with its first eight bytes as a number: most comparisons need no more.
#[derive(Clone, PartialEq, Eq)]
struct OverlayKey {
    first: u64,
    bytes: Slice,
}

impl OverlayKey {
    fn new(bytes: Slice) -> OverlayKey {
        let mut first = [0; 8];
        for (place, byte) in first.iter_mut().zip(bytes.iter()) {
            *place = *byte;
        }
        OverlayKey {
            first: u64::from_be_bytes(first),
            bytes,
        }
    }
}

impl Ord for OverlayKey {
    /// The order of the bytes: the first eight decide if they differ.
    fn cmp(&self, other: &OverlayKey) -> Ordering {
        self.first
            .cmp(&other.first)
            .then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for OverlayKey {
    fn partial_cmp(&self, other: &OverlayKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The value of a key before a change wrote it.
struct Undo {
    table: Table,
    key: OverlayKey,
    before: Option<Option<Slice>>,
}

/// How many rows one read brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLimits {
    pub rows: usize,
    /// Bytes of keys and rows; the last row may exceed this limit.
    pub bytes: usize,
}

/// The first rows of a range, and whether there are more.
#[derive(Debug, Default)]
pub(crate) struct FirstRows {
    pub rows: Vec<RawRow>,
    pub more: bool,
}

/// The writes of a group of changes, on top of what is stored.
pub struct Tx {
    view: Arc<dyn View>,
    /// The previous group's batch, if it is not in the view yet. Sorted, with every key once.
    below: Option<Arc<RawBatch>>,
    overlays: [Overlay; Table::ALL.len()],
    undo: Vec<Undo>,
    /// Cached rows of repositories, always equal to what view, batch and overlay hold.
    row_cache: Arc<RowCache>,
    /// Repositories that the current change has written.
    touched: Vec<RepoId>,
    /// Upstreams that are known to exist.
    upstreams: BTreeSet<UpstreamId>,
    scratch: RowWriter,
    key_scratch: Vec<u8>,
    /// The counters, written with the batch.
    pub(crate) counters: Counters,
    saved: Counters,
    /// The counters before the group.
    first: Counters,
    bytes: usize,
}

/// Reads the counters from a view.
pub fn counters(view: &dyn View) -> Result<Counters, StoreError> {
    match view.get(Table::Meta, meta::KEY)? {
        None => Ok(Counters::default()),
        Some(row) => {
            meta::decode(&row).map_err(|fault| StoreError::row(Table::Meta, meta::KEY, fault))
        }
    }
}

/// Reads the counters to go on with. In a store of an earlier format, the last stamp is the time of
/// the last row, so that the times of all rows ascend.
pub(crate) fn counters_to_write(view: &dyn View) -> Result<Counters, StoreError> {
    let mut counters = counters(view)?;
    if counters.last_stamp == Time(0)
        && let Some(last) = view.range(Table::Log, KeyRange::all()).next_back()
    {
        // A row that cannot be decoded is damage, which a check reports.
        counters.last_stamp = log::decode_summary(&last?.1).map_or(Time(0), |row| row.at);
    }
    Ok(counters)
}

impl Tx {
    pub fn new(view: Arc<dyn View>) -> Result<Tx, StoreError> {
        let counters = counters_to_write(&*view)?;
        let row_cache = Arc::new(RowCache::new(SMALL_CELLS));
        Ok(Tx::on_batch(view, None, counters, row_cache))
    }

    /// Begins on a view and a batch above it, which [`Tx::finish`] made. The counters and
    /// the cached rows must be those of both together.
    pub(crate) fn on_batch(
        view: Arc<dyn View>,
        below: Option<Arc<RawBatch>>,
        counters: Counters,
        row_cache: Arc<RowCache>,
    ) -> Tx {
        Tx {
            view,
            below,
            overlays: Default::default(),
            undo: Vec::new(),
            row_cache,
            touched: Vec::new(),
            upstreams: BTreeSet::new(),
            scratch: RowWriter::default(),
            key_scratch: Vec::new(),
            counters,
            saved: counters,
            first: counters,
            bytes: 0,
        }
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The approximate size of the keys and rows written so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        let overlay = &self.overlays[table as usize];
        if !overlay.is_empty()
            && let Some(written) = overlay.get(&OverlayKey::new(key.into()))
        {
            return Ok(written.clone());
        }
        let below = self
            .below
            .as_ref()
            .and_then(|batch| find_write(batch, table, key));
        match below {
            Some(written) => Ok(written.value.clone()),
            None => Ok(self.view.get(table, key)?),
        }
    }

    /// Reads and decodes a row. The error for a row that cannot be decoded names the row.
    pub fn read<T>(
        &self,
        table: Table,
        key: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T, RowFault>,
    ) -> Result<Option<T>, StoreError> {
        match self.get(table, key)? {
            None => Ok(None),
            Some(row) => match decode(&row) {
                Ok(value) => Ok(Some(value)),
                Err(fault) => Err(StoreError::row(table, key, fault)),
            },
        }
    }

    /// All rows with a prefix, in order, with the writes of the group so far.
    pub fn prefix(&self, table: Table, prefix: &[u8]) -> Result<Vec<RawRow>, StoreError> {
        let mut rows = BTreeMap::new();
        for row in self.view.prefix(table, prefix) {
            let (key, value) = row?;
            rows.insert(key, value);
        }
        if let Some(batch) = &self.below {
            let written = &batch.writes[insert_index(batch, table, prefix)..];
            let within = |write: &&RawWrite| write.table == table && write.key.starts_with(prefix);
            for RawWrite { key, value, .. } in written.iter().take_while(within) {
                apply_write(&mut rows, key, value);
            }
        }
        let written = self.overlays[table as usize]
            .range(OverlayKey::new(prefix.into())..)
            .take_while(|(key, _)| key.bytes.starts_with(prefix));
        for (key, value) in written {
            apply_write(&mut rows, &key.bytes, value);
        }
        Ok(rows.into_iter().collect())
    }

    /// The first rows of a range, with the writes of the group so far: at most `limits.rows` rows,
    /// and no further row once they have `limits.bytes`.
    pub(crate) fn first_rows(
        &self,
        table: Table,
        range: KeyRange,
        limits: RowLimits,
    ) -> Result<FirstRows, StoreError> {
        let mut stored_rows = self.view.range(table, range.clone());
        let mut stored = stored_rows.next().transpose()?;
        let mut written = self.written(table, &range);
        let mut first = FirstRows::default();
        let mut bytes = 0;
        loop {
            let stored_is_next = match (&stored, written.first_key_value()) {
                (None, None) => return Ok(first),
                (Some((key, _)), Some((other, _))) => key < other,
                (Some(_), None) => true,
                (None, Some(_)) => false,
            };
            let row = if stored_is_next {
                std::mem::replace(&mut stored, stored_rows.next().transpose()?)
            } else {
                let written = written.pop_first();
                let both =
                    stored.as_ref().map(|(key, _)| key) == written.as_ref().map(|(key, _)| key);
                if both {
                    stored = stored_rows.next().transpose()?;
                }
                written.and_then(|(key, value)| Some((key, value?)))
            };
            let Some((key, value)) = row else {
                continue;
            };
            if first.rows.len() >= limits.rows || bytes >= limits.bytes {
                first.more = true;
                return Ok(first);
            }
            bytes += key.len() + value.len();
            first.rows.push((key, value));
        }
    }

    /// What the group so far, and the group below it, write in a range; `None`: a row is deleted.
    fn written(&self, table: Table, range: &KeyRange) -> BTreeMap<Slice, Option<Slice>> {
        let mut written = BTreeMap::new();
        let from: &[u8] = match &range.start {
            Bound::Included(from) | Bound::Excluded(from) => from,
            Bound::Unbounded => &[],
        };
        if let Some(batch) = &self.below {
            let writes = batch.writes[insert_index(batch, table, from)..].iter();
            let within = |write: &&RawWrite| write.table == table && range.contains(&write.key);
            for write in writes.take_while(within) {
                written.insert(write.key.clone(), write.value.clone());
            }
        }
        let overlay = self.overlays[table as usize].range(OverlayKey::new(from.into())..);
        for (key, value) in overlay.take_while(|(key, _)| range.contains(&key.bytes)) {
            written.insert(key.bytes.clone(), value.clone());
        }
        written
    }

    pub fn put(&mut self, table: Table, key: impl Into<Slice>, row: impl Into<Slice>) {
        self.write(table, key.into(), Some(row.into()));
    }

    /// Puts the row that `write` encodes, in a buffer that is reused.
    pub(crate) fn put_with(
        &mut self,
        table: Table,
        key: impl Into<Slice>,
        write: impl FnOnce(&mut RowWriter),
    ) {
        let row = self.encode_scratch(write);
        self.write(table, key.into(), Some(row));
    }

    fn encode_scratch(&mut self, write: impl FnOnce(&mut RowWriter)) -> Slice {
        let mut scratch = std::mem::take(&mut self.scratch);
        write(&mut scratch);
        let row = Slice::from(scratch.as_bytes());
        self.scratch = scratch;
        row
    }

    /// The key of a record.
    pub(crate) fn path_key(&mut self, repo: RepoId, path: &[u8]) -> Slice {
        key::write_path(&mut self.key_scratch, repo, path);
        self.key_scratch.as_slice().into()
    }

    pub fn delete(&mut self, table: Table, key: impl Into<Slice>) {
        self.write(table, key.into(), None);
    }

    fn write(&mut self, table: Table, key: Slice, value: Option<Slice>) {
        if table == Table::Repo
            && let Ok(repo) = key::read_repo(&key)
        {
            self.row_cache.forget(repo, self.counters.batch + 1);
        }
        self.bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        let key = OverlayKey::new(key);
        let before = self.overlays[table as usize].insert(key.clone(), value);
        self.undo.push(Undo { table, key, before });
    }

    /// Keeps what was written since the last call.
    pub fn keep(&mut self) {
        self.undo.clear();
        self.touched.clear();
        self.saved = self.counters;
    }

    /// Undoes what was written since the last [`Tx::keep`].
    pub fn undo(&mut self) {
        while let Some(Undo { table, key, before }) = self.undo.pop() {
            let overlay = &mut self.overlays[table as usize];
            match before {
                Some(value) => overlay.insert(key, value),
                None => overlay.remove(&key),
            };
        }
        for repo in self.touched.drain(..) {
            self.row_cache.forget(repo, self.counters.batch + 1);
        }
        self.counters = self.saved;
    }

    /// Whether there is anything to write.
    pub fn is_empty(&self) -> bool {
        self.overlays.iter().all(Overlay::is_empty) && self.counters == self.first
    }

    /// Assigns the batch its number. Returns the batch, which includes its counters, and the
    /// counters.
    pub fn finish(mut self) -> (RawBatch, Counters) {
        self.counters.batch += 1;
        let counters = meta::encode(&self.counters);
        self.put(Table::Meta, meta::KEY, counters);
        let count = self.overlays.iter().map(BTreeMap::len).sum();
        let mut writes = Vec::with_capacity(count);
        for (table, overlay) in Table::ALL.into_iter().zip(self.overlays) {
            for (OverlayKey { bytes: key, .. }, value) in overlay {
                writes.push(RawWrite { table, key, value });
            }
        }
        (RawBatch { writes }, self.counters)
    }
}

/// The index of a key in a sorted batch, or the index at which it would be inserted.
fn insert_index(batch: &RawBatch, table: Table, key: &[u8]) -> usize {
    batch
        .writes
        .partition_point(|write| (write.table, &*write.key) < (table, key))
}

fn find_write<'a>(batch: &'a RawBatch, table: Table, key: &[u8]) -> Option<&'a RawWrite> {
    let found = batch.writes.get(insert_index(batch, table, key))?;
    (found.table == table && *found.key == *key).then_some(found)
}

fn apply_write(rows: &mut BTreeMap<Slice, Slice>, key: &Slice, value: &Option<Slice>) {
    match value {
        Some(value) => rows.insert(key.clone(), value.clone()),
        None => rows.remove(key),
    };
}

/// A decoded row and its repository's number.
pub(crate) struct StoredRepo {
    pub id: RepoId,
    pub row: RepoRow,
}

/// Repositories and upstreams.
impl Tx {
    /// A repository with its debt.
    pub(crate) fn repo(&self, id: RepoId) -> Result<Option<Box<StoredRepo>>, StoreError> {
        let place = key::repo(id);
        let found = match self.cached_row(id, &place)? {
            Some(row) => Some(row),
            None => self.get(Table::Repo, &place)?,
        };
        let Some(row) = found else {
            return Ok(None);
        };
        let mut row =
            repo::decode(&row).map_err(|fault| StoreError::row(Table::Repo, &place, fault))?;
        if row.owes {
            let found = self.read(Table::Debt, &place, debt::decode)?;
            row.repo.debt = found.ok_or_else(|| {
                StoreError::row(Table::Repo, &place, RowFault::Missing("its debt"))
            })?;
        }
        Ok(Some(Box::new(StoredRepo { id, row })))
    }

    /// The row, if it is cached. Debug builds read it too and compare.
    fn cached_row(&self, id: RepoId, place: &[u8]) -> Result<Option<Slice>, StoreError> {
        let cached = self.row_cache.newest(id);
        if cfg!(debug_assertions) && cached.is_some() {
            let read = self.get(Table::Repo, place)?;
            assert_eq!(
                cached, read,
                "the row of {id:?} in the cache differs from the group's"
            );
        }
        Ok(cached)
    }

    /// Writes a repository and its debt. `owed` says whether it had one.
    pub(crate) fn put_repo(&mut self, mut next: Box<StoredRepo>, owed: bool) {
        let place = key::repo(next.id);
        let row = &mut next.row;
        row.owes = !debt::is_empty(&row.repo.debt);
        if row.owes {
            self.put(Table::Debt, place, debt::encode(&row.repo.debt));
        } else if owed {
            self.delete(Table::Debt, place);
        }
        let row = self.encode_scratch(|bytes| repo::write(bytes, &next.row));
        self.put(Table::Repo, place, row.clone());
        self.touched.push(next.id);
        self.row_cache
            .insert_written(next.id, self.counters.batch + 1, row);
    }

    /// Whether an upstream exists.
    pub(crate) fn has_upstream(&mut self, upstream: UpstreamId) -> Result<bool, StoreError> {
        if self.upstreams.contains(&upstream) {
            return Ok(true);
        }
        let found = self.get(Table::Upstream, &key::upstream(upstream))?;
        if found.is_some() && self.undo.is_empty() {
            // Remembered only if no pending write could be undone.
            self.upstreams.insert(upstream);
        }
        Ok(found.is_some())
    }
}

/// Assigns numbers to names. A number counts as assigned once the change that asked for it is
/// kept.
impl Tx {
    /// The repository of a DID; a new one if there is none.
    pub(crate) fn intern_did(&mut self, did: &Did) -> Result<RepoId, StoreError> {
        let place = key::did(did);
        if let Some(repo) = self.read(Table::Did, &place, did::decode)? {
            return Ok(repo);
        }
        let repo = RepoId(self.counters.next_repo);
        self.counters.next_repo += 1;
        self.put(Table::Did, place, did::encode(repo));
        Ok(repo)
    }

    /// The host of a name; a new one, with this row, if there is none.
    pub(crate) fn intern_host(&mut self, row: &Host) -> Result<HostId, StoreError> {
        let name = row.name.as_str();
        if let Some(host) = self.read(Table::HostName, name.as_bytes(), host::decode_id)? {
            return Ok(host);
        }
        let host = HostId(self.counters.next_host);
        self.counters.next_host += 1;
        self.put(Table::HostName, name, host::encode_id(host));
        self.put(Table::Host, key::host(host), host::encode(row));
        Ok(host)
    }
}
