//! Backfill: records from CARs into the store, through the whole program: found in the
//! listing, resolved, fetched, verified, written, compared.
//!
//! The sender builds every CAR when it is requested and takes its share of the cores. CPU
//! time is that of the program alone, until its compaction is idle.

use std::time::Instant;

use crate::program::{Mirror, Sender};
use crate::report::{Figure, Report, Target};

const RECORDS_PER_SECOND: f64 = 100_000.0;
const CPU_MICROS: f64 = 10.0;
const MEGABYTES: f64 = 600.0;

pub(crate) fn run(report: &mut Report) {
    let (repos, records, large) = if report.quick() {
        (10, 500, 5_000)
    } else {
        (400, 10_000, 2_700_000)
    };
    let folder = tempfile::tempdir().expect("a folder");
    let sender = Sender::start(repos, records, 1);
    let data = folder.path().join("data");
    let began = Instant::now();
    let mirror = Mirror::start(&data, &sender.plc, &sender.pds, &["--sweep-every", "24h"]);
    mirror.until("every repository is complete", || {
        mirror.number("/v1/status", "\"complete\"") == Some(f64::from(repos))
    });
    let seconds = began.elapsed().as_secs_f64();
    let all = f64::from(repos) * records as f64;
    let fetched = mirror.number("/metrics", "\ngapless_records_fetched_total");
    assert_eq!(fetched, Some(all), "every record was written once");
    mirror.until_idle();
    report.print(&Figure {
        name: "backfill".to_owned(),
        figure: all / seconds,
        limit: RECORDS_PER_SECOND,
        unit: "/s",
        against: "the target: durable records per second",
        target: Target::AtLeast(1.0),
    });
    report.print(&Figure {
        name: "backfill/cpu".to_owned(),
        figure: mirror.cpu_seconds() / all * 1e6,
        limit: CPU_MICROS,
        unit: "us",
        against: "the CPU time allowed per record, until compaction is idle",
        target: Target::AtMost(1.0),
    });
    drop((mirror, sender));
    one_large(report, large);
}

/// Measures the memory for a repository of about a gigabyte.
fn one_large(report: &mut Report, records: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let sender = Sender::start(1, records, 1);
    let data = folder.path().join("data");
    let mirror = Mirror::start(&data, &sender.plc, &sender.pds, &["--sweep-every", "24h"]);
    mirror.until("the large repository is complete", || {
        mirror.number("/v1/status", "\"complete\"") == Some(1.0)
    });
    let bytes = mirror.number("/metrics", "\ngapless_fetched_bytes_total");
    report.print(&Figure {
        name: format!("backfill/{:.0} MB", bytes.unwrap_or(0.0) / 1e6),
        figure: mirror.peak_megabytes(),
        limit: MEGABYTES,
        unit: "MB",
        against: "the peak memory allowed for one such repository",
        target: Target::AtMost(1.0),
    });
}
