//! Tests hostile hosts: nothing that they send may stop a stream, delay other hosts, or make a
//! repository complete that is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gapless_atp::frame;
use gapless_atp::syntax::Did;
use gapless_core::ledger::UpstreamKind;
use gapless_harness::{World, listed, swept, unswept};
use gapless_mirror::api::Operate as _;
use gapless_testnet::faults::Part;
use gapless_testnet::{Fault, Place, Spec, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

/// More than any message may have.
const OVERSIZED: usize = 6_000_000;

/// A host behind a way that puts a message of 6 MB before a certain event, every
/// time that event is asked for.
struct Swollen {
    url: String,
    after: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
}

impl Swollen {
    async fn to(url: &str) -> Swollen {
        let target = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (after, sent) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::default());
        let way = Swollen {
            url: format!("http://localhost:{port}"),
            after: Arc::clone(&after),
            sent: Arc::clone(&sent),
        };
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let target = target.clone();
                let (after, sent) = (Arc::clone(&after), Arc::clone(&sent));
                tokio::spawn(async move {
                    let mut head = [0; 256];
                    let Ok(read) = near.peek(&mut head).await else {
                        return;
                    };
                    let far = TcpStream::connect(&target).await.expect("it listens");
                    if String::from_utf8_lossy(&head[..read]).contains("subscribeRepos") {
                        pass_on(near, far, &target, &after, &sent).await
                    } else {
                        pass_by(near, far).await
                    }
                });
            }
        });
        way
    }
}

async fn pass_by(mut near: TcpStream, mut far: TcpStream) {
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}

#[allow(clippy::result_large_err, reason = "the library wants it so")]
async fn pass_on(
    near: TcpStream,
    far: TcpStream,
    target: &str,
    after: &AtomicU64,
    sent: &AtomicU64,
) {
    let mut asked = String::new();
    let note = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        asked = request.uri().to_string();
        Ok(response)
    };
    let near = tokio_tungstenite::accept_hdr_async(near, note).await;
    let mut near = near.expect("a handshake");
    let url = format!("ws://{target}{asked}");
    let (mut far, _) = tokio_tungstenite::client_async(url, far)
        .await
        .expect("a handshake");
    loop {
        tokio::select! {
            message = far.next() => {
                let Some(Ok(message)) = message else { return };
                let seq = match &message {
                    Message::Binary(bytes) => frame::decode(bytes).ok().and_then(|event| event.seq()),
                    _ => None,
                };
                if seq.is_some_and(|seq| seq > after.load(Ordering::SeqCst)) {
                    sent.fetch_add(1, Ordering::SeqCst);
                    let _ = near.send(Message::Binary(vec![0; OVERSIZED].into())).await;
                }
                if near.send(message).await.is_err() {
                    return;
                }
            }
            message = near.next() => {
                let Some(Ok(message)) = message else { return };
                if message.is_ping() {
                    // Answered by itself, with the next message.
                    let _ = near.flush().await;
                }
            }
        }
    }
}

/// One message that is too large must not end what is known of a host: either the stream gets
/// past the message, or no repository with a later event is called complete.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_neither_stops_the_stream_nor_hides_what_follows() {
    let mut world = World::network(listed(6, 2)).await;
    world.expect("cannot read a message of the upstream");
    world.expect("the events after the cursor cannot be read");
    world
        .flags
        .upstream
        .push(format!("pds={}", world.host_url(1)));
    world.adjust = unswept;
    world.begin().await;
    let way = Swollen::to(&world.host_url(0)).await;
    world
        .add(UpstreamKind::Pds, way.url.clone(), Some(world.host_url(0)))
        .await;
    world.until_all_complete().await;
    let (a, b) = (world.account(0, 0), world.account(0, 1));
    // The event at the cursor, so that a reconnect can show its continuity.
    world.post(&a);
    world.until_complete(&a).await;
    let last = world.net.last_seq(Place::Pds(0)).expect("an event");
    way.after.store(last, Ordering::SeqCst);
    world.post(&a);
    world.post(&b);
    world
        .until("it was sent three times", async |_: &World| {
            let sent = way.sent.load(Ordering::SeqCst);
            (sent >= 3).then_some(()).ok_or(format!("{sent}"))
        })
        .await;
    world.never_stale(&a).await;
    world.never_stale(&b).await;
    world.until_complete_never_stale(&b).await;
    world.stop().await;
}

/// Of a host with few repositories each is asked about by itself. Where the host
/// did not answer, nothing was compared, and the doubt stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_whose_head_requests_fail_makes_no_repository_complete() {
    let mut world = World::network(listed(3, 1)).await;
    let did = world.account(0, 0);
    world.name(&[&did]);
    world.adjust = unswept;
    world.begin().await;
    world.until_complete(&did).await;
    world.post(&did);
    world.until_complete(&did).await;
    let refused = Fault::HttpError {
        status: 503,
        retry_after: None,
        route: Some("getLatestCommit".to_owned()),
    };
    let refused = world.inject(Spec::new(refused).on(Place::Pds(0)));
    let (sweeps, failures) = (
        world.metrics().sweeps.get(),
        world.metrics().sweep_failures.get(),
    );
    let unreadable = Fault::Undecodable {
        part: Part::Payload,
    };
    world.inject(Spec::new(unreadable).of(&did).times(1));
    world.post(&did);
    assert_eq!(world.fired("undecodable"), 1);
    world
        .until("a sweep has ended", async |world: &World| {
            let metrics = world.metrics();
            let ended = (metrics.sweeps.get(), metrics.sweep_failures.get());
            let more = ended.0 > sweeps || ended.1 > failures;
            more.then_some(()).ok_or(format!("{ended:?}"))
        })
        .await;
    assert!(world.fired("http-error") >= 1, "it was asked");
    world.never_stale(&did).await;
    world.clear(refused).await;
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}

fn suspended(world: &World) -> bool {
    let hosts = world.mirror().services().hosts.all();
    hosts.iter().any(|(_, host)| host.hiding_suspended)
}

/// Accounts that were deleted one after another are missing from every listing for
/// ever. That is no loss.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_long_ago_does_not_vanish_again_with_every_sweep() {
    let mut world = World::settled(listed(30, 1)).with(swept).await;
    for number in 0..12 {
        let did = world.net.truth().dids()[number].clone();
        world
            .net
            .set_status(&did, Status::Deleted)
            .expect("it is active");
        let hidden = world.until_incomplete(&did, "inactive").await;
        assert_eq!(hidden.account, "deleted");
    }
    world.until_swept(3).await;
    assert!(!suspended(&world), "nothing vanished");
    world.stop().await;
}

/// A loss that an operator has confirmed stays confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_that_was_confirmed_is_believed() {
    let mut world = World::settled(listed(30, 1)).with(swept).await;
    world.expect("too many repositories vanished at once");
    let gone: Vec<Did> = world.net.truth().dids()[..12].to_vec();
    for did in &gone {
        world.inject(Spec::new(Fault::LostAccount {}).of(did).times(1));
        world
            .net
            .set_status(did, Status::Deleted)
            .expect("it is active");
    }
    world
        .until("hiding is suspended", async |world: &World| {
            suspended(world).then_some(()).ok_or("not yet".to_owned())
        })
        .await;
    world.until_swept(5).await;
    let (mirror, url) = (world.mirror().clone(), world.host_url(0));
    let confirmed = tokio::task::spawn_blocking(move || mirror.control().confirm_loss(&url));
    confirmed.await.expect("no panic").expect("it is confirmed");
    for did in &gone {
        world.until_incomplete(did, "inactive").await;
    }
    world.until_swept(2).await;
    assert!(!suspended(&world), "it was confirmed");
    world.stop().await;
}

/// Hosts whose listing leads in a circle.
struct Endless {
    url: String,
    pages: Arc<AtomicU64>,
}

impl Endless {
    async fn start() -> Endless {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let pages = Arc::new(AtomicU64::new(0));
        let endless = Endless {
            url: format!("http://localhost:{port}"),
            pages: Arc::clone(&pages),
        };
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let pages = Arc::clone(&pages);
                tokio::spawn(async move {
                    let mut head = vec![0; 4096];
                    let read = near.read(&mut head).await.unwrap_or(0);
                    let head = String::from_utf8_lossy(&head[..read]).into_owned();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let (status, body) = if head.contains("listRepos") {
                        let page = pages.fetch_add(1, Ordering::SeqCst) % 2;
                        ("200 OK", format!("{{\"repos\":[],\"cursor\":\"{page}\"}}"))
                    } else {
                        ("503 Busy", String::new())
                    };
                    let answer = format!(
                        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
                         content-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = near.write_all(answer.as_bytes()).await;
                });
            }
        });
        endless
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_without_an_end_keep_no_other_host_from_being_swept() {
    let mut world = World::network(listed(4, 2)).await;
    world.expect("the WebSocket was refused with 503");
    world.expect("the listing leads in a circle");
    world
        .flags
        .upstream
        .push(format!("pds={}", world.host_url(1)));
    world.adjust = unswept;
    world.begin().await;
    world.until_swept(1).await;
    for _ in 0..4 {
        let endless = Endless::start().await;
        world
            .add(UpstreamKind::Pds, endless.url.clone(), None)
            .await;
        world
            .until("it is swept", async |_: &World| {
                let pages = endless.pages.load(Ordering::SeqCst);
                (pages >= 3).then_some(()).ok_or(format!("{pages}"))
            })
            .await;
    }
    world.add(UpstreamKind::Pds, world.host_url(0), None).await;
    world
        .until("the honest host is swept", async |world: &World| {
            let hosts = &world.mirror().services().hosts;
            let host = hosts.find(&world.host_url(0)).and_then(|id| hosts.get(id));
            let swept = host.and_then(|host| host.swept);
            swept.map(drop).ok_or("never".to_owned())
        })
        .await;
    world.stop().await;
}
