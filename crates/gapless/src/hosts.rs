//! The hosts that repositories live on: their rows, all in memory, and their
//! numbers.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use gapless_core::ledger::{Host, HostId, Tick};
use gapless_store::Store;
use gapless_store::change::{Change, HostChange};
use gapless_store::error::StoreError;

use crate::ingest::upstreams::write;

pub struct HostRows {
    store: Arc<Store>,
    rows: RwLock<Rows>,
}

#[derive(Default)]
struct Rows {
    by_id: HashMap<HostId, Host>,
    by_name: HashMap<String, HostId>,
}

impl HostRows {
    pub fn open(store: Arc<Store>) -> Result<HostRows, StoreError> {
        let mut rows = Rows::default();
        for row in store.view().hosts() {
            let (id, host) = row?;
            rows.by_name.insert(host.name.clone(), id);
            rows.by_id.insert(id, host);
        }
        Ok(HostRows {
            store,
            rows: RwLock::new(rows),
        })
    }

    pub fn get(&self, id: HostId) -> Option<Host> {
        self.read().by_id.get(&id).cloned()
    }

    pub fn find(&self, name: &str) -> Option<HostId> {
        self.read().by_name.get(name).copied()
    }

    pub fn all(&self) -> Vec<(HostId, Host)> {
        let rows = self.read();
        rows.by_id
            .iter()
            .map(|(id, host)| (*id, host.clone()))
            .collect()
    }

    /// The number of a host; it gets one if it has none.
    pub async fn name(&self, name: &str) -> Result<HostId, StoreError> {
        if let Some(id) = self.find(name) {
            return Ok(id);
        }
        let change = Change {
            host: Some(HostChange::Named(name.to_owned())),
            ..Change::default()
        };
        let ack = write(&self.store, change).await?;
        let id = ack.host.ok_or(StoreError::CommitterGone)?;
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.by_name.insert(name.to_owned(), id);
        rows.by_id.entry(id).or_insert_with(|| Host {
            name: name.to_owned(),
            ..Host::default()
        });
        Ok(id)
    }

    /// Changes a host's row. The row in memory is the new one only when it is
    /// durable.
    pub async fn change<T>(
        &self,
        tick: Tick,
        id: HostId,
        act: impl FnOnce(&mut Host) -> T,
    ) -> Result<Option<T>, StoreError> {
        let Some(mut row) = self.get(id) else {
            return Ok(None);
        };
        let told = act(&mut row);
        let change = Change {
            tick,
            host: Some(HostChange::Row(id, row.clone())),
            ..Change::default()
        };
        write(&self.store, change).await?;
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.by_id.insert(id, row);
        Ok(Some(told))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Rows> {
        // Nothing in here can panic half way.
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }
}
