//! Discovery: the cost of a million unknown repositories, found by listRepos, until every
//! one of them has a durable row.
//!
//! The rate of the directory is set to almost zero, so that no identity is resolved and no
//! repository is fetched; other benches measure those. A sweep is done only when all effects
//! of its pages are durable, so the measurement ends with the sweep.

use crate::program::{Mirror, Sender};
use crate::report::{Figure, Report, Target};

/// The CPU seconds allowed per million repositories.
const SECONDS: f64 = 60.0;
/// Asks the host, which is on loopback, at a high rate, and the directory hardly at all.
const CONFIG: &str = "plc_requests_per_second = 0.01\n\n[fetch]\nrequests_per_second = 10000\n";

pub(crate) fn run(report: &mut Report) {
    let repos: u32 = if report.quick() { 50_000 } else { 1_000_000 };
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let sender = Sender::start(repos, 1, 1);
    let mirror = Mirror::start_with(
        CONFIG,
        &data,
        &sender.plc,
        &sender.pds,
        &["--sweep-every", "24h"],
    );
    // This request does not count repositories: counting is not part of the work.
    mirror.until("the listing was read to its end", || {
        let upstreams = mirror.get("/v1/upstreams");
        upstreams.contains("\"last\":\"")
    });
    let seconds = mirror.cpu_seconds();
    let known = mirror.number("/v1/status", "\"total\"");
    assert_eq!(known, Some(f64::from(repos)), "every one of them is a row");
    report.print(&Figure {
        name: format!("discovery/{repos}"),
        figure: seconds,
        limit: SECONDS * f64::from(repos) / 1e6,
        unit: "CPU s",
        against: "60 CPU seconds for a million listed repositories",
        target: Target::AtMost(1.0),
    });
    report.print(&Figure {
        name: "discovery/memory".to_owned(),
        figure: mirror.peak_megabytes(),
        limit: f64::from(repos) * 4096.0 / 1e6,
        unit: "MB",
        against: "4 kB per repository; reported",
        target: Target::AtLeast(0.0),
    });
}
