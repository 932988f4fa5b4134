//! Dispatches messages from the socket to the desks: classifies each message of a batch, places it
//! in the stream, and sends it to its desk.
//!
//! Only the number and the DID of an event are read here; the desk decodes the rest. The
//! upstream's row is durable before an event that was read after its change is sent on.
//! Events of repositories that are not wanted move the cursor ([`super::skip`]), and
//! messages that cannot be read become dead letters ([`super::unreadable`]).

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gapless_atp::frame::{self, Action, FrameError, RawOp};
use gapless_atp::syntax::Did;
use gapless_core::ledger::Tick;
use gapless_core::ledger::event::Origin;
use gapless_store::cursor::EventPosition;
use xxhash_rust::xxh3::xxh3_128;

use crate::admission::scope::Scope;
use crate::desk::InboundEvent;
use crate::failpoints;
use crate::ingest::follow::{ConnectionEnd, Follower};
use crate::ingest::skip::SkippedEvents;
use crate::jetstream;
use crate::upstreams::{EventId, EventTag, PlacedFrame, PlacedFrames, StreamItem};

/// A message as it was read from the socket.
pub(crate) struct InboundMessage {
    bytes: Bytes,
    at: Instant,
    kind: MessageKind,
}

/// The kind of a message, as far as the stream needs it.
#[derive(Debug)]
enum MessageKind {
    Event {
        seq: u64,
        did: Did,
        /// The wanted collection that the event writes in.
        found: Option<Arc<str>>,
    },
    /// An event with an invalid DID.
    InvalidDid {
        seq: u64,
        error: String,
    },
    /// A message of which the DID or the number cannot be read.
    Unreadable {
        seq: Option<u64>,
        error: String,
    },
    OutdatedCursor,
    FutureCursor,
    /// An error frame: the host says why it closes.
    Closing {
        error: String,
    },
    /// A message of an unknown type, or of no interest.
    Ignored,
}

impl InboundMessage {
    /// Reads a frame of `subscribeRepos`.
    pub(crate) fn frame(bytes: Bytes, scope: &Scope) -> InboundMessage {
        let kind = classify_frame(&bytes, scope);
        InboundMessage::new(bytes, kind)
    }

    /// Reads a message of a Jetstream.
    pub(crate) fn jetstream(bytes: Bytes, scope: &Scope) -> InboundMessage {
        let kind = match jetstream::read_envelope(&bytes, scope) {
            Ok(envelope) => event_of(envelope.time_us, &envelope.did, envelope.found),
            Err(error) => MessageKind::Unreadable { seq: None, error },
        };
        InboundMessage::new(bytes, kind)
    }

    /// Creates a message that does not belong on this kind of stream.
    pub(crate) fn unreadable(bytes: Bytes, error: &str) -> InboundMessage {
        let error = error.to_owned();
        InboundMessage::new(bytes, MessageKind::Unreadable { seq: None, error })
    }

    fn new(bytes: Bytes, kind: MessageKind) -> InboundMessage {
        let at = Instant::now();
        InboundMessage { bytes, at, kind }
    }

    fn stream_item(&self) -> StreamItem {
        match self.kind {
            MessageKind::Event { seq, .. } | MessageKind::InvalidDid { seq, .. } => {
                StreamItem::Event {
                    seq,
                    tag: event_tag(&self.bytes),
                }
            }
            MessageKind::Unreadable { seq, .. } => StreamItem::Unreadable(EventId {
                seq,
                tag: event_tag(&self.bytes),
            }),
            MessageKind::OutdatedCursor => StreamItem::OutdatedCursor,
            MessageKind::FutureCursor => StreamItem::FutureCursor,
            MessageKind::Closing { .. } | MessageKind::Ignored => StreamItem::Other,
        }
    }
}

fn event_tag(bytes: &[u8]) -> EventTag {
    xxh3_128(bytes).to_be_bytes()
}

impl Follower {
    /// Places the messages in the stream, in their order, and sends the events to their desks. An
    /// error says how the connection ends.
    pub(crate) async fn dispatch(
        &self,
        messages: Vec<InboundMessage>,
        skipped: &mut SkippedEvents,
    ) -> Result<(), ConnectionEnd> {
        if messages.is_empty() {
            return Ok(());
        }
        let metrics = &self.services.metrics;
        metrics.frames.add(messages.len() as u64);
        for message in &messages {
            metrics.frame_bytes.add(message.bytes.len() as u64);
        }
        let end = end_of_stream(&messages);
        let items: Vec<StreamItem> = messages.iter().map(InboundMessage::stream_item).collect();
        let placed = self.place_messages(&items).await?;
        let places = items.into_iter().zip(placed.placements);
        let events: Vec<_> = messages
            .into_iter()
            .zip(places)
            .filter_map(|(message, (item, place))| Some((message, item.event()?, place)))
            .collect();
        self.count_frames(events.len());
        self.send_to_desks(events, placed.tick, skipped).await?;
        end.map_or(Ok(()), Err)
    }

    /// Gives the messages their places in the stream. If that changed the upstream's row,
    /// the row is durable before this returns.
    async fn place_messages(&self, items: &[StreamItem]) -> Result<PlacedFrames, ConnectionEnd> {
        let mut notices = Vec::new();
        let upstreams = &self.services.upstreams;
        let placed = upstreams.place_frames(self.id, self.wire(), items, &mut notices);
        self.report_notices(&notices);
        let Some(mut placed) = placed else {
            return Err(ConnectionEnd::not_followed());
        };
        if let Some(row) = placed.changed.take() {
            self.keep_row(row).await?;
        }
        Ok(placed)
    }

    fn count_frames(&self, events: usize) {
        let now = self.services.clock.time();
        let mut connection = self.connection();
        connection.frames += events as u64;
        connection.failures = 0;
        if events > 0 {
            connection.last_frame = Some(now);
        }
    }

    async fn send_to_desks(
        &self,
        events: Vec<(InboundMessage, EventId, PlacedFrame)>,
        tick: Tick,
        skipped: &mut SkippedEvents,
    ) -> Result<(), ConnectionEnd> {
        let mut inbound = Vec::with_capacity(events.len());
        let lag = self.connection().lag.clone();
        let several = self.services.upstreams.sources.has_several();
        for (message, event, placed) in events {
            if placed.placement.repeat {
                continue;
            }
            let position = self.position(event, &placed);
            match message.kind {
                MessageKind::Event { seq, did, found } => {
                    if self.tracked_only && !self.services.admission.is_tracked(&did) {
                        self.skip(did, found, position, skipped);
                        continue;
                    }
                    if let Some(position) = &position {
                        self.begin(position);
                    }
                    inbound.push(InboundEvent {
                        did,
                        bytes: message.bytes,
                        wire: self.wire(),
                        origin: Origin {
                            upstream: self.id,
                            epoch: placed.placement.epoch,
                        },
                        seq,
                        position,
                        read: tick,
                        at: message.at,
                        refused: 0,
                        applied: None,
                        lag: Some(lag.clone()),
                        tally: several.then(|| self.tally.clone()),
                        permit: None,
                    });
                }
                MessageKind::InvalidDid { error, .. } | MessageKind::Unreadable { error, .. } => {
                    if let Some(position) = &position {
                        self.begin(position);
                    }
                    self.keep_unreadable(&message.bytes, event.seq, error, position)
                        .await?;
                }
                MessageKind::OutdatedCursor
                | MessageKind::FutureCursor
                | MessageKind::Closing { .. }
                | MessageKind::Ignored => {}
            }
        }
        if !inbound.is_empty() {
            failpoints::here("frame.read");
        }
        self.desks.send(inbound).await;
        Ok(())
    }

    /// The place of an event in the stream, if it counts for the cursor.
    fn position(&self, event: EventId, placed: &PlacedFrame) -> Option<EventPosition> {
        let seq = event.seq.filter(|_| placed.placement.counts)?;
        Some(EventPosition {
            upstream: self.id,
            numbering: placed.numbering,
            seq,
            event: event.tag,
        })
    }
}

/// How the connection ends after these messages, if one of them ends it.
fn end_of_stream(messages: &[InboundMessage]) -> Option<ConnectionEnd> {
    let ends = messages.iter().filter_map(|message| match &message.kind {
        MessageKind::FutureCursor => Some(ConnectionEnd::Renumbered(
            "the host knows no number as high as our cursor".to_owned(),
        )),
        MessageKind::Closing { error } => Some(ConnectionEnd::Lost(error.clone())),
        _ => None,
    });
    ends.last()
}

/// Reads the envelope of a frame. A frame without an envelope is decoded. If collections find
/// repositories, every frame is decoded, because its operations name the collections.
fn classify_frame(bytes: &[u8], scope: &Scope) -> MessageKind {
    if !scope.is_narrow()
        && let Some(frame::Envelope { seq, did }) = frame::envelope(bytes)
    {
        let found = None;
        return MessageKind::Event { seq, did, found };
    }
    let mut found = None;
    let (seq, name) = match frame::decode(bytes) {
        Ok(frame::Event::Commit(event)) => {
            if scope.is_narrow() {
                found = wanted_collection(&event.ops, scope);
            }
            (event.seq, event.repo)
        }
        Ok(frame::Event::Sync(event)) => (event.seq, event.did),
        Ok(frame::Event::Identity(event)) => (event.seq, event.did),
        Ok(frame::Event::Account(event)) => (event.seq, event.did),
        Ok(frame::Event::Info(event)) => {
            return match event.name {
                "OutdatedCursor" => MessageKind::OutdatedCursor,
                _ => MessageKind::Ignored,
            };
        }
        Ok(frame::Event::Error { error, message }) => {
            return match error {
                "FutureCursor" => MessageKind::FutureCursor,
                other => MessageKind::Closing {
                    error: format!("the host says {other}: {}", message.unwrap_or("")),
                },
            };
        }
        Ok(frame::Event::Unknown { .. }) => return MessageKind::Ignored,
        Err(error) => return broken_frame(&error),
    };
    event_of(seq, name, found)
}

/// The first wanted collection that an operation creates or updates a record in.
fn wanted_collection(ops: &[RawOp<'_>], scope: &Scope) -> Option<Arc<str>> {
    let mut written = ops.iter().filter(|op| op.action != Action::Delete);
    let pattern = written.find_map(|op| scope.finds(op.path))?;
    Some(pattern.to_string().into())
}

fn event_of(seq: u64, name: &str, found: Option<Arc<str>>) -> MessageKind {
    match Did::parse(name) {
        Ok(did) => MessageKind::Event { seq, did, found },
        Err(error) => MessageKind::InvalidDid {
            seq,
            error: error.to_string(),
        },
    }
}

/// Classifies a frame that does not decode. If its number and a DID can be read, the frame is an
/// event, and only that repository is in doubt. Otherwise every repository of the stream is in
/// doubt.
fn broken_frame(error: &FrameError) -> MessageKind {
    let (seq, name) = match error {
        FrameError::Payload { seq, repo, .. } => (*seq, repo.as_deref()),
        _ => (None, None),
    };
    if let (Some(seq), Some(Ok(did))) = (seq, name.map(Did::parse)) {
        let found = None;
        return MessageKind::Event { seq, did, found };
    }
    MessageKind::Unreadable {
        seq,
        error: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gapless_core::filter::Pattern;

    #[test]
    fn nonsense_is_unreadable_and_never_panics() {
        assert!(matches!(
            classify_frame(b"\xff\xff", &Scope::default()),
            MessageKind::Unreadable { seq: None, .. }
        ));
        let nothing = classify_frame(b"", &Scope::default());
        assert!(matches!(nothing, MessageKind::Unreadable { seq: None, .. }));
        assert!(matches!(
            event_of(3, "did:key:z6Mk", None),
            MessageKind::InvalidDid { seq: 3, .. }
        ));
    }

    #[test]
    fn a_write_in_a_wanted_collection_is_found_and_a_deletion_is_not() {
        let scope = Scope {
            collections: Pattern::parse("com.example.*").into_iter().collect(),
            ..Scope::default()
        };
        let op = |action, path| RawOp {
            action,
            path,
            cid: None,
            prev: None,
        };
        let thing = "com.example.thing/1";
        let other = op(Action::Create, "app.bsky.feed.post/1");
        for (action, found) in [
            (Action::Create, Some("com.example.*")),
            (Action::Update, Some("com.example.*")),
            (Action::Delete, None),
        ] {
            let ops = [other.clone(), op(action, thing)];
            assert_eq!(
                wanted_collection(&ops, &scope).as_deref(),
                found,
                "{action:?}"
            );
        }
        assert_eq!(wanted_collection(&[other], &scope), None);
    }
}
