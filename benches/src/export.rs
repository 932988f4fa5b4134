//! Export: whole repositories by getRepo, over HTTP, against a bare scan of the same records
//! in the same store.
//!
//! Each repository is requested once from a mirror that has just started, so that no tree is
//! cached: keys read, root recomputed, records read and hashed, bytes sent through a socket.
//! The scan reads the same rows from the same folder and does nothing with them. Each figure
//! is the best of a few rounds; every round begins with empty caches in the program, and with
//! the system's caches as the previous round left them.

use std::path::Path;
use std::time::Instant;

use gapless_core::ledger::RepoId;
use gapless_store::{Settings, Store};

use crate::program::{Mirror, Sender, body_bytes};
use crate::report::{Figure, Report, Target};

const SHARE: f64 = 0.4;

pub(crate) fn run(report: &mut Report) {
    let sizes: &[(u32, usize)] = if report.quick() {
        &[(5, 500)]
    } else {
        &[(100, 5_000), (1, 400_000)]
    };
    for (repos, records) in sizes {
        one(report, *repos, *records);
    }
}

fn one(report: &mut Report, repos: u32, records: usize) {
    let rounds = if report.quick() { 1 } else { 3 };
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let sender = Sender::start(repos, records, 1);
    start(&data, &sender, repos).stop();
    let (mut sent, mut scanned) = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        sent = sent.min(send(&data, &sender, repos, records));
        scanned = scanned.min(scan(&data, repos, records));
    }
    let all = f64::from(repos) * records as f64;
    report.print(&Figure {
        name: format!("export/{repos}x{records}"),
        figure: all / sent,
        limit: all / scanned,
        unit: "/s",
        against: "records of a bare scan of the same rows",
        target: Target::AtLeast(SHARE),
    });
}

/// Starts a mirror and waits until it has every repository and is idle.
fn start(data: &Path, sender: &Sender, repos: u32) -> Mirror {
    let more = ["--sweep-every", "24h"];
    let mirror = Mirror::start(data, &sender.plc, &sender.pds, &more);
    mirror.until("every repository is complete", || {
        mirror.number("/v1/status", "\"complete\"") == Some(f64::from(repos))
    });
    mirror.until_idle();
    mirror
}

fn send(data: &Path, sender: &Sender, repos: u32, records: usize) -> f64 {
    let mirror = start(data, sender, repos);
    let listed = mirror.get("/xrpc/com.atproto.sync.listRepos?limit=1000");
    let dids: Vec<&str> = listed
        .split("\"did\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert_eq!(dids.len(), repos as usize, "all are listed: {listed}");
    let began = Instant::now();
    for did in dids {
        let bytes = body_bytes(
            &mirror.url,
            &format!("/xrpc/com.atproto.sync.getRepo?did={did}"),
        );
        assert!(bytes > records * 100, "{did}: {bytes} bytes");
    }
    let took = began.elapsed().as_secs_f64();
    mirror.until("all were sent whole", || {
        let sent = mirror.number("/metrics", "\ngapless_exports_total");
        sent == Some(f64::from(repos))
    });
    mirror.stop();
    took
}

fn scan(data: &Path, repos: u32, records: usize) -> f64 {
    let store = Store::open(data, &Settings::default()).expect("it opens");
    let view = store.view();
    let ids: Vec<RepoId> = view
        .repos(RepoId(0))
        .map(|row| row.expect("it can be read").0)
        .collect();
    let (mut count, mut bytes) = (0, 0);
    let began = Instant::now();
    for id in ids {
        for record in view.records(id) {
            let record = record.expect("it can be read");
            count += 1;
            bytes += record.bytes().map_or(0, <[u8]>::len);
        }
    }
    let took = began.elapsed().as_secs_f64();
    assert!(
        count >= repos as usize * records && bytes > count,
        "{count}"
    );
    store.close().expect("it closes");
    took
}
