//! `GET /xrpc/com.atproto.sync.subscribeRepos`: streams the firehose to one consumer, at
//! its own pace.
//!
//! While one page is sent, only the next page is read. A consumer that accepts nothing for
//! `serve.stall` gets the error `ConsumerTooSlow` and is cut; an idle consumer is pinged.
//! Before the close frame, a message that was sent in part is finished, so that the
//! consumer can read the close frame.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::listener::Peer;
use super::response::HttpError;
use super::websocket::{
    BINARY, CLOSE_AWAY, CLOSE_FAULT, CLOSE_POLICY, CloseFrame, Handshake, PONG, PendingSocket,
    ReaderMessage, ServerSocket, SocketEvent, write_message,
};
use super::{App, Stopping, call, request};
use crate::serve::firehose::{FirehoseConsumer, FirehoseReader, PageResult, Start, SubscribeError};
use gapless_mirror::log::framed::FramedReadError;
use gapless_mirror::log::frames::{consumer_too_slow, future_cursor, outdated_cursor};

/// How long the close handshake with a consumer may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// Seconds after which a rejected consumer may try again.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("30");

pub(crate) async fn subscribe(State(app): State<Arc<App>>, mut request: Request) -> Response {
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map(|Peer(address)| address.ip());
    let cursor = match cursor(&request) {
        Ok(cursor) => cursor,
        Err(refusal) => return refusal.into_response(),
    };
    let admitted = call(&app, move |running| {
        Ok(running.serving()?.firehose.admit(cursor, peer))
    });
    let (consumer, start) = match admitted.await {
        Ok(Ok(admitted)) => admitted,
        Ok(Err(error)) => return error_response(&error),
        Err(error) => return HttpError::from(error).into_response(),
    };
    // After the cursor, so that an invalid cursor is reported before an invalid handshake.
    let handshake = match Handshake::read(&mut request) {
        Ok(handshake) => handshake,
        Err(refusal) => return refusal.into_response(),
    };
    let (response, pending) = handshake.accept();
    let stopping = app.stopping.clone();
    tokio::spawn(async move { serve(consumer, start, pending, stopping).await });
    response
}

/// Reads the cursor; `None` if the request has none.
fn cursor(request: &Request) -> Result<Option<u64>, HttpError> {
    let words =
        "`cursor` must be a whole number from 0 on: the number of the last event that you have";
    match request::parameter(request.uri(), "cursor") {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| request::invalid(words)),
    }
}

fn error_response(error: &SubscribeError) -> Response {
    let words = error.to_string();
    match error {
        SubscribeError::Filtered | SubscribeError::NoFrames => {
            request::invalid(words).into_response()
        }
        SubscribeError::Store(_) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            HttpError::new(status, "InternalServerError", words).into_response()
        }
        SubscribeError::Full(_) | SubscribeError::PerIp(_) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut response = HttpError::new(status, "TooManyConsumers", words).into_response();
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_S);
            response
        }
    }
}

/// Why the stream to a consumer ends.
enum CloseReason {
    Gone,
    /// The consumer closes the connection, or broke the protocol.
    ByReader(CloseFrame),
    Stopping,
    /// The consumer is cut.
    Slow(&'static str),
    Broken,
}

/// How a stream ends, and the bytes that are sent before the close frame: the rest of a
/// message that was sent in part, and the answer to the last ping.
struct Closing {
    why: CloseReason,
    before_close: Vec<u8>,
}

impl Closing {
    fn within(why: CloseReason, before_close: &[u8], ping: Option<Vec<u8>>) -> Closing {
        let mut before_close = before_close.to_vec();
        if let Some(payload) = ping {
            write_message(&mut before_close, PONG, &[&payload]);
        }
        Closing { why, before_close }
    }
}

impl From<CloseReason> for Closing {
    fn from(why: CloseReason) -> Closing {
        let before_close = Vec::new();
        Closing { why, before_close }
    }
}

async fn serve(
    consumer: FirehoseConsumer,
    start: Start,
    pending: PendingSocket,
    stopping: Stopping,
) {
    let stall = consumer.settings().stall;
    let Ok(Some(socket)) = tokio::time::timeout(stall, pending.open()).await else {
        return;
    };
    let (from, outdated) = match start {
        Start::At { from, outdated } => (from, outdated),
        Start::Future => {
            let mut last = Vec::new();
            write_message(&mut last, BINARY, &[&future_cursor()]);
            let close = CloseFrame::ours(CLOSE_POLICY, "FutureCursor");
            socket.close(&last, close, CLOSE_WITHIN).await;
            return;
        }
    };
    let mut first = Batch::default();
    if outdated {
        first.add(&[&outdated_cursor()]);
    }
    let mut stream = ConsumerStream {
        reader: Some(consumer.reader(from)),
        stall,
        consumer,
        socket,
        stopping,
        busy_at: Instant::now(),
    };
    let Closing { why, before_close } = stream.run(first).await;
    let ConsumerStream {
        consumer, socket, ..
    } = stream;
    let mut last = before_close;
    let close = match why {
        CloseReason::Gone => return,
        CloseReason::ByReader(close) => close,
        CloseReason::Stopping => CloseFrame::ours(CLOSE_AWAY, "stopping"),
        CloseReason::Broken => CloseFrame::ours(CLOSE_FAULT, ""),
        CloseReason::Slow(why) => {
            consumer.record_cut(why);
            write_message(&mut last, BINARY, &[&consumer_too_slow()]);
            CloseFrame::ours(CLOSE_POLICY, "ConsumerTooSlow")
        }
    };
    socket.close(&last, close, CLOSE_WITHIN).await;
}

/// Encoded messages that are sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each message ends.
    ends: Vec<usize>,
}

impl Batch {
    fn add(&mut self, parts: &[&[u8]]) {
        write_message(&mut self.bytes, BINARY, parts);
        self.ends.push(self.bytes.len());
    }

    /// The rest of the message that was sent in part when `written` bytes are out.
    fn rest_of_started_message(&self, written: usize) -> &[u8] {
        let at = self.ends.partition_point(|end| *end < written);
        let end = self.ends.get(at).copied().unwrap_or(written);
        self.bytes.get(written..end).unwrap_or_default()
    }
}

/// A page that was read: the reader after it, its messages, and the result.
type PageRead = (FirehoseReader, Batch, Result<PageResult, FramedReadError>);

/// The connection of one consumer.
struct ConsumerStream {
    consumer: FirehoseConsumer,
    socket: ServerSocket,
    stopping: Stopping,
    stall: Duration,
    /// `None` while a page is being read.
    reader: Option<FirehoseReader>,
    /// When something was last sent.
    busy_at: Instant,
}

impl ConsumerStream {
    async fn run(&mut self, first: Batch) -> Closing {
        match self.send(first, None).await {
            Ok(()) => self.pages().await,
            Err(end) => end,
        }
    }

    async fn pages(&mut self) -> Closing {
        let mut reading = self.read();
        loop {
            let Some(task) = reading.take() else {
                if let Err(end) = self.wait().await {
                    return end;
                }
                reading = self.read();
                continue;
            };
            // The reading panicked, which the log reports.
            let Ok((reader, batch, page)) = task.await else {
                return CloseReason::Broken.into();
            };
            let page = match page {
                Ok(page) => page,
                Err(FramedReadError::WindowPassed) => {
                    return CloseReason::Slow("the window has passed its cursor").into();
                }
                Err(FramedReadError::Log(error)) => {
                    self.consumer.record_failure(&error);
                    return CloseReason::Broken.into();
                }
            };
            // Pages without frames reach no other point that checks this.
            if self.stopping.is_ending() {
                return CloseReason::Stopping.into();
            }
            self.reader = Some(reader);
            if page.more {
                reading = self.read();
            }
            if let Err(end) = self.send(batch, Some(page)).await {
                return end;
            }
        }
    }

    /// Reads the next page on a blocking thread.
    fn read(&mut self) -> Option<JoinHandle<PageRead>> {
        let mut reader = self.reader.take()?;
        Some(tokio::task::spawn_blocking(move || {
            let mut batch = Batch::default();
            let page = reader.read_page(&mut |parts| batch.add(parts));
            (reader, batch, page)
        }))
    }

    /// Sends a batch as fast as the consumer accepts it. A ping is answered after the batch,
    /// a close frame after the message that was sent in part.
    async fn send(&mut self, batch: Batch, page: Option<PageResult>) -> Result<(), Closing> {
        let mut written = 0;
        let mut ping = None;
        let mut taken_at = Instant::now();
        while written < batch.bytes.len() {
            let rest = batch.bytes.get(written..).unwrap_or_default();
            let patience = self.stall.saturating_sub(taken_at.elapsed());
            let event = tokio::select! {
                event = self.socket.write_or_receive(rest, patience) => event,
                () = self.stopping.ended() => {
                    return Err(Closing::within(CloseReason::Stopping, batch.rest_of_started_message(written), ping));
                }
            };
            let why = match event {
                SocketEvent::Wrote(count) => {
                    written += count;
                    taken_at = Instant::now();
                    self.busy_at = taken_at;
                    continue;
                }
                // Only the last ping needs an answer.
                SocketEvent::Received(ReaderMessage::Ping(payload)) => {
                    ping = Some(payload);
                    continue;
                }
                SocketEvent::Received(ReaderMessage::Close(close)) => CloseReason::ByReader(close),
                SocketEvent::Stalled => CloseReason::Slow("it accepts no bytes"),
                SocketEvent::Gone => CloseReason::Gone,
            };
            return Err(Closing::within(
                why,
                batch.rest_of_started_message(written),
                ping,
            ));
        }
        // Also if there was nothing to write.
        while let Ok(message) = self.socket.messages.try_recv() {
            match message {
                ReaderMessage::Ping(payload) => ping = Some(payload),
                ReaderMessage::Close(close) => {
                    return Err(Closing::within(CloseReason::ByReader(close), &[], ping));
                }
            }
        }
        if let Some(page) = page {
            let bytes = batch.bytes.len() as u64;
            self.consumer.record_sent(page.frames, bytes, page.next);
        }
        match ping {
            Some(payload) => self.pong(&payload).await,
            None => Ok(()),
        }
    }

    async fn pong(&mut self, payload: &[u8]) -> Result<(), Closing> {
        let sent = self.socket.pong(payload, self.stall).await;
        sent.then_some(()).ok_or(CloseReason::Gone.into())
    }

    /// Waits for more to send, and pings the consumer meanwhile.
    async fn wait(&mut self) -> Result<(), Closing> {
        let next = self.reader.as_ref().map_or(0, FirehoseReader::next);
        let mut ask_at = self.busy_at + self.stall / 2;
        loop {
            let head = &mut self.consumer.head;
            let more = async { head.wait_for(|head| *head > next).await.map(drop) };
            tokio::select! {
                more = more => return more.map_err(|_| CloseReason::Stopping.into()),
                message = self.socket.messages.recv() => match message {
                    Some(ReaderMessage::Ping(payload)) => self.pong(&payload).await?,
                    Some(ReaderMessage::Close(close)) => return Err(CloseReason::ByReader(close).into()),
                    None => return Err(CloseReason::Gone.into()),
                },
                () = self.stopping.ended() => return Err(CloseReason::Stopping.into()),
                () = tokio::time::sleep_until(ask_at) => {
                    // The consumer was pinged at least twice since, and had nothing to read.
                    let silent = self.socket.last_heard().max(self.busy_at).elapsed();
                    if silent > 2 * self.stall {
                        return Err(CloseReason::Slow("it does not answer pings").into());
                    }
                    if !self.socket.ping(self.stall).await {
                        return Err(CloseReason::Gone.into());
                    }
                    ask_at = Instant::now() + self.stall / 2;
                }
            }
        }
    }
}
