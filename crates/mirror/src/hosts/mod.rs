//! The hosts on which repositories live: all rows are in memory and in the store. The last
//! snapshot of each host that was refused is in memory only.

pub(crate) mod quota;

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Host, HostId, NamedBy, Tick, Time, Upstream, UpstreamId};
use gapless_store::Store;
use gapless_store::change::{Change, HostChange, UpstreamChange};
use gapless_store::error::StoreError;

use crate::behind_counts::BehindCounts;
use crate::clock::Clock;
use crate::hosts::quota::{QuotaExceeded, Quotas};
use crate::store_io::{unnumbered, write};
use gapless_store::sync::{Mutex, RwLock};

/// How often the log reports that hosts were refused because of a quota.
const LOG_EVERY: Duration = Duration::from_secs(600);

/// A snapshot that a host served and that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSnapshot {
    pub at: Time,
    pub did: Did,
    /// The name of the failed check, as in metrics.
    pub class: &'static str,
    pub error: String,
}

/// The rows of all hosts.
pub struct HostRows {
    store: Arc<Store>,
    clock: Arc<Clock>,
    rows: RwLock<Inner>,
    quotas: Mutex<Quotas>,
    /// When the log last reported a refused host.
    logged_at: Mutex<Option<Instant>>,
    /// Serializes changes: each change starts from the row that the last change wrote.
    changing: tokio::sync::Mutex<()>,
    refusals: Mutex<HashMap<HostId, RefusedSnapshot>>,
    /// How many repositories of each host are behind.
    pub behind_counts: BehindCounts,
}

#[derive(Default)]
struct Inner {
    by_id: HashMap<HostId, Host>,
    by_name: HashMap<String, HostId>,
}

impl HostRows {
    pub fn open(store: Arc<Store>, clock: Arc<Clock>) -> Result<HostRows, StoreError> {
        let (mut rows, mut quotas) = (Inner::default(), Quotas::default());
        for row in store.view().hosts() {
            let (id, host) = row?;
            quotas.add(&host.named);
            rows.by_name.insert(host.name.clone(), id);
            rows.by_id.insert(id, host);
        }
        Ok(HostRows {
            store,
            clock,
            rows: RwLock::new(rows),
            quotas: Mutex::new(quotas),
            logged_at: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
            refusals: Mutex::default(),
            behind_counts: BehindCounts::default(),
        })
    }

    /// A copy of the row of a host.
    pub fn get(&self, id: HostId) -> Option<Host> {
        self.read().by_id.get(&id).cloned()
    }

    /// The number of a host, by its name in DID documents.
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

    /// Calls `look` for every host, without a copy. `look` must not block, because the rows
    /// are locked.
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

    /// Returns the number of a host that a relay or a document names. A new host is added
    /// if the quota of its source allows it.
    pub(crate) async fn register_named(
        &self,
        name: &str,
        by: NamedBy,
    ) -> Result<Result<HostId, QuotaExceeded>, StoreError> {
        if let Some(id) = self.find(name) {
            return Ok(Ok(id));
        }
        // Reserve first: many hosts are named at the same time.
        let taken = self.quotas().take(&by);
        if let Err(over) = taken {
            self.log_refused(name, &by);
            return Ok(Err(over));
        }
        self.name_new(name, by).await.map(Ok)
    }

    /// Returns the number of a host that an operator names, and adds the host if it is new.
    pub async fn register(&self, name: &str) -> Result<HostId, StoreError> {
        if let Some(id) = self.find(name) {
            return Ok(id);
        }
        self.quotas().add(&NamedBy::Operator);
        self.name_new(name, NamedBy::Operator).await
    }

    /// Writes the row of a host for which the quota has reserved room. The room is given back if
    /// the host is not new or the write fails.
    async fn name_new(&self, name: &str, by: NamedBy) -> Result<HostId, StoreError> {
        let row = Host {
            name: name.to_owned(),
            named: by.clone(),
            since: Some(self.clock.time()),
            ..Host::default()
        };
        let change = Change {
            host: Some(HostChange::New(row.clone())),
            ..Change::default()
        };
        let written = write(&self.store, change).await;
        let named = written.and_then(|ack| ack.host.ok_or_else(|| unnumbered("a host")));
        let new = named.as_ref().is_ok_and(|id| {
            let mut rows = self.rows.write();
            rows.by_name.insert(name.to_owned(), *id);
            let known = rows.by_id.contains_key(id);
            rows.by_id.entry(*id).or_insert(row);
            !known
        });
        if !new {
            // Another task has added the host meanwhile, or the write has failed.
            self.quotas().give_back(&by);
        }
        named
    }

    /// The source to which a host in a DID document is attributed: the source that made the
    /// repository known. `kept` says that the repository is held or tracked.
    pub(crate) fn namer(
        &self,
        lives: Option<HostId>,
        kept: bool,
        relay: Option<String>,
    ) -> NamedBy {
        if !kept {
            return NamedBy::Stranger(relay);
        }
        let rows = self.read();
        let lives = lives.and_then(|id| Some((id, rows.by_id.get(&id)?)));
        match lives {
            None => NamedBy::Document(None),
            // A host that a document named has no share of its own: every move would add one.
            Some((_, host)) => match &host.named {
                NamedBy::Document(from) => NamedBy::Document(*from),
                NamedBy::Stranger(relay) => NamedBy::Stranger(relay.clone()),
                NamedBy::Unsaid | NamedBy::Operator | NamedBy::Relay(_) => {
                    NamedBy::Document(lives.map(|(id, _)| id))
                }
            },
        }
    }

    /// The sources that exceeded their quota, each with the number of its hosts and of its
    /// refusals since the start; and the refusals in total.
    pub(crate) fn over_quota(&self) -> (Vec<(NamedBy, usize, u64)>, u64) {
        let quotas = self.quotas();
        let (refused, in_all) = quotas.refused();
        let refused = refused.iter();
        let told = refused.map(|(by, count)| (by.clone(), quotas.share(by), *count));
        (told.collect(), in_all)
    }

    fn log_refused(&self, name: &str, by: &NamedBy) {
        let mut logged_at = self.logged_at.lock();
        if logged_at.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            return;
        }
        *logged_at = Some(Instant::now());
        let (_, refused) = self.over_quota();
        tracing::warn!(
            host = name, named_by = %self.describe_namer(by), refused,
            "a new host is ignored because the quota of its source, or of all hosts, is exhausted; `gapless hosts` shows the sources"
        );
    }

    /// Describes the source that named a host.
    pub(crate) fn describe_namer(&self, by: &NamedBy) -> String {
        let at = |id: HostId| self.get(id).unwrap_or_default().name;
        match by {
            NamedBy::Unsaid => "an unrecorded source".to_owned(),
            NamedBy::Operator => "an operator".to_owned(),
            NamedBy::Document(None) => "the DID document of a tracked repository".to_owned(),
            NamedBy::Document(Some(id)) => {
                format!(
                    "the DID document of a repository that came from {}",
                    at(*id)
                )
            }
            NamedBy::Relay(url) => format!("the relay {url}"),
            NamedBy::Stranger(None) => {
                "the DID document of a repository that was not mirrored".to_owned()
            }
            NamedBy::Stranger(Some(url)) => {
                format!("the DID document of a repository that the relay {url} reported")
            }
        }
    }

    /// Records that a host has answered a request. The row is written once.
    pub async fn reached(&self, tick: Tick, id: HostId) -> Result<(), StoreError> {
        let unreached = |host: &Host| !host.reached;
        if self.read().by_id.get(&id).is_some_and(unreached) {
            self.change(tick, id, |row| row.reached = true).await?;
        }
        Ok(())
    }

    /// Forgets a host that never answered, and detaches its upstream. The store refuses the
    /// change if any other row refers to the host.
    pub async fn forget(
        &self,
        id: HostId,
        upstream: (UpstreamId, Upstream),
    ) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        let (number, row) = upstream;
        let left = Upstream { host: None, ..row };
        let change = Change {
            host: Some(HostChange::Gone(id)),
            upstream: Some(UpstreamChange::Row(number, left)),
            ..Change::default()
        };
        write(&self.store, change).await?;
        let mut rows = self.rows.write();
        if let Some(gone) = rows.by_id.remove(&id) {
            rows.by_name.remove(&gone.name);
            drop(rows);
            self.quotas().give_back(&gone.named);
        }
        self.refusals().remove(&id);
        Ok(())
    }

    /// Changes the row of a host. The row in memory changes once the new row is durable.
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
        let mut rows = self.rows.write();
        rows.by_id.insert(id, row);
        Ok(Some(told))
    }

    /// Records a snapshot of a host that was refused.
    pub fn refuse(&self, host: HostId, refused: RefusedSnapshot) {
        self.refusals().insert(host, refused);
    }

    /// The last refused snapshot of a host.
    pub fn refused_by(&self, host: HostId) -> Option<RefusedSnapshot> {
        self.refusals().get(&host).cloned()
    }

    fn quotas(&self) -> MutexGuard<'_, Quotas> {
        self.quotas.lock()
    }

    fn refusals(&self) -> MutexGuard<'_, HashMap<HostId, RefusedSnapshot>> {
        self.refusals.lock()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        self.rows.read()
    }
}

#[cfg(test)]
mod tests {
    use gapless_core::ledger::{HostSweep, Lived};

    use super::*;

    #[tokio::test]
    async fn two_changes_at_a_time_are_both_kept() {
        let store = Arc::new(Store::memory().expect("it opens"));
        let clock = || Arc::new(Clock::resume(Tick(0), Lived::default()));
        let rows = HostRows::open(store.clone(), clock()).expect("it is empty");
        let host = rows
            .register("https://pds.example")
            .await
            .expect("it is new");
        // A write may be durable before it is waited for: tried until one is not.
        for round in 1..=200 {
            let swept = HostSweep {
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
        let again = HostRows::open(store, clock()).expect("it can be read");
        assert_eq!(again.get(host), told, "and durably so");
    }

    fn open(store: &Arc<Store>) -> HostRows {
        let clock = Arc::new(Clock::resume(Tick(0), Lived::default()));
        HostRows::open(store.clone(), clock).expect("it can be read")
    }

    #[tokio::test]
    async fn a_host_that_names_too_many_is_refused_also_after_a_restart() {
        let store = Arc::new(Store::memory().expect("it opens"));
        let rows = open(&store);
        let hostile = rows.register("https://hostile.example").await.expect("new");
        let by = rows.namer(Some(hostile), true, None);
        assert_eq!(by, NamedBy::Document(Some(hostile)));
        let mut last = hostile;
        for number in 0..10_000 {
            // Each moves on to another one: that is no share of its own.
            let by = rows.namer(Some(last), true, None);
            let name = format!("https://host{number}.example");
            let named = rows.register_named(&name, by).await.expect("written");
            last = named.expect("there is a place");
        }
        for rows in [&rows, &open(&store)] {
            let name = "https://one-more.example";
            let by = rows.namer(Some(last), true, None);
            let refused = rows.register_named(name, by).await.expect("an answer");
            assert_eq!(refused, Err(QuotaExceeded::Share));
            let (told, in_all) = rows.over_quota();
            assert_eq!(told, [(NamedBy::Document(Some(hostile)), 10_000, 1)]);
            assert_eq!(in_all, 1);
            let known = rows.register_named("https://host7.example", NamedBy::Document(None));
            assert!(known.await.expect("an answer").is_ok(), "it is known");
        }
        let relay = NamedBy::Relay("https://relay.example".to_owned());
        let listed = rows.register_named("https://listed.example", relay).await;
        assert!(listed.expect("written").is_ok());
        rows.register("https://wanted.example")
            .await
            .expect("written");
    }

    #[tokio::test]
    async fn two_who_name_one_host_at_a_time_take_one_place() {
        let rows = open(&Arc::new(Store::memory().expect("it opens")));
        let by = || NamedBy::Document(None);
        for number in 0..50 {
            let name = format!("https://host{number}.example");
            let (one, other) = tokio::join!(
                rows.register_named(&name, by()),
                rows.register_named(&name, by()),
            );
            assert_eq!(one.expect("written"), other.expect("written"));
        }
        assert_eq!(rows.quotas().share(&by()), 50);
        assert_eq!(rows.len(), 50);
    }
}
