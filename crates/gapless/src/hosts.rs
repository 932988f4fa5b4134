//! The hosts that repositories live on: their rows, all in memory, and their
//! numbers; and what they served last that had to be refused, which is remembered
//! while we run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Host, HostId, Tick, Time};
use gapless_store::Store;
use gapless_store::change::{Change, HostChange};
use gapless_store::error::StoreError;

use crate::ingest::upstreams::write;

/// Hosts that are known, of those that others name. Anybody can make up more, one for
/// every document; a network has some thousands.
const MOST_HOSTS: usize = 100_000;

/// A repository as its host served it, and why that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub at: Time,
    pub did: Did,
    /// A short name.
    pub class: &'static str,
    pub error: String,
}

pub struct HostRows {
    store: Arc<Store>,
    rows: RwLock<Rows>,
    /// One change at a time: each begins with the row that the last one left.
    changing: tokio::sync::Mutex<()>,
    refusals: Mutex<HashMap<HostId, Refused>>,
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
            changing: tokio::sync::Mutex::new(()),
            refusals: Mutex::default(),
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

    /// Looks at every host, without a copy of it. Never waits for anything.
    pub fn each(&self, mut look: impl FnMut(HostId, &Host)) {
        for (id, host) in &self.read().by_id {
            look(*id, host);
        }
    }

    pub fn len(&self) -> usize {
        self.read().by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of a host that somebody else has named. None: it is new, and so many
    /// are known that no more are remembered.
    pub async fn name_of_stranger(&self, name: &str) -> Result<Option<HostId>, StoreError> {
        if self.len() >= MOST_HOSTS && self.find(name).is_none() {
            return Ok(None);
        }
        self.name(name).await.map(Some)
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
        let _one = self.changing.lock().await;
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

    /// A host served something that is refused.
    pub fn refuse(&self, host: HostId, refused: Refused) {
        self.refusals().insert(host, refused);
    }

    /// What a host served last that was refused.
    pub fn refused_by(&self, host: HostId) -> Option<Refused> {
        self.refusals().get(&host).cloned()
    }

    fn refusals(&self) -> MutexGuard<'_, HashMap<HostId, Refused>> {
        // Nothing in here can panic half way.
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Rows> {
        // Nothing in here can panic half way.
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gapless_core::ledger::HostSwept;

    use super::*;

    #[tokio::test]
    async fn two_changes_at_a_time_are_both_kept() {
        let store = Arc::new(Store::memory().expect("it opens"));
        let rows = HostRows::open(store.clone()).expect("it is empty");
        let host = rows.name("https://pds.example").await.expect("it is new");
        // A write may be durable before it is waited for: tried until one is not.
        for round in 1..=200 {
            let swept = HostSwept {
                tick: Tick(round),
                at: Time(round),
            };
            let suspended = round % 2 == 0;
            let (one, other) = tokio::join!(
                rows.change(Tick(round), host, |row| row.swept = Some(swept)),
                rows.change(Tick(round), host, |row| row.hiding_suspended = suspended),
            );
            assert!(one.expect("written").is_some() && other.expect("written").is_some());
            let told = rows.get(host).expect("it is known");
            assert_eq!(
                (told.swept, told.hiding_suspended),
                (Some(swept), suspended)
            );
        }
        let told = rows.get(host);
        let again = HostRows::open(store).expect("it can be read");
        assert_eq!(again.get(host), told, "and durably so");
    }
}
