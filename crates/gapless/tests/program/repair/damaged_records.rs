//! Tests records that the disk has damaged: verification finds them, and a resync replaces
//! them.

use std::collections::BTreeSet;

use gapless_atp::mst::empty_root;
use gapless_atp::syntax::Did;
use gapless_harness::{World, listed, unswept};
use gapless_mirror::api::{Inspect as _, Operate as _};
use gapless_store::change::{
    Change, EntryContent, LogEntry, RecordOp, RecordValue, Records, RecordsKind, RepoChange,
    Subject,
};
use gapless_store::table::record::Record;

/// Puts other bytes in the place of a held record's, under its name, as a disk
/// might.
fn spoil(world: &World, did: &Did) {
    damage(world, did, |record| {
        let mut bytes = record.bytes().expect("it is kept").to_vec();
        bytes[0] ^= 1;
        Some(RecordValue {
            cid: record.cid,
            bytes: Some(bytes),
        })
    });
}

/// Puts something else, or nothing, in the place of a held record.
fn damage(world: &World, did: &Did, instead: impl FnOnce(&Record) -> Option<RecordValue>) {
    let services = &world.mirror().services();
    let view = services.store.view();
    let found = view.repo_by_did(did).expect("it can be read");
    let (id, row) = found.expect("it is known");
    let record = view.records(id).next().expect("it has a record");
    let record = record.expect("it can be read");
    let spoilt = RecordOp {
        path: record.path().to_vec(),
        put: instead(&record),
        fresh: false,
    };
    let records = Records {
        kind: RecordsKind::Repair,
        before: row.held,
        ops: vec![spoilt],
        commit: Vec::new(),
    };
    let mut change = RepoChange::row(Subject::Id(id), row);
    change.entry = Some(LogEntry {
        at: services.clock.time(),
        source: None,
        what: EntryContent::Records(records),
        frame: None,
    });
    let written = services.store.write(Change {
        repo: Some(change),
        ..Change::default()
    });
    written.expect("it is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resync_replaces_what_the_disk_has_spoilt() {
    let mut world = World::settled(listed(2, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let written = world.metrics().snapshots_written.get();
    spoil(&world, &did);
    let (mirror, asked) = (world.mirror().clone(), did.clone());
    let resync = tokio::task::spawn_blocking(move || mirror.control().resync(&asked, false));
    resync.await.expect("no panic").expect("it is known");
    world
        .until_counted(
            "fetched",
            |metrics| metrics.snapshots_written.get(),
            written + 1,
        )
        .await;
    // An answer is compared with the truth, record by record: not before the new
    // ones are durable.
    world
        .until("paid", async |world: &World| {
            let debt = world.row(&did).debt;
            if debt.fetch.is_none() {
                Ok(())
            } else {
                Err(format!("{debt:?}"))
            }
        })
        .await;
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verifying_all_finds_what_is_missing_renamed_or_altered_and_all_are_fetched_anew() {
    let mut world = World::settled(listed(5, 1)).with(unswept).await;
    world.expect("the held keys do not hash to the signed root");
    world.expect("a held record does not hash to its CID");
    let (missing, altered) = (world.account(0, 1), world.account(0, 2));
    let spoilt = world.account(0, 3);
    spoil(&world, &spoilt);
    damage(&world, &missing, |_| None);
    damage(&world, &altered, |record| {
        Some(RecordValue {
            cid: empty_root(),
            bytes: record.bytes().map(<[u8]>::to_vec),
        })
    });
    let mirror = world.mirror().clone();
    let verified = tokio::task::spawn_blocking(move || mirror.inspector().verify_all(&|_| true));
    let report = verified.await.expect("no panic").expect("an answer");
    assert_eq!((report.repos, report.proven, report.mismatches), (5, 2, 3));
    let found: BTreeSet<String> = report.found.into_iter().map(|one| one.did).collect();
    let damaged = [&missing, &altered, &spoilt].map(Did::to_string);
    assert_eq!(found, damaged.into_iter().collect());
    // Every record is compared with the truth.
    world.until_complete_never_stale(&missing).await;
    world.until_complete_never_stale(&altered).await;
    world.until_complete_never_stale(&spoilt).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_spoilt_and_is_fetched_anew_is_not_what_was_proven() {
    let mut world = World::settled(listed(2, 1)).with(unswept).await;
    world.expect("the held keys do not hash to the signed root");
    world.expect("a held record does not hash to its CID");
    let did = world.account(0, 1);
    let verified = |world: &World| {
        let (mirror, did) = (world.mirror().clone(), did.clone());
        tokio::task::spawn_blocking(move || {
            mirror.inspector().verify(&did).expect("an answer").verified
        })
    };
    assert!(verified(&world).await.expect("no panic"));
    assert_eq!(world.answer(&did).await.evidence.level, "proven");
    spoil(&world, &did);
    assert!(!verified(&world).await.expect("no panic"));
    let answer = world.until_complete_never_stale(&did).await;
    assert_eq!(answer.evidence.level, "chained", "{answer:?}");
    assert_eq!(answer.evidence.proven_at, None);
    world.stop().await;
}
