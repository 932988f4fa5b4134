//! Tests the event stream of a PDS: order, cursors, windows, pace, pings.

mod common;

use std::time::Duration;

use common::*;
use futures_util::StreamExt;
use gapless_atp::crypto::Curve;
use gapless_atp::frame::{Event, decode};
use gapless_testnet::{Config, Fault, NewAccount, Place, Spec, Status, Testnet};
use tokio_tungstenite::tungstenite::Message;

const HOST: Place = Place::Pds(0);

async fn network(config: Config) -> (Testnet, String) {
    let testnet = start(Config { pds: 1, ..config }).await;
    let pds = testnet.urls().pds[0].clone();
    (testnet, pds)
}

async fn small() -> (Testnet, String) {
    network(Config {
        repos: 3,
        records: 5,
        ..Config::default()
    })
    .await
}

#[tokio::test]
async fn a_new_account_announces_itself_as_the_reference_does() {
    let (testnet, pds) = small().await;
    let mut consumer = Consumer::connect(&pds, Some(0)).await;
    consumer.until(testnet.last_seq(HOST).unwrap()).await;
    let new = NewAccount {
        host: 0,
        curve: Curve::K256,
        web: false,
        records: 0,
    };
    let did = testnet.create_account(new).unwrap();
    let frames = consumer.until(testnet.last_seq(HOST).unwrap()).await;
    let kinds: Vec<String> = frames.iter().map(|frame| kind(frame)).collect();
    assert_eq!(kinds, ["identity", "account(active)", "commit(0)", "sync"]);
    let (Ok(Event::Commit(commit)), Ok(Event::Sync(sync))) =
        (decode(&frames[2]), decode(&frames[3]))
    else {
        panic!("{kinds:?}");
    };
    assert_eq!((commit.since, commit.prev_data), (None, None));
    assert_eq!(commit.rev, sync.rev);
    check_commit(&commit, &key_of(&testnet, &did).await).unwrap();
}

#[tokio::test]
async fn cursors_are_exclusive_and_live_follows_replay_without_a_seam() {
    let (testnet, pds) = small().await;
    let last = testnet.last_seq(HOST).unwrap();
    // Writers and readers at the same time: every number once, in order.
    let mut consumer = Consumer::connect(&pds, Some(4)).await;
    testnet.set_rate(500.0).unwrap();
    let frames = consumer.until(last + 300).await;
    testnet.set_rate(0.0).unwrap();
    let seqs: Vec<u64> = frames.iter().filter_map(|frame| seq_of(frame)).collect();
    assert!(seqs.iter().copied().eq(5..=last + 300));

    let last = testnet.last_seq(HOST).unwrap();
    let mut at_end = Consumer::connect(&pds, Some(last)).await;
    assert!(!at_end.hears(Duration::from_millis(200)).await);
    let mut live = Consumer::connect(&pds, None).await;
    assert!(!live.hears(Duration::from_millis(200)).await);
    testnet.stir(1);
    assert_eq!(seq_of(&live.next().await.unwrap()), Some(last + 1));
    assert_eq!(seq_of(&at_end.next().await.unwrap()), Some(last + 1));
}

#[tokio::test]
async fn a_cursor_before_the_window_is_outdated_and_one_after_the_end_is_from_the_future() {
    let (testnet, pds) = small().await;
    let mut whole = Consumer::connect(&pds, Some(0)).await;
    assert_eq!(kind(&whole.next().await.unwrap()), "identity", "no #info");

    testnet
        .fault(Spec::new(Fault::Window { events: 4 }))
        .unwrap();
    assert_eq!(testnet.faults().fired("window"), 1);
    let last = testnet.last_seq(HOST).unwrap();
    for (cursor, first) in [
        (0, "info(OutdatedCursor)"),
        (last - 5, "info(OutdatedCursor)"),
        (last - 4, ""),
    ] {
        let mut consumer = Consumer::connect(&pds, Some(cursor)).await;
        let mut frames = consumer.until(last).await;
        if !first.is_empty() {
            assert_eq!(kind(&frames.remove(0)), first, "{cursor}");
        }
        let seqs: Vec<u64> = frames.iter().filter_map(|frame| seq_of(frame)).collect();
        assert!(seqs.iter().copied().eq(last - 3..=last), "{cursor}");
    }

    let mut future = Consumer::connect(&pds, Some(last + 1)).await;
    assert_eq!(kind(&future.next().await.unwrap()), "error(FutureCursor)");
    match future.0.next().await {
        Some(Ok(Message::Close(Some(close)))) => assert_eq!(u16::from(close.code), 1008),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_small_window_limits_replay_and_not_who_listens() {
    let (testnet, pds) = small().await;
    let mut live = Consumer::connect(&pds, None).await;
    let before = testnet.last_seq(HOST).unwrap();
    let window = |events| testnet.fault(Spec::new(Fault::Window { events }));
    window(0).unwrap();
    // On this thread nothing is read before the next wait.
    testnet.stir(50);
    let last = testnet.last_seq(HOST).unwrap();
    assert_eq!(live.until(last).await.len() as u64, last - before);
    assert_eq!(testnet.frames(HOST).unwrap().len(), 0);
    // What was forgotten stays forgotten when the window grows.
    window(1000).unwrap();
    testnet.stir(1);
    let mut late = Consumer::connect(&pds, Some(before)).await;
    assert_eq!(kind(&late.next().await.unwrap()), "info(OutdatedCursor)");
    assert_eq!(seq_of(&late.next().await.unwrap()), Some(last + 1));
}

#[tokio::test]
async fn a_wiped_host_counts_again_and_takes_any_cursor_while_it_has_said_nothing() {
    let (testnet, pds) = small().await;
    let last = testnet.last_seq(HOST).unwrap();
    let mut consumer = Consumer::connect(&pds, Some(last)).await;
    testnet
        .fault(Spec::new(Fault::SeqRestart { next: 1 }).on(HOST))
        .unwrap();
    assert_eq!(consumer.next().await, None, "subscribers are dropped");
    let mut early = Consumer::connect(&pds, Some(last)).await;
    testnet.stir(1);
    assert_eq!(seq_of(&early.next().await.unwrap()), Some(1));
    let mut late = Consumer::connect(&pds, Some(last)).await;
    assert_eq!(kind(&late.next().await.unwrap()), "error(FutureCursor)");
    assert_eq!(testnet.faults().fired("seq-restart"), 1);
}

#[tokio::test]
async fn a_consumer_that_does_not_read_is_told_that_it_is_too_slow() {
    let (testnet, pds) = network(Config {
        repos: 1,
        buffer_events: 20,
        ..Config::default()
    })
    .await;
    let did = testnet.truth().dids()[0].clone();
    let mut consumer = Consumer::connect(&pds, None).await;
    testnet.stir(1);
    consumer.next().await.unwrap();
    // More than any socket buffers, while nothing reads.
    let grow = Fault::HugeRepo { records: 40_000 };
    let grow = Spec::new(grow).of(&did);
    testnet.fault(grow).unwrap();
    let mut last = String::new();
    while let Some(frame) = consumer.next().await {
        last = kind(&frame);
    }
    assert_eq!(last, "error(ConsumerTooSlow)");

    // Replay goes at the consumer's pace, however far behind it starts.
    let last = testnet.last_seq(HOST).unwrap();
    let mut replay = Consumer::connect(&pds, Some(0)).await;
    assert_eq!(replay.until(last).await.len() as u64, last);
}

#[tokio::test]
async fn pings_are_answered_unless_a_fault_forbids_it() {
    let (testnet, pds) = small().await;
    let mut consumer = Consumer::connect(&pds, None).await;
    consumer.send(Message::Ping("one".into())).await;
    assert!(pong(&mut consumer, DEADLINE).await);

    let silent = Spec::new(Fault::NoPongs {}).on(HOST);
    let id = testnet.fault(silent).unwrap().id.unwrap();
    assert_eq!(testnet.faults().fired("no-pongs"), 0);
    consumer.send(Message::Ping("two".into())).await;
    assert!(!pong(&mut consumer, Duration::from_millis(300)).await);
    assert_eq!(testnet.faults().fired("no-pongs"), 1);
    testnet.stir(1);
    assert!(consumer.next().await.is_some(), "events go on");
    testnet.clear_fault(id);
    consumer.send(Message::Ping("three".into())).await;
    assert!(pong(&mut consumer, DEADLINE).await);
}

async fn pong(consumer: &mut Consumer, wait: Duration) -> bool {
    let next = tokio::time::timeout(wait, consumer.0.next()).await;
    matches!(next, Ok(Some(Ok(Message::Pong(_)))))
}

#[tokio::test]
async fn a_deleted_account_is_forgotten_by_the_replay() {
    let (testnet, pds) = small().await;
    let did = testnet.truth().dids()[1].clone();
    testnet.set_status(&did, Status::Deleted).unwrap();
    let last = testnet.last_seq(HOST).unwrap();
    let mut consumer = Consumer::connect(&pds, Some(0)).await;
    let frames = consumer.until(last).await;
    assert!((frames.len() as u64) < last, "numbers are missing");
    let of_it: Vec<String> = frames
        .iter()
        .filter(|frame| match decode(frame) {
            Ok(Event::Commit(event)) => event.repo == did.as_str(),
            Ok(Event::Sync(event)) => event.did == did.as_str(),
            Ok(Event::Identity(event)) => event.did == did.as_str(),
            Ok(Event::Account(event)) => event.did == did.as_str(),
            _ => false,
        })
        .map(|frame| kind(frame))
        .collect();
    assert_eq!(of_it, ["account(deleted)"]);
}
