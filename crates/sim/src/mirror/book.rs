//! What the mirror has written down, and what a crash leaves of it. The one
//! place that touches the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{
    Cursor, Epoch, Host, HostId, Parked, Repo, RepoId, Tick, Upstream, UpstreamId,
};

use crate::world::{Frame, Op, Records};

/// A parked frame with how it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub parked: Parked,
    pub upstream: UpstreamId,
    pub epoch: Option<Epoch>,
    pub frame: Arc<Frame>,
}

/// Writes that become durable together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub repos: BTreeMap<RepoId, Repo>,
    pub ops: Vec<(RepoId, Vec<Op>)>,
    pub purged: Vec<RepoId>,
    pub park: Vec<(RepoId, Waiting)>,
    pub unpark: Vec<(RepoId, Rev)>,
    pub upstreams: BTreeMap<UpstreamId, Option<Upstream>>,
    pub cursors: BTreeMap<UpstreamId, (u32, Cursor)>,
    pub hosts: BTreeMap<HostId, Host>,
    pub tick: Tick,
}

impl Batch {
    /// Rows that it writes, apart from the counters of the store itself.
    pub fn rows(&self) -> usize {
        self.repos.len()
            + self.ops.iter().map(|(_, ops)| ops.len()).sum::<usize>()
            + self.purged.len()
            + self.park.len()
            + self.unpark.len()
            + self.upstreams.len()
            + self.cursors.len()
            + self.hosts.len()
    }
}

#[derive(Debug, Clone, Default)]
struct RepoState {
    row: Option<Repo>,
    records: Records,
    parked: BTreeMap<Rev, Waiting>,
}

#[derive(Debug, Clone, Default)]
struct State {
    repos: BTreeMap<RepoId, Arc<RepoState>>,
    upstreams: BTreeMap<UpstreamId, Upstream>,
    cursors: BTreeMap<UpstreamId, (u32, Cursor)>,
    hosts: BTreeMap<HostId, Host>,
    tick: Tick,
    next_upstream: u32,
}

#[derive(Debug, Default)]
pub struct Book {
    now: State,
    /// The state after each batch that is not durable, the durable one first.
    unsynced: Vec<State>,
}

impl Book {
    pub fn new() -> Book {
        Book {
            now: State::default(),
            unsynced: vec![State::default()],
        }
    }

    pub fn find(&self, did: &Did) -> Option<RepoId> {
        let found = self.now.repos.iter().find(|(_, state)| {
            let row = state.row.as_ref();
            row.is_some_and(|row| row.did == *did)
        });
        found.map(|(id, _)| *id)
    }

    pub fn next_repo(&self) -> RepoId {
        let last = self.now.repos.keys().next_back();
        RepoId(last.map_or(1, |id| id.0 + 1))
    }

    pub fn repo(&self, id: RepoId) -> Repo {
        let state = &self.now.repos[&id];
        state.row.clone().expect("a repository has a row")
    }

    pub fn repo_ids(&self) -> Vec<RepoId> {
        self.now.repos.keys().copied().collect()
    }

    pub fn repo_rows(&self) -> impl Iterator<Item = (RepoId, &Repo)> {
        let rows = self.now.repos.iter();
        rows.filter_map(|(id, state)| state.row.as_ref().map(|row| (*id, row)))
    }

    pub fn records(&self, id: RepoId) -> Records {
        self.now.repos[&id].records.clone()
    }

    pub fn parked(&self, id: RepoId) -> BTreeMap<Rev, Waiting> {
        self.now.repos[&id].parked.clone()
    }

    pub fn parked_bytes(&self) -> u64 {
        let frames = self
            .now
            .repos
            .values()
            .flat_map(|state| state.parked.values());
        frames.map(|waiting| u64::from(waiting.parked.bytes)).sum()
    }

    pub fn upstreams(&self) -> impl Iterator<Item = (UpstreamId, &Upstream)> {
        self.now.upstreams.iter().map(|(id, row)| (*id, row))
    }

    pub fn next_upstream(&mut self) -> UpstreamId {
        self.now.next_upstream += 1;
        UpstreamId(self.now.next_upstream)
    }

    /// The cursor, if it belongs to the present numbering.
    pub fn cursor(&self, id: UpstreamId) -> Option<(u32, Cursor)> {
        let numbering = self.now.upstreams.get(&id)?.numbering;
        let cursor = self.now.cursors.get(&id)?;
        (cursor.0 == numbering).then_some(*cursor)
    }

    pub fn host_named(&self, name: &str) -> Option<HostId> {
        let found = self.now.hosts.iter().find(|(_, host)| host.name == name);
        found.map(|(id, _)| *id)
    }

    pub fn next_host(&self) -> HostId {
        HostId(self.now.hosts.len() as u32 + 1)
    }

    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.now.hosts.get(&id)
    }

    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.now.hosts.iter().map(|(id, host)| (*id, host))
    }

    pub fn last_tick(&self) -> Tick {
        self.now.tick
    }

    /// Writes a batch: visible at once, durable with the next sync.
    pub fn commit(&mut self, batch: Batch) {
        let state = &mut self.now;
        for id in batch.purged {
            let repo = Arc::make_mut(state.repos.entry(id).or_default());
            repo.records.clear();
        }
        for (id, row) in batch.repos {
            Arc::make_mut(state.repos.entry(id).or_default()).row = Some(row);
        }
        for (id, ops) in batch.ops {
            let records = &mut Arc::make_mut(state.repos.entry(id).or_default()).records;
            for op in ops {
                match op.after {
                    Some(cid) => records.insert(op.path, cid),
                    None => records.remove(&op.path),
                };
            }
        }
        for (id, rev) in batch.unpark {
            let repo = Arc::make_mut(state.repos.entry(id).or_default());
            repo.parked.remove(&rev);
        }
        for (id, waiting) in batch.park {
            let repo = Arc::make_mut(state.repos.entry(id).or_default());
            repo.parked.insert(waiting.parked.head.rev, waiting);
        }
        for (id, row) in batch.upstreams {
            match row {
                Some(row) => state.upstreams.insert(id, row),
                None => state.upstreams.remove(&id),
            };
        }
        state.cursors.extend(batch.cursors);
        state.hosts.extend(batch.hosts);
        state.tick = state.tick.max(batch.tick);
        self.unsynced.push(self.now.clone());
    }

    /// Batches that a crash would put at risk.
    pub fn unsynced(&self) -> usize {
        self.unsynced.len() - 1
    }

    pub fn sync(&mut self) {
        self.unsynced.drain(..self.unsynced.len() - 1);
    }

    /// All but the first few unsynced batches are gone.
    pub fn crash(&mut self, keep: usize) {
        self.unsynced.truncate(keep + 1);
        self.now = self.unsynced.last().expect("the durable state").clone();
        self.sync();
    }
}
