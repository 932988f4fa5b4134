//! The durable state of the simulated mirror, and what a crash leaves of it: the store itself, on
//! its double in memory. Only this module writes to the store.
//!
//! Rows are also kept in memory, as the program keeps them. The checker reads everything that was
//! written back from the store, and after a crash the mirror does so too.

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{
    Cursor, Host, HostId, Parked, Repo, RepoId, Tick, Upstream, UpstreamId,
};
use gapless_store::change::{Change, HostChange, RepoChange, Subject, UpstreamChange};
use gapless_store::cursor::EventPosition;
use gapless_store::engine::{KeyRange, MemoryEngine};
use gapless_store::read_view::ReadView;
use gapless_store::sync_writer::{NoSidecar, SyncWriter};
use gapless_store::table::Table;
use gapless_store::table::log::LogRow;

use crate::world::{Frame, Records};

/// Writes that become durable together, in order.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    changes: Vec<Change>,
    touched: Vec<RepoId>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Adds a step of a repository that is already known.
    pub fn repo(&mut self, step: RepoChange) {
        if let Subject::Id(id) = step.subject {
            self.touched.push(id);
        }
        self.change().repo = Some(step);
    }

    pub fn upstream(&mut self, id: UpstreamId, row: Upstream) {
        self.change().upstream = Some(UpstreamChange::Row(id, row));
    }

    pub fn host(&mut self, id: HostId, row: Host) {
        self.change().host = Some(HostChange::Row(id, row));
    }

    pub fn done(&mut self, position: EventPosition) {
        self.change().done = Some(position);
    }

    fn change(&mut self) -> &mut Change {
        self.changes.push(Change::default());
        self.changes.last_mut().expect("it was just pushed")
    }
}

/// The bytes of a frame: which frame it is, and its number in the stream.
pub(crate) fn frame_bytes(frame: &Frame, seq: u64) -> Vec<u8> {
    let numbers = [frame.number, seq];
    numbers.into_iter().flat_map(u64::to_be_bytes).collect()
}

/// Reads what [`frame_bytes`] wrote.
pub(crate) fn read_frame_bytes(bytes: &[u8]) -> Option<(u64, u64)> {
    let (number, seq) = bytes.split_first_chunk()?;
    let seq = seq.try_into().ok()?;
    Some((u64::from_be_bytes(*number), u64::from_be_bytes(seq)))
}

pub struct Book {
    engine: MemoryEngine,
    store: SyncWriter,
    repos: BTreeMap<RepoId, Repo>,
    dids: BTreeMap<Did, RepoId>,
    hosts: BTreeMap<HostId, Host>,
    /// Every frame that was ever processed, by its number.
    frames: BTreeMap<u64, Arc<Frame>>,
}

impl Default for Book {
    fn default() -> Book {
        Book::new()
    }
}

impl Book {
    pub fn new() -> Book {
        let engine = MemoryEngine::new();
        engine.hold();
        Book {
            store: open(&engine),
            engine,
            repos: BTreeMap::new(),
            dids: BTreeMap::new(),
            hosts: BTreeMap::new(),
            frames: BTreeMap::new(),
        }
    }

    /// The store as it is now.
    pub fn view(&self) -> ReadView {
        self.store.view()
    }

    pub fn find(&self, did: &Did) -> Option<RepoId> {
        self.dids.get(did).copied()
    }

    /// Adds a repository with its first row.
    pub fn found(&mut self, tick: Tick, row: Repo) -> RepoId {
        let did = row.did.clone();
        let change = Change {
            tick,
            repo: Some(RepoChange::row(Subject::Did(did.clone()), row.clone())),
            ..Change::default()
        };
        let ack = self
            .store
            .write(change)
            .expect("a new row is no contradiction");
        let id = ack.repo.expect("the change was about a repository");
        self.repos.insert(id, row);
        self.dids.insert(did, id);
        id
    }

    pub fn repo(&self, id: RepoId) -> Repo {
        self.repos[&id].clone()
    }

    pub(crate) fn repo_ref(&self, id: RepoId) -> &Repo {
        &self.repos[&id]
    }

    pub(crate) fn repo_ids(&self) -> Vec<RepoId> {
        self.repos.keys().copied().collect()
    }

    pub(crate) fn repo_rows(&self) -> impl Iterator<Item = (RepoId, &Repo)> {
        self.repos.iter().map(|(id, row)| (*id, row))
    }

    /// The held records, as the store has them.
    pub fn records(&self, id: RepoId) -> Records {
        let rows = self.view().records(id).map(|record| {
            let record = record.expect("the double does not fail");
            let path = String::from_utf8(record.path().to_vec()).expect("our paths are text");
            (path, record.cid)
        });
        rows.collect()
    }

    /// The parked frames of a repository, without their bytes.
    pub fn parked(&self, id: RepoId) -> BTreeMap<Rev, Parked> {
        let parked = self.view().parked(id);
        parked.expect("the double does not fail")
    }

    /// Remembers a frame, so that its bytes can be read.
    pub(crate) fn remember_frame(&mut self, frame: &Arc<Frame>) {
        self.frames.insert(frame.number, frame.clone());
    }

    /// All frames that were ever processed, by their numbers.
    pub fn frames(&self) -> &BTreeMap<u64, Arc<Frame>> {
        &self.frames
    }

    /// The log rows of a repository, in order.
    pub fn log(&self, id: RepoId) -> Vec<LogRow> {
        let view = self.view();
        let rows = view.log_from(0).expect("the double does not fail");
        let rows = rows.map(|row| row.expect("the double does not fail").1);
        rows.filter(|row| row.repo == Some(id)).collect()
    }

    pub fn upstreams(&self) -> BTreeMap<UpstreamId, Upstream> {
        self.view().upstreams().expect("the double does not fail")
    }

    /// Adds an upstream.
    pub fn follow(&mut self, tick: Tick, row: Upstream) -> UpstreamId {
        let change = Change {
            tick,
            upstream: Some(UpstreamChange::New(row)),
            ..Change::default()
        };
        let ack = self
            .store
            .write(change)
            .expect("a new upstream is no contradiction");
        ack.upstream.expect("the change was about an upstream")
    }

    /// The cursor, if it belongs to the present numbering.
    pub fn cursor(&self, id: UpstreamId) -> Option<(u32, Cursor)> {
        let cursors = self.store.cursors();
        let cursors = cursors.lock();
        let mark = cursors.get(id)?;
        mark.cursor().map(|cursor| (mark.numbering(), cursor))
    }

    /// Records that a frame was read and will be processed.
    pub fn begin(&self, id: UpstreamId, numbering: u32, seq: u64) {
        self.store.begin(id, numbering, seq);
    }

    /// Forgets the frames that were read of an upstream, because they will not be processed.
    pub fn abandon(&self, id: UpstreamId) {
        self.store.cursors().lock().abandon(id);
    }

    /// The host with this name, if it is known.
    pub fn host_named(&self, name: &str) -> Option<HostId> {
        let found = self.hosts.iter().find(|(_, host)| host.name == name);
        found.map(|(id, _)| *id)
    }

    pub fn name_host(&mut self, name: &str) -> HostId {
        if let Some(id) = self.host_named(name) {
            return id;
        }
        let change = Change {
            host: Some(HostChange::Named(name.to_owned())),
            ..Change::default()
        };
        let ack = self
            .store
            .write(change)
            .expect("a name is no contradiction");
        let id = ack.host.expect("the change was about a host");
        let row = Host {
            name: name.to_owned(),
            ..Host::default()
        };
        self.hosts.insert(id, row);
        id
    }

    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.hosts.get(&id)
    }

    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.hosts.iter().map(|(id, host)| (*id, host))
    }

    pub fn last_tick(&self) -> Tick {
        let counters = self.view().counters().expect("the double does not fail");
        counters.last_tick
    }

    /// Writes a batch, which is visible at once and durable with the next sync. Returns the
    /// repositories that the batch touched.
    pub fn commit(&mut self, tick: Tick, mut batch: Batch) -> Vec<RepoId> {
        for change in &mut batch.changes {
            change.tick = tick;
            self.remember(change);
        }
        let answers = self.store.write_group(batch.changes);
        for answer in answers.expect("the double does not fail") {
            if let Err(refused) = answer {
                panic!("the store refuses what the ledger decided: {refused}");
            }
        }
        batch.touched
    }

    fn remember(&mut self, change: &Change) {
        if let Some(RepoChange {
            subject: Subject::Id(id),
            row: Some(row),
            ..
        }) = &change.repo
        {
            self.repos.insert(*id, row.clone());
        }
        if let Some(HostChange::Row(id, row)) = &change.host {
            self.hosts.insert(*id, row.clone());
        }
    }

    /// The number of batches that a crash could lose.
    pub fn unsynced(&self) -> usize {
        self.engine.unsynced()
    }

    pub fn sync(&mut self) {
        self.engine.sync();
    }

    /// Drops all but the first `keep` unsynced batches, and reads back what is left.
    pub fn crash(&mut self, keep: usize) {
        self.engine.crash(keep);
        self.store = open(&self.engine);
        let view = self.view();
        let repos = view.repos(RepoId(0)).map(|row| {
            let (id, _) = row.expect("the double does not fail");
            let repo = view.repo(id).expect("the double does not fail");
            (id, repo.expect("it was there a moment ago"))
        });
        self.repos = repos.collect();
        self.dids = self
            .repos
            .iter()
            .map(|(id, row)| (row.did.clone(), *id))
            .collect();
        let hosts = view
            .hosts()
            .map(|row| row.expect("the double does not fail"));
        self.hosts = hosts.collect();
    }
}

fn open(engine: &MemoryEngine) -> SyncWriter {
    SyncWriter::open(Box::new(engine.clone()), Box::new(NoSidecar)).expect("the double opens")
}

/// Everything in the store, row by row.
pub(crate) type Dump = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

impl Book {
    pub fn dump(&self) -> Dump {
        let view = self.view();
        let mut rows = Dump::new();
        for table in Table::ALL {
            for row in view.raw().range(table, KeyRange::all()) {
                let (key, value) = row.expect("the double does not fail");
                rows.insert((table, key.to_vec()), value.to_vec());
            }
        }
        rows
    }
}
