//! One upstream, followed for ever: dial, read, hand on, dial again.
//!
//! The reader waits for room at the desks and for nothing else: neither for the
//! directory nor for a fetch. A host that answers with errors is dialed again
//! after a while that grows and is spread, and not before it wants to be; a host
//! that says nothing is pinged, and given up when it does not answer. A relay that
//! answers pings and sends no event for long is dialed again: behind it is a
//! network that never sleeps. A PDS may be quiet for days.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, StreamExt};
use gapless_core::ledger::{self, Cursor, HostId, Notice, Upstream, UpstreamId};
use gapless_store::error::StoreError;
use tokio::time::{MissedTickBehavior, interval};

use crate::desk::Desks;
use crate::failpoints;
use crate::ingest::dispatch::InboundMessage;
use crate::ingest::redial::{Ending, Tries, is_too_quiet, redial_wait};
use crate::ingest::skip::Skipped;
use crate::metrics::reset_words;
use crate::services::Services;
use crate::sync::Mutex;
use crate::upstreams::Wire;
use crate::upstreams::connection::Link;
use crate::upstreams::sources::SourceTally;
use gapless_net::{Message, Net, ProtocolError, Socket, SocketError, Trust};

/// Messages that are handed on at once.
const BATCH: usize = 256;
/// Bytes of them.
const BATCH_BYTES: usize = 1 << 20;
/// How often a connection checks its timers.
const TICK_EVERY: Duration = Duration::from_millis(250);
/// How often a connection checks its timers while thousands of hosts are followed.
const TICK_EVERY_OF_MANY: Duration = Duration::from_secs(1);
/// How often a host is pinged.
const PING_EVERY: Duration = Duration::from_secs(15);
/// A connection on which nothing arrives for this long, not even a pong, is closed.
const SILENT_TOO_LONG: Duration = Duration::from_secs(40);
/// Collections that a Jetstream can be asked for; where more are wanted it sends all.
const WANTED_COLLECTIONS: usize = 100;
/// Connections that may end at one place by something that cannot be read.
const BROKEN_AT_MOST: u32 = 3;

pub struct Follower {
    pub services: Arc<Services>,
    pub desks: Arc<Desks>,
    pub net: Net,
    pub id: UpstreamId,
    pub kind: ledger::UpstreamKind,
    pub url: String,
    pub trust: Trust,
    /// Only repositories that are tracked by name are wanted.
    pub tracked_only: bool,
    /// One of thousands: looked at less often, and dialed again more slowly.
    pub patient: bool,
    pub link: Arc<Mutex<Link>>,
    pub tally: Arc<SourceTally>,
}

/// Why a connection ended.
pub(crate) enum Ended {
    Lost(String),
    /// The host has begun its numbers anew, and says no more.
    Renumbered(String),
    /// By something that cannot be read.
    Broken(String),
    /// The host did not take the connection, and may have said for how long.
    Refused(String, Option<Duration>),
    Fatal(StoreError),
}

impl Ended {
    pub(crate) fn not_followed() -> Ended {
        Ended::Lost("it is not followed any more".to_owned())
    }
}

impl Follower {
    pub async fn run(&self) {
        let mut tries = Tries::default();
        let mut broken = Broken::default();
        // The next connection may begin with the very event that was passed over.
        let mut skipped = Skipped::default();
        while !self.services.shutdown.has_begun() {
            let (began, before) = (Instant::now(), self.last_read());
            let mut ended = match self.connect().await {
                Ok(socket) => self.read(socket, &mut skipped).await,
                Err(ended) => ended,
            };
            if let Ended::Broken(error) = ended {
                ended = match self.unreadable(&mut broken).await {
                    Ok(()) => Ended::Lost(error),
                    Err(ended) => ended,
                };
            }
            let renumbered = matches!(ended, Ended::Renumbered(_));
            let (error, after) = match ended {
                Ended::Lost(error) | Ended::Broken(error) | Ended::Renumbered(error) => {
                    (error, None)
                }
                Ended::Refused(error, after) => (error, after),
                Ended::Fatal(error) => {
                    self.services.shutdown.fail(error);
                    return;
                }
            };
            let mut notices = Vec::new();
            self.tally.lost();
            self.services.upstreams.look(self.id, &mut notices, |look| {
                look.stream.connection_lost(look.now)
            });
            if self.services.shutdown.has_begun() {
                return;
            }
            let ending = Ending {
                held: began.elapsed(),
                told_news: self.last_read() > before,
                renumbered,
            };
            match tries.ended(ending) {
                Some(failures) => self.rest(failures, error, after).await,
                None => tracing::info!(upstream = %self.url, %error, "dialed again at once"),
            }
        }
    }

    /// The number of the last event that was read.
    fn last_read(&self) -> Option<u64> {
        let covers = self.services.upstreams.read();
        let read = covers.get(self.id)?.stream.read()?;
        Some(read.seq)
    }

    /// The connection ended by a message that cannot be read, too large perhaps: it
    /// may have been anybody's event. Where the same place ends one connection after
    /// the other, it is passed over.
    async fn unreadable(&self, broken: &mut Broken) -> Result<(), Ended> {
        self.look(|look| {
            let place = look.stream.read();
            broken.times = if broken.place == place {
                broken.times + 1
            } else {
                1
            };
            broken.place = place;
            look.stream.unreadable_frame(look.now, look.row);
            if broken.times >= BROKEN_AT_MOST {
                *broken = Broken::default();
                look.stream.cursor_stuck(look.now, look.row, look.notices);
            }
        })
        .await
    }

    /// Waits before the next dial, and says so.
    async fn rest(&self, failures: u32, error: String, after: Option<Duration>) {
        let wait = redial_wait(failures, self.id, after, self.patient);
        let now = self.services.clock.time();
        let next = now.after(wait);
        let wait_ms = wait.as_millis() as u64;
        match self.patient {
            // Of thousands some are always gone; `gapless hosts` lists them.
            true => tracing::debug!(
                upstream = %self.url, %error, failures, wait_ms,
                "not connected; dialed again after the wait"
            ),
            false => tracing::warn!(
                upstream = %self.url, %error, failures, wait_ms,
                "not connected; dialed again after the wait"
            ),
        }
        {
            let mut link = self.link();
            link.error = Some(error);
            link.failures = failures;
            link.next_dial = Some(next);
            link.down_since.get_or_insert(now);
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.services.shutdown.begun() => {}
        }
    }

    pub(crate) fn link(&self) -> std::sync::MutexGuard<'_, Link> {
        self.link.lock()
    }

    pub(crate) fn wire(&self) -> Wire {
        match self.kind {
            ledger::UpstreamKind::Pds | ledger::UpstreamKind::Relay => Wire::Frames,
            ledger::UpstreamKind::Jetstream => Wire::Jetstream,
        }
    }

    /// Where to dial, for what follows this place.
    fn address(&self, cursor: Option<u64>) -> String {
        let mut url = match self.wire() {
            Wire::Frames => format!("{}/xrpc/com.atproto.sync.subscribeRepos", self.url),
            Wire::Jetstream => format!("{}/subscribe", self.url),
        };
        let mut parameters: Vec<String> = cursor
            .map(|at| format!("cursor={at}"))
            .into_iter()
            .collect();
        let wanted = &self.services.rules.filter.wanted;
        if self.wire() == Wire::Jetstream && wanted.len() <= WANTED_COLLECTIONS {
            parameters.extend(wanted.iter().map(|one| format!("wantedCollections={one}")));
        }
        if !parameters.is_empty() {
            url.push('?');
            url.push_str(&parameters.join("&"));
        }
        url
    }

    async fn connect(&self) -> Result<Socket, Ended> {
        let durable = self
            .services
            .store
            .view()
            .cursor(self.id)
            .map_err(Ended::Fatal)?;
        let mut notices = Vec::new();
        let ask = self.services.upstreams.look(self.id, &mut notices, |look| {
            // What was on its way when the last connection ended has arrived.
            look.stream.set_durable(durable);
            match self.wire() {
                Wire::Frames => look.stream.dial(durable),
                Wire::Jetstream => look.stream.dial_timed(durable),
            }
        });
        let Some((cursor, _)) = ask else {
            return Err(Ended::not_followed());
        };
        let url = self.address(cursor);
        self.services.metrics.dials.inc();
        let dialed = tokio::select! {
            dialed = self.net.dial(&url, self.trust) => dialed,
            () = self.services.shutdown.begun() => return Err(Ended::Lost("Gapless ends".to_owned())),
        };
        match dialed {
            Err(error) => {
                self.services.metrics.dial_failures.inc();
                Err(Ended::Refused(error.to_string(), error.retry_after))
            }
            Ok(socket) => {
                let host = self
                    .look(|look| {
                        look.stream.connected(look.now, look.row, look.notices);
                        look.row.host
                    })
                    .await?;
                self.note_reached(host).await?;
                self.tally.connected();
                let mut link = self.link();
                link.error = None;
                link.next_dial = None;
                link.down_since = None;
                tracing::info!(upstream = %self.url, cursor, "connected");
                Ok(socket)
            }
        }
    }

    /// Its host has answered. Where there is no room to write that down, the next time
    /// serves as well.
    async fn note_reached(&self, host: Option<HostId>) -> Result<(), Ended> {
        let Some(host) = host else {
            return Ok(());
        };
        let tick = self.services.clock.glance().tick;
        match self.services.hosts.reached(tick, host).await {
            Err(error) if error.is_final() => Err(Ended::Fatal(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Lets the ledger look at the connection, and makes the row durable before
    /// anything else happens, if that changed.
    pub(crate) async fn look<T>(
        &self,
        act: impl FnOnce(&mut crate::upstreams::Look<'_>) -> T,
    ) -> Result<T, Ended> {
        let mut notices = Vec::new();
        let looked = self.services.upstreams.look(self.id, &mut notices, act);
        self.report(&notices);
        let Some((told, row)) = looked else {
            return Err(Ended::not_followed());
        };
        if let Some(row) = row {
            self.keep_row(row).await?;
        }
        Ok(told)
    }

    /// Makes a changed row of the upstream durable. Nothing that was read after the change
    /// is used before this returns.
    pub(crate) async fn keep_row(&self, row: Upstream) -> Result<(), Ended> {
        failpoints::here("upstream.decided");
        let kept = self.services.upstreams.keep(self.id, row).await;
        kept.map_err(Ended::Fatal)?;
        failpoints::here("upstream.durable");
        Ok(())
    }

    pub(crate) fn report(&self, notices: &[Notice]) {
        for notice in notices {
            self.services.metrics.notice(notice);
            if let Notice::Reset(why) = notice {
                tracing::warn!(
                    upstream = %self.url, why = reset_words(*why),
                    "a new epoch: its repositories are not complete until they are compared"
                );
            }
        }
    }

    async fn read(&self, mut socket: Socket, skipped: &mut Skipped) -> Ended {
        let mut looks = interval(match self.patient {
            true => TICK_EVERY_OF_MANY,
            false => TICK_EVERY,
        });
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut pinged) = (Instant::now(), Instant::now());
        let mut event = Instant::now();
        loop {
            tokio::select! {
                () = self.services.shutdown.begun() => return Ended::Lost("Gapless ends".to_owned()),
                message = socket.next() => {
                    let (batch, end) = gather(&mut socket, message);
                    heard = Instant::now();
                    if batch.iter().any(|one| one.is_binary() || one.is_text()) {
                        event = heard;
                    }
                    if let Err(ended) = self.take(batch, skipped).await {
                        return ended;
                    }
                    if let Some(ended) = end {
                        return ended;
                    }
                    // Waiting for room is not the host's silence.
                    heard = heard.max(Instant::now());
                }
                _ = looks.tick() => {
                    if let Err(ended) = self.pass_time(skipped).await {
                        return ended;
                    }
                    if heard.elapsed() >= SILENT_TOO_LONG {
                        return Ended::Lost(format!(
                            "nothing has come for {} s, not even an answer to a ping",
                            heard.elapsed().as_secs()
                        ));
                    }
                    if is_too_quiet(self.kind, event.elapsed()) {
                        return Ended::Lost(format!(
                            "it answers pings, and no event has come for {} s, as from no relay that works",
                            event.elapsed().as_secs()
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
        let durable = self.services.store.view().cursor(self.id);
        let durable = durable.map_err(Ended::Fatal)?;
        let connected = self
            .look(|look| {
                look.stream.set_durable(durable);
                look.stream
                    .check_deadlines(look.now, look.row, look.notices);
                look.stream.is_connected()
            })
            .await?;
        self.services.upstreams.sources.expire_due();
        self.flush_skipped(skipped);
        match connected {
            true => Ok(()),
            false => Err(Ended::Lost(
                "it repeats numbers, or the clock was set back; dialed again to see where it is"
                    .to_owned(),
            )),
        }
    }

    async fn take(&self, batch: Vec<Message>, skipped: &mut Skipped) -> Result<(), Ended> {
        let scope = &self.services.admission.scope;
        let mut frames = Vec::with_capacity(batch.len());
        for message in batch {
            match message {
                Message::Binary(bytes) => frames.push(match self.wire() {
                    Wire::Frames => InboundMessage::frame(bytes, scope),
                    Wire::Jetstream => {
                        InboundMessage::unreadable(bytes, "bytes where text should be")
                    }
                }),
                Message::Text(text) => frames.push(match self.wire() {
                    Wire::Frames => {
                        InboundMessage::unreadable(text.into(), "text where a frame should be")
                    }
                    Wire::Jetstream => InboundMessage::jetstream(text.into(), scope),
                }),
                Message::Pong(_) => {
                    self.look(|look| look.stream.pong(look.now)).await?;
                }
                Message::Ping(_) | Message::Frame(_) => {}
                Message::Close(close) => {
                    let why = close.map_or(String::new(), |close| format!(": {}", close.reason));
                    self.dispatch(frames, skipped).await?;
                    return Err(Ended::Lost(format!("the host closed the connection{why}")));
                }
            }
        }
        self.dispatch(frames, skipped).await
    }
}

/// What has come by now, without waiting; and the end, if that came too.
fn gather(
    socket: &mut Socket,
    first: Option<Result<Message, SocketError>>,
) -> (Vec<Message>, Option<Ended>) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            None => {
                let why = "the host closed the connection".to_owned();
                return (batch, Some(Ended::Lost(why)));
            }
            Some(Err(error)) => return (batch, Some(end_by(error))),
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
    (batch, None)
}

/// A connection that broke off tells nothing of what it carried; a message that
/// breaks the rules of the wire would come again.
fn end_by(error: SocketError) -> Ended {
    let breaks_off = matches!(
        error,
        SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake)
    );
    match &error {
        SocketError::Capacity(_) | SocketError::Protocol(_) | SocketError::Utf8(_)
            if !breaks_off =>
        {
            Ended::Broken(format!("what the host sends cannot be read: {error}"))
        }
        _ => Ended::Lost(error.to_string()),
    }
}

/// Where connections ended by something that cannot be read, and how often there.
#[derive(Default)]
struct Broken {
    place: Option<Cursor>,
    times: u32,
}
