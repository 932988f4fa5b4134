//! `GET /xrpc/com.atproto.sync.subscribeRepos`: one consumer of the firehose, at its
//! own pace, for as long as it reads.
//!
//! While one page goes out the next is read, and no more than that. A consumer that
//! takes nothing for `serve.stall` is told why and cut; one that has nothing to read
//! is asked now and then whether it is there.

use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::answer::Refusal;
use super::listener::Peer;
use super::websocket::{
    BINARY, CLOSE_AWAY, CLOSE_FAULT, CLOSE_POLICY, Handshake, Opening, Socket, Word, Wrote,
    write_message,
};
use super::{App, Stopping, ask, call};
use crate::serve::firehose::words::{consumer_too_slow, future_cursor, outdated_cursor};
use crate::serve::firehose::{Consumer, Page, Place, Start, Stopped, Unserved};

/// How long a consumer that is cut may take to hear why.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Whoever is turned away may try again after so many seconds.
const TRY_AGAIN: HeaderValue = HeaderValue::from_static("30");

pub async fn subscribe(State(app): State<App>, mut request: Request) -> Response {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let peer = peer.map(|ConnectInfo(Peer(address))| address.ip());
    let cursor = match cursor(&request) {
        Ok(cursor) => cursor,
        Err(refusal) => return refusal.into_response(),
    };
    let admitted = call(&app, move |mirror| {
        Ok(mirror.serving()?.firehose.admit(cursor, peer))
    });
    let (consumer, start) = match admitted.await {
        Ok(Ok(admitted)) => admitted,
        Ok(Err(unserved)) => return refuse(&unserved),
        Err(error) => return Refusal::from(error).into_response(),
    };
    // Only now: whoever asks the wrong way is told what is wrong with the question.
    let handshake = match Handshake::read(&mut request) {
        Ok(handshake) => handshake,
        Err(refusal) => return refusal.into_response(),
    };
    let (response, opening) = handshake.accept();
    let stopping = app.stopping.clone();
    tokio::spawn(async move { serve(consumer, start, opening, stopping).await });
    response
}

/// The cursor; none where there is none.
fn cursor(request: &Request) -> Result<Option<u64>, Refusal> {
    let words = "`cursor` must be a whole number from 0 on: the last one that you have";
    match ask::parameter(request.uri(), "cursor") {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| ask::wrong(words)),
    }
}

fn refuse(unserved: &Unserved) -> Response {
    let words = unserved.to_string();
    match unserved {
        Unserved::Filtered | Unserved::NoFrames => ask::wrong(words).into_response(),
        Unserved::Store(_) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Refusal::new(status, "InternalServerError", words).into_response()
        }
        Unserved::Full(_) | Unserved::Share(_) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut response = Refusal::new(status, "TooManyConsumers", words).into_response();
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, TRY_AGAIN);
            response
        }
    }
}

/// Why it ends.
enum End {
    Gone,
    Stopping,
    /// Cut; the bytes that finish the message that is half out.
    Slow(&'static str, Vec<u8>),
    Broken,
}

async fn serve(consumer: Consumer, start: Start, opening: Opening, stopping: Stopping) {
    let Some(socket) = opening.open().await else {
        return;
    };
    let (from, outdated) = match start {
        Start::At { from, outdated } => (from, outdated),
        Start::Future => {
            let mut last = Vec::new();
            write_message(&mut last, BINARY, &[&future_cursor()]);
            socket
                .close(&last, CLOSE_POLICY, "FutureCursor", LAST_WORDS)
                .await;
            return;
        }
    };
    let mut first = Batch::default();
    if outdated {
        first.add(&[&outdated_cursor()]);
    }
    let mut stream = Stream {
        place: Some(consumer.place(from)),
        stall: consumer.settings().stall,
        consumer,
        socket,
        stopping,
        busy_at: Instant::now(),
    };
    let end = stream.run(first).await;
    let Stream {
        consumer, socket, ..
    } = stream;
    match end {
        End::Gone => {}
        End::Stopping => socket.close(&[], CLOSE_AWAY, "stopping", LAST_WORDS).await,
        End::Broken => socket.close(&[], CLOSE_FAULT, "", LAST_WORDS).await,
        End::Slow(why, mut last) => {
            consumer.cut(why);
            write_message(&mut last, BINARY, &[&consumer_too_slow()]);
            socket
                .close(&last, CLOSE_POLICY, "ConsumerTooSlow", LAST_WORDS)
                .await;
        }
    }
}

/// Messages as they go out.
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

    /// What is left of the message of which so much is out.
    fn begun(&self, written: usize) -> &[u8] {
        let at = self.ends.partition_point(|end| *end < written);
        let end = self.ends.get(at).copied().unwrap_or(written);
        self.bytes.get(written..end).unwrap_or_default()
    }
}

type Read = (Place, Batch, Result<Page, Stopped>);

struct Stream {
    consumer: Consumer,
    socket: Socket,
    stopping: Stopping,
    stall: Duration,
    /// None while a page is being read.
    place: Option<Place>,
    /// When something was last sent.
    busy_at: Instant,
}

impl Stream {
    async fn run(&mut self, first: Batch) -> End {
        match self.send(first, None).await {
            Ok(()) => self.pages().await,
            Err(end) => end,
        }
    }

    async fn pages(&mut self) -> End {
        let mut reading = self.read();
        loop {
            let Some(task) = reading.take() else {
                if let Err(end) = self.wait().await {
                    return end;
                }
                reading = self.read();
                continue;
            };
            // A page that panicked is a fault of ours, and the log has it.
            let Ok((place, batch, page)) = task.await else {
                return End::Broken;
            };
            let page = match page {
                Ok(page) => page,
                Err(Stopped::Passed) => {
                    return End::Slow("the window has passed it", Vec::new());
                }
                Err(Stopped::Store(error)) => {
                    self.consumer.failed(&error);
                    return End::Broken;
                }
            };
            // Pages that say nothing to outsiders are not waited for anywhere.
            if self.stopping.is_ending() {
                return End::Stopping;
            }
            self.place = Some(place);
            if page.more {
                reading = self.read();
            }
            if let Err(end) = self.send(batch, Some(page)).await {
                return end;
            }
        }
    }

    /// Reads the next page on a thread that may wait for the disk.
    fn read(&mut self) -> Option<JoinHandle<Read>> {
        let mut place = self.place.take()?;
        Some(tokio::task::spawn_blocking(move || {
            let mut batch = Batch::default();
            let page = place.page(&mut |parts| batch.add(parts));
            (place, batch, page)
        }))
    }

    /// Sends a batch, as fast as it is taken.
    async fn send(&mut self, batch: Batch, page: Option<Page>) -> Result<(), End> {
        let mut written = 0;
        while written < batch.bytes.len() {
            let rest = batch.bytes.get(written..).unwrap_or_default();
            let wrote = tokio::select! {
                wrote = self.socket.write_some(rest, self.stall) => wrote,
                () = self.stopping.ended() => return Err(End::Stopping),
            };
            match wrote {
                Wrote::Some(count) => written += count,
                Wrote::Gone => return Err(End::Gone),
                Wrote::Stalled => {
                    let begun = batch.begun(written).to_vec();
                    return Err(End::Slow("it takes nothing", begun));
                }
            }
            self.busy_at = Instant::now();
        }
        if let Some(page) = page {
            let bytes = batch.bytes.len() as u64;
            self.consumer.sent(page.frames, bytes, page.next);
        }
        self.answer().await.then_some(()).ok_or(End::Gone)
    }

    /// Answers what the consumer has said meanwhile; whether it is still there.
    async fn answer(&mut self) -> bool {
        while let Ok(word) = self.socket.words.try_recv() {
            if !self.heed(word).await {
                return false;
            }
        }
        true
    }

    async fn heed(&mut self, word: Word) -> bool {
        match word {
            Word::Ping(payload) => self.socket.pong(&payload, self.stall).await,
            Word::Close => false,
        }
    }

    /// Nothing is there to send: waits for more, and sees whether the consumer is
    /// still there.
    async fn wait(&mut self) -> Result<(), End> {
        let next = self.place.as_ref().map_or(0, Place::next);
        let mut ask_at = self.busy_at + self.stall / 2;
        loop {
            let head = &mut self.consumer.head;
            let more = async { head.wait_for(|head| *head > next).await.map(drop) };
            tokio::select! {
                more = more => return more.map_err(|_| End::Stopping),
                word = self.socket.words.recv() => {
                    if !self.heed(word.unwrap_or(Word::Close)).await {
                        return Err(End::Gone);
                    }
                }
                () = self.stopping.ended() => return Err(End::Stopping),
                () = tokio::time::sleep_until(ask_at) => {
                    // It was asked twice at least since, and had nothing else to do.
                    let silent = self.socket.heard().max(self.busy_at).elapsed();
                    if silent > 2 * self.stall {
                        return Err(End::Slow("it does not answer", Vec::new()));
                    }
                    if !self.socket.ping(self.stall).await {
                        return Err(End::Gone);
                    }
                    ask_at = Instant::now() + self.stall / 2;
                }
            }
        }
    }
}
