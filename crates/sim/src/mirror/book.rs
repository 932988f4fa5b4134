//! The durable state of the simulated mirror, and what a crash leaves of it: the store itself, on
//! its double in memory. Only this module writes to the store.
//!
//! Rows are also kept in memory, as the program keeps them. The checker reads everything that was
//! written back from the store, and after a crash the mirror does so too.
//!
//! Readers of the log see the published view: the state that the store acknowledged as durable. A
//! disk that lies about a sync may lose some of it at the next crash; the start then repairs the
//! store, as `store repair` does.

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{
    Cursor, Host, HostId, Parked, Repo, RepoId, Tick, Time, Upstream, UpstreamId,
};
use gapless_store::apply::log_lost_numbers;
use gapless_store::change::{Ack, Change, HostChange, RepoChange, Subject, UpstreamChange};
use gapless_store::cursor::EventPosition;
use gapless_store::engine::{Engine, KeyRange, MemoryEngine, RawBatch};
use gapless_store::read_view::ReadView;
use gapless_store::sync_writer::{NoSidecar, SyncWriter};
use gapless_store::table::Table;
use gapless_store::table::log::LogRow;
use gapless_store::table::meta::{self, Counters};
use gapless_store::tx::Tx;

use super::log_event::{LogEvent, LogEvents};
use crate::rng::Rng;
use crate::world::{Frame, Records};

/// Writes that become durable together, in order.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    changes: Vec<Change>,
    touched: Vec<RepoId>,
    part_of: PartOf,
}

/// What a batch is part of. A crash names its place by the number of steps that survive, so that
/// upkeep and readers of the log move no trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PartOf {
    /// A step of the mirror.
    #[default]
    Step,
    /// Upkeep, or a reader of the log.
    Upkeep,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Makes the batch part of upkeep.
    pub fn of_upkeep(mut self) -> Batch {
        self.part_of = PartOf::Upkeep;
        self
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
    /// The batches that are not durable, in order.
    unsynced: Vec<PartOf>,
    /// The state that was acknowledged as durable.
    published: ReadView,
    /// The last batch that is durable.
    synced: u64,
    /// The last batch that survived all crashes since readers were told.
    survived: Option<u64>,
    /// Decides where between two steps a crash comes, and what a claim says.
    pub rng: Rng,
    pub events: LogEvents,
}

impl Default for Book {
    fn default() -> Book {
        Book::new(0)
    }
}

impl Book {
    pub fn new(seed: u64) -> Book {
        let engine = MemoryEngine::new();
        engine.hold();
        let store = open(&engine);
        Book {
            published: store.view(),
            store,
            engine,
            repos: BTreeMap::new(),
            dids: BTreeMap::new(),
            hosts: BTreeMap::new(),
            frames: BTreeMap::new(),
            unsynced: Vec::new(),
            synced: 0,
            survived: None,
            rng: Rng::new(seed ^ 0xb00c),
            events: LogEvents::default(),
        }
    }

    /// Writes a group, which is visible at once and durable with the next sync.
    fn write_group(&mut self, changes: Vec<Change>, part_of: PartOf) -> Vec<Ack> {
        let before = self.engine.unsynced();
        let answers = self.store.write_group(changes);
        let answers = answers.expect("the double does not fail").into_iter();
        let acks = answers.map(|answer| match answer {
            Ok(ack) => ack,
            Err(refused) => panic!("the store refuses what the ledger decided: {refused}"),
        });
        let acks = acks.collect();
        if self.engine.unsynced() > before {
            self.unsynced.push(part_of);
        }
        acks
    }

    fn write_step(&mut self, change: Change) -> Ack {
        let mut acks = self.write_group(vec![change], PartOf::Step);
        acks.pop().expect("one change has one answer")
    }

    /// Writes a change of upkeep or of a reader.
    pub(crate) fn write_upkeep(&mut self, change: Change) -> Ack {
        let mut acks = self.write_group(vec![change], PartOf::Upkeep);
        acks.pop().expect("one change has one answer")
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
        let ack = self.write_step(change);
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
        let ack = self.write_step(change);
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
        let ack = self.write_step(change);
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
        self.write_group(batch.changes, batch.part_of);
        batch.touched
    }

    fn remember(&mut self, change: &Change) {
        if let Some(RepoChange {
            subject: Subject::Id(id),
            row: Some(row),
            ..
        }) = &change.repo
        {
            let old = self.repos.insert(*id, row.clone());
            if let Some(old) = old {
                self.events.count_change(&old.held, &row.held);
            }
        }
        if let Some(HostChange::Row(id, row)) = &change.host {
            self.hosts.insert(*id, row.clone());
        }
    }

    /// The number of steps that a crash could lose.
    pub fn unsynced(&self) -> usize {
        let steps = self.unsynced.iter();
        steps.filter(|part_of| **part_of == PartOf::Step).count()
    }

    pub fn sync(&mut self) {
        self.engine.sync();
        self.unsynced.clear();
        self.synced = self.counters().batch;
        self.publish();
    }

    /// Acknowledges everything written so far, durable or not.
    pub fn publish(&mut self) {
        self.published = self.view();
    }

    /// The state that readers of the log may see.
    pub(crate) fn published(&self) -> &ReadView {
        &self.published
    }

    pub fn counters(&self) -> Counters {
        self.view().counters().expect("the double does not fail")
    }

    /// The last batch that no crash can lose.
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// The last batch that survived all crashes since the last call, if there was one.
    pub(crate) fn take_survived(&mut self) -> Option<u64> {
        self.survived.take()
    }

    /// Drops everything after the first `keep` unsynced steps, and reads back what is left. If
    /// anything is lost that was acknowledged, the store is repaired.
    pub fn crash(&mut self, keep: usize, at: Time) {
        let acknowledged = self.published.counters();
        let acknowledged = acknowledged.expect("the double does not fail");
        let keep = self.place_of_crash(keep);
        self.engine.crash(keep);
        self.unsynced.clear();
        let left = self.counters();
        let survived = self.survived.unwrap_or(left.batch);
        self.survived = Some(survived.min(left.batch));
        if left.batch < acknowledged.batch {
            self.events.count(LogEvent::NumbersLost);
            self.repair(left, acknowledged, at);
        }
        self.store = open(&self.engine);
        self.sync();
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

    /// The number of batches that a crash leaves, which keeps this many steps: it comes at a random
    /// place between two steps.
    fn place_of_crash(&mut self, keep: usize) -> usize {
        let mut steps = 0;
        let mut batches = self.unsynced.iter().take_while(|part_of| {
            steps += usize::from(**part_of == PartOf::Step);
            steps <= keep
        });
        let most = batches.by_ref().count();
        let upkeep = self.unsynced[..most].iter().rev();
        let upkeep = upkeep.take_while(|part_of| **part_of == PartOf::Upkeep);
        most - self.rng.below(upkeep.count() + 1)
    }

    /// Covers the numbers that were acknowledged and lost, as `store repair` does: no number of the
    /// log or of a repository is given twice. The mirror's upstreams need no new epoch, because the
    /// cursors went back with the records.
    fn repair(&mut self, left: Counters, acknowledged: Counters, at: Time) {
        let ahead = Counters {
            next_repo: left.next_repo.max(acknowledged.next_repo),
            next_audit: left.next_audit.max(acknowledged.next_audit),
            ..left
        };
        let mut batch = RawBatch::default();
        batch.put(Table::Meta, meta::KEY, meta::encode(&ahead));
        self.write_raw(&batch);
        let tx = Tx::new(self.engine.snapshot());
        let mut tx = tx.expect("the double does not fail");
        // One number more: readers that have read everything meet the row, too.
        let next_seq = left.next_seq.max(acknowledged.next_seq) + 1;
        log_lost_numbers(&mut tx, acknowledged.batch, next_seq, at);
        self.write_raw(&tx.finish().0);
    }

    /// Writes past the store, as a repair or a faulty disk does, and makes that durable.
    pub(crate) fn write_raw(&mut self, batch: &RawBatch) {
        let written = self.engine.clone().commit(batch);
        written.expect("the double does not fail");
        self.engine.sync();
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
