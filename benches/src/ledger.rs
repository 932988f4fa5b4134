//! Decisions of the ledger per second and core, against copying the rows that they are
//! about; and the number of rows that a reset of a host with a million repositories writes.
//!
//! The mix follows what a mirror decides: mostly commits that chain, some replays, broken
//! chains and forgeries, listings, and questions about completeness. Every round begins from
//! the same rows, so all rounds make the same decisions.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::cover::Covers;
use gapless_core::ledger::event::{Context, Event, Origin, ParkedTotals, decide};
use gapless_core::ledger::sweep::{self, ListingEntry};
use gapless_core::ledger::*;
use gapless_store::change::{
    Change, EntryContent, HostChange, LogEntry, Records, RecordsKind, RepoChange, Subject,
    UpstreamChange,
};
use gapless_store::engine::{Engine, EngineError, MemoryEngine, RawBatch, View};
use gapless_store::sync_writer::{NoSidecar, SyncWriter};
use gapless_store::table::Table;

use crate::measure::best_of;
use crate::report::{Figure, Report, Target};

const DECISIONS_PER_SECOND: f64 = 1_000_000.0;
const PDS: UpstreamId = UpstreamId(1);
const HOST: HostId = HostId(1);
const START: Time = Time(1_700_000_000_000_000);
const REPOS: usize = 10_000;

pub(crate) fn run(report: &mut Report) {
    decisions(report);
    reset(report);
}

/// Creates one upstream whose stream is connected and delivering.
fn covers() -> (Covers, Ticks) {
    let mut covers = Covers::new();
    let mut ticks = Ticks::default();
    covers.add(
        Tick(0),
        PDS,
        Upstream {
            url: String::from("wss://pds.test"),
            kind: UpstreamKind::Pds,
            host: Some(HOST),
            epoch: Epoch(1),
            first_cursor_since_reset: None,
            reset_at: Tick(0),
            numbering: 0,
            unread_at: None,
            followed: Default::default(),
        },
    );
    let source = covers.get_mut(PDS).expect("just added");
    source.stream.dial(None);
    let mut notices = Vec::new();
    let now = ticks.next(START, Lived::default());
    source.stream.connected(now, &mut source.row, &mut notices);
    let now = ticks.next(START, Lived::default());
    source
        .stream
        .frame(now, &mut source.row, 1, [0; 16], &mut notices);
    (covers, ticks)
}

fn head(repo: usize, n: u64) -> Head {
    let text = format!("{repo} {n}");
    Head {
        rev: Rev::from_micros(START.0 - 1_000_000_000 + n, 0),
        data: Cid::dag_cbor(format!("root {text}").as_bytes()),
        commit: Cid::dag_cbor(format!("commit {text}").as_bytes()),
    }
}

/// A repository that is complete at its commit 1.
fn complete_repo(covers: &Covers, n: usize) -> Repo {
    let letter = |place: u32| char::from(b'a' + (n / 10_usize.pow(place) % 10) as u8);
    let name: String = (0..24).map(|place| letter(place.min(8))).collect();
    let mut repo = Repo::new(Did::parse(&format!("did:plc:{name}")).expect("a DID"));
    let first = head(n, 1);
    repo.host = Some(HOST);
    repo.account = Account::Active;
    repo.cover = Some(PDS);
    repo.held = Held::Exactly(first);
    repo.first_rev_since_reset = Some(first.rev);
    repo.marker = covers
        .open_epoch(PDS)
        .map(|epoch| Marker { cover: PDS, epoch });
    repo
}

/// The events of a repository that the ledger decides about.
fn inputs(n: usize) -> Vec<Event> {
    let signed = |at: u64, before: u64| Event::Signed {
        head: head(n, at),
        before: PriorState::Root(head(n, before).data),
        bytes: 2_000,
    };
    let mut events: Vec<Event> = (2..8).map(|at| signed(at, at - 1)).collect();
    match n % 8 {
        0 => events.push(Event::Unsigned),
        1 => events.push(signed(20, 19)),
        2 => events.push(Event::Account(Account::Takendown)),
        _ => events.push(signed(3, 2)),
    }
    events
}

fn decisions(report: &mut Report) {
    let (covers, mut ticks) = covers();
    let settings = Settings::default();
    let rows: Vec<Repo> = (0..REPOS).map(|n| complete_repo(&covers, n)).collect();
    let events: Vec<Vec<Event>> = (0..REPOS).map(inputs).collect();
    let now = ticks.next(START, Lived::default());
    let context = Context {
        now,
        covers: &covers,
        settings: &settings,
    };
    let page = sweep::take_page_note(context, HOST);
    let origin = Origin {
        upstream: PDS,
        epoch: covers.open_epoch(PDS),
    };
    let per_repo = events[0].len() + 2;
    let rounds = if report.quick() { 3 } else { 60 };
    let mut notices = Vec::new();
    let (figure, limit) = best_of(
        rounds,
        || {
            let mut complete = 0;
            for (n, (row, events)) in rows.iter().zip(&events).enumerate() {
                let mut repo = row.clone();
                for each in events {
                    let context = Context {
                        now: ticks.next(START, Lived::default()),
                        ..context
                    };
                    notices.clear();
                    let room = ParkedTotals::default();
                    black_box(decide(
                        context,
                        &mut repo,
                        origin,
                        each,
                        &room,
                        &mut notices,
                    ));
                }
                let newest = head_of(&repo);
                let entry = ListingEntry {
                    named: newest,
                    account: Account::Active,
                };
                black_box(sweep::judge_entry(context, &mut repo, &page, &entry));
                complete += usize::from(complete::is_complete(context, &repo, None));
                black_box(n);
            }
            assert!(complete > REPOS / 2 && complete < REPOS, "{complete}");
        },
        || {
            for row in &rows {
                for _ in 0..per_repo {
                    black_box(row.clone());
                }
            }
        },
    );
    let total = (REPOS * per_repo) as f64;
    let (figure, limit) = (total / figure, total / limit);
    report.print(&Figure {
        name: String::from("ledger"),
        figure,
        limit,
        unit: "dec/s",
        against: "copying the rows",
        target: Target::AtLeast(DECISIONS_PER_SECOND / limit),
    });
}

fn head_of(repo: &Repo) -> NamedHead {
    let head = repo.head().expect("it is held");
    NamedHead {
        rev: head.rev,
        commit: head.commit,
    }
}

/// An engine that counts the rows written, except the counters, which are in every
/// batch.
struct Counting {
    engine: MemoryEngine,
    rows: Arc<AtomicUsize>,
}

impl Engine for Counting {
    fn commit(&mut self, batch: &RawBatch) -> Result<(), EngineError> {
        let rows = batch.writes.iter().filter(|row| row.table != Table::Meta);
        self.rows.fetch_add(rows.count(), Ordering::Relaxed);
        self.engine.commit(batch)
    }

    fn snapshot(&self) -> Arc<dyn View> {
        self.engine.snapshot()
    }
}

/// Measures a reset, which makes every repository of the host incomplete: counts the rows
/// that reach the engine, and reads every repository back from the store.
fn reset(report: &mut Report) {
    let many = if report.quick() { 10_000 } else { 1_000_000 };
    let (mut covers, mut ticks) = covers();
    let settings = Settings::default();
    let rows = Arc::new(AtomicUsize::new(0));
    let engine = Counting {
        engine: MemoryEngine::new(),
        rows: rows.clone(),
    };
    let mut book = SyncWriter::open(Box::new(engine), Box::new(NoSidecar)).expect("in memory");
    fill(&mut book, &covers, many);
    let complete = |book: &SyncWriter, covers: &Covers, now| {
        let context = Context {
            now,
            covers,
            settings: &settings,
        };
        let view = book.view();
        (1..=many as u64)
            .filter(|id| {
                let repo = view
                    .repo(RepoId(*id))
                    .expect("it reads")
                    .expect("it is there");
                complete::is_complete(context, &repo, None)
            })
            .count()
    };
    let now = ticks.next(START, Lived::default());
    assert_eq!(complete(&book, &covers, now), many);
    let source = covers.get_mut(PDS).expect("it is there");
    let now = ticks.next(START, Lived::default());
    source
        .stream
        .cursor_outdated(now, &mut source.row, &mut Vec::new());
    let change = Change {
        tick: now.tick,
        upstream: Some(UpstreamChange::Row(PDS, source.row.clone())),
        ..Change::default()
    };
    rows.store(0, Ordering::Relaxed);
    book.write(change).expect("it writes");
    assert_eq!(complete(&book, &covers, now), 0, "every one of them");
    report.print(&Figure {
        name: format!("ledger/reset {many}"),
        figure: rows.load(Ordering::Relaxed) as f64,
        limit: 1.0,
        unit: "rows",
        against: "one row for all repositories",
        target: Target::AtMost(1.0),
    });
}

/// Writes a host, its upstream, and `many` complete repositories of the host.
fn fill(book: &mut SyncWriter, covers: &Covers, many: usize) {
    let host = Change {
        host: Some(HostChange::Named(String::from("pds.test"))),
        ..Change::default()
    };
    let source = covers.get(PDS).expect("it is there");
    let upstream = Change {
        upstream: Some(UpstreamChange::New(source.row.clone())),
        ..Change::default()
    };
    assert_eq!(book.write(host).expect("it writes").host, Some(HOST));
    assert_eq!(book.write(upstream).expect("it writes").upstream, Some(PDS));
    let numbers: Vec<usize> = (0..many).collect();
    for group in numbers.chunks(1_000) {
        let changes = group.iter().map(|n| held(complete_repo(covers, *n)));
        for answer in book.write_group(changes.collect()).expect("it writes") {
            answer.expect("nothing contradicts it");
        }
    }
}

/// A repository as its first, empty snapshot left it.
fn held(repo: Repo) -> Change {
    Change {
        repo: Some(RepoChange {
            subject: Subject::Did(repo.did.clone()),
            entry: Some(LogEntry {
                at: START,
                source: None,
                what: EntryContent::Records(Records {
                    kind: RecordsKind::Backfill,
                    before: Held::Nothing,
                    ops: Vec::new(),
                    commit: Vec::new(),
                }),
                frame: None,
            }),
            row: Some(repo),
            park: Vec::new(),
            unpark: Vec::new(),
        }),
        ..Change::default()
    }
}
