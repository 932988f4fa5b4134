//! What was read goes to the desks: counted by its stream, in its order. What nobody
//! here wants moves the cursor, and what nobody can read is kept for a person.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gapless_atp::syntax::Did;
use gapless_core::ledger::Tick;
use gapless_core::ledger::event::Origin;
use gapless_core::ledger::stream::Placement;
use gapless_store::change::{Change, DeadChange};
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;
use gapless_store::table::dead::{DeadClass, DeadLetter, Resolution};
use gapless_store::table::log::SourceEvent;

use crate::admission::candidates::{Candidate, Offered};
use crate::desk::{Arrived, DEAD_PAYLOAD_BYTES, Wire};
use crate::failpoints;
use crate::ingest::follow::{Ended, Follower};
use crate::ingest::read::{Frame, Kind, tag};
use crate::store_io::write;
use crate::upstreams::Look;

/// Events of others that are passed over before the cursor moves past them.
const SKIPPED_AT_MOST: u32 = 512;

impl Follower {
    /// The stream looks at every frame, in order; then they go to the desks.
    pub(crate) async fn hand_on(
        &self,
        frames: Vec<Frame>,
        skipped: &mut Skipped,
    ) -> Result<(), Ended> {
        if frames.is_empty() {
            return Ok(());
        }
        let mut closing = None;
        let mut events = Vec::with_capacity(frames.len());
        let metrics = &self.services.metrics;
        metrics.frames.add(frames.len() as u64);
        let looked = self
            .look(|look| {
                for frame in frames {
                    metrics.frame_bytes.add(frame.bytes.len() as u64);
                    match &frame.what {
                        Kind::Event { seq, .. } | Kind::Nobody { seq, .. } => {
                            let event = tag(&frame.bytes);
                            let read = self.place(look, *seq, event);
                            let seq = *seq;
                            events.push((frame, Some((seq, event)), read, look.row.numbering));
                        }
                        Kind::Unreadable { seq, .. } => {
                            let event = tag(&frame.bytes);
                            let read = seq.map(|seq| self.place(look, seq, event));
                            let repeat = read.is_some_and(|read| read.repeat);
                            // A Jetstream speaks for nobody: nobody is in doubt for it.
                            if !repeat && self.wire() == Wire::Frames {
                                look.stream.unreadable_frame(look.now, look.row);
                            }
                            let read = read.unwrap_or(NOT_COUNTED);
                            let at = seq.map(|seq| (seq, event));
                            events.push((frame, at, read, look.row.numbering));
                        }
                        Kind::Outdated => {
                            look.stream
                                .cursor_outdated(look.now, look.row, look.notices)
                        }
                        Kind::FutureCursor => {
                            look.stream
                                .cursor_in_future(look.now, look.row, look.notices);
                            let why = "the host knows no number as high as our cursor";
                            closing = Some(Ended::Renumbered(why.to_owned()));
                        }
                        Kind::Closing { error } => closing = Some(Ended::Lost(error.clone())),
                        Kind::Ignored => {}
                    }
                }
                look.now.tick
            })
            .await?;
        self.note_link(&events);
        self.to_the_desks(events, looked, skipped).await?;
        closing.map_or(Ok(()), Err)
    }

    /// The stream looks at one event.
    fn place(&self, look: &mut Look<'_>, seq: u64, event: [u8; 16]) -> Placement {
        let Look {
            now,
            stream,
            row,
            notices,
        } = look;
        match self.wire() {
            Wire::Frames => stream.frame(*now, row, seq, event, notices),
            Wire::Lines => stream.timed_event(*now, row, seq, event, notices),
        }
    }

    fn note_link(&self, events: &[Looked]) {
        let now = self.services.clock.time();
        let mut link = self.link();
        link.frames += events.len() as u64;
        link.failures = 0;
        if !events.is_empty() {
            link.last_frame = Some(now);
        }
    }

    async fn to_the_desks(
        &self,
        events: Vec<Looked>,
        tick: Tick,
        skipped: &mut Skipped,
    ) -> Result<(), Ended> {
        let mut arrived = Vec::with_capacity(events.len());
        let lag = self.link().lag.clone();
        let several = self.services.upstreams.sources.several();
        for (frame, at, read, numbering) in events {
            if read.repeat {
                continue;
            }
            let position = at
                .filter(|_| read.counts)
                .map(|(seq, event)| EventPosition {
                    upstream: self.id,
                    numbering,
                    seq,
                    event,
                });
            match frame.what {
                Kind::Event { seq, did, found } => {
                    if self.tracked_only && !self.services.admission.is_tracked(&did) {
                        if let Some(collection) = found
                            && self.offer(&did, collection, position)
                        {
                            continue;
                        }
                        self.services.metrics.events_skipped.inc();
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
                        wire: self.wire(),
                        origin: Origin {
                            upstream: self.id,
                            epoch: read.epoch,
                        },
                        seq,
                        position,
                        read: tick,
                        at: frame.at,
                        refused: 0,
                        applied: None,
                        lag: Some(lag.clone()),
                        tally: several.then(|| self.tally.clone()),
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
        if !arrived.is_empty() {
            failpoints::here("frame.read");
        }
        self.desks.arrive(arrived).await;
        Ok(())
    }

    /// Somebody writes in a collection that is looked for. Returns whether its place in
    /// the stream is kept until it is tracked, or known to be nobody: then the cursor
    /// does not pass it before.
    fn offer(&self, did: &Did, collection: Arc<str>, position: Option<EventPosition>) -> bool {
        let candidate = Candidate {
            did: did.clone(),
            collection,
            position,
            since: Instant::now(),
        };
        if let Some(position) = &position {
            self.begin(position);
        }
        let free = match self.services.admission.candidates.offer(candidate) {
            Offered::Taken => return true,
            Offered::Known(free) => free,
            Offered::Full => {
                self.services.metrics.found_dropped.inc();
                position
            }
        };
        if let Some(free) = free {
            // It was begun, so it has to be done.
            self.desks.skip(did, free);
        }
        position.is_some()
    }

    fn begin(&self, position: &EventPosition) {
        let EventPosition {
            upstream,
            numbering,
            seq,
            ..
        } = *position;
        self.services.store.begin(upstream, numbering, seq);
    }

    /// What was passed over is done: the cursor may move past it.
    pub(crate) fn settle(&self, skipped: &mut Skipped) {
        if self.services.disk.shortage().is_some() {
            // A later one serves as well, once there is room.
            return;
        }
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
        done: Option<EventPosition>,
    ) -> Result<(), Ended> {
        let now = self.services.clock.now();
        let keep = self.services.totals.take_dead_letter();
        if !keep && done.is_none() {
            self.services.metrics.dead_letters.inc();
            return Ok(());
        }
        let letter = DeadLetter {
            class: DeadClass::Unreadable,
            source: seq.map(|seq| SourceEvent {
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
            match write(&self.services.store, change.clone()).await {
                Ok(_) => {
                    self.services.metrics.dead_letters.inc();
                    return Ok(());
                }
                // The stream waits with it: nothing that came is passed over.
                Err(StoreError::Full(full)) => {
                    let waited = self.services.upstreams.wait_for_room(&full).await;
                    waited.map_err(Ended::Fatal)?;
                }
                Err(error) => return Err(Ended::Fatal(error)),
            }
        }
    }
}

type Looked = (Frame, Option<(u64, [u8; 16])>, Placement, u32);

const NOT_COUNTED: Placement = Placement {
    epoch: None,
    repeat: false,
    counts: false,
};

/// Events that concern nobody here, since the cursor last moved past some.
#[derive(Default)]
pub(crate) struct Skipped {
    count: u32,
    last: Option<(Did, EventPosition)>,
}

impl Skipped {
    fn add(&mut self, did: Did, position: Option<EventPosition>) {
        self.count += 1;
        if let Some(position) = position {
            self.last = Some((did, position));
        }
    }
}
