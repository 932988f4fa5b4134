//! The log as its consumers read it: rows with the bytes of their records, walks, and what trims and
//! purges cost the mirror beside them.
//!
//! The store is the shipped one, on disk. Readers are measured on one thread, figure and limit in
//! turns. A trim is measured by the rate of the commits that are written meanwhile, in pairs of runs
//! with and without it; a purge by the memory of this process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gapless_core::ledger::{Account as AccountState, Held, Repo, RepoId, Time};
use gapless_core::retain::When;
use gapless_store::change::{
    Change, EntryContent, LogEntry, RecordsKind, RepoChange, Subject, Upkeep,
};
use gapless_store::engine::{DiskSettings, KeyRange};
use gapless_store::log_reader::{OpBytes, PageLimits, Walk, read_bytes, read_page};
use gapless_store::table::Table;
use gapless_store::table::key;
use gapless_store::{Settings, Store};

use crate::measure::{best_of, cpu_time};
use crate::report::{Figure, Report, Target};
use crate::store::{
    Account, CHUNK, COMMIT_BYTES, Dice, LiveSource, RECORD_BYTES, fresh_record, new_upstream,
    snapshots, write_all,
};

/// The share of bare reads that a consumer must reach.
const LEAST: f64 = 0.4;
/// The share of the rate of commits that must be left beside a trim.
const LEAST_BESIDE_TRIM: f64 = 0.95;
/// The most memory of a purge above idle.
const PURGE_BYTES: f64 = 64e6;
/// What the engine may buffer of writes while the memory of a purge is measured.
const ENGINE_BUFFER_BYTES: u64 = 16 << 20;
/// The engine is flushed after so many parts of a purge, as upkeep does.
const PARTS_PER_FLUSH: usize = 16;
/// Chunks of each repository.
const CHUNKS: usize = 10;
const MEGABYTE: f64 = 1e6;
/// Commits of the loop between two passes of upkeep.
const LOOP_UPKEEP: usize = 2_000;
/// The most that the folder of the loop may take: the engine's journals, mostly.
const LOOP_BYTES: f64 = 1_000e6;

pub(crate) fn run(report: &mut Report) {
    let (records, points, rounds) = if report.quick() {
        (20_000, 2_000, 1)
    } else {
        (1_000_000, 20_000, 5)
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    write_all(&store, snapshots(7, records, CHUNKS).into_iter());
    points_of(report, &store, points, "log/point recent");
    store.close().expect("it closes");
    drop(store);
    let store = open(folder.path());
    points_of(report, &store, points, "log/point cold");
    rows_with_bytes(report, &store, rounds);
    walk_then_follow(report, &store, rounds);
    store.close().expect("it closes");
    drop(store);
    drop(folder);
    purge(report, records);
    trim(report);
    create_delete_loop(report);
}

fn open(folder: &Path) -> Arc<Store> {
    open_with(folder, DiskSettings::default())
}

fn open_with(folder: &Path, engine: DiskSettings) -> Arc<Store> {
    let settings = Settings {
        min_free_disk_bytes: 1 << 30,
        engine,
        ..Settings::default()
    };
    Arc::new(Store::open(folder, &settings).expect("it opens"))
}

/// The keys of all records in the order of the log.
fn keys_in_log_order(store: &Store) -> Vec<(RepoId, Vec<u8>, Vec<u8>)> {
    let view = store.view();
    let mut keys = Vec::new();
    for row in view.log_from(1).expect("it can be read") {
        let (_, row) = row.expect("it can be read");
        let id = row.repo.expect("a repository");
        for op in row.ops {
            keys.push((id, key::path(id, &op.path), op.path));
        }
    }
    keys
}

/// One read of a record by its key, at random places.
fn points_of(report: &mut Report, store: &Store, points: usize, name: &str) {
    let keys = keys_in_log_order(store);
    let mut dice = Dice(11);
    let chosen: Vec<usize> = (0..points).map(|_| dice.below(keys.len())).collect();
    let view = store.view();
    // Each is read once: a second read would find what the first has cached.
    let (first, second) = chosen.split_at(points / 2);
    let start = cpu_time();
    for place in first {
        let (id, _, path) = &keys[*place];
        let record = view.record(*id, path).expect("it can be read");
        assert!(record.is_some_and(|record| record.bytes().is_some()));
    }
    let figure = (cpu_time() - start) / first.len() as f64;
    let start = cpu_time();
    for place in second {
        let row = view.raw().get(Table::Record, &keys[*place].1);
        assert!(row.expect("it can be read").is_some());
    }
    let limit = (cpu_time() - start) / second.len() as f64;
    report.print(&Figure {
        name: name.to_owned(),
        figure: figure * 1e6,
        limit: limit * 1e6,
        unit: "us",
        against: "a bare read of another record",
        target: Target::AtMost(2.0),
    });
}

/// Every row of the log with the bytes of its operations, checked against their CIDs.
fn rows_with_bytes(report: &mut Report, store: &Store, rounds: usize) {
    let keys = keys_in_log_order(store);
    let (figure, limit) = best_of(
        rounds,
        || {
            let (mut next, mut read) = (1, 0);
            loop {
                let view = store.view();
                let page = read_page(&view, next, PageLimits::default()).expect("it can be read");
                for (_, row) in &page.rows {
                    for op in &row.ops {
                        let bytes = read_bytes(&view, row, op).expect("it can be read");
                        read += usize::from(matches!(bytes, Some(OpBytes::Record(_))));
                    }
                }
                next = page.next;
                if !page.more {
                    break;
                }
            }
            assert_eq!(read, keys.len());
        },
        || {
            let view = store.view();
            let rows = view.raw().range(Table::Log, KeyRange::all());
            let rows = rows.map(|row| row.expect("it can be read").1.len());
            assert!(rows.sum::<usize>() > 0);
            for (_, key, _) in &keys {
                let row = view.raw().get(Table::Record, key).expect("it can be read");
                assert!(row.is_some());
            }
        },
    );
    print_rate(
        report,
        "log/rows",
        keys.len(),
        figure,
        limit,
        "the log scanned and each record read by its key",
    );
}

/// A walk over everything, and the log from its beginning on, as a consumer begins late.
fn walk_then_follow(report: &mut Report, store: &Store, rounds: usize) {
    let count = store
        .view()
        .raw()
        .range(Table::Record, KeyRange::all())
        .count();
    let (figure, limit) = best_of(
        rounds,
        || {
            let mut walk = Walk::begin(&store.view()).expect("it can be read");
            let mut walked = 0;
            while let Some(part) = walk.next_part(&store.view()).expect("it can be read") {
                walked += part.records.len();
            }
            let view = store.view();
            let page = read_page(&view, walk.follow_from, PageLimits::default());
            assert!(!page.expect("it can be read").more);
            assert_eq!(walked, count);
        },
        || {
            let view = store.view();
            let rows = view.raw().range(Table::Record, KeyRange::all());
            let bytes = rows.map(|row| row.expect("it can be read").1.len());
            assert!(bytes.sum::<usize>() > 0);
        },
    );
    print_rate(
        report,
        "log/walk",
        count,
        figure,
        limit,
        "a bare scan of the same records",
    );
}

fn print_rate(
    report: &mut Report,
    name: &str,
    count: usize,
    figure: f64,
    limit: f64,
    against: &'static str,
) {
    report.print(&Figure {
        name: name.to_owned(),
        figure: count as f64 / figure,
        limit: count as f64 / limit,
        unit: "records/s",
        against,
        target: Target::AtLeast(LEAST),
    });
}

/// The memory of a purge of one repository, above the memory before it.
fn purge(report: &mut Report, records: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let changes = snapshots(7, records, records / CHUNK);
    let last = changes.last().and_then(|change| change.repo.clone());
    write_all(&store, changes.into_iter());
    store.close().expect("it closes");
    drop(store);
    // What the engine buffers of any write has a limit of its own, and is not the purge's.
    let small = DiskSettings {
        journal_bytes: ENGINE_BUFFER_BYTES,
        ..DiskSettings::default()
    };
    let store = open_with(folder.path(), small);
    let mut row = last.and_then(|change| change.row).expect("a row");
    (row.held, row.account, row.purging) = (Held::Nothing, AccountState::Deleted, true);
    row.lineage += 1;
    // The caches are full in a mirror that has run for a while.
    let view = store.view();
    for table in [Table::Record, Table::Log] {
        let rows = view.raw().range(table, KeyRange::all());
        assert!(
            rows.map(|row| row.expect("it can be read").1.len())
                .sum::<usize>()
                > 0
        );
    }
    drop(view);
    let idle = resident();
    let done = Arc::new(AtomicBool::new(false));
    let peak = Arc::new(AtomicU64::new(idle));
    let sampler = {
        let (done, peak) = (done.clone(), peak.clone());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let id = store.view().repo_by_did(&row.did).expect("it can be read");
    let (id, _) = id.expect("it is known");
    let change = RepoChange {
        entry: Some(entry(EntryContent::Purge)),
        ..RepoChange::row(Subject::Id(id), row)
    };
    let begun = store.write(Change {
        repo: Some(change),
        ..Change::default()
    });
    let number = begun
        .expect("room")
        .numbers
        .expect("a row of the log")
        .start;
    let (start, mut parts) = (Instant::now(), 0);
    loop {
        let (_, purge) = store
            .view()
            .purges(number)
            .next()
            .expect("it is there")
            .expect("read");
        if purge.deleting.is_none() {
            assert_eq!(purge.records, records as u64);
            break;
        }
        write_upkeep(
            &store,
            Upkeep::DeletePurged {
                purge: number,
                at: When::default(),
            },
        );
        parts += 1;
        if parts % PARTS_PER_FLUSH == 0 {
            let scourer = store.scourer().expect("on disk");
            assert!(scourer.flush().expect("it is flushed"));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    sampler.join().expect("it ends");
    assert!(parts > records / CHUNK, "in parts");
    report.print(&Figure {
        name: "log/purge memory".to_owned(),
        figure: (peak.load(Ordering::Relaxed) - idle) as f64 / MEGABYTE,
        limit: PURGE_BYTES / MEGABYTE,
        unit: "MB",
        against: "the limit above idle",
        target: Target::AtMost(1.0),
    });
    report.print(&Figure {
        name: "log/purge".to_owned(),
        figure: records as f64 / seconds,
        limit: 10_000.0,
        unit: "records/s",
        against: "a fixed number",
        target: Target::AtLeast(1.0),
    });
}

/// The memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a Linux");
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number") * 4096
}

fn write_upkeep(store: &Store, upkeep: Upkeep) {
    let change = Change {
        upkeep: Some(upkeep),
        ..Change::default()
    };
    store.write(change).expect("room");
}

/// The rate of commits beside a trim of the log, against the rate without one.
fn trim(report: &mut Report) {
    let (rows, commits, pairs) = if report.quick() {
        (20_000, 2_000, 1)
    } else {
        (10_000_000, 150_000, 5)
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    fill_log(&store, rows);
    store.write(new_upstream()).expect("room");
    let (mut source, first) = LiveSource::new(2);
    write_all(&store, first.into_iter());
    let (mut ratios, mut without) = (Vec::new(), 0.0);
    for pair in 0..pairs {
        let below = rows / pairs * (pair + 1);
        let alone = rate(&store, source.commits(commits), None);
        let beside = rate(&store, source.commits(commits), Some(below));
        let trimmed = store.view().first_log_number().expect("it can be read");
        assert!(
            trimmed > below.saturating_sub(CHUNK as u64),
            "{trimmed} of {below}"
        );
        without += alone;
        ratios.push(beside / alone);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    let alone = without / pairs as f64;
    eprintln!("  the ratios of {pairs} pairs: {ratios:.3?}");
    report.print(&Figure {
        name: "log/trim".to_owned(),
        figure: median * alone,
        limit: alone,
        unit: "commits/s",
        against: "the same without a trim; the median of the pairs",
        target: Target::AtLeast(LEAST_BESIDE_TRIM),
    });
}

/// Writes rows without operations.
fn fill_log(store: &Store, rows: u64) {
    let row = Account::new(900_000).repo;
    let subject = Subject::Did(row.did.clone());
    store.write(account_row(subject, &row)).expect("room");
    let changes = (1..rows).map(|_| account_row(Subject::Id(RepoId(1)), &row));
    write_all(store, changes);
}

fn account_row(subject: Subject, row: &Repo) -> Change {
    let change = RepoChange {
        entry: Some(entry(EntryContent::Account)),
        ..RepoChange::row(subject, row.clone())
    };
    Change {
        repo: Some(change),
        ..Change::default()
    }
}

fn entry(what: EntryContent) -> LogEntry {
    LogEntry {
        at: Time(1),
        source: None,
        what,
        frame: None,
    }
}

/// The commits that become durable in a second, while rows below a number are trimmed.
fn rate(store: &Arc<Store>, commits: Vec<Change>, trim_below: Option<u64>) -> f64 {
    let count = commits.len() as f64;
    let trimmer = trim_below.map(|below| {
        let store = store.clone();
        std::thread::spawn(move || {
            let at = When::default();
            let mut first = 0;
            loop {
                write_upkeep(&store, Upkeep::Trim { below, at });
                let next = store.view().first_log_number().expect("it can be read");
                if next == first {
                    return;
                }
                first = next;
            }
        })
    });
    let start = Instant::now();
    write_all(store, commits.into_iter());
    let seconds = start.elapsed().as_secs_f64();
    if let Some(trimmer) = trimmer {
        trimmer.join().expect("it ends");
    }
    count / seconds
}

/// The disk that one account can fill by creating and deleting a record for ever, if the log is
/// trimmed.
fn create_delete_loop(report: &mut Report) {
    let commits = if report.quick() { 4_000 } else { 1_000_000 };
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let (mut dice, mut account) = (Dice(5), Account::new(0));
    let record = fresh_record(&mut account, dice.bytes(RECORD_BYTES));
    let mut most = 0;
    for number in 0..commits {
        let mut op = record.clone();
        if number % 2 == 1 {
            (op.put, op.fresh) = (None, false);
        }
        let commit = dice.bytes(COMMIT_BYTES);
        let head = account.head(&commit);
        let held = Held::Exactly(head);
        let change = account.change(RecordsKind::Live, held, vec![op], commit);
        store.submit(change, |answer| assert!(answer.is_ok()));
        if number % LOOP_UPKEEP == LOOP_UPKEEP - 1 {
            let_go(&store);
            most = most.max(folder_bytes(folder.path()));
        }
    }
    let count = store.view().counts().expect("it can be read");
    assert!(count.versions <= LOOP_UPKEEP as u64);
    report.print(&Figure {
        name: "log/loop MB".to_owned(),
        figure: most as f64 / MEGABYTE,
        limit: LOOP_BYTES / MEGABYTE,
        unit: "MB",
        against: "the limit of the folder",
        target: Target::AtMost(1.0),
    });
}

/// Deletes everything that only the past needs, as upkeep does.
fn let_go(store: &Store) {
    let (below, at) = (
        store.view().counters().expect("read").next_seq,
        When::default(),
    );
    let keys = store.view().superseded_keys(b"");
    let keys: Vec<Vec<u8>> = keys.map(|row| row.expect("it can be read").0).collect();
    for keys in keys.chunks(CHUNK) {
        let keys = keys.to_vec();
        write_upkeep(store, Upkeep::Expire { keys, below, at });
    }
    let mut first = 0;
    loop {
        write_upkeep(store, Upkeep::Trim { below, at });
        let next = store.view().first_log_number().expect("it can be read");
        if next == first {
            return;
        }
        first = next;
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
        Ok(data) => data.len(),
        // Compaction has deleted the file meanwhile.
        Err(_) => 0,
    });
    sizes.sum()
}
