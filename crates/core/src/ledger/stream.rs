//! One upstream's connection: did it miss anything? (R1, R13)
//!
//! A [`StreamState`] is the volatile side of an upstream. It turns what happens on
//! the socket into epochs: as long as the epoch stays, every event was read.
//! Continuity is shown, never assumed: a reconnect asks for the event *at* the
//! cursor once more, and that very event must come first.
//!
//! An epoch is *open* once the host's subscription surely is in force. Only what
//! is read or begun while it is open may raise a marker to it.
//!
//! The caller writes the [`Upstream`] row durably before anything that was read under
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
    /// Connected; the event at our cursor must come first. `lost` when it has
    /// already been given up.
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
    /// The events have times instead of numbers. Such a stream never opens.
    timed: bool,
    /// The last event read from a socket; the durable cursor may be behind.
    read: Option<Cursor>,
    /// The last ones that were read: whatever else comes under a lower number is not
    /// one of them again.
    lately: VecDeque<u64>,
    /// Events that were read and are not known to be durable: the last number of
    /// each moment, and the moment.
    waiting: VecDeque<(u64, Time)>,
    /// The epoch that was last opened, and when.
    opened: Option<(Epoch, Tick)>,
    heard_at: Option<Time>,
    /// It was connected, or could not be, since it was added.
    tried: bool,
    /// When continuity was last known; nothing before the first connection.
    flowed_at: Option<Time>,
    backward: u32,
    /// When the first of them came.
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

    /// Begins to connect. Returns the cursor to ask for: one less than ours, so
    /// that the event at our cursor is the first to come.
    pub fn dial(&mut self, durable: Option<Cursor>) -> Option<u64> {
        let expect = self.read.or(durable);
        self.phase = Phase::Dialing { expect };
        self.open = false;
        self.backward = 0;
        expect.map(|cursor| cursor.seq.saturating_sub(1))
    }

    /// The connection stands.
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

    /// A frame with a number came. The hash tells whether it is the event that
    /// we have had under that number.
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
                    self.opens(now, row);
                    self.flowed_at = Some(now.time);
                    self.has_read(this);
                    return self.repeated(row);
                }
                if !lost {
                    begin_epoch(now, row, ResetReason::OtherEvent, notices);
                }
                if seq <= expect.seq {
                    self.renumber(row);
                }
                self.opens(now, row);
            }
            Phase::Fresh { .. } => {
                self.phase = Phase::Flowing;
                self.opens(now, row);
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
                return Placement {
                    epoch: None,
                    repeat: false,
                    counts: false,
                };
            }
        }
        self.flows(now, row, this)
    }

    /// The subscription is in force: what begins from now on counts.
    fn opens(&mut self, now: Now, row: &Upstream) {
        if self.timed {
            return;
        }
        self.open = true;
        if self.opened.is_none_or(|(epoch, _)| epoch != row.epoch) {
            self.opened = Some((row.epoch, now.tick));
        }
    }

    /// When the present epoch was opened, if it was opened here: what was swept
    /// before could raise no marker to it.
    pub fn opened_at(&self) -> Option<Tick> {
        self.opened.map(|(_, tick)| tick)
    }

    fn flows(&mut self, now: Now, row: &mut Upstream, this: Cursor) -> Placement {
        self.flowed_at = Some(now.time);
        self.has_read(this);
        let full = self.waiting.len() >= WAITING_MOMENTS;
        match self.waiting.back_mut() {
            // One that came later counts as old as the one before it.
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

    fn has_read(&mut self, this: Cursor) {
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

    /// A number at or below the last one. An event that we have had is a duplicate;
    /// another one came late, and the cursor may have passed it already: were we to
    /// stop before it is durable, nobody would bring it again. So it counts like one
    /// that nobody could read, until a sweep. Many in a row are a new numbering, and
    /// until that is clear they raise nothing.
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
            return Placement {
                epoch: None,
                repeat: false,
                counts: false,
            };
        }
        self.backward = 0;
        begin_epoch(now, row, ResetReason::Backwards, notices);
        self.renumber(row);
        self.flows(now, row, this)
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
            // A number at or below our cursor is still another numbering: what
            // comes under it would be passed by a cursor of the old one.
            Phase::Awaiting { expect, since, .. } => Phase::Awaiting {
                expect,
                since,
                lost: true,
            },
            _ => Phase::Flowing,
        };
        self.opens(now, row);
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
            // A duplicate or a new numbering? A quiet stream never tells: only the
            // event at our cursor does.
            self.connection_lost(now);
            return true;
        }
        match self.phase {
            Phase::Fresh { since } if !self.open && now.time.since(since) >= OPEN_AFTER => {
                self.opens(now, row);
                self.flowed_at = Some(now.time);
                true
            }
            Phase::Awaiting {
                expect,
                since,
                lost: false,
            } if now.time.since(since) >= CONTINUITY_WITHIN => {
                begin_epoch(now, row, ResetReason::Silence, notices);
                self.opens(now, row);
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

    /// When the clock goes back, what was waited for is waited for from then on.
    fn not_after(&mut self, now: Time) {
        self.backward_since = self.backward_since.min(Some(now));
        match &mut self.phase {
            Phase::Fresh { since } | Phase::Awaiting { since, .. } => *since = now.min(*since),
            Phase::Down | Phase::Dialing { .. } | Phase::Flowing => {}
        }
    }

    pub fn pong(&mut self, now: Now) {
        self.heard_at = Some(now.time);
        if self.open {
            self.flowed_at = Some(now.time);
        }
    }

    /// Records that the connection is gone.
    pub fn connection_lost(&mut self, _now: Now) {
        self.phase = Phase::Down;
        self.tried = true;
        self.open = false;
        self.backward = 0;
    }

    /// Whether it will be open within seconds, or known not to be: what can wait
    /// so long need not be done twice.
    pub fn is_opening(&self) -> bool {
        match self.phase {
            Phase::Down | Phase::Dialing { .. } => !self.tried,
            Phase::Awaiting { .. } | Phase::Fresh { .. } => !self.open && !self.timed,
            Phase::Flowing => false,
        }
    }

    /// The epoch, if what begins now may raise a marker to it.
    pub fn open_epoch(&self, row: &Upstream) -> Option<Epoch> {
        (self.open && self.backward == 0).then_some(row.epoch)
    }

    /// Whether the upstream can be relied on: connected with continuity shown,
    /// or lost only a moment ago; and what was read of it gets written.
    pub fn live(&self, now: Time, settings: &Settings) -> bool {
        if self.timed || self.backward > 0 || self.is_stuck(now, settings) {
            return false;
        }
        self.open
            || self
                .flowed_at
                // A clock that went back says nothing about how long ago it was.
                .is_some_and(|at| at <= now && now.since(at) <= settings.live_grace)
    }

    /// Whether an event was read longer ago than a lost stream may be silent, and
    /// is still not durable: what the stream shows has not reached the store.
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

    /// The time until which everything that was read is durable.
    pub fn durable_until(&self) -> Option<Time> {
        let waiting = self.waiting.front().map(|(_, at)| *at);
        match (self.heard_at, waiting) {
            (Some(heard), Some(waiting)) => Some(heard.min(waiting)),
            (heard, _) => heard,
        }
    }

    /// Begins a new numbering: the cursor is cleared, and what was read under the
    /// old one never writes it again.
    fn renumber(&mut self, row: &mut Upstream) {
        row.numbering += 1;
        self.waiting.clear();
    }

    /// The last frame or pong.
    pub fn heard_at(&self) -> Option<Time> {
        self.heard_at
    }

    /// The last event read.
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

/// No clock is right about a later time; a number as high would leave no room for
/// the next ones.
const CLOCK_BELIEVED: u64 = u64::MAX / 2;

/// Begins a new epoch of an upstream. Only the upstream's row changes; the markers of
/// its repositories become invalid by it.
pub fn begin_epoch(now: Now, row: &mut Upstream, why: ResetReason, notices: &mut Vec<Notice>) {
    let clock = now.time.0.min(CLOCK_BELIEVED);
    row.epoch = Epoch(row.epoch.0.saturating_add(1).max(clock));
    row.reset_at = now.tick;
    row.first_cursor_since_reset = None;
    notices.push(Notice::Reset(why));
}
