//! One upstream, followed for ever: dial, read, hand on, dial again.
//!
//! The reader waits for room at the desks and for nothing else: neither for the
//! directory nor for a fetch. A host that answers with errors is dialed again
//! after a while that grows and is spread; a host that says nothing is pinged, and
//! given up when it does not answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, StreamExt};
use gapless_atp::syntax::Did;
use gapless_core::ledger::event::Origin;
use gapless_core::ledger::stream::Read;
use gapless_core::ledger::{Notice, Tick, Time, UpstreamId};
use gapless_store::change::{Change, DeadChange};
use gapless_store::cursor::Position;
use gapless_store::error::StoreError;
use gapless_store::table::dead::{DeadClass, DeadLetter, Resolution};
use gapless_store::table::log::Source;
use tokio::time::{MissedTickBehavior, interval};
use tokio_tungstenite::tungstenite::Message;

use super::desk::{Arrived, DEAD_PAYLOAD_BYTES, Desks};
use super::read::{Frame, Kind, read_frame, tag};
use super::upstreams::write;
use crate::metrics::reset_words;
use crate::net::{Net, Socket, Trust};
use crate::shared::Shared;

/// Messages that are handed on at once.
const BATCH: usize = 256;
/// Bytes of them.
const BATCH_BYTES: usize = 1 << 20;
/// How often time passes for a connection.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a host is pinged.
const PING_EVERY: Duration = Duration::from_secs(15);
/// A host from which nothing has come for so long, not even a pong, is given up.
const SILENT_TOO_LONG: Duration = Duration::from_secs(40);
/// The first wait after a failed dial, doubled up to the longest.
const REDIAL_FIRST: Duration = Duration::from_millis(500);
const REDIAL_LONGEST: Duration = Duration::from_secs(60);
/// A connection that held so long was a good one.
const GOOD_CONNECTION: Duration = Duration::from_secs(30);
/// Events of others that are passed over before the cursor moves past them.
const SKIPPED_AT_MOST: u32 = 512;
/// How long until a dead letter is tried again that there was no room for.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);

/// What people are told of a connection.
#[derive(Debug, Clone, Default)]
pub struct Link {
    pub error: Option<String>,
    pub failures: u32,
    pub next_dial: Option<Time>,
    pub last_frame: Option<Time>,
    /// How old the newest event was when it came.
    pub lag: Option<Duration>,
    pub frames: u64,
}

pub struct Follower {
    pub shared: Arc<Shared>,
    pub desks: Arc<Desks>,
    pub net: Net,
    pub id: UpstreamId,
    pub url: String,
    pub trust: Trust,
    /// Only repositories that are tracked by name are wanted.
    pub tracked_only: bool,
    pub link: Arc<Mutex<Link>>,
}

/// Why a connection ended.
enum Ended {
    Lost(String),
    Fatal(StoreError),
}

impl Follower {
    pub async fn run(&self) {
        let mut failures = 0;
        while !self.shared.end.is_ending() {
            let began = Instant::now();
            let error = match self.connect().await {
                Ok(socket) => match self.read(socket).await {
                    Ended::Lost(error) => error,
                    Ended::Fatal(error) => {
                        self.shared.end.fail(error);
                        return;
                    }
                },
                Err(Ended::Lost(error)) => error,
                Err(Ended::Fatal(error)) => {
                    self.shared.end.fail(error);
                    return;
                }
            };
            let mut notices = Vec::new();
            self.shared
                .upstreams
                .look(self.id, &mut notices, |look| look.stream.lost(look.now));
            if self.shared.end.is_ending() {
                return;
            }
            if began.elapsed() >= GOOD_CONNECTION {
                failures = 0;
            }
            failures += 1;
            self.rest(failures, error).await;
        }
    }

    /// Waits before the next dial, and says so.
    async fn rest(&self, failures: u32, error: String) {
        let wait = backoff(failures, self.id);
        let next = self.shared.clock.time().after(wait);
        tracing::warn!(
            upstream = %self.url, %error, failures, wait_ms = wait.as_millis() as u64,
            "not connected; dialed again after the wait"
        );
        {
            let mut link = self.link();
            link.error = Some(error);
            link.failures = failures;
            link.next_dial = Some(next);
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.shared.end.ended() => {}
        }
    }

    fn link(&self) -> std::sync::MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Socket, Ended> {
        let durable = self
            .shared
            .store
            .view()
            .cursor(self.id)
            .map_err(Ended::Fatal)?;
        let mut notices = Vec::new();
        let ask = self
            .shared
            .upstreams
            .look(self.id, &mut notices, |look| look.stream.dial(durable));
        let Some((cursor, _)) = ask else {
            return Err(Ended::Lost("it is not followed any more".to_owned()));
        };
        let mut url = format!("{}/xrpc/com.atproto.sync.subscribeRepos", self.url);
        if let Some(cursor) = cursor {
            url.push_str(&format!("?cursor={cursor}"));
        }
        self.shared.metrics.dials.inc();
        let dialed = tokio::select! {
            dialed = self.net.dial(&url, self.trust) => dialed,
            () = self.shared.end.ended() => return Err(Ended::Lost("Gapless ends".to_owned())),
        };
        match dialed {
            Err(error) => {
                self.shared.metrics.dial_failures.inc();
                Err(Ended::Lost(error.to_string()))
            }
            Ok(socket) => {
                self.look(|look| look.stream.connected(look.now, look.row, look.notices))
                    .await?;
                let mut link = self.link();
                link.error = None;
                link.next_dial = None;
                tracing::info!(upstream = %self.url, ?cursor, "connected");
                Ok(socket)
            }
        }
    }

    /// Lets the ledger look at the connection, and makes the row durable before
    /// anything else happens, if that changed.
    async fn look<T>(
        &self,
        act: impl FnOnce(&mut super::upstreams::Look<'_>) -> T,
    ) -> Result<T, Ended> {
        let mut notices = Vec::new();
        let looked = self.shared.upstreams.look(self.id, &mut notices, act);
        self.report(&notices);
        let Some((told, row)) = looked else {
            return Err(Ended::Lost("it is not followed any more".to_owned()));
        };
        if let Some(row) = row {
            let kept = self.shared.upstreams.keep(self.id, row).await;
            kept.map_err(Ended::Fatal)?;
        }
        Ok(told)
    }

    fn report(&self, notices: &[Notice]) {
        for notice in notices {
            self.shared.metrics.notice(notice);
            if let Notice::Reset(why) = notice {
                tracing::warn!(
                    upstream = %self.url, why = reset_words(*why),
                    "a new epoch: its repositories are not complete until they are compared"
                );
            }
        }
    }

    async fn read(&self, mut socket: Socket) -> Ended {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut pinged) = (Instant::now(), Instant::now());
        let mut skipped = Skipped::default();
        loop {
            tokio::select! {
                () = self.shared.end.ended() => return Ended::Lost("Gapless ends".to_owned()),
                message = socket.next() => {
                    let batch = match self.gather(&mut socket, message) {
                        Ok(batch) => batch,
                        Err(error) => return Ended::Lost(error),
                    };
                    heard = Instant::now();
                    if let Err(ended) = self.take(batch, &mut skipped).await {
                        return ended;
                    }
                    // Waiting for room is not the host's silence.
                    heard = heard.max(Instant::now());
                }
                _ = looks.tick() => {
                    if let Err(ended) = self.pass_time(&mut skipped).await {
                        return ended;
                    }
                    if heard.elapsed() >= SILENT_TOO_LONG {
                        return Ended::Lost(format!(
                            "nothing has come for {} s, not even an answer to a ping",
                            heard.elapsed().as_secs()
                        ));
                    }
                    if pinged.elapsed() >= PING_EVERY {
                        pinged = Instant::now();
                        let ping = socket.send(Message::Ping(Bytes::new()));
                        match tokio::time::timeout(PING_EVERY, ping).await {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => return Ended::Lost(format!("cannot ping: {error}")),
                            Err(_) => return Ended::Lost("the host takes nothing any more".to_owned()),
                        }
                    }
                }
            }
        }
    }

    async fn pass_time(&self, skipped: &mut Skipped) -> Result<(), Ended> {
        let connected = self
            .look(|look| {
                look.stream.wait(look.now, look.row, look.notices);
                look.stream.is_connected()
            })
            .await?;
        self.settle(skipped);
        match connected {
            true => Ok(()),
            false => Err(Ended::Lost(
                "it repeats numbers; dialed again to see whether it counts anew".to_owned(),
            )),
        }
    }

    /// What has come by now, without waiting.
    fn gather(
        &self,
        socket: &mut Socket,
        first: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
    ) -> Result<Vec<Message>, String> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                None => return end_with(batch, "the host closed the connection"),
                Some(Err(error)) => return end_with(batch, &format!("{error}")),
                Some(Ok(message)) => {
                    bytes += message.len();
                    batch.push(message);
                }
            }
            if batch.len() >= BATCH || bytes >= BATCH_BYTES {
                break;
            }
            next = socket.next().now_or_never();
        }
        Ok(batch)
    }

    async fn take(&self, batch: Vec<Message>, skipped: &mut Skipped) -> Result<(), Ended> {
        let mut frames = Vec::with_capacity(batch.len());
        for message in batch {
            match message {
                Message::Binary(bytes) => frames.push(read_frame(bytes)),
                Message::Text(text) => frames.push(Frame {
                    bytes: Bytes::copy_from_slice(text.as_bytes()),
                    at: Instant::now(),
                    what: Kind::Unreadable {
                        seq: None,
                        error: "text where a frame should be".to_owned(),
                    },
                }),
                Message::Pong(_) => {
                    self.look(|look| look.stream.pong(look.now)).await?;
                }
                Message::Ping(_) | Message::Frame(_) => {}
                Message::Close(close) => {
                    let why = close.map_or(String::new(), |close| format!(": {}", close.reason));
                    self.hand_on(frames, skipped).await?;
                    return Err(Ended::Lost(format!("the host closed the connection{why}")));
                }
            }
        }
        self.hand_on(frames, skipped).await
    }

    /// The stream looks at every frame, in order; then they go to the desks.
    async fn hand_on(&self, frames: Vec<Frame>, skipped: &mut Skipped) -> Result<(), Ended> {
        if frames.is_empty() {
            return Ok(());
        }
        let mut closing = None;
        let mut events = Vec::with_capacity(frames.len());
        let metrics = &self.shared.metrics;
        metrics.frames.add(frames.len() as u64);
        let looked = self
            .look(|look| {
                for frame in frames {
                    metrics.frame_bytes.add(frame.bytes.len() as u64);
                    match &frame.what {
                        Kind::Event { seq, .. } | Kind::Nobody { seq, .. } => {
                            let event = tag(&frame.bytes);
                            let read =
                                look.stream
                                    .frame(look.now, look.row, *seq, event, look.notices);
                            let seq = *seq;
                            events.push((frame, Some((seq, event)), read, look.row.numbering));
                        }
                        Kind::Unreadable { seq, .. } => {
                            let event = tag(&frame.bytes);
                            let read = seq.map(|seq| {
                                look.stream
                                    .frame(look.now, look.row, seq, event, look.notices)
                            });
                            let repeat = read.is_some_and(|read| read.repeat);
                            if !repeat {
                                look.stream.unreadable(look.now, look.row);
                            }
                            let read = read.unwrap_or(NOT_COUNTED);
                            let at = seq.map(|seq| (seq, event));
                            events.push((frame, at, read, look.row.numbering));
                        }
                        Kind::Outdated => look.stream.outdated(look.now, look.row, look.notices),
                        Kind::FutureCursor => {
                            look.stream.future(look.now, look.row, look.notices);
                            closing =
                                Some("the host knows no number as high as our cursor".to_owned());
                        }
                        Kind::Closing { error } => closing = Some(error.clone()),
                        Kind::Ignored => {}
                    }
                }
                look.now.tick
            })
            .await?;
        self.note_link(&events);
        self.to_the_desks(events, looked, skipped).await?;
        match closing {
            None => Ok(()),
            Some(why) => Err(Ended::Lost(why)),
        }
    }

    fn note_link(&self, events: &[Looked]) {
        let now = self.shared.clock.time();
        let mut link = self.link();
        link.frames += events.len() as u64;
        link.failures = 0;
        if !events.is_empty() {
            link.last_frame = Some(now);
        }
        let newest = events
            .iter()
            .rev()
            .find_map(|(frame, ..)| match &frame.what {
                Kind::Event { rev: Some(rev), .. } => Some(*rev),
                _ => None,
            });
        if let Some(rev) = newest {
            link.lag = Some(now.since(Time(rev.micros())));
        }
    }

    async fn to_the_desks(
        &self,
        events: Vec<Looked>,
        tick: Tick,
        skipped: &mut Skipped,
    ) -> Result<(), Ended> {
        let mut arrived = Vec::with_capacity(events.len());
        for (frame, at, read, numbering) in events {
            if read.repeat {
                continue;
            }
            let position = at.filter(|_| read.counts).map(|(seq, event)| Position {
                upstream: self.id,
                numbering,
                seq,
                event,
            });
            match frame.what {
                Kind::Event { seq, did, .. } => {
                    if self.tracked_only && !self.shared.is_tracked(&did) {
                        self.shared.metrics.events_skipped.inc();
                        skipped.add(did, position);
                        if skipped.count >= SKIPPED_AT_MOST {
                            self.settle(skipped);
                        }
                        continue;
                    }
                    if let Some(position) = &position {
                        self.begin(position);
                    }
                    arrived.push(Arrived {
                        did,
                        bytes: frame.bytes,
                        origin: Origin {
                            upstream: self.id,
                            epoch: read.epoch,
                        },
                        seq,
                        position,
                        read: tick,
                        at: frame.at,
                        refused: 0,
                        room: None,
                    });
                }
                Kind::Nobody { error, .. } | Kind::Unreadable { error, .. } => {
                    if let Some(position) = &position {
                        self.begin(position);
                    }
                    let seq = at.map(|(seq, _)| seq);
                    self.bury(&frame.bytes, seq, error, position).await?;
                }
                _ => {}
            }
        }
        self.desks.arrive(arrived).await;
        Ok(())
    }

    fn begin(&self, position: &Position) {
        let Position {
            upstream,
            numbering,
            seq,
            ..
        } = *position;
        self.shared.store.begin(upstream, numbering, seq);
    }

    /// What was passed over is done: the cursor may move past it.
    fn settle(&self, skipped: &mut Skipped) {
        if let Some((did, position)) = skipped.last.take() {
            self.begin(&position);
            self.desks.skip(&did, position);
        }
        skipped.count = 0;
    }

    /// A frame that nobody can use is kept, whole or its beginning, and done.
    async fn bury(
        &self,
        bytes: &Bytes,
        seq: Option<u64>,
        error: String,
        done: Option<Position>,
    ) -> Result<(), Ended> {
        let now = self.shared.clock.now();
        let keep = self.shared.take_dead_letter();
        if !keep && done.is_none() {
            return Ok(());
        }
        let letter = DeadLetter {
            class: DeadClass::Unreadable,
            source: seq.map(|seq| Source {
                upstream: self.id,
                seq,
            }),
            repo: None,
            error,
            payload: bytes[..bytes.len().min(DEAD_PAYLOAD_BYTES)].to_vec(),
            attempts: 0,
            first_seen: now.time,
            resolution: Resolution::Open,
        };
        let change = Change {
            tick: now.tick,
            dead: keep.then_some(DeadChange::New(letter)),
            done,
            ..Change::default()
        };
        loop {
            match write(&self.shared.store, change.clone()).await {
                Ok(_) => return Ok(()),
                // The stream waits with it: nothing that came is passed over.
                Err(StoreError::Full(error)) => {
                    tracing::warn!(upstream = %self.url, %error, "a dead letter waits for room");
                    tokio::time::sleep(NO_ROOM_PAUSE).await;
                }
                Err(error) => return Err(Ended::Fatal(error)),
            }
        }
    }
}

type Looked = (Frame, Option<(u64, [u8; 16])>, Read, u32);

const NOT_COUNTED: Read = Read {
    epoch: None,
    repeat: false,
    counts: false,
};

/// Events that concern nobody here, since the cursor last moved past some.
#[derive(Default)]
struct Skipped {
    count: u32,
    last: Option<(Did, Position)>,
}

impl Skipped {
    fn add(&mut self, did: Did, position: Option<Position>) {
        self.count += 1;
        if let Some(position) = position {
            self.last = Some((did, position));
        }
    }
}

fn end_with(batch: Vec<Message>, error: &str) -> Result<Vec<Message>, String> {
    // What came before the end is taken first; the end shows again at the next look.
    match batch.is_empty() {
        true => Err(error.to_owned()),
        false => Ok(batch),
    }
}

/// Doubling waits, spread between half and the whole, so that many mirrors do not
/// come back together.
fn backoff(failures: u32, id: UpstreamId) -> Duration {
    let doubled = REDIAL_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10));
    let whole = doubled.min(REDIAL_LONGEST);
    let seed = (u64::from(id.0) << 32 | u64::from(failures)) ^ std::process::id() as u64;
    let share = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    whole / 2 + whole.mul_f64(share as f64 / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_are_spread_and_have_an_end() {
        for id in [1, 2, 77] {
            let waits: Vec<Duration> = (1..40).map(|one| backoff(one, UpstreamId(id))).collect();
            assert!(waits[0] >= REDIAL_FIRST / 2 && waits[0] <= REDIAL_FIRST);
            assert!(waits.iter().all(|wait| *wait <= REDIAL_LONGEST));
            assert!(waits[38] >= REDIAL_LONGEST / 2);
        }
    }
}
