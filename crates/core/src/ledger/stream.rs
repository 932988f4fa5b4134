//! Decides whether the connection to an upstream missed anything (R1, R13).
//!
//! A [`StreamState`] is the part of an upstream that is kept in memory. It turns what
//! happens on the socket into epochs: while an epoch lasts, every event was read.
//! Continuity is shown, never assumed: a reconnect requests the event *at* the cursor
//! once more, and exactly that event must come first.
//!
//! An epoch is *open* once the host's subscription is surely in force. Only events that
//! are read, and work that begins, while the epoch is open may raise a marker to it.
//!
//! The caller must write the [`Upstream`] row durably before anything that was read under
//! a new epoch is used.

mod timed;

use std::collections::VecDeque;

use super::notice::{Notice, ResetReason};
use super::settings::{
    BACKWARD_FRAMES, CONTINUITY_WITHIN, DURABLE_WITHIN, OPEN_AFTER, RECENT_EVENTS, Settings,
    WAITING_MOMENTS,
};
use super::state::{Cursor, Epoch, Upstream};
use super::time::{Now, Tick, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    Dialing {
        expect: Option<Cursor>,
    },
    /// Connected; the event at our cursor must come first. `lost`: the event is not
    /// expected any more.
    Awaiting {
        expect: Cursor,
        since: Time,
        lost: bool,
    },
    /// Connected without a cursor, nothing read yet.
    Fresh {
        since: Time,
    },
    Flowing,
}

/// The state of the connection to an upstream. It is kept in memory only; the durable
/// part is the [`Upstream`] row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    phase: Phase,
    open: bool,
    /// Whether events have times instead of numbers. Such a stream never opens.
    timed: bool,
    /// The last event read from a socket; the durable cursor may be behind.
    read: Option<Cursor>,
    /// Fingerprints of the last events read. An event with a lower number that is not
    /// among them is not a duplicate.
    lately: VecDeque<u64>,
    /// Events that were read and are not known to be durable: for each moment, the last
    /// number read and the time.
    waiting: VecDeque<(u64, Time)>,
    /// The epoch that was last opened, and when.
    opened: Option<(Epoch, Tick)>,
    heard_at: Option<Time>,
    /// Whether a connection was made, or failed, since the upstream was added.
    tried: bool,
    /// When continuity was last known; `None` before the first connection.
    flowed_at: Option<Time>,
    backward: u32,
    /// When the first of the `backward` frames came.
    backward_since: Option<Time>,
}

/// Where a frame belongs in its stream: the marker that it may raise, and whether it
/// moves the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The epoch that the frame may raise a marker to, if any.
    pub epoch: Option<Epoch>,
    /// Whether the frame is the event at our cursor again; the caller skips it.
    pub repeat: bool,
    /// Whether the frame's number moves the cursor.
    pub counts: bool,
}

impl Placement {
    /// A frame that belongs nowhere in the stream: a message without a number, or an event that was
    /// read before or cannot be placed yet. The cursor stays.
    pub const NOT_COUNTED: Placement = Placement {
        epoch: None,
        repeat: false,
        counts: false,
    };
}

impl Default for StreamState {
    fn default() -> StreamState {
        StreamState::new()
    }
}

impl StreamState {
    pub fn new() -> StreamState {
        StreamState {
            phase: Phase::Down,
            open: false,
            timed: false,
            read: None,
            lately: VecDeque::new(),
            waiting: VecDeque::new(),
            opened: None,
            heard_at: None,
            tried: false,
            flowed_at: None,
            backward: 0,
            backward_since: None,
        }
    }

    /// Begins to connect. Returns the cursor to request: one less than ours, so that the
    /// event at our cursor is the first to arrive.
    pub fn dial(&mut self, durable: Option<Cursor>) -> Option<u64> {
        let expect = self.read.or(durable);
        self.phase = Phase::Dialing { expect };
        self.open = false;
        self.backward = 0;
        expect.map(|cursor| cursor.seq.saturating_sub(1))
    }

    /// Records that the connection is established. Without a cursor a new epoch begins.
    pub fn connected(&mut self, now: Now, row: &mut Upstream, notices: &mut Vec<Notice>) {
        self.heard_at = Some(now.time);
        self.tried = true;
        let since = now.time;
        self.phase = match self.phase {
            Phase::Dialing {
                expect: Some(expect),
            } => Phase::Awaiting {
                expect,
                since,
                lost: false,
            },
            _ => {
                begin_epoch(now, row, ResetReason::NoCursor, notices);
                Phase::Fresh { since }
            }
        };
    }

    /// Places a frame that has a number. The hash in `event` tells whether it is the
    /// event that was read under that number before.
    pub fn frame(
        &mut self,
        now: Now,
        row: &mut Upstream,
        seq: u64,
        event: [u8; 16],
        notices: &mut Vec<Notice>,
    ) -> Placement {
        self.heard_at = Some(now.time);
        let this = Cursor { seq, event };
        match self.phase {
            Phase::Awaiting { expect, lost, .. } => {
                self.phase = Phase::Flowing;
                if this == expect && !lost {
                    self.mark_open(now, row);
                    self.flowed_at = Some(now.time);
                    self.record_read(this);
                    return self.repeated(row);
                }
                if !lost {
                    begin_epoch(now, row, ResetReason::OtherEvent, notices);
                }
                if seq <= expect.seq {
                    self.renumber(row);
                }
                self.mark_open(now, row);
            }
            Phase::Fresh { .. } => {
                self.phase = Phase::Flowing;
                self.mark_open(now, row);
            }
            Phase::Flowing if self.read == Some(this) => return self.repeated(row),
            Phase::Flowing => {
                if self.read.is_some_and(|read| seq <= read.seq) {
                    return self.backward(now, row, this, notices);
                }
                self.backward = 0;
            }
            // A frame of a connection that was given up meanwhile.
            Phase::Down | Phase::Dialing { .. } => {
                return Placement::NOT_COUNTED;
            }
        }
        self.accept_next(now, row, this)
    }

    /// Opens the epoch, because the subscription is in force: work that begins from now
    /// on counts.
    fn mark_open(&mut self, now: Now, row: &Upstream) {
        if self.timed {
            return;
        }
        self.open = true;
        if self.opened.is_none_or(|(epoch, _)| epoch != row.epoch) {
            self.opened = Some((row.epoch, now.tick));
        }
    }

    /// When the present epoch was opened on this connection. A sweep before that could
    /// not raise a marker to the epoch.
    pub(crate) fn opened_at(&self) -> Option<Tick> {
        self.opened.map(|(_, tick)| tick)
    }

    /// Records an event that continues the stream.
    fn accept_next(&mut self, now: Now, row: &mut Upstream, this: Cursor) -> Placement {
        self.flowed_at = Some(now.time);
        self.record_read(this);
        let full = self.waiting.len() >= WAITING_MOMENTS;
        match self.waiting.back_mut() {
            // An event that came later counts as old as the one before it.
            Some((seq, at)) if full || *at == now.time => *seq = this.seq,
            _ => self.waiting.push_back((this.seq, now.time)),
        }
        if row.first_cursor_since_reset.is_none() {
            row.first_cursor_since_reset = Some(this.seq);
        }
        Placement {
            epoch: self.open_epoch(row),
            repeat: false,
            counts: true,
        }
    }

    /// Remembers the last event that was read.
    fn record_read(&mut self, this: Cursor) {
        self.read = Some(this);
        if self.lately.len() >= RECENT_EVENTS {
            self.lately.pop_front();
        }
        self.lately.push_back(fingerprint(&this));
    }

    fn repeated(&self, row: &Upstream) -> Placement {
        Placement {
            epoch: self.open_epoch(row),
            repeat: true,
            counts: false,
        }
    }

    /// Places a frame whose number is not above the last one. An event that was read
    /// before is a duplicate. Any other event came late: the cursor may be past it
    /// already, so if the mirror stopped before the event is durable, it would never be
    /// sent again. It therefore counts like an unreadable frame, until a sweep. Many such
    /// frames in a row are a new numbering; until that is clear, none of them raises
    /// anything.
    fn backward(
        &mut self,
        now: Now,
        row: &mut Upstream,
        this: Cursor,
        notices: &mut Vec<Notice>,
    ) -> Placement {
        if self.backward == 0 {
            self.backward_since = Some(now.time);
        }
        self.backward += 1;
        notices.push(Notice::Backward);
        if !self.lately.contains(&fingerprint(&this)) {
            row.unread_at = Some(now.tick);
        }
        if self.backward < BACKWARD_FRAMES {
            return Placement::NOT_COUNTED;
        }
        self.backward = 0;
        begin_epoch(now, row, ResetReason::Backwards, notices);
        self.renumber(row);
        self.accept_next(now, row, this)
    }

    /// Handles `#info OutdatedCursor`: the host has dropped events between our cursor
    /// and the next event. A new epoch begins.
    pub fn cursor_outdated(&mut self, now: Now, row: &mut Upstream, notices: &mut Vec<Notice>) {
        self.heard_at = Some(now.time);
        if matches!(self.phase, Phase::Down | Phase::Dialing { .. }) {
            return;
        }
        begin_epoch(now, row, ResetReason::OutdatedCursor, notices);
        self.phase = match self.phase {
            // A number at or below our cursor still means another numbering: events under
            // it would be passed over by a cursor of the old one.
            Phase::Awaiting { expect, since, .. } => Phase::Awaiting {
                expect,
                since,
                lost: true,
            },
            _ => Phase::Flowing,
        };
        self.mark_open(now, row);
        self.flowed_at = Some(now.time);
    }

    /// Handles the host's answer that our cursor is ahead of its newest event: the host
    /// has begun a new numbering, and so does the row.
    pub fn cursor_in_future(&mut self, now: Now, row: &mut Upstream, notices: &mut Vec<Notice>) {
        begin_epoch(now, row, ResetReason::FutureCursor, notices);
        self.renumber(row);
        self.read = None;
        self.connection_lost(now);
    }

    /// Gives up the cursor, because the frames after it could not be read in several
    /// attempts. A new epoch begins, and a sweep finds what the frames contained.
    pub fn cursor_stuck(&mut self, now: Now, row: &mut Upstream, notices: &mut Vec<Notice>) {
        begin_epoch(now, row, ResetReason::Stuck, notices);
        self.renumber(row);
        self.read = None;
        self.connection_lost(now);
    }

    /// Begins a new epoch, because the mirror dropped frames from its queue. Events that
    /// were read before are not awaited any more: the dropped ones never become durable.
    pub fn queue_overflowed(&mut self, now: Now, row: &mut Upstream, notices: &mut Vec<Notice>) {
        begin_epoch(now, row, ResetReason::Overflow, notices);
        self.waiting.clear();
    }

    /// Records a frame of which not even the DID can be read. The frame may concern any
    /// repository, so until a sweep none under this upstream is complete.
    pub fn unreadable_frame(&mut self, now: Now, row: &mut Upstream) {
        self.heard_at = Some(now.time);
        row.unread_at = Some(now.tick);
    }

    /// Applies the deadlines that have passed by `now`, and returns whether anything
    /// changed. The connection may be given up; the caller then closes it and dials
    /// again.
    pub fn check_deadlines(
        &mut self,
        now: Now,
        row: &mut Upstream,
        notices: &mut Vec<Notice>,
    ) -> bool {
        self.not_after(now.time);
        let doubtful = self.backward > 0
            && self
                .backward_since
                .is_some_and(|since| now.time.since(since) >= CONTINUITY_WITHIN);
        if doubtful {
            // A quiet stream does not show whether this is a duplicate or a new
            // numbering. Only the event at our cursor does.
            self.connection_lost(now);
            return true;
        }
        match self.phase {
            Phase::Fresh { since } if !self.open && now.time.since(since) >= OPEN_AFTER => {
                self.mark_open(now, row);
                self.flowed_at = Some(now.time);
                true
            }
            Phase::Awaiting {
                expect,
                since,
                lost: false,
            } if now.time.since(since) >= CONTINUITY_WITHIN => {
                begin_epoch(now, row, ResetReason::Silence, notices);
                self.mark_open(now, row);
                self.flowed_at = Some(now.time);
                self.phase = Phase::Awaiting {
                    expect,
                    since,
                    lost: true,
                };
                true
            }
            _ => false,
        }
    }

    /// If the clock went back, lets the waits begin at the new time.
    fn not_after(&mut self, now: Time) {
        self.backward_since = self.backward_since.min(Some(now));
        match &mut self.phase {
            Phase::Fresh { since } | Phase::Awaiting { since, .. } => *since = now.min(*since),
            Phase::Down | Phase::Dialing { .. } | Phase::Flowing => {}
        }
    }

    /// Records that the host answered a ping.
    pub fn pong(&mut self, now: Now) {
        self.heard_at = Some(now.time);
        if self.open {
            self.flowed_at = Some(now.time);
        }
    }

    /// Records that the connection is lost.
    pub fn connection_lost(&mut self, _now: Now) {
        self.phase = Phase::Down;
        self.tried = true;
        self.open = false;
        self.backward = 0;
    }

    /// Whether the stream will, within seconds, be open or known not to be. Work that can
    /// wait for that need not be done twice.
    pub(crate) fn is_opening(&self) -> bool {
        match self.phase {
            Phase::Down | Phase::Dialing { .. } => !self.tried,
            Phase::Awaiting { .. } | Phase::Fresh { .. } => !self.open && !self.timed,
            Phase::Flowing => false,
        }
    }

    /// The present epoch, if it is open: work that begins now may raise a marker to it.
    pub fn open_epoch(&self, row: &Upstream) -> Option<Epoch> {
        (self.open && self.backward == 0).then_some(row.epoch)
    }

    /// Whether the upstream can be relied on: it is connected with continuity shown, or
    /// was lost less than `live_grace` ago, and the events read from it become durable.
    pub fn live(&self, now: Time, settings: &Settings) -> bool {
        if self.timed || self.backward > 0 || self.is_stuck(now, settings) {
            return false;
        }
        self.open
            || self
                .flowed_at
                // If the clock went back, it does not tell how long ago continuity was known.
                .is_some_and(|at| at <= now && now.since(at) <= settings.live_grace)
    }

    /// Whether an event was read longer ago than `live_grace`, or [`DURABLE_WITHIN`] if
    /// that is more, and is still not durable: what is read does not reach the store.
    fn is_stuck(&self, now: Time, settings: &Settings) -> bool {
        let grace = settings.live_grace.max(DURABLE_WITHIN);
        let oldest = self.waiting.front();
        oldest.is_some_and(|(_, at)| now.since(*at) > grace)
    }

    /// Records the durable cursor of the present numbering: events up to it are not
    /// awaited any more.
    pub fn set_durable(&mut self, durable: Option<Cursor>) {
        let done = |(seq, _): &mut (u64, Time)| durable.is_some_and(|done| *seq <= done.seq);
        while self.waiting.pop_front_if(done).is_some() {}
    }

    /// The time up to which everything that was read is durable.
    pub fn durable_until(&self) -> Option<Time> {
        let waiting = self.waiting.front().map(|(_, at)| *at);
        match (self.heard_at, waiting) {
            (Some(heard), Some(waiting)) => Some(heard.min(waiting)),
            (heard, _) => heard,
        }
    }

    /// Begins a new numbering: the cursor is cleared, and events that were read under the
    /// old numbering never write it.
    fn renumber(&mut self, row: &mut Upstream) {
        row.numbering += 1;
        self.waiting.clear();
    }

    /// When the last frame or pong arrived.
    pub fn heard_at(&self) -> Option<Time> {
        self.heard_at
    }

    /// The last event that was read.
    pub fn read(&self) -> Option<Cursor> {
        self.read
    }

    pub fn is_connected(&self) -> bool {
        !matches!(self.phase, Phase::Down | Phase::Dialing { .. })
    }
}

/// A hash of an event's number and contents, to recognize a duplicate.
fn fingerprint(cursor: &Cursor) -> u64 {
    let (half, other) = cursor.event.split_at(8);
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    number(half) ^ number(other).rotate_left(29) ^ cursor.seq
}

/// The largest clock value that [`begin_epoch`] uses. An epoch number of a wrong clock
/// beyond it would leave no room for the next ones.
const CLOCK_BELIEVED: u64 = u64::MAX / 2;

/// Begins a new epoch of an upstream. Only the upstream's row changes; the markers of its
/// repositories become invalid, because they name an older epoch.
pub fn begin_epoch(now: Now, row: &mut Upstream, why: ResetReason, notices: &mut Vec<Notice>) {
    let clock = now.time.0.min(CLOCK_BELIEVED);
    row.epoch = Epoch(row.epoch.0.saturating_add(1).max(clock));
    row.reset_at = now.tick;
    row.first_cursor_since_reset = None;
    notices.push(Notice::Reset(why));
}
