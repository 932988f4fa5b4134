//! The followed upstreams: for each, the state of its stream and its row.
//!
//! One task follows one upstream, and only that task changes the state of the upstream. When a
//! change reaches the row (a new epoch, a new numbering), the follower dispatches nothing that it
//! read later before the row is durable. Otherwise a cursor could pass a gap of which no record is
//! left.
//!
//! After the clock was set back, an upstream that was lost an hour ago would count as
//! just lost. Therefore every connection is reset before the next decision reads its
//! state, and dialed again from its durable cursor as after a start.

pub mod connection;
pub mod history;
pub mod sources;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use gapless_core::ledger::cover::Covers;
use gapless_core::ledger::stream::{Placement, StreamState};
use gapless_core::ledger::{Notice, Now, Tick, Upstream, UpstreamId};
use gapless_store::Store;
use gapless_store::change::{Change, UpstreamChange};
use gapless_store::error::StoreError;
use gapless_store::space::DiskFull;

use crate::clock::Clock;
use crate::disk_space::DiskSpace;
use crate::shutdown::Shutdown;
use crate::store_io::write;
use gapless_store::sync::{Mutex, RwLock};
use history::UpstreamHistory;
use sources::Sources;

/// How long to wait before a row is written again after the disk was full.
const FULL_DISK_RETRY: Duration = Duration::from_secs(1);

/// The upstreams that are followed now, with their rows.
pub struct Upstreams {
    covers: RwLock<Covers>,
    store: Arc<Store>,
    clock: Arc<Clock>,
    disk: Arc<DiskSpace>,
    shutdown: Arc<Shutdown>,
    history: Mutex<UpstreamHistory>,
    /// Which upstream brought which commit, and with which delay.
    pub sources: Sources,
    /// How many backward steps of the clock the connections were reset for.
    steps_back: AtomicU64,
}

/// The stream and the row of one upstream, for one decision.
pub struct UpstreamTurn<'a> {
    pub now: Now,
    pub stream: &'a mut StreamState,
    pub row: &'a mut Upstream,
    pub notices: &'a mut Vec<Notice>,
}

/// How an upstream writes its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Frames of `subscribeRepos`.
    Frames,
    /// JSON messages of a Jetstream.
    Jetstream,
}

/// The beginning of an event's hash, by which the event is recognised when it is repeated.
pub type EventTag = [u8; 16];

/// What the stream needs to know of one message.
pub enum StreamItem {
    Event {
        seq: u64,
        tag: EventTag,
    },
    Unreadable(EventId),
    /// `#info` OutdatedCursor.
    OutdatedCursor,
    /// The error frame FutureCursor.
    FutureCursor,
    /// A message that does not concern the order of the stream.
    Other,
}

/// Identifies an event, so that the event is recognised when it is repeated.
#[derive(Debug, Clone, Copy)]
pub struct EventId {
    /// `None` if the number cannot be read.
    pub seq: Option<u64>,
    pub tag: EventTag,
}

impl StreamItem {
    /// The event, if the message is one.
    pub fn event(&self) -> Option<EventId> {
        match *self {
            StreamItem::Event { seq, tag } => Some(EventId {
                seq: Some(seq),
                tag,
            }),
            StreamItem::Unreadable(event) => Some(event),
            StreamItem::OutdatedCursor | StreamItem::FutureCursor | StreamItem::Other => None,
        }
    }
}

/// Where one message stands in its stream.
pub struct PlacedFrame {
    pub placement: Placement,
    /// The numbering of the host at that message.
    pub numbering: u32,
}

/// Where the messages of a batch stand in their stream.
pub struct PlacedFrames {
    /// One place for each message, in their order.
    pub placements: Vec<PlacedFrame>,
    /// The tick of the decision.
    pub tick: Tick,
    /// The upstream's row, if it changed: it must be durable before an event of the batch
    /// is used ([`Upstreams::keep`]).
    pub changed: Option<Upstream>,
}

impl Upstreams {
    pub fn new(
        store: Arc<Store>,
        clock: Arc<Clock>,
        disk: Arc<DiskSpace>,
        shutdown: Arc<Shutdown>,
    ) -> Upstreams {
        Upstreams {
            covers: RwLock::new(Covers::new()),
            history: Mutex::default(),
            sources: Sources::new(clock.clone()),
            steps_back: AtomicU64::new(clock.steps_back()),
            store,
            clock,
            disk,
            shutdown,
        }
    }

    /// Locks the covers for reading. Do not hold the guard across an `await`.
    pub fn read(&self) -> RwLockReadGuard<'_, Covers> {
        if self.steps_back.load(Ordering::SeqCst) != self.clock.steps_back() {
            self.renew(&mut self.write());
        }
        self.covers.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Covers> {
        self.covers.write()
    }

    /// Resets every connection if the clock was set back since the last call. No decision uses a
    /// time from after the step before the reset: the clock counts a step before it returns the new
    /// time.
    fn renew(&self, covers: &mut Covers) {
        let steps = self.clock.steps_back();
        if self.steps_back.swap(steps, Ordering::SeqCst) != steps {
            tracing::warn!("the clock was set back; every upstream is dialed again");
            covers.reset_connections();
        }
    }

    /// Adds an upstream that is followed from now on. An upstream that was removed before
    /// starts with a new connection but keeps its number and its epochs.
    pub fn add(&self, id: UpstreamId, row: Upstream) {
        let mut covers = self.write();
        let now = self.clock.now();
        covers.add(now.tick, id, row);
        self.history().record_added(now.time, id);
    }

    /// Removes an upstream and returns its row.
    pub fn remove(&self, id: UpstreamId) -> Option<Upstream> {
        let mut covers = self.write();
        let now = self.clock.now();
        let row = covers.remove(now.tick, id)?.row;
        self.history().record_removed(now.time, id, &row);
        Some(row)
    }

    /// When each upstream was added or removed.
    pub fn history(&self) -> MutexGuard<'_, UpstreamHistory> {
        self.history.lock()
    }

    /// Lets `act` change the stream and the row of an upstream. Returns the result of `act`,
    /// and the row if it changed: then the caller makes the row durable with
    /// [`Upstreams::keep`] before it uses anything that was read later. Returns `None` if the
    /// upstream is not followed any more.
    pub fn update<T>(
        &self,
        id: UpstreamId,
        notices: &mut Vec<Notice>,
        act: impl FnOnce(&mut UpstreamTurn<'_>) -> T,
    ) -> Option<(T, Option<Upstream>)> {
        let mut covers = self.write();
        let now = self.clock.now();
        self.renew(&mut covers);
        let source = covers.get_mut(id)?;
        let before = PersistedPart::of(&source.row);
        let mut turn = UpstreamTurn {
            now,
            stream: &mut source.stream,
            row: &mut source.row,
            notices,
        };
        let result = act(&mut turn);
        let changed = before != PersistedPart::of(&source.row);
        Some((result, changed.then(|| source.row.clone())))
    }

    /// Gives the frames of one batch their places in the stream, in their order, under
    /// one lock. Returns `None` if the upstream is not followed any more.
    pub(crate) fn place_frames(
        &self,
        id: UpstreamId,
        wire: Wire,
        frames: &[StreamItem],
        notices: &mut Vec<Notice>,
    ) -> Option<PlacedFrames> {
        let place = |turn: &mut UpstreamTurn<'_>| {
            let placements = frames.iter().map(|frame| turn.place_frame(wire, frame));
            (placements.collect(), turn.now.tick)
        };
        let ((placements, tick), changed) = self.update(id, notices, place)?;
        Some(PlacedFrames {
            placements,
            tick,
            changed,
        })
    }

    /// Writes a row and waits until the row is durable. While the disk is full, the write
    /// is retried until the program shuts down.
    pub async fn keep(&self, id: UpstreamId, row: Upstream) -> Result<(), StoreError> {
        loop {
            let change = Change {
                tick: self.clock.last_tick_now().tick,
                upstream: Some(UpstreamChange::Row(id, row.clone())),
                ..Change::default()
            };
            match write(&self.store, change).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Full(full)) => self.wait_for_room(&full).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reports that the disk is full and waits [`FULL_DISK_RETRY`]. Returns
    /// [`StoreError::Closed`] when the program shuts down.
    pub(crate) async fn wait_for_room(&self, full: &DiskFull) -> Result<(), StoreError> {
        self.disk.refused(self.clock.time(), full);
        tokio::select! {
            () = tokio::time::sleep(FULL_DISK_RETRY) => {}
            () = self.shutdown.begun() => {}
        }
        if self.shutdown.has_begun() {
            Err(StoreError::Closed)
        } else {
            Ok(())
        }
    }
}

impl UpstreamTurn<'_> {
    fn place_frame(&mut self, wire: Wire, frame: &StreamItem) -> PlacedFrame {
        let mut placement = Placement::NOT_COUNTED;
        match *frame {
            StreamItem::Event { seq, tag } => placement = self.place_event(wire, seq, tag),
            StreamItem::Unreadable(EventId { seq, tag }) => {
                if let Some(seq) = seq {
                    placement = self.place_event(wire, seq, tag);
                }
                // A Jetstream covers no repository, so its messages put none in doubt.
                if !placement.repeat && wire == Wire::Frames {
                    self.stream.unreadable_frame(self.now, self.row);
                }
            }
            StreamItem::OutdatedCursor => {
                self.stream
                    .cursor_outdated(self.now, self.row, self.notices);
            }
            StreamItem::FutureCursor => {
                self.stream
                    .cursor_in_future(self.now, self.row, self.notices);
            }
            StreamItem::Other => {}
        }
        PlacedFrame {
            placement,
            numbering: self.row.numbering,
        }
    }

    fn place_event(&mut self, wire: Wire, seq: u64, tag: EventTag) -> Placement {
        let (now, notices) = (self.now, &mut *self.notices);
        match wire {
            Wire::Frames => self.stream.frame(now, self.row, seq, tag, notices),
            Wire::Jetstream => self.stream.timed_event(now, self.row, seq, tag, notices),
        }
    }
}

/// The fields of a row that its stream changes.
#[derive(PartialEq, Eq)]
struct PersistedPart(u64, Option<u64>, u32, u64, Option<u64>);

impl PersistedPart {
    fn of(row: &Upstream) -> PersistedPart {
        PersistedPart(
            row.epoch.0,
            row.first_cursor_since_reset,
            row.numbering,
            row.reset_at.0,
            row.unread_at.map(|tick| tick.0),
        )
    }
}
