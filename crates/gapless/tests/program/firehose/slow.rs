//! Tests consumers of the firehose that do not read or do not answer pings: they are cut off
//! with an error, and other consumers are not affected.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::firehose::strict::{ROUTE, Served, Strict};
use gapless_harness::{World, condition, network, record};
use gapless_testnet::Write;

const STALL: Duration = Duration::from_secs(1);

/// Shakes hands by hand, and then does what the test wants.
pub(crate) async fn by_hand(served: &Served, cursor: u64) -> TcpStream {
    let mut stream = TcpStream::connect(served.address)
        .await
        .expect("it listens");
    let request = format!(
        "GET {ROUTE}?cursor={cursor} HTTP/1.1\r\nhost: {}\r\nconnection: Upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        served.address
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it is sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer"));
    }
    let head = String::from_utf8(head).expect("text");
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    stream
}

/// Writes so much that no socket holds it.
pub(crate) fn much(world: &World, megabytes: usize) {
    let did = world.did(0);
    let text: String = (0..60_000u32)
        .map(|at| char::from(b'a' + (at.wrapping_mul(2_654_435_761) >> 27) as u8 % 26))
        .collect();
    for number in 0..megabytes * 17 {
        let path = format!("app.bsky.feed.post/much{number:06}");
        let record = record(&format!("{number}{text}"));
        world.write(&did, &[Write::Create { path, record }]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_reads_nothing_is_cut_off_and_the_others_go_on() {
    let mut world = World::quiet(network(2, 1)).await;
    world.adjust = |config| config.serve.firehose.stall = STALL;
    world.begin().await;
    world.settle().await;
    let served = Served::start(&world).await;
    let mut stuck = by_hand(&served, 0).await;
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(0)).await;
    much(&world, 24);
    strict.until_true().await;
    world
        .until("it is cut", async |world: &World| {
            let cut = world.metrics().firehose_cut.get();
            condition(cut == 1, &cut)
        })
        .await;
    world
        .until("its place is free", async |world: &World| {
            let serving = world.serving();
            let (consumers, _) = serving.firehose.consumers();
            condition(consumers == 1, &consumers)
        })
        .await;
    // What it was sent, as far as it was, ends: nothing is buffered for it.
    let mut left = vec![0; 1 << 20];
    let mut bytes = 0;
    while let Ok(Ok(count)) =
        tokio::time::timeout(Duration::from_secs(20), stuck.read(&mut left)).await
    {
        if count == 0 {
            break;
        }
        bytes += count;
    }
    assert!(bytes < 20_000_000, "{bytes}");
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_answers_no_ping_is_cut_off_and_one_that_does_is_not() {
    let mut world = World::quiet(network(1, 1)).await;
    world.adjust = |config| config.serve.firehose.stall = STALL;
    world.begin().await;
    world.settle().await;
    let served = Served::start(&world).await;
    let mut silent = by_hand(&served, world.log_next() - 1).await;
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(0)).await;
    strict.until_true().await;
    world
        .until("the silent one is cut", async |world: &World| {
            let cut = world.metrics().firehose_cut.get();
            condition(cut == 1, &cut)
        })
        .await;
    let mut bytes = Vec::new();
    silent.read_to_end(&mut bytes).await.expect("it ends");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("ConsumerTooSlow"), "{text}");
    assert!(
        bytes.starts_with(&[0x89, 0]),
        "it was asked before: {bytes:?}"
    );
    // The other one answered all the while, and still hears.
    world.post(&world.did(0));
    strict.until_true().await;
    assert_eq!(world.metrics().firehose_cut.get(), 1);
    served.stop().await;
    world.stop().await;
}
