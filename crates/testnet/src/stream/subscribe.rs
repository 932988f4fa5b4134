//! Serves one subscriber of a feed: replay, then live events, at the subscriber's pace.
//!
//! A subscriber that has caught up may fall behind by a bounded number of events; beyond
//! that the server sends `ConsumerTooSlow` and disconnects it. During replay a subscriber
//! may be slower, until the window passes it.

use std::sync::Arc;
use std::time::Duration;

use gapless_atp::frame::{encode_error, encode_info};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use super::feed::{Feed, Manners, Read, Start};
use super::socket::{
    BINARY, CLOSE_NORMAL, CLOSE_POLICY, Incoming, Socket, write_close, write_frame,
};
use crate::faults::{Fault, Faults, Place};

/// How long a subscriber that is being disconnected may take to read the reason.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A subscription to a feed that is about to be served.
pub(crate) struct Subscription {
    feed: Arc<Feed>,
    faults: Arc<Faults>,
    place: Place,
    /// The number of events that a live subscriber may be behind.
    buffer_events: u64,
    start: Start,
    epoch: u64,
}

impl Subscription {
    /// Chooses where the subscription begins. Call this before the handshake is answered,
    /// so that the subscriber misses nothing that happens after the answer.
    pub(crate) fn new(
        feed: Arc<Feed>,
        faults: Arc<Faults>,
        place: Place,
        manners: Manners,
        cursor: Option<u64>,
        buffer_events: u64,
    ) -> Subscription {
        Subscription {
            epoch: feed.epoch(),
            start: feed.start(cursor, manners),
            feed,
            faults,
            place,
            buffer_events,
        }
    }
}

/// Why a subscription ended.
enum End {
    /// The client closed the connection or is gone.
    Gone,
    /// The feed began a new epoch.
    Epoch,
    TooSlow,
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> End {
        End::Gone
    }
}

/// The frames to write. The first of them may be partly written.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// The end of each frame in `bytes`.
    ends: Vec<usize>,
    written: usize,
}

impl Outbox {
    fn fill(&mut self, read: &Read) {
        self.bytes.clear();
        self.ends.clear();
        self.written = 0;
        for frame in &read.frames {
            write_frame(&mut self.bytes, BINARY, frame);
            self.ends.push(self.bytes.len());
        }
    }

    fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Drops every frame of which no byte was written.
    fn cut_unwritten(&mut self) {
        let written = self.written;
        let begun = self.ends.iter().copied().find(|end| *end >= written);
        self.bytes.truncate(begun.unwrap_or(written));
    }
}

/// Serves one subscriber until the subscriber or the feed ends the subscription.
pub(crate) async fn serve(subscription: Subscription, mut socket: Socket) {
    if stay_silent(&subscription.faults, subscription.place, &mut socket).await {
        return;
    }
    let mut changed = subscription.feed.watch();
    let (position, cursor, live_from) = match subscription.start {
        Start::FutureCursor => {
            let error = encode_error("FutureCursor", Some("Cursor in the future."));
            let _ = socket.send(BINARY, &error).await;
            let _ = socket.close(CLOSE_POLICY, "FutureCursor").await;
            return;
        }
        Start::At {
            position,
            cursor,
            live_from,
            outdated,
        } => {
            if outdated {
                let message = "Requested cursor exceeded limit. Possibly missing events";
                let info = encode_info("OutdatedCursor", Some(message));
                if socket.send(BINARY, &info).await.is_err() {
                    return;
                }
            }
            (position, cursor, live_from)
        }
    };
    let epoch = subscription.epoch;
    let mut stream = Stream {
        subscription,
        socket,
        position,
        cursor,
        live_from,
        epoch,
        outbox: Outbox::default(),
    };
    let end = loop {
        if let Err(end) = stream.step(&mut changed).await {
            break end;
        }
    };
    stream.finish(end).await;
}

/// If a fault wants that, stays silent after the handshake until the fault is cleared or
/// the client leaves; pings are still answered. Returns whether a fault applied.
pub(crate) async fn stay_silent(faults: &Faults, place: Place, socket: &mut Socket) -> bool {
    let taken = faults.take_with_id(place, None, |fault| {
        matches!(fault, Fault::DialSilence { after: true }).then_some(())
    });
    let Some((id, ())) = taken else {
        return false;
    };
    let cleared = faults.cleared(id);
    tokio::pin!(cleared);
    loop {
        tokio::select! {
            () = &mut cleared => break,
            message = socket.incoming.recv() => match message {
                Some(Incoming::Ping(payload)) => {
                    if !faults.swallow_pong(place) && socket.pong(&payload).await.is_err() {
                        break;
                    }
                }
                Some(Incoming::Message(_)) => (),
                None | Some(Incoming::Close) => break,
            },
        }
    }
    let _ = socket.close(CLOSE_NORMAL, "").await;
    true
}

struct Stream {
    subscription: Subscription,
    socket: Socket,
    position: u64,
    cursor: u64,
    live_from: u64,
    epoch: u64,
    outbox: Outbox,
}

impl Stream {
    /// Reads new entries and writes them, or waits for more.
    async fn step(&mut self, changed: &mut watch::Receiver<u64>) -> Result<(), End> {
        changed.mark_unchanged();
        let feed = self.subscription.feed.clone();
        let read = feed.read(self.position, self.cursor, self.live_from);
        if read.epoch != self.epoch {
            return Err(End::Epoch);
        }
        if read.overrun {
            return Err(End::TooSlow);
        }
        self.position = read.position;
        if !read.frames.is_empty() {
            self.outbox.fill(&read);
            return self.write_out(changed).await;
        }
        if read.backlog > 0 && read.not_before.is_none() {
            return Ok(());
        }
        let held = async {
            match read.not_before {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = self.socket.incoming.recv() => self.answer(message).await,
            _ = held => Ok(()),
            result = changed.changed() => result.map_err(|_| End::Gone),
        }
    }

    /// Writes the outbox, and checks meanwhile how far the client is behind.
    async fn write_out(&mut self, changed: &mut watch::Receiver<u64>) -> Result<(), End> {
        while !self.outbox.is_empty() {
            let rest = &self.outbox.bytes[self.outbox.written..];
            tokio::select! {
                biased;
                written = self.socket.out.write(rest) => match written? {
                    0 => return Err(End::Gone),
                    count => self.outbox.written += count,
                },
                result = changed.changed() => {
                    result.map_err(|_| End::Gone)?;
                    self.check_pace()?;
                }
            }
        }
        self.check_pace()?;
        // Answer pings that came meanwhile, even while the stream is busy.
        while let Ok(message) = self.socket.incoming.try_recv() {
            self.answer(Some(message)).await?;
        }
        Ok(())
    }

    fn check_pace(&self) -> Result<(), End> {
        let feed = &self.subscription.feed;
        if feed.epoch() != self.epoch {
            return Err(End::Epoch);
        }
        let is_live = self.position >= self.live_from;
        if is_live && feed.backlog(self.position) > self.subscription.buffer_events {
            return Err(End::TooSlow);
        }
        Ok(())
    }

    async fn answer(&mut self, message: Option<Incoming>) -> Result<(), End> {
        match message {
            None | Some(Incoming::Close) => Err(End::Gone),
            Some(Incoming::Message(_)) => Ok(()),
            Some(Incoming::Ping(payload)) => {
                let Subscription { faults, place, .. } = &self.subscription;
                if !faults.swallow_pong(*place) {
                    self.socket.pong(&payload).await?;
                }
                Ok(())
            }
        }
    }

    async fn finish(mut self, end: End) {
        let mut last = std::mem::take(&mut self.outbox);
        last.cut_unwritten();
        match end {
            End::TooSlow => {
                let message = "Stream consumer too slow";
                let error = encode_error("ConsumerTooSlow", Some(message));
                write_frame(&mut last.bytes, BINARY, &error);
                write_close(&mut last.bytes, CLOSE_POLICY, "ConsumerTooSlow");
            }
            End::Gone | End::Epoch => write_close(&mut last.bytes, CLOSE_NORMAL, ""),
        }
        let rest = &last.bytes[last.written..];
        let words = async {
            self.socket.out.write_all(rest).await?;
            self.socket.out.shutdown().await
        };
        // A subscriber that still does not read is dropped.
        let _ = timeout(LAST_WORDS, words).await;
    }
}
