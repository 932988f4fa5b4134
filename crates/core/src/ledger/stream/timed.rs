//! Streams whose events have times instead of numbers: Jetstream's.
//!
//! Times are not exact, a server silently moves up a cursor that is too old, and another
//! server of the same name gives the same events other times. Every connect therefore
//! requests [`TIMED_OVERLAP`] more than was read, and the event at our cursor must arrive
//! once more before any later event. Otherwise something may be missing, and a new epoch
//! begins. A timed stream never opens: nothing that it sends, or fails to send, vouches
//! for any repository.

use super::super::notice::{Notice, ResetReason};
use super::super::settings::{BACKWARD_FRAMES, TIMED_OVERLAP};
use super::super::state::{Cursor, Upstream};
use super::super::time::Now;
use super::{Phase, Placement, StreamState, begin_epoch};

/// The time, in microseconds, that lies [`TIMED_OVERLAP`] before `at`.
fn minus_overlap(at: u64) -> u64 {
    at.saturating_sub(TIMED_OVERLAP.as_micros() as u64)
}

impl StreamState {
    /// Begins to connect. Returns the time to request, in microseconds.
    pub fn dial_timed(&mut self, durable: Option<Cursor>) -> Option<u64> {
        self.timed = true;
        self.dial(durable);
        match self.phase {
            Phase::Dialing { expect } => expect.map(|cursor| minus_overlap(cursor.seq)),
            _ => None,
        }
    }

    /// Places an event that has a time instead of a number. Duplicates are not detected
    /// here: the rules of claims find that they are not newer than the held state.
    pub fn timed_event(
        &mut self,
        now: Now,
        row: &mut Upstream,
        at: u64,
        event: [u8; 16],
        notices: &mut Vec<Notice>,
    ) -> Placement {
        self.heard_at = Some(now.time);
        let this = Cursor { seq: at, event };
        match self.phase {
            Phase::Down | Phase::Dialing { .. } => Placement::NOT_COUNTED,
            Phase::Fresh { .. } => {
                self.phase = Phase::Flowing;
                self.accept_next(now, row, this)
            }
            Phase::Awaiting { expect, .. } if this == expect => {
                self.phase = Phase::Flowing;
                self.record_read(this);
                self.repeated(row)
            }
            Phase::Awaiting { expect, lost, .. } => {
                // Older than what was requested: the server's clock is another one.
                let other_clock = at < minus_overlap(expect.seq);
                if at <= expect.seq && !other_clock {
                    return Placement::NOT_COUNTED;
                }
                self.phase = Phase::Flowing;
                if !lost {
                    begin_epoch(now, row, ResetReason::OtherEvent, notices);
                }
                if other_clock {
                    self.renumber(row);
                }
                self.accept_next(now, row, this)
            }
            Phase::Flowing => self.place_in_flow(now, row, this, notices),
        }
    }

    /// Places an event of a stream that flows.
    fn place_in_flow(
        &mut self,
        now: Now,
        row: &mut Upstream,
        this: Cursor,
        notices: &mut Vec<Notice>,
    ) -> Placement {
        let last = self.read.map_or(0, |read| read.seq);
        if self.read == Some(this) {
            return self.repeated(row);
        }
        if this.seq > last {
            self.backward = 0;
            return self.accept_next(now, row, this);
        }
        if this.seq >= minus_overlap(last) {
            return Placement::NOT_COUNTED;
        }
        // Either the server's clock went back, or this time was wrong: many such events
        // decide.
        if self.backward == 0 {
            self.backward_since = Some(now.time);
        }
        self.backward += 1;
        notices.push(Notice::Backward);
        if self.backward < BACKWARD_FRAMES {
            return Placement::NOT_COUNTED;
        }
        self.backward = 0;
        begin_epoch(now, row, ResetReason::Backwards, notices);
        self.renumber(row);
        self.accept_next(now, row, this)
    }
}
