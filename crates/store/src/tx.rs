//! A group of changes on its way: reads fall through to a view, writes stay here
//! until they become one batch.
//!
//! Later changes of a group see what earlier ones wrote. A change that fails is
//! undone to the last byte and number, and the group goes on without it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codec::RowFault;
use crate::engine::{RawBatch, RawWrite, Row, Slice, View};
use crate::error::StoreError;
use crate::table::meta::{self, Counters};
use crate::table::{Table, key};

type Overlay = BTreeMap<Slice, Option<Slice>>;

/// What was there before a change wrote.
struct Undo {
    table: Table,
    key: Slice,
    before: Option<Option<Slice>>,
}

pub struct Tx {
    view: Arc<dyn View>,
    overlays: [Overlay; Table::ALL.len()],
    undo: Vec<Undo>,
    /// Numbers given out; written with the batch.
    pub(crate) counters: Counters,
    saved: Counters,
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
        Ok(Tx {
            view,
            overlays: Default::default(),
            undo: Vec::new(),
            counters,
            saved: counters,
            bytes: 0,
        })
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of keys and rows written so far, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        match self.overlays[table as usize].get(key) {
            Some(written) => Ok(written.clone()),
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
        let written = self.overlays[table as usize]
            .range::<[u8], _>((
                std::ops::Bound::Included(prefix),
                std::ops::Bound::Unbounded,
            ))
            .take_while(|(key, _)| key.starts_with(prefix));
        for (key, value) in written {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        Ok(rows.into_iter().collect())
    }

    pub fn put(&mut self, table: Table, key: impl Into<Slice>, row: impl Into<Slice>) {
        self.write(table, key.into(), Some(row.into()));
    }

    pub fn delete(&mut self, table: Table, key: impl Into<Slice>) {
        self.write(table, key.into(), None);
    }

    fn write(&mut self, table: Table, key: Slice, value: Option<Slice>) {
        self.bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        let before = self.overlays[table as usize].insert(key.clone(), value);
        self.undo.push(Undo { table, key, before });
    }

    /// What was written since the last call stands.
    pub fn keep(&mut self) {
        self.undo.clear();
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
        self.counters = self.saved;
    }

    /// Whether there is anything to write.
    pub fn is_empty(&self) -> bool {
        self.overlays.iter().all(Overlay::is_empty)
    }

    /// The batch, numbered, with its counters.
    pub fn finish(mut self) -> RawBatch {
        self.counters.batch += 1;
        let counters = meta::encode(&self.counters);
        self.put(Table::Meta, meta::KEY, counters);
        let count = self.overlays.iter().map(BTreeMap::len).sum();
        let mut writes = Vec::with_capacity(count);
        for (table, overlay) in Table::ALL.into_iter().zip(self.overlays) {
            for (key, value) in overlay {
                writes.push(RawWrite { table, key, value });
            }
        }
        RawBatch { writes }
    }
}

/// Gives out numbers for names. They count as given when the change that asked
/// is kept.
impl Tx {
    /// The repository of a DID; a new one if there is none.
    pub fn intern_did(
        &mut self,
        did: &gapless_atp::syntax::Did,
    ) -> Result<gapless_core::ledger::RepoId, StoreError> {
        use crate::table::did;
        let place = key::did(did);
        if let Some(repo) = self.read(Table::Did, &place, did::decode)? {
            return Ok(repo);
        }
        let repo = gapless_core::ledger::RepoId(self.counters.next_repo);
        self.counters.next_repo += 1;
        self.put(Table::Did, place, did::encode(repo));
        Ok(repo)
    }

    /// The host of a name; a new one if there is none.
    pub fn intern_host(&mut self, name: &str) -> Result<gapless_core::ledger::HostId, StoreError> {
        use crate::table::host;
        use gapless_core::ledger::{Host, HostId};
        if let Some(host) = self.read(Table::HostName, name.as_bytes(), host::decode_id)? {
            return Ok(host);
        }
        let host = HostId(self.counters.next_host);
        self.counters.next_host += 1;
        self.put(Table::HostName, name, host::encode_id(host));
        let row = Host {
            name: name.to_owned(),
            ..Host::default()
        };
        self.put(Table::Host, key::host(host), host::encode(&row));
        Ok(host)
    }
}
