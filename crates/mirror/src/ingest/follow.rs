//! Follows one upstream: dials, reads, dispatches, and dials again when the connection ends.
//!
//! The reader waits only while a desk has no room for an event; it never waits for the
//! directory or for a fetch. After a failed dial the wait grows, is spread at random, and is
//! at least the host's `Retry-After`. A silent host is pinged, and the connection is closed
//! if no answer comes. A relay or a Jetstream that answers pings but sends no event
//! for long is dialed again, because its network always has events; a PDS may be quiet for days.

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
use crate::ingest::redial::{DialFailures, Ending, is_too_quiet, redial_wait};
use crate::ingest::skip::SkippedEvents;
use crate::metrics::reset_words;
use crate::services::Services;
use crate::upstreams::connection::ConnectionState;
use crate::upstreams::sources::SourceTally;
use crate::upstreams::{UpstreamTurn, Wire};
use gapless_net::{Message, Net, ProtocolError, Socket, SocketError, Trust};
use gapless_store::sync::Mutex;

/// Messages that are dispatched as one batch.
const BATCH: usize = 256;
/// Bytes of the messages of a batch, beyond which no further message is added.
const BATCH_BYTES: usize = 1 << 20;
/// How often the deadlines of a connection are checked.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// How often the deadlines are checked if discovery added the upstream: there may be thousands of
/// such connections.
const CHECK_DISCOVERED_EVERY: Duration = Duration::from_secs(1);
/// How often a host is pinged.
const PING_EVERY: Duration = Duration::from_secs(15);
/// A connection over which nothing has come for this long, not even a pong, is closed.
const SILENT_TOO_LONG: Duration = Duration::from_secs(40);
/// The most collections that a Jetstream can be asked for. If more are wanted, all are sent.
const WANTED_COLLECTIONS: usize = 100;
/// The number of connections that a message at one place in the stream may end because it cannot be
/// read. Then the place is skipped.
const MAX_BROKEN: u32 = 3;

/// The reader of one upstream.
pub(crate) struct Follower {
    pub services: Arc<Services>,
    pub desks: Arc<Desks>,
    pub net: Net,
    pub id: UpstreamId,
    pub kind: ledger::UpstreamKind,
    pub url: String,
    pub trust: Trust,
    /// Whether only events of tracked repositories are wanted.
    pub tracked_only: bool,
    /// Whether discovery added this upstream: there may be thousands, so deadlines are checked
    /// less often, and dials are retried more slowly.
    pub patient: bool,
    pub connection: Arc<Mutex<ConnectionState>>,
    pub tally: Arc<SourceTally>,
}

/// Why a connection ended, or could not be opened.
pub(crate) enum ConnectionEnd {
    Lost(String),
    /// The host has restarted its sequence numbers.
    Renumbered(String),
    /// A message cannot be read.
    Broken(String),
    /// The host refused the connection, and may have named a time to wait.
    Refused(String, Option<Duration>),
    Fatal(StoreError),
}

impl ConnectionEnd {
    pub(crate) fn not_followed() -> ConnectionEnd {
        ConnectionEnd::Lost("the upstream is no longer followed".to_owned())
    }
}

impl Follower {
    pub(crate) async fn run(&self) {
        let mut tries = DialFailures::default();
        let mut broken = BrokenPlace::default();
        // The next connection may begin with the event that this one skipped.
        let mut skipped = SkippedEvents::default();
        while !self.services.shutdown.has_begun() {
            let (began, before) = (Instant::now(), self.last_read());
            let mut ended = match self.connect().await {
                Ok(socket) => self.read(socket, &mut skipped).await,
                Err(ended) => ended,
            };
            if let ConnectionEnd::Broken(error) = ended {
                ended = match self.record_broken(&mut broken).await {
                    Ok(()) => ConnectionEnd::Lost(error),
                    Err(ended) => ended,
                };
            }
            let renumbered = matches!(ended, ConnectionEnd::Renumbered(_));
            let (error, after) = match ended {
                ConnectionEnd::Lost(error)
                | ConnectionEnd::Broken(error)
                | ConnectionEnd::Renumbered(error) => (error, None),
                ConnectionEnd::Refused(error, after) => (error, after),
                ConnectionEnd::Fatal(error) => {
                    self.services.shutdown.fail(error);
                    return;
                }
            };
            let mut notices = Vec::new();
            self.tally.lost();
            self.services
                .upstreams
                .update(self.id, &mut notices, |turn| {
                    turn.stream.connection_lost(turn.now)
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
                Some(failures) => self.wait_to_redial(failures, error, after).await,
                None => tracing::info!(
                    upstream = %self.url, %error,
                    "the upstream restarted its numbers; Gapless dials again at once"
                ),
            }
        }
    }

    /// The number of the last event that was read.
    fn last_read(&self) -> Option<u64> {
        let covers = self.services.upstreams.read();
        let read = covers.get(self.id)?.stream.read()?;
        Some(read.seq)
    }

    /// Records that a message that cannot be read ended the connection. The message may have
    /// been an event of any repository. After [`MAX_BROKEN`] connections that ended at the same
    /// place, the place is skipped.
    async fn record_broken(&self, broken: &mut BrokenPlace) -> Result<(), ConnectionEnd> {
        self.update(|turn| {
            let place = turn.stream.read();
            broken.times = if broken.place == place {
                broken.times + 1
            } else {
                1
            };
            broken.place = place;
            turn.stream.unreadable_frame(turn.now, turn.row);
            if broken.times >= MAX_BROKEN {
                *broken = BrokenPlace::default();
                turn.stream.cursor_stuck(turn.now, turn.row, turn.notices);
            }
        })
        .await
    }

    /// Waits before the next dial, and logs the wait.
    async fn wait_to_redial(&self, failures: u32, error: String, after: Option<Duration>) {
        let wait = redial_wait(failures, self.id, after, self.patient);
        let now = self.services.clock.time();
        let next = now.after(wait);
        let wait_ms = wait.as_millis() as u64;
        if self.patient {
            // Among thousands of hosts, some are always unreachable; `gapless hosts` lists them.
            tracing::debug!(
                upstream = %self.url, %error, failures, wait_ms,
                "not connected; Gapless dials again after the wait"
            )
        } else {
            tracing::warn!(
                upstream = %self.url, %error, failures, wait_ms,
                "not connected; Gapless dials again after the wait"
            )
        }
        {
            let mut connection = self.connection();
            connection.error = Some(error);
            connection.failures = failures;
            connection.next_dial = Some(next);
            connection.down_since.get_or_insert(now);
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.services.shutdown.begun() => {}
        }
    }

    pub(crate) fn connection(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.connection.lock()
    }

    pub(crate) fn wire(&self) -> Wire {
        match self.kind {
            ledger::UpstreamKind::Pds | ledger::UpstreamKind::Relay => Wire::Frames,
            ledger::UpstreamKind::Jetstream => Wire::Jetstream,
        }
    }

    /// The URL to dial for the events after this cursor.
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

    async fn connect(&self) -> Result<Socket, ConnectionEnd> {
        let durable = self
            .services
            .store
            .view()
            .cursor(self.id)
            .map_err(ConnectionEnd::Fatal)?;
        let mut notices = Vec::new();
        let ask = self
            .services
            .upstreams
            .update(self.id, &mut notices, |turn| {
                // The events of the last connection are all at their desks.
                turn.stream.set_durable(durable);
                match self.wire() {
                    Wire::Frames => turn.stream.dial(durable),
                    Wire::Jetstream => turn.stream.dial_timed(durable),
                }
            });
        let Some((cursor, _)) = ask else {
            return Err(ConnectionEnd::not_followed());
        };
        let url = self.address(cursor);
        self.services.metrics.dials.inc();
        let dialed = tokio::select! {
            dialed = self.net.dial(&url, self.trust) => dialed,
            () = self.services.shutdown.begun() => return Err(ConnectionEnd::Lost("Gapless ends".to_owned())),
        };
        match dialed {
            Err(error) => {
                self.services.metrics.dial_failures.inc();
                Err(ConnectionEnd::Refused(error.to_string(), error.retry_after))
            }
            Ok(socket) => {
                let host = self
                    .update(|turn| {
                        turn.stream.connected(turn.now, turn.row, turn.notices);
                        turn.row.host
                    })
                    .await?;
                self.note_reached(host).await?;
                self.tally.connected();
                let mut connection = self.connection();
                connection.error = None;
                connection.next_dial = None;
                connection.down_since = None;
                tracing::info!(upstream = %self.url, cursor, "connected");
                Ok(socket)
            }
        }
    }

    /// Records that the host has answered. On a full disk the next connection records it.
    async fn note_reached(&self, host: Option<HostId>) -> Result<(), ConnectionEnd> {
        let Some(host) = host else {
            return Ok(());
        };
        let tick = self.services.clock.last_tick_now().tick;
        match self.services.hosts.reached(tick, host).await {
            Err(error) if error.is_final() => Err(ConnectionEnd::Fatal(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Lets `act` change the stream and the row of the upstream. A changed row is durable before
    /// this function returns.
    pub(crate) async fn update<T>(
        &self,
        act: impl FnOnce(&mut UpstreamTurn<'_>) -> T,
    ) -> Result<T, ConnectionEnd> {
        let mut notices = Vec::new();
        let updated = self.services.upstreams.update(self.id, &mut notices, act);
        self.report_notices(&notices);
        let Some((result, row)) = updated else {
            return Err(ConnectionEnd::not_followed());
        };
        if let Some(row) = row {
            self.keep_row(row).await?;
        }
        Ok(result)
    }

    /// Makes a changed row of the upstream durable. Nothing that was read after the change is used
    /// before this function returns.
    pub(crate) async fn keep_row(&self, row: Upstream) -> Result<(), ConnectionEnd> {
        failpoints::here("upstream.decided");
        let kept = self.services.upstreams.keep(self.id, row).await;
        kept.map_err(ConnectionEnd::Fatal)?;
        failpoints::here("upstream.durable");
        Ok(())
    }

    pub(crate) fn report_notices(&self, notices: &[Notice]) {
        for notice in notices {
            self.services.metrics.notice(notice);
            if let Notice::Reset(why) = notice {
                tracing::warn!(
                    upstream = %self.url, why = reset_words(*why),
                    "a new epoch begins; Gapless compares the repositories of the upstream with their hosts"
                );
            }
        }
    }

    /// Reads messages until the connection ends.
    async fn read(&self, mut socket: Socket, skipped: &mut SkippedEvents) -> ConnectionEnd {
        let mut checks = interval(if self.patient {
            CHECK_DISCOVERED_EVERY
        } else {
            CHECK_EVERY
        });
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut pinged) = (Instant::now(), Instant::now());
        let mut event = Instant::now();
        loop {
            tokio::select! {
                () = self.services.shutdown.begun() => return ConnectionEnd::Lost("Gapless ends".to_owned()),
                message = socket.next() => {
                    let (batch, end) = read_batch(&mut socket, message);
                    heard = Instant::now();
                    if batch.iter().any(|one| one.is_binary() || one.is_text()) {
                        event = heard;
                    }
                    if let Err(ended) = self.accept(batch, skipped).await {
                        return ended;
                    }
                    if let Some(ended) = end {
                        return ended;
                    }
                    // Time spent on waiting for a desk is not silence of the host.
                    heard = heard.max(Instant::now());
                }
                _ = checks.tick() => {
                    if let Err(ended) = self.check_deadlines(skipped).await {
                        return ended;
                    }
                    if heard.elapsed() >= SILENT_TOO_LONG {
                        return ConnectionEnd::Lost(format!(
                            "the upstream sent nothing for {} s, not even an answer to a ping",
                            heard.elapsed().as_secs()
                        ));
                    }
                    if is_too_quiet(self.kind, event.elapsed()) {
                        return ConnectionEnd::Lost(format!(
                            "the upstream answers pings, but sent no event for {} s; a working relay or Jetstream always has events",
                            event.elapsed().as_secs()
                        ));
                    }
                    if pinged.elapsed() >= PING_EVERY {
                        pinged = Instant::now();
                        let ping = socket.send(Message::Ping(Bytes::new()));
                        match tokio::time::timeout(PING_EVERY, ping).await {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => return ConnectionEnd::Lost(format!("cannot send a ping: {error}")),
                            Err(_) => return ConnectionEnd::Lost("the upstream stopped reading, so a ping could not be sent".to_owned()),
                        }
                    }
                }
            }
        }
    }

    /// Checks the deadlines of the connection.
    async fn check_deadlines(&self, skipped: &mut SkippedEvents) -> Result<(), ConnectionEnd> {
        let durable = self.services.store.view().cursor(self.id);
        let durable = durable.map_err(ConnectionEnd::Fatal)?;
        let connected = self
            .update(|turn| {
                turn.stream.set_durable(durable);
                turn.stream
                    .check_deadlines(turn.now, turn.row, turn.notices);
                turn.stream.is_connected()
            })
            .await?;
        self.services.upstreams.sources.expire_due();
        self.flush_skipped(skipped);
        if connected {
            Ok(())
        } else {
            Err(ConnectionEnd::Lost(
                "the upstream repeats sequence numbers, or the clock was set back; the next connection shows the upstream's position"
                    .to_owned(),
            ))
        }
    }

    /// Reads the messages of a batch and dispatches them.
    async fn accept(
        &self,
        batch: Vec<Message>,
        skipped: &mut SkippedEvents,
    ) -> Result<(), ConnectionEnd> {
        let scope = &self.services.admission.scope;
        let mut frames = Vec::with_capacity(batch.len());
        for message in batch {
            match message {
                Message::Binary(bytes) => frames.push(match self.wire() {
                    Wire::Frames => InboundMessage::frame(bytes, scope),
                    Wire::Jetstream => {
                        InboundMessage::unreadable(bytes, "a binary message where text is expected")
                    }
                }),
                Message::Text(text) => frames.push(match self.wire() {
                    Wire::Frames => InboundMessage::unreadable(
                        text.into(),
                        "a text message where a frame is expected",
                    ),
                    Wire::Jetstream => InboundMessage::jetstream(text.into(), scope),
                }),
                Message::Pong(_) => {
                    self.update(|turn| turn.stream.pong(turn.now)).await?;
                }
                Message::Ping(_) | Message::Frame(_) => {}
                Message::Close(close) => {
                    let why = close.map_or(String::new(), |close| format!(": {}", close.reason));
                    self.dispatch(frames, skipped).await?;
                    return Err(ConnectionEnd::Lost(format!(
                        "the host closed the connection{why}"
                    )));
                }
            }
        }
        self.dispatch(frames, skipped).await
    }
}

/// Returns the messages that have arrived, without waiting, and the end of the connection if it has
/// arrived as well.
fn read_batch(
    socket: &mut Socket,
    first: Option<Result<Message, SocketError>>,
) -> (Vec<Message>, Option<ConnectionEnd>) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            None => {
                let why = "the host closed the connection".to_owned();
                return (batch, Some(ConnectionEnd::Lost(why)));
            }
            Some(Err(error)) => return (batch, Some(end_of(error))),
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

/// Distinguishes an interrupted connection from a message that breaks the rules of the protocol.
/// The next connection would bring such a message again.
fn end_of(error: SocketError) -> ConnectionEnd {
    let breaks_off = matches!(
        error,
        SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake)
    );
    match &error {
        SocketError::Capacity(_) | SocketError::Protocol(_) | SocketError::Utf8(_)
            if !breaks_off =>
        {
            ConnectionEnd::Broken(format!("cannot read a message of the upstream: {error}"))
        }
        _ => ConnectionEnd::Lost(error.to_string()),
    }
}

/// The place at which messages that cannot be read ended connections, and how often.
#[derive(Default)]
struct BrokenPlace {
    place: Option<Cursor>,
    times: u32,
}
