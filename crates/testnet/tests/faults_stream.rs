//! Tests what stream faults do on the wire, judged by the codec's own verdicts.

mod common;

use std::time::{Duration, Instant};

use common::*;
use gapless_atp::frame::{Event, FrameError, decode};
use gapless_atp::syntax::Did;
use gapless_atp::verify::{Fault as Wrong, Held, Verdict, check_commit as judge};
use gapless_testnet::{Config, Place, Spec, Status, Testnet, Write};
use serde_json::json;

const HOST: Place = Place::Pds(0);

struct Scene {
    testnet: Testnet,
    did: Did,
    other: Did,
    consumer: Consumer,
    last: u64,
}

async fn scene(fault: &str) -> Scene {
    let testnet = start(Config {
        repos: 3,
        pds: 1,
        records: 40,
        relay: true,
        ..Config::default()
    })
    .await;
    let [_, did, other] = &testnet.truth().dids()[..] else {
        panic!("three accounts");
    };
    let (did, other) = (did.clone(), other.clone());
    let consumer = Consumer::connect(&testnet.urls().pds[0], None).await;
    let last = testnet.last_seq(HOST).unwrap();
    if !fault.is_empty() {
        let spec: Spec = format!("{fault},did:{did}").parse().unwrap();
        testnet.fault(spec).unwrap();
    }
    Scene {
        testnet,
        did,
        other,
        consumer,
        last,
    }
}

impl Scene {
    /// Two creates in one commit; what was held before.
    fn write(&self, mark: &str) -> Held {
        let head = self.testnet.truth().head(&self.did).unwrap();
        let writes = ["a", "b"].map(|name| Write::Create {
            path: format!("app.bsky.feed.post/{mark}{name}"),
            record: gapless_testnet::encode_record(&json!({ "text": mark })).unwrap(),
        });
        self.testnet.write(&self.did, &writes).unwrap();
        Held {
            rev: head.rev,
            data: head.data,
            commit: head.commit,
        }
    }

    /// What came until an honest event of another account.
    async fn heard(&mut self) -> Vec<Vec<u8>> {
        self.testnet.write(&self.other, &[]).unwrap();
        let end = self.testnet.last_seq(HOST).unwrap();
        let mut frames = self.consumer.until(end).await;
        frames.pop();
        frames
    }

    async fn verdict<'f>(&self, frame: &'f [u8], held: &Held) -> Verdict<'f> {
        let Ok(Event::Commit(event)) = decode(frame) else {
            panic!("{}", kind(frame));
        };
        let key = key_of(&self.testnet, &self.did).await;
        let now = self.testnet.truth().head(&self.did).unwrap().rev.micros();
        judge(&event, &key, Some(held), now, None)
    }
}

#[tokio::test]
async fn without_a_fault_the_commit_applies() {
    let mut scene = scene("").await;
    let held = scene.write("x");
    let frames = scene.heard().await;
    let verdict = scene.verdict(&frames[0], &held).await;
    assert!(matches!(verdict, Verdict::Applies(_)), "{verdict:?}");
}

#[tokio::test]
async fn an_unnumbered_drop_leaves_no_gap_and_a_repository_ahead_of_its_stream() {
    let mut scene = scene("drop=unnumbered:true,count:1").await;
    let held = scene.write("x");
    assert_eq!(scene.testnet.last_seq(HOST), Some(scene.last), "no number");
    let head = scene.testnet.truth().head(&scene.did).unwrap();
    assert_ne!(head.rev, held.rev);
    let url = xrpc(
        &scene.testnet.urls().pds[0],
        "getLatestCommit",
        &did_param(&scene.did),
    );
    assert_eq!(get_json(&url).await.1["rev"], head.rev.to_string());
    scene.write("y");
    let frames = scene.heard().await;
    let seqs: Vec<_> = frames.iter().map(|frame| seq_of(frame)).collect();
    assert_eq!(seqs, [Some(scene.last + 1)], "the numbers have no gap");
    // Who holds what was sent sees that something is missing.
    let verdict = scene.verdict(&frames[0], &held).await;
    assert!(!matches!(verdict, Verdict::Applies(_)), "{verdict:?}");
    assert_eq!(scene.testnet.faults().fired("drop"), 1);
}

#[tokio::test]
async fn dropped_events_leave_a_gap_in_the_numbers() {
    let mut scene = scene("drop=count:1").await;
    scene.write("x");
    assert!(scene.heard().await.is_empty());
    let held = scene.write("y");
    let frames = scene.heard().await;
    assert_eq!(
        seq_of(&frames[0]),
        Some(scene.last + 3),
        "the first is gone"
    );
    // The second follows what the consumer never saw.
    let verdict = scene.verdict(&frames[0], &held).await;
    assert!(matches!(verdict, Verdict::Applies(_)));
    let mut replay = Consumer::connect(&scene.testnet.urls().pds[0], Some(scene.last)).await;
    assert_eq!(seq_of(&replay.next().await.unwrap()), Some(scene.last + 2));
}

#[tokio::test]
async fn duplicates_come_twice_and_reordered_ones_the_wrong_way_round() {
    let mut twice = scene("duplicate=count:1").await;
    twice.write("x");
    let frames = twice.heard().await;
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0], frames[1]);

    let mut swapped = scene("reorder=count:1").await;
    swapped.write("x");
    assert!(swapped.heard().await.is_empty(), "it waits");
    swapped.write("y");
    let frames = swapped.heard().await;
    let seqs: Vec<u64> = frames.iter().filter_map(|frame| seq_of(frame)).collect();
    assert_eq!(seqs, [swapped.last + 3, swapped.last + 1]);

    let mut freed = scene("reorder=count:1").await;
    freed.write("x");
    assert!(freed.heard().await.is_empty());
    freed.testnet.clear_faults(None);
    assert_eq!(freed.heard().await.len(), 1, "clearing lets it go");
}

#[tokio::test]
async fn a_delay_holds_the_stream_back() {
    let mut scene = scene("delay=ms:500,count:1").await;
    let start = Instant::now();
    scene.write("x");
    assert_eq!(scene.heard().await.len(), 1);
    assert!(start.elapsed() >= Duration::from_millis(500));
}

#[tokio::test]
async fn commits_that_cannot_be_applied() {
    for (fault, class) in [
        ("legacy=count:1", "legacy"),
        ("wrong-signature=count:1", "invalid"),
        ("omit-op=count:1", "invalid"),
        ("too-big=count:1", "invalid"),
    ] {
        let mut scene = scene(fault).await;
        let held = scene.write("x");
        let frames = scene.heard().await;
        assert_eq!(frames.len(), 1);
        let verdict = scene.verdict(&frames[0], &held).await;
        assert_eq!(verdict.class(), class, "{fault}: {verdict:?}");
        let Ok(Event::Commit(event)) = decode(&frames[0]) else {
            panic!("{fault}");
        };
        match (fault, verdict) {
            ("wrong-signature=count:1", Verdict::Invalid { fault, authentic }) => {
                assert!(matches!(fault, Wrong::Signature(_)), "{fault:?}");
                assert!(authentic.is_none());
            }
            ("omit-op=count:1", Verdict::Invalid { authentic, .. }) => {
                assert_eq!(event.ops.len(), 1);
                assert!(authentic.is_some(), "the owner signed it");
            }
            ("too-big=count:1", _) => {
                assert!(event.too_big && event.ops.is_empty());
                let blocks = gapless_atp::car::read_blocks(event.blocks).unwrap();
                assert_eq!(blocks.count(), 1);
            }
            ("legacy=count:1", _) => {
                assert_eq!(event.prev_data, None);
                assert!(event.ops.iter().all(|op| op.prev.is_none()));
            }
            (_, verdict) => panic!("{fault}: {verdict:?}"),
        }
        // The next commit is honest, and follows the true one.
        let held = scene.write("y");
        let frames = scene.heard().await;
        let verdict = scene.verdict(&frames[0], &held).await;
        assert_eq!(verdict.class(), "applies", "{fault}");
    }
}

#[tokio::test]
async fn frames_that_cannot_be_read() {
    let mut header = scene("undecodable=part:header,count:1").await;
    header.write("x");
    let frames = header.heard().await;
    assert!(matches!(decode(&frames[0]), Err(FrameError::Header(_))));

    let mut payload = scene("undecodable=part:payload,count:1").await;
    payload.write("x");
    let frames = payload.heard().await;
    let Err(FrameError::Payload { seq, .. }) = decode(&frames[0]) else {
        panic!("{}", kind(&frames[0]));
    };
    assert_eq!(seq, Some(payload.last + 1));
    let mut rest = scene("undecodable=part:rest,count:1").await;
    rest.write("x");
    let frames = rest.heard().await;
    let Err(FrameError::Payload { seq, repo, .. }) = decode(&frames[0]) else {
        panic!("{}", kind(&frames[0]));
    };
    assert_eq!(seq, Some(rest.last + 1));
    assert_eq!(repo.as_deref(), Some(rest.did.as_str()));
    // The relay passes on nothing that it cannot read.
    let relayed = payload.testnet.frames(Place::Relay).unwrap();
    assert!(relayed.iter().all(|frame| decode(frame).is_ok()));
}

#[tokio::test]
async fn a_lost_account_event_changes_the_status_without_an_event() {
    let mut scene = scene("lost-account=count:1").await;
    scene
        .testnet
        .set_status(&scene.did, Status::Takendown)
        .unwrap();
    assert!(scene.heard().await.is_empty());
    let status = scene.testnet.truth().status(&scene.did);
    assert_eq!(status, Some(Status::Takendown));
    let (_, json) = get_json(&xrpc(
        &scene.testnet.urls().pds[0],
        "getRepoStatus",
        &did_param(&scene.did),
    ))
    .await;
    assert_eq!(json["status"], "takendown");
}

#[tokio::test]
async fn events_out_of_nowhere() {
    let mut scene = scene("").await;
    let did = scene.did.clone();
    for flag in [
        format!("sync=did:{did}"),
        "info=name:Hello,message:world,host:pds0".to_owned(),
        format!("forged-rev=did:{did}"),
        format!("forged-rev=signed:true,did:{did}"),
    ] {
        scene.testnet.fault(flag.parse().unwrap()).unwrap();
    }
    let before = scene.testnet.truth().head(&did).unwrap();
    let frames = scene.heard().await;
    let kinds: Vec<String> = frames.iter().map(|frame| kind(frame)).collect();
    assert_eq!(kinds, ["sync", "info(Hello)", "commit(0)", "commit(0)"]);
    let Ok(Event::Sync(sync)) = decode(&frames[0]) else {
        panic!("{kinds:?}");
    };
    assert_eq!(sync.rev, before.rev.to_string());
    let key = key_of(&scene.testnet, &did).await;
    let now = before.rev.micros();
    let far = 1 << 52;
    for (frame, signed) in [(&frames[2], false), (&frames[3], true)] {
        let Ok(Event::Commit(event)) = decode(frame) else {
            panic!("{kinds:?}");
        };
        let verdict = judge(&event, &key, None, now, None);
        let Verdict::Invalid { fault, .. } = verdict else {
            panic!("{verdict:?}");
        };
        assert!(matches!(fault, Wrong::FutureRev(_)));
        assert_eq!(check_commit(&event, &key).is_ok(), signed);
        assert_ne!(judge(&event, &key, None, far, None).class(), "replay");
    }
    assert_eq!(scene.testnet.truth().head(&did), Some(before));
    // Who connects later does not hear the #info.
    let mut late = Consumer::connect(&scene.testnet.urls().pds[0], Some(scene.last)).await;
    let end = scene.testnet.last_seq(HOST).unwrap();
    let replayed = late.until(end).await;
    assert!(
        replayed
            .iter()
            .all(|frame| !kind(frame).starts_with("info"))
    );
}

#[tokio::test]
async fn a_relay_omits_skips_and_rolls_back() {
    let scene = scene("relay-omit=count:1").await;
    let testnet = &scene.testnet;
    let relay = testnet.urls().relay.clone().unwrap();
    let last = || testnet.last_seq(Place::Relay).unwrap();
    let mut consumer = Consumer::connect(&relay, None).await;
    let before = last();
    scene.write("x");
    assert_eq!(last(), before, "omitted without a trace");
    scene.write("y");
    let frame = consumer.next().await.unwrap();
    assert_eq!(seq_of(&frame), Some(before + 1));

    let gap: Spec = format!("relay-gap=did:{},count:1", scene.did)
        .parse()
        .unwrap();
    testnet.fault(gap).unwrap();
    scene.write("z");
    scene.write("w");
    let frame = consumer.next().await.unwrap();
    assert_eq!(seq_of(&frame), Some(before + 3), "one number is missing");

    testnet
        .fault("relay-rollback=events:2".parse().unwrap())
        .unwrap();
    assert_eq!(consumer.next().await, None);
    let mut again = Consumer::connect(&relay, Some(before)).await;
    scene.write("v");
    let other = again.next().await.unwrap();
    assert_eq!(
        seq_of(&other),
        Some(before + 1),
        "the number is given again"
    );
    assert_ne!(other, frame);
}

#[tokio::test]
async fn subscribers_are_disconnected_and_may_come_back() {
    let mut scene = scene("").await;
    scene
        .testnet
        .fault("disconnect=host:pds0".parse().unwrap())
        .unwrap();
    assert_eq!(scene.consumer.next().await, None);
    scene.write("x");
    let mut again = Consumer::connect(&scene.testnet.urls().pds[0], Some(scene.last)).await;
    assert_eq!(seq_of(&again.next().await.unwrap()), Some(scene.last + 1));
}
