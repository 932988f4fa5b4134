//! A million repositories that nobody has heard of, found by listRepos: what it costs
//! until every one of them is a durable row.
//!
//! The directory is asked almost nothing meanwhile, so that no identity is resolved and
//! nothing is fetched: those have figures of their own. A sweep counts as done only when
//! all that its pages led to is durable, so its end is the end of what is measured.

use crate::program::{Mirror, Sender};
use crate::report::{Figure, Report, Target};

/// CPU seconds for a million.
const SECONDS: f64 = 60.0;
/// A host on loopback need not be spared, and the directory is left alone.
const CONFIG: &str = "plc_requests_per_second = 0.01\n\n[fetch]\nrequests_per_second = 10000\n";

pub fn run(report: &mut Report) {
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
    // Neither counts repositories: who asks for that is no part of the work.
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
        against: "4 kB for each of them; reported",
        target: Target::AtLeast(0.0),
    });
}
