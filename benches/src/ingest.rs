//! Ingest: the cost of live commits through the whole program, verified and durable, in bare
//! signature checks.
//!
//! The sender is a process of its own and has every frame prepared. The program runs as
//! shipped, on a store that this bench prepares: every repository has its key and the state
//! to which its first commit applies. The records of that state are not in the store (a
//! hundred million of them would be thirty gigabytes), because no live create reads them.
//! Everything from the socket to the durable cursor is measured; the program's sweep before
//! the load is not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gapless_atp::cid::Cid;
use gapless_atp::crypto::Curve;
use gapless_core::ledger::{Account, DocumentKeys, Head, Held, HostId, KeyBytes, Repo, Tick, Time};
use gapless_store::change::{
    Change, EntryContent, HostChange, LogEntry, Records, RecordsKind, RepoChange, Subject,
};
use gapless_store::{Settings, Store};
use gapless_testnet::load::{Load, LoadConfig};

use crate::measure::{best_of, cpu_time};
use crate::program::{Mirror, Sender, number_after};
use crate::report::{Figure, Report, Target};
use crate::verify::BareCheck;

const RECORDS: usize = 1_000;
/// 1 / 3.5: the program may take the time of 3.5 bare checks.
const RATIO: f64 = 0.28;
const RATE_WANTED: f64 = 20_000.0;
const P50_SECONDS: f64 = 0.025;
const P99_SECONDS: f64 = 0.1;
const MEGABYTES: f64 = 600.0;
const MANY_RATIO: f64 = 0.8;
/// The number of bare checks in a burst, and the time between bursts: a fiftieth of a core.
const BURST: u32 = 64;
const BETWEEN_BURSTS: Duration = Duration::from_millis(100);

struct Run {
    rate: f64,
    cpu_micros: f64,
    /// The CPU time of a bare check while the load ran.
    bare_micros: f64,
    megabytes: f64,
}

pub(crate) fn run(report: &mut Report) {
    let (repos, many, commits) = if report.quick() {
        (1_000, 2_000, 20_000)
    } else {
        (100_000, 1_000_000, 1_200_000)
    };
    let few = measure(repos, commits, Some(report));
    report.print(&Figure {
        name: "ingest".to_owned(),
        figure: few.bare_micros,
        limit: few.cpu_micros,
        unit: "us",
        against: "CPU time of gapless per commit, verified and durable",
        target: Target::AtLeast(RATIO),
    });
    report.print(&Figure {
        name: "ingest/idle".to_owned(),
        figure: idle_micros(),
        limit: few.cpu_micros,
        unit: "us",
        against: "CPU time of gapless per commit, to a check on an idle machine; reported",
        target: Target::AtLeast(0.0),
    });
    report.print(&Figure {
        name: "ingest/rate".to_owned(),
        figure: few.rate,
        limit: RATE_WANTED,
        unit: "/s",
        against: "the target: commits per second",
        target: Target::AtLeast(0.0),
    });
    let more = measure(many, commits, None);
    report.print(&Figure {
        name: format!("ingest/{many}"),
        figure: more.rate,
        limit: few.rate,
        unit: "/s",
        against: "the rate over fewer repositories",
        target: Target::AtLeast(MANY_RATIO),
    });
    report.print(&Figure {
        name: format!("ingest/{many} MB"),
        figure: more.megabytes,
        limit: MEGABYTES,
        unit: "MB",
        against: "the peak memory allowed",
        target: Target::AtMost(1.0),
    });
}

/// The microseconds of a bare check on an idle machine.
fn idle_micros() -> f64 {
    let bare = BareCheck::new();
    let (check, _) = best_of(20, || bursts(&bare, 1), || ());
    check / f64::from(BURST) * 1e6
}

fn bursts(bare: &BareCheck, count: u32) {
    for _ in 0..count * BURST {
        bare.check();
    }
}

/// Runs bursts of bare checks during the load and measures the CPU time of their thread.
/// Busy cores are slower than idle ones, so both sides of the comparison must run on busy
/// cores.
struct Beside {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Beside {
    fn start() -> Beside {
        let ends = Arc::new(AtomicBool::new(false));
        let end = ends.clone();
        let thread = std::thread::spawn(move || {
            let bare = BareCheck::new();
            let (mut seconds, mut checks) = (0.0, 0u32);
            while !end.load(Ordering::Relaxed) || checks == 0 {
                std::thread::sleep(BETWEEN_BURSTS);
                let began = cpu_time();
                bursts(&bare, 1);
                seconds += cpu_time() - began;
                checks += BURST;
            }
            seconds / f64::from(checks) * 1e6
        });
        Beside { ends, thread }
    }

    /// Ends the bursts. Returns the average microseconds of a check.
    fn finish(self) -> f64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only counts")
    }
}

fn measure(repos: u32, commits: u64, latency: Option<&mut Report>) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    // Commits that are kept for a later run at half load.
    let calm = match latency {
        Some(_) => commits / 6,
        None => 0,
    };
    let sender = Sender::start(repos, RECORDS, commits + calm);
    prepare(&data, repos, commits + calm, &sender.pds);
    let mirror = Mirror::start(&data, &sender.plc, &sender.pds, &["--sweep-every", "24h"]);
    mirror.until("every repository is complete", || {
        mirror.number("/v1/status", "\"complete\"") == Some(f64::from(repos))
    });
    mirror.until_idle();
    mirror.forget_peak();
    let beside = Beside::start();
    let (began, cpu) = (Instant::now(), mirror.cpu_seconds());
    sender.release(&format!("{{\"commits\":{commits}}}"));
    wait_for(&mirror, commits);
    let seconds = began.elapsed().as_secs_f64();
    let run = Run {
        rate: commits as f64 / seconds,
        cpu_micros: (mirror.cpu_seconds() - cpu) / commits as f64 * 1e6,
        bare_micros: beside.finish(),
        megabytes: mirror.peak_megabytes(),
    };
    let applied = mirror.number("/metrics", "\ngapless_events_applied_total");
    assert_eq!(applied, Some(commits as f64), "every commit was applied");
    if let Some(report) = latency {
        measure_latency(&mirror, &sender, commits, calm, run.rate / 2.0, report);
    }
    run
}

fn wait_for(mirror: &Mirror, seq: u64) {
    mirror.until("the cursor has come to the end", || {
        mirror.number("/v1/upstreams", "\"cursor\"") >= Some(seq as f64)
    });
}

fn measure_latency(
    mirror: &Mirror,
    sender: &Sender,
    done: u64,
    commits: u64,
    pace: f64,
    report: &mut Report,
) {
    std::thread::sleep(Duration::from_secs(2));
    let before = buckets(mirror);
    sender.release(&format!(
        "{{\"commits\":{commits},\"per_second\":{pace:.0}}}"
    ));
    wait_for(mirror, done + commits);
    let after = buckets(mirror);
    let counts: Vec<(f64, f64)> = after
        .iter()
        .zip(&before)
        .map(|((bound, after), (_, before))| (*bound, after - before))
        .collect();
    for (name, part, limit) in [("p50", 0.5, P50_SECONDS), ("p99", 0.99, P99_SECONDS)] {
        report.print(&Figure {
            name: format!("ingest/{name}"),
            figure: quantile(&counts, part) * 1e3,
            limit: limit * 1e3,
            unit: "ms",
            against: "arrival to durable, at half load",
            target: Target::AtMost(1.0),
        });
    }
}

/// The upper bounds and cumulative counts of the latency histogram.
fn buckets(mirror: &Mirror) -> Vec<(f64, f64)> {
    let text = mirror.get("/metrics");
    let mut all = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("gapless_arrival_to_durable_seconds_bucket{le=\"")
        else {
            continue;
        };
        let bound = rest.split('"').next().and_then(|bound| bound.parse().ok());
        let count = number_after(rest, "}").expect("a count");
        all.push((bound.unwrap_or(f64::INFINITY), count));
    }
    all
}

/// A quantile of a histogram, interpolated linearly within a bucket.
fn quantile(counts: &[(f64, f64)], part: f64) -> f64 {
    let all = counts.last().map_or(0.0, |(_, count)| *count);
    let wanted = all * part;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in counts {
        if *count >= wanted {
            let share = (wanted - below) / (count - below).max(1.0);
            return lower + (bound - lower) * share;
        }
        (lower, below) = (*bound, *count);
    }
    f64::INFINITY
}

/// Prepares a store in which every repository has the state before its first commit.
fn prepare(data: &Path, repos: u32, commits: u64, host: &str) {
    let load = Load::unsigned(LoadConfig {
        repos,
        records: RECORDS,
        commits,
        ..LoadConfig::default()
    })
    .expect("a load within its limits");
    let store = Store::open(data, &Settings::default()).expect("a new folder");
    let named = Change {
        host: Some(HostChange::Named(host.to_owned())),
        ..Change::default()
    };
    let host = store.write(named).expect("a name").host.expect("a host");
    let now = now();
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (store, load) = (&store, &load);
            scope.spawn(move || {
                for repo in (part..repos).step_by(2) {
                    store.submit(beginning(load, repo, host, now), |answer| {
                        answer.expect("it is written");
                    });
                }
            });
        }
    });
    store.close().expect("it closes");
}

pub(crate) fn beginning(load: &Load, repo: u32, host: HostId, now: Time) -> Change {
    let (rev, data, commit) = load.beginning(repo);
    let head = Head {
        rev,
        data,
        commit: Cid::dag_cbor(&commit),
    };
    let key = load.public_key(repo);
    let mut row = Repo::new(load.did(repo));
    row.host = Some(host);
    row.document = 1;
    row.account = Account::Active;
    row.held = Held::Exactly(head);
    row.last_indexed_rev = Some(rev);
    row.confirmed_at = Some(now);
    row.signing = Some(DocumentKeys {
        key: Some(KeyBytes {
            curve: u8::from(key.curve() == Curve::P256),
            point: key.to_compressed(),
        }),
        former: None,
        asked: Tick(1),
        at: now,
    });
    let did = row.did.clone();
    Change {
        tick: Tick(2),
        repo: Some(RepoChange {
            subject: Subject::Did(did),
            row: Some(row),
            entry: Some(LogEntry {
                at: now,
                source: None,
                what: EntryContent::Records(Records {
                    kind: RecordsKind::Backfill,
                    before: Held::Nothing,
                    ops: Vec::new(),
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

pub(crate) fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Time(since.map_or(0, |since| since.as_micros() as u64))
}
