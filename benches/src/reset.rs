//! Reset: a host of a million repositories after a reset, with one in a hundred changed: the
//! bytes fetched, against the bytes of `getRepo?since` for the changed ones.
//!
//! The program has compared every repository once and never read an event. The bench kills
//! it, makes commits, and starts it again without a cursor, in a new epoch. The changed
//! repositories have their records in the store, the others only their heads, because the
//! program must not fetch those.

use std::path::Path;

use gapless_store::change::{Change, EntryContent, HostChange, RecordOp, RecordValue};
use gapless_store::{Settings, Store};
use gapless_testnet::load::{Load, LoadConfig};

use crate::ingest::{beginning, now};
use crate::program::{Mirror, Sender, body_bytes};
use crate::report::{Figure, Report, Target};

const RECORDS: usize = 100;
const BYTES_RATIO: f64 = 1.5;
/// The number of differences whose size is measured to estimate the size of all.
const SAMPLE: u64 = 200;

pub(crate) fn run(report: &mut Report) {
    let repos: u32 = if report.quick() { 2_000 } else { 1_000_000 };
    let changed = u64::from(repos / 100);
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let sender = Sender::start(repos, RECORDS, changed);
    let load = Load::unsigned(LoadConfig {
        repos,
        records: RECORDS,
        commits: changed,
        ..LoadConfig::default()
    })
    .expect("a load within its limits");
    prepare(&data, &load, changed, &sender.pds);
    let start = || Mirror::start(&data, &sender.plc, &sender.pds, &["--sweep-every", "24h"]);
    let all_complete = |mirror: &Mirror| {
        mirror.until("every repository is complete", || {
            mirror.number("/v1/status", "\"complete\"") == Some(f64::from(repos))
        });
    };
    let first = start();
    all_complete(&first);
    first.stop();
    sender.release(&format!("{{\"commits\":{changed}}}"));
    let again = start();
    all_complete(&again);
    let fetched = again
        .number("/metrics", "\ngapless_fetched_bytes_total")
        .expect("it is counted");
    let snapshots = again.number("/metrics", "\ngapless_snapshots_written_total");
    assert_eq!(
        snapshots,
        Some(changed as f64),
        "only the changed ones were fetched"
    );
    let weighed = changed.min(SAMPLE);
    let sample: usize = (0..weighed)
        .map(|index| {
            let (repo, _) = load.place(index);
            let (rev, ..) = load.beginning(repo);
            let did = load.did(repo);
            let path = format!("/xrpc/com.atproto.sync.getRepo?did={did}&since={rev}");
            body_bytes(&sender.pds, &path)
        })
        .sum();
    let since = sample as f64 / weighed as f64 * changed as f64;
    report.print(&Figure {
        name: format!("reset/{repos}"),
        figure: fetched / 1e6,
        limit: since / 1e6,
        unit: "MB",
        against: "the bytes of getRepo?since for the changed ones",
        target: Target::AtMost(BYTES_RATIO),
    });
    let listing = again
        .number("/metrics", "\ngapless_listing_bytes_total")
        .expect("it is counted");
    report.print(&Figure {
        name: "reset/listing".to_owned(),
        figure: listing / 1e6,
        limit: fetched / 1e6,
        unit: "MB",
        against: "the bytes fetched; the figure is the bytes of listRepos; reported",
        target: Target::AtLeast(0.0),
    });
}

/// Prepares a store in which every repository has the state before its first commit, and
/// those that will change have all their records.
fn prepare(data: &Path, load: &Load, changed: u64, host: &str) {
    let store = Store::open(data, &Settings::default()).expect("a new folder");
    let named = Change {
        host: Some(HostChange::Named(host.to_owned())),
        ..Change::default()
    };
    let host = store.write(named).expect("a name").host.expect("a host");
    let now = now();
    let records: Vec<RecordOp> = load
        .first_records()
        .into_iter()
        .map(|(path, cid, bytes)| RecordOp {
            path,
            put: Some(RecordValue {
                cid,
                bytes: Some(bytes.to_vec()),
            }),
            fresh: true,
        })
        .collect();
    let will_change: std::collections::HashSet<u32> =
        (0..changed).map(|index| load.place(index).0).collect();
    for repo in 0..load.repos() {
        let mut change = beginning(load, repo, host, now);
        if will_change.contains(&repo)
            && let Some(repo) = &mut change.repo
            && let Some(entry) = &mut repo.entry
            && let EntryContent::Records(written) = &mut entry.what
        {
            written.ops = records.clone();
        }
        store.submit(change, |answer| {
            answer.expect("it is written");
        });
    }
    store.close().expect("it closes");
}
