//! Accepts and serves HTTP/1 connections, within bounds: [`CONNECTIONS`] at a time,
//! [`HEAD_TIME`] for the head of a request, and [`IDLE_TIME`] without a byte in either
//! direction.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep};

use super::Stopping;

/// Connections at a time; more wait in the system's queue.
const CONNECTIONS: usize = 256;
/// Time for the whole head of a request, from the connection's start or from the end of
/// the response before. Without this limit, [`CONNECTIONS`] silent clients would keep all
/// others out.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// A connection on which no byte is read or written for this long is closed.
const IDLE_TIME: Duration = Duration::from_secs(300);

/// The address of the client, as an extension of every request.
#[derive(Clone, Copy)]
pub(super) struct Peer(pub SocketAddr);

/// Time limits of a connection.
#[derive(Clone, Copy)]
struct Limits {
    head: Duration,
    idle: Duration,
}

const LIMITS: Limits = Limits {
    head: HEAD_TIME,
    idle: IDLE_TIME,
};

/// Serves until the server stops, then waits for the requests that are being answered.
pub(super) async fn serve(listener: TcpListener, router: Router, stopping: Stopping) {
    serve_within(LIMITS, listener, router, stopping).await;
}

async fn serve_within(
    limits: Limits,
    mut listener: TcpListener,
    router: Router,
    stopping: Stopping,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // Every connection holds a receiver, so the channel closes when the last one ends.
    let (open, _) = watch::channel(());
    loop {
        let (connection, peer) = tokio::select! {
            accepted = accept(&mut listener, &places, limits.idle) => accepted,
            () = stopping.ended() => break,
        };
        let (router, stopping, open) = (router.clone(), stopping.clone(), open.subscribe());
        tokio::spawn(async move {
            serve_connection(connection, peer, router, limits.head, stopping).await;
            drop(open);
        });
    }
    drop(listener);
    open.closed().await;
}

async fn accept(
    listener: &mut TcpListener,
    places: &Arc<Semaphore>,
    idle: Duration,
) -> (Connection, Peer) {
    // The semaphore is never closed; if it were, a connection goes uncounted.
    let place = Arc::clone(places).acquire_owned().await.ok();
    let (stream, address) = Listener::accept(listener).await;
    // A part of an answer must not wait until the client acknowledges the part before. If
    // the system refuses the option, answers are only slower.
    let _ = stream.set_nodelay(true);
    (Connection::new(stream, idle, place), Peer(address))
}

async fn serve_connection(
    connection: Connection,
    peer: Peer,
    router: Router,
    head_time: Duration,
    stopping: Stopping,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_time)
        .serve_connection(TokioIo::new(connection), service)
        .with_upgrades();
    let mut serving = pin!(serving);
    tokio::select! {
        // An error means that the client is gone, slow or speaks no HTTP, and needs no report.
        _ = serving.as_mut() => return,
        () = stopping.ended() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// A TCP connection that fails with `TimedOut` when no byte passes for too long. Its place
/// among [`CONNECTIONS`] is free once it is dropped.
pub(super) struct Connection {
    stream: TcpStream,
    /// The time limit; `None` if another component limits the time.
    idle_limit: Option<Duration>,
    /// When a byte last passed.
    active_at: Instant,
    deadline: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn new(stream: TcpStream, idle: Duration, place: Option<OwnedSemaphorePermit>) -> Connection {
        Connection {
            stream,
            idle_limit: Some(idle),
            active_at: Instant::now(),
            deadline: Box::pin(sleep(idle)),
            _place: place,
        }
    }

    /// The connection without its time limit, for a WebSocket, which has limits of its own.
    pub(super) fn without_idle_limit(self) -> Connection {
        Connection {
            idle_limit: None,
            ..self
        }
    }

    /// Finishes a poll: notes the time of progress, or checks the time limit while there is none.
    fn done<T>(&mut self, polled: Poll<Result<T>>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if polled.is_ready() {
            self.active_at = Instant::now();
            return polled;
        }
        let Some(limit) = self.idle_limit else {
            return Poll::Pending;
        };
        while self.deadline.as_mut().poll(context).is_ready() {
            let idle_until = self.active_at + limit;
            if idle_until <= Instant::now() {
                return Poll::Ready(Err(Error::from(ErrorKind::TimedOut)));
            }
            self.deadline.as_mut().reset(idle_until);
        }
        Poll::Pending
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.done(polled, context)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.done(polled, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{any, get};
    use bytes::Bytes;
    use futures_util::{StreamExt, stream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{interval, timeout};

    use super::*;
    use crate::web::response::HttpError;
    use crate::web::websocket::{Handshake, ReaderMessage};
    use std::convert::Infallible;

    /// Far more than any of these tests needs.
    const PATIENCE: Duration = Duration::from_secs(30);
    const LONG: Duration = Duration::from_secs(600);

    async fn dial(limits: Limits, router: Router) -> (TcpStream, Stopping) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let stopping = Stopping(watch::Sender::new(false));
        tokio::spawn(serve_within(limits, listener, router, stopping.clone()));
        let stream = TcpStream::connect(address).await.expect("it listens");
        (stream, stopping)
    }

    /// Everything that the server sends before it closes.
    async fn rest(stream: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
        // A reset is an end, too.
        let _ = read.expect("the server closes the connection");
        String::from_utf8(bytes).expect("text")
    }

    fn answering() -> Router {
        Router::new().route("/", any(async || "answer"))
    }

    #[tokio::test]
    async fn a_slow_head_is_cut() {
        let head = Duration::from_millis(300);
        let (stream, _stopping) = dial(Limits { head, idle: LONG }, answering()).await;
        let (mut read, mut write) = stream.into_split();
        // A byte now and then does not extend the time.
        let trickle = tokio::spawn(async move {
            write.write_all(b"GET / HTTP/1.1\r\nx: ").await?;
            loop {
                write.write_all(b"x").await?;
                sleep(head / 10).await;
            }
            #[expect(unreachable_code, reason = "the type of the block")]
            Ok::<_, Error>(())
        });
        let mut bytes = Vec::new();
        let ended = timeout(PATIENCE, read.read_to_end(&mut bytes)).await;
        assert!(
            ended.is_ok(),
            "the server waits for the head without an end"
        );
        assert!(bytes.is_empty(), "a head without an end has no answer");
        trickle.abort();
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_cut() {
        let head = Duration::from_millis(300);
        let (mut stream, _stopping) = dial(Limits { head, idle: LONG }, answering()).await;
        assert_eq!(rest(&mut stream).await, "");
    }

    #[tokio::test]
    async fn a_connection_that_asks_nothing_more_is_closed_after_the_time_for_a_head() {
        let head = Duration::from_millis(300);
        let (mut stream, _stopping) = dial(Limits { head, idle: LONG }, answering()).await;
        let began = Instant::now();
        let asked = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(asked).await.expect("sent");
        assert!(rest(&mut stream).await.ends_with("answer"));
        assert!(began.elapsed() >= head, "it could have asked again");
    }

    #[tokio::test]
    async fn a_connection_without_a_byte_is_cut_while_a_body_is_awaited() {
        let idle = Duration::from_millis(300);
        let router = Router::new().route("/", any(async |body: Bytes| body));
        let (mut stream, _stopping) = dial(Limits { head: LONG, idle }, router).await;
        let asked = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf";
        stream.write_all(asked).await.expect("sent");
        let answer = rest(&mut stream).await;
        assert!(!answer.contains("half"), "{answer}");
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_cut() {
        let idle = Duration::from_millis(300);
        let gone = Arc::new(tokio::sync::Notify::new());
        let told = gone.clone();
        let endless = move || {
            let guard = Told(told.clone());
            let piece = Bytes::from_static(&[b'x'; 1 << 16]);
            async move {
                Body::from_stream(stream::repeat(piece).map(move |piece| {
                    let _ = &guard;
                    Ok::<_, Infallible>(piece)
                }))
            }
        };
        let router = Router::new().route("/", get(endless));
        let (mut stream, _stopping) = dial(Limits { head: LONG, idle }, router).await;
        let asked = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(asked).await.expect("sent");
        let ended = timeout(PATIENCE, gone.notified()).await;
        assert!(
            ended.is_ok(),
            "the answer is kept for a client that takes nothing"
        );
    }

    /// Tells when it is dropped.
    struct Told(Arc<tokio::sync::Notify>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    /// An export may last longer than both limits, as long as bytes pass.
    #[tokio::test]
    async fn a_slow_answer_is_not_cut() {
        let head = Duration::from_millis(200);
        let idle = Duration::from_secs(1);
        let slow = async move || {
            let ticks = stream::unfold(interval(idle / 20), async |mut ticks| {
                ticks.tick().await;
                Some((Ok::<_, Infallible>(Bytes::from_static(b"piece;")), ticks))
            });
            Body::from_stream(ticks.take(40))
        };
        let router = Router::new().route("/", get(slow));
        let (mut stream, _stopping) = dial(Limits { head, idle }, router).await;
        let asked = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(asked).await.expect("sent");
        let answer = rest(&mut stream).await;
        assert_eq!(answer.matches("piece;").count(), 40);
        assert!(answer.ends_with("0\r\n\r\n"), "the last part is missing");
    }

    #[tokio::test]
    async fn a_websocket_outlasts_both_limits_and_loses_no_early_frame() {
        let limits = Limits {
            head: Duration::from_millis(200),
            idle: Duration::from_millis(200),
        };
        let upgrade = async move |mut request: Request| {
            let (response, pending) = Handshake::read(&mut request)?.accept();
            tokio::spawn(async move {
                let mut socket = pending.open().await.expect("upgraded");
                let early = socket.messages.recv().await;
                assert_eq!(early, Some(ReaderMessage::Ping(Vec::new())));
                sleep(3 * limits.idle).await;
                socket.pong(b"late", PATIENCE).await
            });
            Ok::<_, HttpError>(response)
        };
        let router = Router::new().route("/", get(upgrade));
        let (mut stream, _stopping) = dial(limits, router).await;
        let mut asked = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\n\
            upgrade: websocket\r\nsec-websocket-version: 13\r\n\
            sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            .to_vec();
        // An empty ping, masked with zeros, in the packet of the request.
        asked.extend([0x89, 0x80, 0, 0, 0, 0]);
        stream.write_all(&asked).await.expect("sent");
        let mut bytes = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
        read.expect("the server closes").expect("no reset");
        assert!(bytes.starts_with(b"HTTP/1.1 101 "));
        assert!(bytes.ends_with(b"\x8a\x04late"));
    }

    #[tokio::test]
    async fn a_server_that_stops_finishes_its_answers_and_closes_idle_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let stopping = Stopping(watch::Sender::new(false));
        let asked = Arc::new(tokio::sync::Notify::new());
        let (noted, ended) = (asked.clone(), stopping.clone());
        let router = Router::new().route(
            "/",
            get(async move || {
                noted.notify_one();
                ended.ended().await;
                sleep(Duration::from_millis(100)).await;
                "the last answer"
            }),
        );
        let limits = Limits {
            head: LONG,
            idle: LONG,
        };
        let server = tokio::spawn(serve_within(limits, listener, router, stopping.clone()));
        let mut idle = TcpStream::connect(address).await.expect("it listens");
        let mut busy = TcpStream::connect(address).await.expect("it listens");
        let question = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        busy.write_all(question).await.expect("sent");
        asked.notified().await;
        stopping.0.send_replace(true);
        assert!(rest(&mut busy).await.ends_with("the last answer"));
        assert_eq!(rest(&mut idle).await, "");
        let stopped = timeout(PATIENCE, server).await;
        stopped.expect("the server ends").expect("no panic");
        assert!(
            TcpStream::connect(address).await.is_err(),
            "it listens no more"
        );
    }
}
