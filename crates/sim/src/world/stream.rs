//! Streams: a log with sequence numbers, a moving window, and sockets that read the log. A
//! host sends `OutdatedCursor` and `FutureCursor`; a relay sends neither.

use std::sync::Arc;

use super::{Fault, Frame, OwnerId, World};

/// The source of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Pds(usize),
    Relay(usize),
}

/// One event with its number.
#[derive(Debug, Clone)]
pub struct Entry {
    pub seq: u64,
    pub frame: Arc<Frame>,
}

/// The events of a stream.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// All events, including those that have left the window.
    pub entries: Vec<Entry>,
    /// The index of the first event in the window.
    pub floor: usize,
    pub seq: u64,
    /// A count that is raised when all connections break.
    pub life: u32,
    /// An event that is sent after the next event of its repository.
    pub held_back: Option<Arc<Frame>>,
}

impl Log {
    /// Sends an event, then the event that was held back until this one. Returns whether there was
    /// such an event.
    pub fn push(&mut self, frame: Arc<Frame>) -> bool {
        let held_back = self.held_back.take_if(|held| held.owner == frame.owner);
        let swapped = held_back.is_some();
        for frame in [Some(frame), held_back].into_iter().flatten() {
            self.seq += 1;
            self.entries.push(Entry {
                seq: self.seq,
                frame,
            });
        }
        swapped
    }

    /// Sends the event that was held back, if any.
    pub fn release(&mut self) {
        if let Some(frame) = self.held_back.take() {
            self.push(frame);
        }
    }

    /// Restarts the sequence numbers; earlier events leave the window.
    pub fn restart(&mut self, seq: u64) {
        self.release();
        self.seq = seq;
        self.floor = self.entries.len();
        self.life += 1;
    }
}

/// A connection to a stream.
#[derive(Debug, Clone)]
pub struct Socket {
    pub place: Place,
    life: u32,
    /// The index of the next event to send.
    next: usize,
    /// Whether `#info` is sent next.
    pub info: bool,
    /// Whether the connection delivers nothing more, not even a pong.
    pub silent: bool,
}

/// The result of a dial.
#[derive(Debug)]
pub enum Dialed {
    Connected(Socket),
    HttpError,
    FutureCursor,
}

/// What a socket delivers.
#[derive(Debug)]
pub enum Received {
    Nothing,
    Info,
    Frame { seq: u64, frame: Arc<Frame> },
    Closed,
}

impl World {
    pub fn log(&self, place: Place) -> &Log {
        match place {
            Place::Pds(id) => &self.pds[id].log,
            Place::Relay(id) => &self.relays[id].log,
        }
    }

    pub(crate) fn log_mut(&mut self, place: Place) -> &mut Log {
        match place {
            Place::Pds(id) => &mut self.pds[id].log,
            Place::Relay(id) => &mut self.relays[id].log,
        }
    }

    pub fn dial(&mut self, place: Place, cursor: Option<u64>) -> Dialed {
        if self.strikes(Fault::DialFailure) {
            return Dialed::HttpError;
        }
        let log = self.log(place);
        let window = &log.entries[log.floor..];
        let (next, info) = match cursor {
            None => (log.entries.len(), false),
            Some(cursor) if cursor > log.seq => match place {
                Place::Pds(_) => return Dialed::FutureCursor,
                Place::Relay(_) => (log.entries.len(), false),
            },
            Some(cursor) => {
                let first = window.partition_point(|entry| entry.seq <= cursor);
                // The event after the cursor has left the window, unless there never was one.
                let gone = first == 0 && cursor < log.seq && {
                    window.first().is_none_or(|entry| entry.seq > cursor + 1)
                };
                (log.floor + first, gone && matches!(place, Place::Pds(_)))
            }
        };
        Dialed::Connected(Socket {
            place,
            life: log.life,
            next,
            info,
            silent: false,
        })
    }

    /// Receives the next item from a socket.
    pub fn receive(&mut self, socket: &mut Socket) -> Received {
        if self.log(socket.place).life != socket.life {
            return Received::Closed;
        }
        if socket.silent {
            return Received::Nothing;
        }
        if socket.info {
            socket.info = false;
            return Received::Info;
        }
        let log = self.log(socket.place);
        if socket.next < log.floor {
            // The window has passed this slow consumer.
            return Received::Closed;
        }
        let Some(entry) = log.entries.get(socket.next).cloned() else {
            return Received::Nothing;
        };
        let older = (socket.next > log.floor).then(|| log.entries[log.floor].clone());
        if let Some(old) = older
            && self.strikes(Fault::Backward)
        {
            // The host may have lost this commit since.
            self.lie(old.frame.owner, "an old frame came again");
            return Received::Frame {
                seq: old.seq,
                frame: old.frame,
            };
        }
        if self.strikes(Fault::SilentSocket) {
            socket.silent = true;
            return Received::Nothing;
        }
        if matches!(socket.place, Place::Pds(_)) && self.strikes(Fault::InfoAnyTime) {
            return Received::Info;
        }
        if !self.strikes(Fault::Duplicate) {
            socket.next += 1;
        }
        Received::Frame {
            seq: entry.seq,
            frame: entry.frame,
        }
    }

    /// Whether a socket has delivered all events.
    pub fn drained(&self, socket: &Socket) -> bool {
        let log = self.log(socket.place);
        let all = log.life == socket.life
            && !socket.info
            && !socket.silent
            && socket.next >= log.entries.len()
            && log.held_back.is_none();
        let behind_it = match socket.place {
            Place::Pds(_) => true,
            Place::Relay(id) => self.relays[id].has_all(&self.pds),
        };
        all && behind_it
    }

    /// Moves the window, so that only the last `keep` events stay in it.
    pub fn forget(&mut self, place: Place, keep: usize) {
        let log = self.log_mut(place);
        log.floor = log.entries.len().saturating_sub(keep).max(log.floor);
    }

    /// The owners of the events from one index up to another.
    pub(crate) fn owners_in(&self, place: Place, from: usize, to: usize) -> Vec<OwnerId> {
        let entries = &self.log(place).entries;
        let to = to.min(entries.len());
        entries[from.min(to)..to]
            .iter()
            .map(|entry| entry.frame.owner)
            .collect()
    }
}
