//! Tests that records that the disk has damaged are never served, and that the repository is
//! fetched again.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Did;
use gapless_harness::{World, condition};
use gapless_store::change::{
    Change, EntryContent, LogEntry, RecordOp, RecordValue, Records, RecordsKind, RepoChange,
    Subject,
};
use gapless_store::table::record::Record;
use gapless_testnet::SetFault;

use crate::serve::served::{Served, mirrored, records_of, small, true_records};

/// Puts something else in the place of a held record, as a disk might.
fn damage(world: &World, did: &Did, instead: impl FnOnce(&Record) -> RecordValue) -> String {
    let services = &world.mirror().services();
    let view = services.store.view();
    let found = view.repo_by_did(did).expect("it can be read");
    let (id, row) = found.expect("it is known");
    let record = view.records(id).nth(3).expect("it has records");
    let record = record.expect("it can be read");
    let spoilt = RecordOp {
        path: record.path().to_vec(),
        put: Some(instead(&record)),
        fresh: false,
    };
    let records = Records {
        kind: RecordsKind::Repair,
        before: row.held,
        ops: vec![spoilt],
        commit: view.signed_commit(id).expect("read").expect("it is held"),
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
    String::from_utf8(record.path().to_vec()).expect("text")
}

/// It is refused until it was fetched anew, and then served as it was signed.
async fn healed(world: &World, served: &Served, did: &Did, held: SetFault) {
    let query = [("did", did.as_str())];
    let words = served.bad("sync.getRepo", &query, "RepoNotFound").await;
    assert!(words.contains("fetched anew"), "{words}");
    assert_eq!(world.metrics().damaged.get(), 1);
    world.clear(held).await;
    world.until_complete(did).await;
    let got = served.good("sync.getRepo", &query).await;
    assert_eq!(records_of(world, did, &got.body), true_records(world, did));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_root_than_the_signed_one_is_no_answer() {
    let (mut world, served) = mirrored(small(2)).await;
    world.expect("held data is not what the owner signed");
    let did = world.did(1);
    let held = world.stall(0, "getRepo", None);
    damage(&world, &did, |record| RecordValue {
        cid: Cid::dag_cbor(b"another"),
        bytes: record.bytes().map(<[u8]>::to_vec),
    });
    let got = served.get("sync.getRepo", &[("did", did.as_str())]).await;
    let (status, error, _) = got.refused();
    assert_eq!((status, error.as_str()), (500, "InternalServerError"));
    healed(&world, &served, &did, held).await;
    world.stop().await;
}

fn spoil(record: &Record) -> RecordValue {
    let mut bytes = record.bytes().expect("it is kept").to_vec();
    bytes[0] ^= 1;
    RecordValue {
        cid: record.cid,
        bytes: Some(bytes),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spoilt_record_is_found_before_anything_is_sent() {
    let (mut world, served) = mirrored(small(2)).await;
    world.expect("held data is not what the owner signed");
    let did = world.did(1);
    let held = world.stall(0, "getRepo", None);
    damage(&world, &did, spoil);
    let got = served.get("sync.getRepo", &[("did", did.as_str())]).await;
    assert_eq!(got.refused().0, 500);
    healed(&world, &served, &did, held).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spoilt_record_is_told_when_who_asked_is_gone() {
    let (mut world, served) = mirrored(small(2)).await;
    world.expect("held data is not what the owner signed");
    let did = world.did(1);
    let held = world.stall(0, "getRepo", None);
    damage(&world, &did, spoil);
    let serving = world.serving();
    {
        let mut asks = std::pin::pin!(serving.state_with_tree(&did, true));
        let mut once = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = asks.as_mut().poll(&mut once);
    }
    world
        .until("nobody is served it", async |_: &World| {
            let shown = serving.held_state(&did).map(|state| state.head.rev);
            condition(shown.is_err(), &shown.ok())
        })
        .await;
    healed(&world, &served, &did, held).await;
    world.stop().await;
}

/// Its tree is at hand, so that its records are read while they are sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_spoilt_record_breaks_the_stream_off() {
    let (mut world, served) = mirrored(small(2)).await;
    world.expect("held data is not what the owner signed");
    let did = world.did(1);
    let query = [
        ("did", did.as_str()),
        ("collection", "app.bsky.feed.post"),
        ("rkey", "nothing-is-here"),
    ];
    served.get("sync.getRecord", &query).await;
    assert_eq!(world.metrics().trees_built.get(), 1);
    let held = world.stall(0, "getRepo", None);
    damage(&world, &did, spoil);
    let path = crate::serve::served::path("sync.getRepo", &[("did", did.as_str())]);
    let url = format!("http://{}{path}", served.address);
    let begun = served.http.get(url).send().await;
    // It may break off before or after the head of the answer has come.
    if let Ok(begun) = begun {
        assert_eq!(begun.status(), 200);
        begun.bytes().await.expect_err("it is not whole");
    }
    healed(&world, &served, &did, held).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spoilt_record_is_not_proved() {
    let (mut world, served) = mirrored(small(2)).await;
    world.expect("held data is not what the owner signed");
    let did = world.did(1);
    let held = world.stall(0, "getRepo", None);
    let path = damage(&world, &did, spoil);
    let (collection, rkey) = path.split_once('/').expect("a path");
    let query = [
        ("did", did.as_str()),
        ("collection", collection),
        ("rkey", rkey),
    ];
    let got = served.get("sync.getRecord", &query).await;
    assert_eq!(got.refused().0, 500);
    healed(&world, &served, &did, held).await;
    world.stop().await;
}
