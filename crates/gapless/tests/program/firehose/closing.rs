//! Tests how a connection of the firehose closes, seen from a bare socket: every close frame is
//! answered, every breach of the WebSocket protocol is named, and no message is cut in half.

use std::time::Duration;

use gapless_harness::{PATIENCE, World, network};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::firehose::slow::{by_hand, much};
use crate::firehose::strict::Served;

/// Shorter than every timeout of the mirror, so that no close in these tests is a timeout.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A frame as a client must send it, under a mask that changes nothing.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short one");
    let mut frame = vec![first, 0x80 | length, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

/// What a server sent, frame by frame, to the end of the connection.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let [first, length, rest @ ..] = bytes {
        let (length, rest) = match (*length, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (127, rest) => {
                let (eight, rest) = rest.split_at(8);
                let eight = eight.try_into().expect("eight bytes");
                (u64::from_be_bytes(eight) as usize, rest)
            }
            (short, rest) => (usize::from(short), rest),
        };
        assert!(rest.len() >= length, "a frame is cut after {first:x}");
        let (payload, rest) = rest.split_at(length);
        found.push((*first, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a head: {bytes:?}");
    found
}

/// Reads to the end of the connection, which must come soon, and be no reset.
async fn rest(stream: &mut TcpStream, within: Duration) -> Vec<(u8, Vec<u8>)> {
    let mut bytes = Vec::new();
    let read = timeout(within, stream.read_to_end(&mut bytes)).await;
    read.expect("in time").expect("no reset");
    frames(&bytes)
}

/// The code of the goodbye, which must be the last frame; none where it has none.
fn code(frames: &[(u8, Vec<u8>)]) -> Option<u16> {
    let (first, payload) = frames.last().expect("a goodbye");
    assert_eq!(*first, 0x88, "{frames:?}");
    match payload[..] {
        [] => None,
        [first, second, ..] => Some(u16::from_be_bytes([first, second])),
        [_] => panic!("half a code"),
    }
}

async fn quiet() -> (World, Served) {
    let mut world = World::quiet(network(1, 1)).await;
    world.begin().await;
    world.settle().await;
    let served = Served::start(&world).await;
    (world, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goodbye_is_answered_with_its_code_and_the_end() {
    let (mut world, served) = quiet().await;
    let at = world.log_next() - 1;
    let goodbyes: [(&[u8], Option<u16>); 4] = [
        (&[], None),
        (&[0x03, 0xe8], Some(1000)),
        (&[0x03, 0xe9, b'b', b'y', b'e'], Some(1001)),
        (&[0x0f, 0xa0], Some(4000)),
    ];
    for (payload, answer) in goodbyes {
        let mut stream = by_hand(&served, at).await;
        // A ping before it is answered before it.
        let said = [masked(0x89, b"x"), masked(0x88, payload)].concat();
        stream.write_all(&said).await.expect("it is sent");
        let frames = rest(&mut stream, AT_ONCE).await;
        assert_eq!(code(&frames), answer, "{frames:?}");
        assert_eq!(frames[0], (0x8a, b"x".to_vec()), "{frames:?}");
    }
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breach_of_the_protocol_is_named() {
    let (mut world, served) = quiet().await;
    let at = world.log_next() - 1;
    // So much that something is left unread when it is noticed.
    let mut large = vec![0x82, 0xff, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0];
    large.resize(large.len() + (256 << 10), 0);
    let breaches: [(&str, Vec<u8>, u16); 7] = [
        ("not masked", vec![0x89, 0x01, b'x'], 1002),
        ("a reserved bit", masked(0xc1, b"x"), 1002),
        ("no opcode", masked(0x83, b"x"), 1002),
        ("a long ping", vec![0x89, 0xfe, 0, 200, 0, 0, 0, 0], 1002),
        ("half a code", masked(0x88, &[3]), 1002),
        ("no text", masked(0x88, &[3, 232, 0xff]), 1007),
        ("too large", large, 1009),
    ];
    for (what, bytes, answer) in breaches {
        let mut stream = by_hand(&served, at).await;
        stream.write_all(&bytes).await.expect("it is sent");
        let frames = rest(&mut stream, AT_ONCE).await;
        assert_eq!(code(&frames), Some(answer), "{what}: {frames:?}");
    }
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goodbye_in_the_middle_of_a_message_waits_for_its_end() {
    let mut world = World::quiet(network(2, 1)).await;
    world.begin().await;
    world.settle().await;
    let served = Served::start(&world).await;
    let (mut leaves, mut stays) = (by_hand(&served, 0).await, by_hand(&served, 0).await);
    much(&world, 24);
    world.until_complete(&world.did(0)).await;
    // Neither has read anything: what goes out to them stands still in a message.
    let bye = masked(0x88, &[0x03, 0xe8]);
    leaves.write_all(&bye).await.expect("it is sent");
    let frames = rest(&mut leaves, PATIENCE).await;
    assert_eq!(code(&frames), Some(1000));
    assert!(frames.len() > 1, "it was in the middle");
    let (_, frames) = tokio::join!(served.stop(), rest(&mut stays, PATIENCE));
    assert_eq!(code(&frames), Some(1001));
    assert!(frames.len() > 1, "it was in the middle");
    world.stop().await;
}
