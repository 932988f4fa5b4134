//! A group of changes on its way: reads fall through to the group before it, if
//! that is not durable yet, and to a view; writes stay here until they become one
//! batch.
//!
//! Later changes of a group see what earlier ones wrote. A change that fails is
//! undone to the last byte and number, and the group goes on without it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Host, HostId, RepoId, UpstreamId};

use crate::codec::{RowFault, Writer};
use crate::engine::{RawBatch, RawWrite, Row, Slice, View};
use crate::error::StoreError;
use crate::rows::{FEW, RecentRows};
use crate::table::meta::{self, Counters};
use crate::table::repo::{self, RepoRow};
use crate::table::{Table, debt, did, host, key};

type Overlay = BTreeMap<Key, Option<Slice>>;

/// A key, with its beginning at hand: most comparisons need no more of it.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    first: u64,
    bytes: Slice,
}

impl Key {
    fn new(bytes: Slice) -> Key {
        let mut first = [0; 8];
        for (place, byte) in first.iter_mut().zip(bytes.iter()) {
            *place = *byte;
        }
        Key {
            first: u64::from_be_bytes(first),
            bytes,
        }
    }
}

impl Ord for Key {
    /// That of the bytes: where the beginnings differ they decide.
    fn cmp(&self, other: &Key) -> Ordering {
        self.first
            .cmp(&other.first)
            .then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What was there before a change wrote.
struct Undo {
    table: Table,
    key: Key,
    before: Option<Option<Slice>>,
}

pub struct Tx {
    view: Arc<dyn View>,
    /// Written already, and not in the view yet. In order, every key once.
    below: Option<Arc<RawBatch>>,
    overlays: [Overlay; Table::ALL.len()],
    undo: Vec<Undo>,
    /// Rows of repositories: what view and overlay hold, never more.
    recent: Arc<RecentRows>,
    /// Repositories that the change under way has touched.
    touched: Vec<RepoId>,
    /// Upstreams that are known to exist.
    upstreams: BTreeSet<UpstreamId>,
    scratch: Writer,
    key_scratch: Vec<u8>,
    /// Numbers given out; written with the batch.
    pub(crate) counters: Counters,
    saved: Counters,
    /// As the group found them.
    first: Counters,
    bytes: usize,
}

/// The counters as a view has them.
pub fn counters(view: &dyn View) -> Result<Counters, StoreError> {
    match view.get(Table::Meta, meta::KEY)? {
        None => Ok(Counters::default()),
        Some(row) => {
            meta::decode(&row).map_err(|fault| StoreError::row(Table::Meta, meta::KEY, fault))
        }
    }
}

impl Tx {
    pub fn new(view: Arc<dyn View>) -> Result<Tx, StoreError> {
        let counters = counters(&*view)?;
        let recent = Arc::new(RecentRows::new(FEW));
        Ok(Tx::standing(view, None, counters, recent))
    }

    /// On a view and a batch above it, which [`Tx::finish`] made. The counters and
    /// the rows that are known already must be those of both together.
    pub(crate) fn standing(
        view: Arc<dyn View>,
        below: Option<Arc<RawBatch>>,
        counters: Counters,
        recent: Arc<RecentRows>,
    ) -> Tx {
        Tx {
            view,
            below,
            overlays: Default::default(),
            undo: Vec::new(),
            recent,
            touched: Vec::new(),
            upstreams: BTreeSet::new(),
            scratch: Writer::default(),
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

    /// Bytes of keys and rows written so far, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        let overlay = &self.overlays[table as usize];
        if !overlay.is_empty()
            && let Some(written) = overlay.get(&Key::new(key.into()))
        {
            return Ok(written.clone());
        }
        let below = self
            .below
            .as_ref()
            .and_then(|batch| find(batch, table, key));
        match below {
            Some(written) => Ok(written.value.clone()),
            None => Ok(self.view.get(table, key)?),
        }
    }

    /// Reads and decodes; a row that cannot be decoded is named.
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

    /// All rows with a prefix, in order, as the group has left them.
    pub fn prefix(&self, table: Table, prefix: &[u8]) -> Result<Vec<Row>, StoreError> {
        let mut rows = BTreeMap::new();
        for row in self.view.prefix(table, prefix) {
            let (key, value) = row?;
            rows.insert(key, value);
        }
        if let Some(batch) = &self.below {
            let written = &batch.writes[place(batch, table, prefix)..];
            let within = |write: &&RawWrite| write.table == table && write.key.starts_with(prefix);
            for RawWrite { key, value, .. } in written.iter().take_while(within) {
                lay_over(&mut rows, key, value);
            }
        }
        let written = self.overlays[table as usize]
            .range(Key::new(prefix.into())..)
            .take_while(|(key, _)| key.bytes.starts_with(prefix));
        for (key, value) in written {
            lay_over(&mut rows, &key.bytes, value);
        }
        Ok(rows.into_iter().collect())
    }

    pub fn put(&mut self, table: Table, key: impl Into<Slice>, row: impl Into<Slice>) {
        self.write(table, key.into(), Some(row.into()));
    }

    /// Puts what `write` writes, without a detour.
    pub(crate) fn put_with(
        &mut self,
        table: Table,
        key: impl Into<Slice>,
        write: impl FnOnce(&mut Writer),
    ) {
        let row = self.scratched(write);
        self.write(table, key.into(), Some(row));
    }

    fn scratched(&mut self, write: impl FnOnce(&mut Writer)) -> Slice {
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
            self.recent.forget(repo, self.counters.batch + 1);
        }
        self.bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        let key = Key::new(key);
        let before = self.overlays[table as usize].insert(key.clone(), value);
        self.undo.push(Undo { table, key, before });
    }

    /// What was written since the last call stands.
    pub fn keep(&mut self) {
        self.undo.clear();
        self.touched.clear();
        self.saved = self.counters;
    }

    /// What was written since the last [`Tx::keep`] never was.
    pub fn undo(&mut self) {
        while let Some(Undo { table, key, before }) = self.undo.pop() {
            let overlay = &mut self.overlays[table as usize];
            match before {
                Some(value) => overlay.insert(key, value),
                None => overlay.remove(&key),
            };
        }
        for repo in self.touched.drain(..) {
            self.recent.forget(repo, self.counters.batch + 1);
        }
        self.counters = self.saved;
    }

    /// Whether there is anything to write.
    pub fn is_empty(&self) -> bool {
        self.overlays.iter().all(Overlay::is_empty) && self.counters == self.first
    }

    /// The batch, numbered, with its counters; and these.
    pub fn finish(mut self) -> (RawBatch, Counters) {
        self.counters.batch += 1;
        let counters = meta::encode(&self.counters);
        self.put(Table::Meta, meta::KEY, counters);
        let count = self.overlays.iter().map(BTreeMap::len).sum();
        let mut writes = Vec::with_capacity(count);
        for (table, overlay) in Table::ALL.into_iter().zip(self.overlays) {
            for (Key { bytes: key, .. }, value) in overlay {
                writes.push(RawWrite { table, key, value });
            }
        }
        (RawBatch { writes }, self.counters)
    }
}

/// Where a key is in a batch that is in order, or would be.
fn place(batch: &RawBatch, table: Table, key: &[u8]) -> usize {
    batch
        .writes
        .partition_point(|write| (write.table, &*write.key) < (table, key))
}

fn find<'a>(batch: &'a RawBatch, table: Table, key: &[u8]) -> Option<&'a RawWrite> {
    let found = batch.writes.get(place(batch, table, key))?;
    (found.table == table && *found.key == *key).then_some(found)
}

fn lay_over(rows: &mut BTreeMap<Slice, Slice>, key: &Slice, value: &Option<Slice>) {
    match value {
        Some(value) => rows.insert(key.clone(), value.clone()),
        None => rows.remove(key),
    };
}

/// A decoded row and whose it is.
pub(crate) struct StoredRepo {
    pub id: RepoId,
    pub row: RepoRow,
}

/// Rows by their meaning.
impl Tx {
    /// A repository with its debt.
    pub(crate) fn repo(&self, id: RepoId) -> Result<Option<Box<StoredRepo>>, StoreError> {
        let place = key::repo(id);
        let found = match self.recent_row(id, &place)? {
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

    /// The row, if it need not be read. Where tests run it is read all the same.
    fn recent_row(&self, id: RepoId, place: &[u8]) -> Result<Option<Slice>, StoreError> {
        let recent = self.recent.newest(id);
        if cfg!(debug_assertions) && recent.is_some() {
            let read = self.get(Table::Repo, place)?;
            assert_eq!(recent, read, "what is known of {id:?} is what there is");
        }
        Ok(recent)
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
        let row = self.scratched(|bytes| repo::write(bytes, &next.row));
        self.put(Table::Repo, place, row.clone());
        self.touched.push(next.id);
        self.recent.write(next.id, self.counters.batch + 1, row);
    }

    /// Whether there is such an upstream.
    pub(crate) fn has_upstream(&mut self, upstream: UpstreamId) -> Result<bool, StoreError> {
        if self.upstreams.contains(&upstream) {
            return Ok(true);
        }
        let found = self.get(Table::Upstream, &key::upstream(upstream))?;
        if found.is_some() && self.undo.is_empty() {
            // Not while it may yet be undone.
            self.upstreams.insert(upstream);
        }
        Ok(found.is_some())
    }
}

/// Gives out numbers for names. They count as given when the change that asked
/// is kept.
impl Tx {
    /// The repository of a DID; a new one if there is none.
    pub fn intern_did(&mut self, did: &Did) -> Result<RepoId, StoreError> {
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
    pub fn intern_host(&mut self, row: &Host) -> Result<HostId, StoreError> {
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
