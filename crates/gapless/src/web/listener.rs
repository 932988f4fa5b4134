//! Accepting, within bounds: so many connections at a time, none that is silent
//! for ever, and none that takes long to say what it wants.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections at a time; more wait in the system's queue.
const CONNECTIONS: usize = 256;
/// A connection on which nothing was read or written for so long is closed.
const IDLE: Duration = Duration::from_secs(300);
/// The head of a request has come by then, however slowly: otherwise a few hundred
/// connections that say next to nothing would keep everybody out.
const HEAD: Duration = Duration::from_secs(10);
/// A connection that was answered and asks nothing more for so long is closed when
/// others wait for its place.
const KEPT_ALIVE: Duration = Duration::from_secs(10);
/// What ends a head.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// What an answer in parts has in its head, and what ends it.
const IN_PARTS: &[u8] = b"transfer-encoding: chunked";
const LAST_PART: &[u8] = b"0\r\n\r\n";
/// How the answer begins after which the connection is no longer HTTP.
const OTHER_PROTOCOL: &[u8] = b"HTTP/1.1 101 ";

/// A listener with a bound.
pub struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Bounded {
    pub fn new(listener: TcpListener) -> Bounded {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        Bounded { listener, room }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed; if it were, a connection goes uncounted.
        let room = Arc::clone(&self.room).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // An answer in parts must not wait for the reader to acknowledge each of them. A
        // system that does not let us answers later, and not otherwise.
        let _ = stream.set_nodelay(true);
        let connection = Connection {
            stream,
            idle: Box::pin(sleep(HEAD)),
            head_end: 0,
            last: Last::Asked,
            stirred_at: Instant::now(),
            places: Arc::clone(&self.room),
            _room: room,
        };
        (connection, address)
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Who is at the other end of a connection, for whoever answers.
#[derive(Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl Connected<IncomingStream<'_, Bounded>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

/// A connection that gives its room back when it ends.
pub struct Connection {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    /// How much of the end of the request's head has come.
    head_end: usize,
    last: Last,
    stirred_at: Instant,
    places: Arc<Semaphore>,
    _room: Option<OwnedSemaphorePermit>,
}

/// What happened last on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Asked,
    /// More of the answer is to come.
    Answering,
    Answered,
    /// It is a WebSocket now: whoever serves it looks after it.
    Handed,
}

impl Connection {
    fn stirred(&mut self) {
        if self.head_end == HEAD_END.len() {
            self.stirred_at = Instant::now();
            let patience = match self.last {
                Last::Answered => KEPT_ALIVE,
                Last::Asked | Last::Answering | Last::Handed => IDLE,
            };
            self.idle.as_mut().reset(self.stirred_at + patience);
        }
    }

    /// Whether more of an answer will come after this.
    fn answer(&mut self, bytes: &[u8]) {
        // Only of what stands first: a long answer is not looked through.
        let in_parts = || {
            bytes
                .windows(IN_PARTS.len())
                .any(|some| some.eq_ignore_ascii_case(IN_PARTS))
        };
        self.last = match (self.last, bytes.ends_with(LAST_PART)) {
            (Last::Handed, _) => Last::Handed,
            (Last::Asked, _) if bytes.starts_with(OTHER_PROTOCOL) => Last::Handed,
            (Last::Asked, false) if in_parts() => Last::Answering,
            (Last::Answering, false) => Last::Answering,
            _ => Last::Answered,
        };
    }

    /// Whether it was silent for too long. One that was answered may stay for as
    /// long as nobody waits for its place.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        if self.last == Last::Handed {
            return false;
        }
        while self.idle.as_mut().poll(context).is_ready() {
            let free = self.places.available_permits() > 0;
            if self.last != Last::Answered || !free || self.stirred_at.elapsed() >= IDLE {
                return true;
            }
            self.idle.as_mut().reset(Instant::now() + KEPT_ALIVE);
        }
        false
    }

    /// Something came. After an answer it is the next request.
    fn ask(&mut self, bytes: &[u8]) {
        if self.last == Last::Handed {
            return;
        }
        if self.last == Last::Answered && !bytes.is_empty() {
            self.head_end = 0;
            self.idle.as_mut().reset(Instant::now() + HEAD);
        }
        self.last = Last::Asked;
        self.look(bytes);
    }

    /// Looks for the end of the head.
    fn look(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.head_end == HEAD_END.len() {
                return;
            }
            self.head_end = match HEAD_END[self.head_end] == *byte {
                true => self.head_end + 1,
                false => usize::from(*byte == HEAD_END[0]),
            };
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            this.ask(&buffer.filled()[before..]);
            this.stirred();
            return Poll::Ready(result);
        }
        match this.is_over(context) {
            true => Poll::Ready(Err(Error::from(ErrorKind::TimedOut))),
            false => Poll::Pending,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        if let Poll::Ready(result) = Pin::new(&mut this.stream).poll_write(context, bytes) {
            if let Ok(written) = &result {
                this.answer(&bytes[..*written]);
            }
            this.stirred();
            return Poll::Ready(result);
        }
        match this.is_over(context) {
            true => Poll::Ready(Err(Error::from(ErrorKind::TimedOut))),
            false => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
