//! Sockets and queues: dials, reads, and records for each frame what it may raise. The cursor is a
//! low-water mark: frames are processed in any order, but in order within a repository, and the
//! cursor is the last frame up to which all frames are done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gapless_core::ledger::stream::Placement;
use gapless_core::ledger::{Cursor, Now, Tick, Time, Upstream, UpstreamId};
use gapless_store::cursor::EventPosition;

use super::SimMirror;
use super::book::Batch;
use crate::world::stream::Dialed;
use crate::world::{Body, Frame, Place, Received, Socket, World};

/// A frame that was read. It stays in the queue until it and every frame before it are done.
#[derive(Debug, Clone)]
pub struct Item {
    pub at: Cursor,
    pub numbering: u32,
    pub read: Placement,
    pub tick: Tick,
    pub frame: Arc<Frame>,
    pub done: bool,
}

impl Item {
    fn position(&self, upstream: UpstreamId) -> EventPosition {
        EventPosition {
            upstream,
            numbering: self.numbering,
            seq: self.at.seq,
            event: self.at.event,
        }
    }
}

/// One upstream's connection.
#[derive(Debug)]
pub struct Feed {
    pub place: Place,
    pub socket: Option<Socket>,
    /// Set while a dial is under way: the cursor to request.
    pub dialing: Option<Option<u64>>,
    pub queue: VecDeque<Item>,
    pub not_before: Time,
}

/// A connection that delivers nothing for longer than this is given up.
const PING_TIMEOUT: Duration = Duration::from_secs(30);

impl Feed {
    pub fn new(place: Place) -> Feed {
        Feed {
            place,
            socket: None,
            dialing: None,
            queue: VecDeque::new(),
            not_before: Time(0),
        }
    }

    /// The indexes of the first frame of each repository that is not done.
    pub fn ready(&self) -> Vec<usize> {
        let mut seen = Vec::new();
        let mut ready = Vec::new();
        for (place, item) in self.queue.iter().enumerate() {
            if item.done || seen.contains(&item.frame.owner) {
                continue;
            }
            seen.push(item.frame.owner);
            ready.push(place);
        }
        ready
    }
}

impl SimMirror {
    fn row(&self, id: UpstreamId) -> Upstream {
        let source = self.covers.get(id).expect("a feed has an upstream");
        source.row.clone()
    }

    /// Applies an action to a connection. Writes the upstream's row if the action changed it,
    /// before anything that was read under the new row is used.
    fn with_stream<T>(
        &mut self,
        world: &World,
        id: UpstreamId,
        act: impl FnOnce(&mut super::feed::Look<'_>) -> T,
    ) -> T {
        let now = self.tick(world);
        let mut notices = std::mem::take(&mut self.notices);
        let source = self.covers.get_mut(id).expect("a feed has an upstream");
        let before = source.row.clone();
        let mut look = Look {
            now,
            stream: &mut source.stream,
            row: &mut source.row,
            notices: &mut notices,
        };
        let out = act(&mut look);
        let after = source.row.clone();
        self.notices = notices;
        if after != before {
            self.counts.resets += u64::from(after.epoch != before.epoch);
            let mut batch = self.batch();
            batch.upstream(id, after);
            self.commit(batch);
        }
        out
    }

    /// Begins to connect.
    pub fn dial(&mut self, world: &World, id: UpstreamId) -> bool {
        let feed = &self.feeds[&id];
        if feed.socket.is_some() || feed.dialing.is_some() || world.now < feed.not_before {
            return false;
        }
        let durable = self.book.cursor(id).map(|(_, cursor)| cursor);
        let source = self.covers.get_mut(id).expect("a feed has an upstream");
        let cursor = source.stream.dial(durable);
        self.feed(id).dialing = Some(cursor);
        true
    }

    pub fn feed(&mut self, id: UpstreamId) -> &mut Feed {
        self.feeds.get_mut(&id).expect("every upstream has a feed")
    }

    /// Completes the dial that is under way. Returns false if there is none.
    pub fn connect(&mut self, world: &mut World, id: UpstreamId) -> bool {
        let Some(cursor) = self.feed(id).dialing.take() else {
            return false;
        };
        let place = self.feeds[&id].place;
        match world.dial(place, cursor) {
            Dialed::HttpError => {
                self.hang_up(world, id);
                self.feed(id).not_before = world.now.after(Duration::from_secs(2));
            }
            Dialed::FutureCursor => self.with_stream(world, id, |look| {
                look.stream.connected(look.now, look.row, look.notices);
                look.stream
                    .cursor_in_future(look.now, look.row, look.notices);
            }),
            Dialed::Connected(socket) => {
                self.with_stream(world, id, |look| {
                    look.stream.connected(look.now, look.row, look.notices);
                });
                self.feed(id).socket = Some(socket);
            }
        }
        true
    }

    /// Records that the connection is lost, and drops the socket.
    pub(crate) fn hang_up(&mut self, world: &World, id: UpstreamId) {
        self.with_stream(world, id, |look| look.stream.connection_lost(look.now));
        let feed = self.feed(id);
        feed.socket = None;
        feed.dialing = None;
    }

    /// Reads one item from a socket. Returns false if there was none.
    pub fn read(&mut self, world: &mut World, id: UpstreamId) -> bool {
        let Some(mut socket) = self.feed(id).socket.take() else {
            return false;
        };
        let received = world.receive(&mut socket);
        self.feed(id).socket = Some(socket);
        match received {
            Received::Nothing => return false,
            Received::Closed => self.hang_up(world, id),
            Received::Info => self.with_stream(world, id, |look| {
                look.stream
                    .cursor_outdated(look.now, look.row, look.notices);
            }),
            Received::Frame { seq, frame } => self.frame(world, id, seq, frame),
        }
        true
    }

    fn frame(&mut self, world: &World, id: UpstreamId, seq: u64, frame: Arc<Frame>) {
        self.counts.frames += 1;
        let at = Cursor {
            seq,
            event: frame.hash(seq),
        };
        let unreadable = frame.body == Body::Unreadable;
        if unreadable && frame.number.is_multiple_of(2) {
            // Not even the frame's sequence number can be read.
            self.with_stream(world, id, |look| {
                look.stream.unreadable_frame(look.now, look.row)
            });
            return;
        }
        let (read, tick) = self.with_stream(world, id, |look| {
            let read = look
                .stream
                .frame(look.now, look.row, seq, at.event, look.notices);
            if unreadable && !read.repeat {
                look.stream.unreadable_frame(look.now, look.row);
            }
            (read, look.now.tick)
        });
        if read.repeat {
            return;
        }
        let item = Item {
            at,
            numbering: self.row(id).numbering,
            read,
            tick,
            frame,
            done: false,
        };
        if read.counts {
            self.book.begin(id, item.numbering, seq);
        }
        if unreadable {
            // A dead letter belongs to no repository, so it is done at once.
            let mut batch = Batch::default();
            if read.counts {
                batch.done(item.position(id));
            }
            self.commit(batch);
            return;
        }
        self.feed(id).queue.push_back(item);
    }

    /// Simulates an overflow: drops the next frame, and with `all` also every queued frame. Returns
    /// false if there was no frame to drop.
    pub fn overflow(&mut self, world: &mut World, id: UpstreamId, all: bool) -> bool {
        let Some(mut socket) = self.feed(id).socket.take() else {
            return false;
        };
        let received = world.receive(&mut socket);
        self.feed(id).socket = Some(socket);
        let Received::Frame { seq, frame } = received else {
            return false;
        };
        self.with_stream(world, id, |look| {
            let hash = frame.hash(seq);
            look.stream
                .frame(look.now, look.row, seq, hash, look.notices);
            look.stream
                .queue_overflowed(look.now, look.row, look.notices);
        });
        if all {
            self.feed(id).queue.clear();
            self.book.abandon(id);
        }
        true
    }

    /// Handles a ping: records the pong, or gives up a connection that has been silent for too
    /// long.
    pub fn ping(&mut self, world: &World, id: UpstreamId) -> bool {
        let Some(socket) = &self.feeds[&id].socket else {
            return false;
        };
        if !socket.silent {
            self.with_stream(world, id, |look| look.stream.pong(look.now));
            return true;
        }
        let source = self.covers.get(id).expect("a feed has an upstream");
        let heard = source.stream.heard_at();
        if heard.is_none_or(|heard| world.now.since(heard) > PING_TIMEOUT) {
            self.hang_up(world, id);
        }
        true
    }

    /// Passes the durable cursors to all streams, and applies the deadlines that have passed.
    pub fn wait(&mut self, world: &World) {
        for id in self.feeds.keys().copied().collect::<Vec<_>>() {
            let durable = self.book.cursor(id);
            let connected = self.with_stream(world, id, |look| {
                let ours = durable.filter(|(numbering, _)| *numbering == look.row.numbering);
                look.stream.set_durable(ours.map(|(_, cursor)| cursor));
                look.stream
                    .check_deadlines(look.now, look.row, look.notices);
                look.stream.is_connected()
            });
            if !connected {
                self.feed(id).socket = None;
            }
        }
    }

    /// Marks a frame as done. The batch with its effects also moves the cursor, if all frames
    /// before this one are done.
    pub fn done(&mut self, id: UpstreamId, place: usize, batch: &mut Batch) {
        let feed = self.feed(id);
        let Some(item) = feed.queue.get_mut(place) else {
            return;
        };
        item.done = true;
        if item.read.counts {
            batch.done(item.position(id));
        }
        while feed.queue.pop_front_if(|item| item.done).is_some() {}
    }
}

/// A connection and its row, for one decision.
pub(crate) struct Look<'a> {
    pub now: Now,
    pub stream: &'a mut gapless_core::ledger::stream::StreamState,
    pub row: &'a mut Upstream,
    pub notices: &'a mut Vec<gapless_core::ledger::Notice>,
}
