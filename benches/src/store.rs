//! The store: durable commits and records per second through the committer, against the bare
//! engine writing the same bytes.
//!
//! The store is the shipped one, with frames, head file and the check of the free disk space.
//! Every batch of the measured run is kept and written again, by one thread, into an empty
//! engine with the same tables; before each batch, an equal number of frame bytes is written
//! to a file and synced, as the store does. In addition, the store reads what a commit
//! replaces, derives further rows, encodes, groups and acknowledges. The changes, like the
//! batches, are built before the run. Both runs are measured in wall time, in turns, the best
//! round of each; CPU time is that of the whole process, until compaction is idle.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{
    Epoch, Head, Held, Marker, Repo, RepoId, Tick, Time, Upstream, UpstreamId, UpstreamKind,
};
use gapless_store::Store;
use gapless_store::change::{
    Change, EntryContent, LogEntry, RecordOp, RecordValue, Records, RecordsKind, RepoChange,
    Subject, UpstreamChange,
};
use gapless_store::cursor::EventPosition;
use gapless_store::engine::{DiskEngine, DiskSettings, Engine, EngineError, RawBatch, View};
use gapless_store::error::StoreError;
use gapless_store::frames::{Frames, FramesSettings};
use gapless_store::head::{AcknowledgedHead, HeadFile};
use gapless_store::queue::GroupLimits;
use gapless_store::space::FreeSpace;
use gapless_store::sync_writer::{DurableHead, Sidecar, SpaceCheck};
use gapless_store::table::log::SourceEvent;
use rustix::time::{ClockId, clock_gettime};

use crate::report::{Figure, Report, Target};

/// The share of the bare engine's speed that the committer must reach.
const LEAST: f64 = 0.7;
/// The most CPU time relative to the bare engine, for reading, checking, encoding and two more
/// threads: an alarm, not a goal.
const MOST_CPU: f64 = 4.0;
pub(crate) const RECORD_BYTES: usize = 320;
/// The signed commit: DID, rev, data, signature.
pub(crate) const COMMIT_BYTES: usize = 210;
/// A frame with one record, the commit, and the nodes on the way to it.
const LIVE_FRAME_BYTES: usize = 2_000;
const REPOS: usize = 2_000;
pub(crate) const CHUNK: usize = 1_000;
const IDLE_WITHIN: Duration = Duration::from_secs(120);

pub(crate) fn run(report: &mut Report) {
    let (commits, records, rounds) = if report.quick() {
        (5_000, 10_000, 1)
    } else {
        (150_000, 300_000, 6)
    };
    let live = best(rounds, || live_load(commits));
    print(report, "store", "commits", &live, commits);
    cpu(report, "store/cpu", &live, commits);
    let backfill = best(rounds, || backfill_load(records));
    print(report, "store/backfill", "records", &backfill, records);
    cpu(report, "store/backfill cpu", &backfill, records);
}

fn print(report: &mut Report, name: &str, what: &'static str, best: &Best, count: usize) {
    let unit = match what {
        "commits" => "commits/s",
        _ => "records/s",
    };
    report.print(&Figure {
        name: name.to_owned(),
        figure: count as f64 / best.store.wall,
        limit: count as f64 / best.bare.wall,
        unit,
        against: "the bare engine with the same bytes and fsyncs",
        target: Target::AtLeast(LEAST),
    });
}

fn cpu(report: &mut Report, name: &str, best: &Best, count: usize) {
    report.print(&Figure {
        name: name.to_owned(),
        figure: best.store.cpu / count as f64 * 1e6,
        limit: best.bare.cpu / count as f64 * 1e6,
        unit: "us",
        against: "the bare engine, until compaction is idle",
        target: Target::AtMost(MOST_CPU),
    });
}

/// The wall and CPU seconds of one run.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    cpu: f64,
}

impl Took {
    fn least(self, other: Took) -> Took {
        Took {
            wall: self.wall.min(other.wall),
            cpu: self.cpu.min(other.cpu),
        }
    }
}

/// The changes to write before and during the measurement.
struct Load {
    before: Vec<Change>,
    timed: Vec<Change>,
}

/// A batch that the store wrote, and the bytes of the frames written before it.
#[derive(Default)]
struct Written {
    batch: RawBatch,
    frames: usize,
}

struct Recorded {
    before: Vec<Written>,
    timed: Vec<Written>,
}

struct Best {
    store: Took,
    bare: Took,
}

fn best(rounds: usize, load: impl Fn() -> Load) -> Best {
    let mut best: Option<Best> = None;
    for _ in 0..rounds {
        let (store, recorded) = through_the_store(load());
        let bare = bare(recorded);
        best = Some(match best {
            None => Best { store, bare },
            Some(last) => Best {
                store: store.least(last.store),
                bare: bare.least(last.bare),
            },
        });
    }
    best.expect("one round at least")
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    written: Vec<Written>,
    /// The bytes of frames for the next batch.
    frames: usize,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no thread panics with this lock")
    }

    fn take(&self) -> Vec<Written> {
        std::mem::take(&mut self.lock().written)
    }
}

/// An engine that keeps every batch it writes. Rows are shared, not copied.
struct Recorder {
    engine: DiskEngine,
    notes: Notes,
}

impl Engine for Recorder {
    fn commit(&mut self, batch: &RawBatch) -> Result<(), EngineError> {
        let mut kept = self.notes.lock();
        let frames = std::mem::take(&mut kept.frames);
        let batch = batch.clone();
        kept.written.push(Written { batch, frames });
        let last = kept.written.last().expect("it was just pushed");
        self.engine.commit(&last.batch)
    }

    fn snapshot(&self) -> Arc<dyn View> {
        self.engine.snapshot()
    }
}

impl Drop for Recorder {
    /// Waits for compaction, which counts as the store's work.
    fn drop(&mut self) {
        idle(&self.engine);
    }
}

/// The store's sidecar files, with a count of the bytes of frames.
struct Files {
    folder: PathBuf,
    frames: Frames,
    head: HeadFile,
    notes: Notes,
}

impl Files {
    fn open(folder: &Path, notes: Notes) -> Files {
        let place = folder.join("frames");
        Files {
            folder: folder.to_owned(),
            frames: Frames::open(&place, FramesSettings::default(), 1).expect("a fresh folder"),
            head: HeadFile::open(folder).expect("a fresh folder"),
            notes,
        }
    }
}

impl Sidecar for Files {
    fn space_check(&mut self) -> Box<dyn SpaceCheck> {
        Box::new(FreeSpace::new(&self.folder, 1 << 30))
    }

    fn write_frames(&mut self, frames: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
        for (seq, frame) in frames {
            self.frames.append(*seq, frame)?;
        }
        self.notes.lock().frames = frames.iter().map(|(_, frame)| frame.len()).sum();
        Ok(self.frames.sync()?)
    }

    fn acknowledge(&mut self, head: DurableHead) -> Result<(), StoreError> {
        Ok(self.head.write(AcknowledgedHead {
            batch: head.batch,
            next_seq: head.next_seq,
        })?)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        Ok(self.head.sync()?)
    }
}

fn open(folder: &Path) -> DiskEngine {
    DiskEngine::open(&folder.join("engine"), &DiskSettings::default()).expect("a fresh folder")
}

fn through_the_store(load: Load) -> (Took, Recorded) {
    let folder = tempfile::tempdir().expect("a folder");
    let notes = Notes::default();
    let engine = Recorder {
        engine: open(folder.path()),
        notes: notes.clone(),
    };
    let beside = Files::open(folder.path(), notes.clone());
    let limits = GroupLimits::default();
    let store = Store::start(Box::new(engine), Box::new(beside), limits).expect("it starts");
    let upstream = store.write(new_upstream()).expect("room").upstream;
    assert_eq!(upstream, Some(UPSTREAM));
    write_all(&store, load.before.into_iter());
    let before = notes.take();
    let (cpu, start) = (cpu_seconds(), Instant::now());
    write_all(&store, load.timed.into_iter());
    let wall = start.elapsed().as_secs_f64();
    store.close().expect("it ends well");
    let cpu = cpu_seconds() - cpu;
    drop(store);
    let timed = notes.take();
    (Took { wall, cpu }, Recorded { before, timed })
}

/// Submits all changes and waits until they are durable.
pub(crate) fn write_all(store: &Store, changes: impl Iterator<Item = Change>) {
    let durable = Arc::new(AtomicUsize::new(0));
    let (all_told, last_one) = sync_channel::<()>(0);
    let mut count = 0;
    for change in changes {
        count += 1;
        if let Some(done) = &change.done {
            store.begin(done.upstream, done.numbering, done.seq);
        }
        // After the last callback the channel has no sender left.
        let (durable, told) = (durable.clone(), all_told.clone());
        store.submit(change, move |answer| {
            durable.fetch_add(usize::from(answer.is_ok()), Ordering::Relaxed);
            drop(told);
        });
    }
    drop(all_told);
    assert!(last_one.recv().is_err());
    assert_eq!(durable.load(Ordering::Relaxed), count);
}

fn bare(recorded: Recorded) -> Took {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bare = Bare {
        engine: open(folder.path()),
        file: File::create(folder.path().join("frames")).expect("a fresh folder"),
        noise: Dice(3).bytes(16 << 20),
    };
    for written in recorded.before {
        bare.write(&written);
    }
    let (cpu, start) = (cpu_seconds(), Instant::now());
    for written in recorded.timed {
        bare.write(&written);
    }
    let wall = start.elapsed().as_secs_f64();
    idle(&bare.engine);
    let cpu = cpu_seconds() - cpu;
    Took { wall, cpu }
}

struct Bare {
    engine: DiskEngine,
    file: File,
    noise: Vec<u8>,
}

impl Bare {
    fn write(&mut self, written: &Written) {
        if written.frames > 0 {
            let frames = &self.noise[..written.frames];
            let synced = self.file.write_all(frames);
            synced.and_then(|()| self.file.sync_data()).expect("room");
        }
        self.engine.commit(&written.batch).expect("room");
    }
}

/// Waits until the engine has been idle for a while: between two pieces of work it may look
/// idle for a moment.
fn idle(engine: &DiskEngine) {
    let (start, mut quiet) = (Instant::now(), 0);
    while quiet < 20 && start.elapsed() < IDLE_WITHIN {
        std::thread::sleep(Duration::from_millis(5));
        quiet = if engine.is_busy() { 0 } else { quiet + 1 };
    }
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

const UPSTREAM: UpstreamId = UpstreamId(1);

pub(crate) fn new_upstream() -> Change {
    Change {
        upstream: Some(UpstreamChange::New(Upstream {
            url: "wss://relay.example.org".to_owned(),
            kind: UpstreamKind::Relay,
            host: None,
            epoch: Epoch(1),
            first_cursor_since_reset: Some(1),
            numbering: 0,
            reset_at: Tick(0),
            unread_at: None,
            followed: Default::default(),
        })),
        ..Change::default()
    }
}

/// A random generator with equal results in every run.
pub(crate) struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Random bytes of which half compress, as records do.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![b'x'; count];
        for chunk in bytes.chunks_mut(16) {
            let noise = self.next().to_be_bytes();
            for (place, byte) in chunk.iter_mut().zip(noise) {
                *place = byte;
            }
        }
        bytes
    }
}

/// A repository for which changes are generated.
pub(crate) struct Account {
    /// The repository's number, once the store has assigned one.
    subject: Subject,
    pub(crate) repo: Repo,
    paths: Vec<Vec<u8>>,
    micros: u64,
}

impl Account {
    pub(crate) fn new(number: usize) -> Account {
        let digits = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut rest = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut name = String::new();
        for _ in 0..24 {
            name.push(char::from(digits[rest % 32]));
            rest = (rest / 32).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ number;
        }
        let did = Did::parse(&format!("did:plc:{name}")).expect("a legal DID");
        Account {
            subject: Subject::Did(did.clone()),
            repo: Repo::new(did),
            paths: Vec::new(),
            micros: 1_700_000_000_000_000 + number as u64,
        }
    }

    fn path(&mut self) -> Vec<u8> {
        self.micros += 1_000_003;
        let key = Rev::from_micros(self.micros, 7);
        format!("app.bsky.feed.post/{key}").into_bytes()
    }

    pub(crate) fn head(&mut self, commit: &[u8]) -> Head {
        self.micros += 1_000;
        Head {
            rev: Rev::from_micros(self.micros, 0),
            data: Cid::dag_cbor(&commit[..32]),
            commit: Cid::dag_cbor(commit),
        }
    }

    pub(crate) fn change(
        &mut self,
        kind: RecordsKind,
        held: Held,
        ops: Vec<RecordOp>,
        commit: Vec<u8>,
    ) -> Change {
        let before = std::mem::replace(&mut self.repo.held, held);
        Change {
            tick: Tick(self.micros),
            repo: Some(RepoChange {
                subject: self.subject.clone(),
                row: Some(self.repo.clone()),
                entry: Some(LogEntry {
                    at: Time(self.micros),
                    source: None,
                    what: EntryContent::Records(Records {
                        kind,
                        before,
                        ops,
                        commit,
                    }),
                    frame: None,
                }),
                park: Vec::new(),
                unpark: Vec::new(),
            }),
            ..Change::default()
        }
    }
}

/// Commits of known repositories, as a stream delivers them: one record each, most of them
/// new.
fn live_load(count: usize) -> Load {
    let (mut source, before) = LiveSource::new(1);
    let timed = source.commits(count);
    Load { before, timed }
}

/// Generates commits of the same repositories.
pub(crate) struct LiveSource {
    dice: Dice,
    accounts: Vec<Account>,
    /// The number of the last event of the stream.
    seq: u64,
}

impl LiveSource {
    /// Makes the first commits of all repositories; the store gives the first of them the number
    /// `first_repo`.
    pub(crate) fn new(first_repo: u64) -> (LiveSource, Vec<Change>) {
        let mut source = LiveSource {
            dice: Dice(1),
            accounts: (0..REPOS).map(Account::new).collect(),
            seq: 0,
        };
        let mut first = Vec::with_capacity(REPOS);
        for (place, account) in source.accounts.iter_mut().enumerate() {
            source.seq += 1;
            first.push(live_change(account, &mut source.dice, source.seq));
            // The store assigns numbers in the order of the first changes.
            account.subject = Subject::Id(RepoId(first_repo + place as u64));
        }
        (source, first)
    }

    pub(crate) fn commits(&mut self, count: usize) -> Vec<Change> {
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            self.seq += 1;
            let account = &mut self.accounts[self.dice.below(REPOS)];
            changes.push(live_change(account, &mut self.dice, self.seq));
        }
        changes
    }
}

fn live_change(account: &mut Account, dice: &mut Dice, seq: u64) -> Change {
    let op = live_op(account, dice);
    let commit = dice.bytes(COMMIT_BYTES);
    let head = account.head(&commit);
    let repo = &mut account.repo;
    repo.last_firehose_rev = Some(head.rev);
    repo.first_rev_since_reset.get_or_insert(head.rev);
    repo.cover = Some(UPSTREAM);
    repo.marker = Some(Marker {
        cover: UPSTREAM,
        epoch: Epoch(1),
    });
    let mut change = account.change(RecordsKind::Live, Held::Exactly(head), vec![op], commit);
    if let Some(entry) = change.repo.as_mut().and_then(|repo| repo.entry.as_mut()) {
        entry.source = Some(SourceEvent {
            upstream: UPSTREAM,
            seq,
        });
        entry.frame = Some(dice.bytes(LIVE_FRAME_BYTES));
    }
    change.done = Some(EventPosition {
        upstream: UPSTREAM,
        numbering: 0,
        seq,
        event: [seq as u8; 16],
    });
    change
}

/// An operation: of ten, eight create, one updates, one deletes.
fn live_op(account: &mut Account, dice: &mut Dice) -> RecordOp {
    let put = |dice: &mut Dice| {
        let bytes = dice.bytes(RECORD_BYTES);
        Some(RecordValue {
            cid: Cid::dag_cbor(&bytes),
            bytes: Some(bytes),
        })
    };
    let place = match account.paths.len() {
        0 => None,
        count => Some(dice.below(count)),
    };
    match (dice.below(10), place) {
        (8, Some(place)) => RecordOp {
            path: account.paths[place].clone(),
            put: put(dice),
            fresh: false,
        },
        (9, Some(place)) => RecordOp {
            path: account.paths.swap_remove(place),
            put: None,
            fresh: false,
        },
        _ => {
            let path = account.path();
            account.paths.push(path.clone());
            RecordOp {
                path,
                put: put(dice),
                fresh: true,
            }
        }
    }
}

/// A new record at a new path.
pub(crate) fn fresh_record(account: &mut Account, bytes: Vec<u8>) -> RecordOp {
    RecordOp {
        path: account.path(),
        put: Some(RecordValue {
            cid: Cid::dag_cbor(&bytes),
            bytes: Some(bytes),
        }),
        fresh: true,
    }
}

/// Snapshots of ten thousand records, in chunks.
fn backfill_load(records: usize) -> Load {
    let each = (10 * CHUNK).min(records);
    Load {
        before: Vec::new(),
        timed: snapshots(2, records, each / CHUNK),
    }
}

/// Snapshots in chunks, of `chunks` chunks each.
pub(crate) fn snapshots(seed: u64, records: usize, chunks: usize) -> Vec<Change> {
    let mut dice = Dice(seed);
    let mut account = Account::new(0);
    let mut commit = Vec::new();
    let mut head = None;
    let changes = (0..records / CHUNK).map(|number| {
        if number % chunks == 0 {
            account = Account::new(number);
            commit = dice.bytes(COMMIT_BYTES);
            head = Some(account.head(&commit));
        }
        let head = head.expect("the first chunk made it");
        let ops = (0..CHUNK)
            .map(|_| fresh_record(&mut account, dice.bytes(RECORD_BYTES)))
            .collect();
        let held = match (number + 1) % chunks {
            0 => Held::Exactly(head),
            _ => Held::Applying {
                target: head,
                from: None,
            },
        };
        account.change(RecordsKind::Backfill, held, ops, commit.clone())
    });
    changes.collect()
}
