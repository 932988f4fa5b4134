//! A stream whose events have times instead of numbers: Jetstream's.
//!
//! Times are not exact, a cursor that is too old is moved up without a word, and
//! another server of the same name gives the same events other times. So every
//! connect asks for a little more than was had, and the event at our cursor must come
//! once more before anything later does; otherwise something may be missing, and that
//! is a new epoch. Such a stream never opens: nothing that it brings, or does not
//! bring, vouches for any repository.

use super::super::notice::{Notice, Reset};
use super::super::settings::{BACKWARD_FRAMES, OVERLAP};
use super::super::state::{Cursor, Upstream};
use super::super::time::Now;
use super::{Phase, Read, Stream, reset};

/// It has come before, or too early to tell: the cursor stays.
const PASSED: Read = Read {
    epoch: None,
    repeat: false,
    counts: false,
};

fn overlapped(at: u64) -> u64 {
    at.saturating_sub(OVERLAP.as_micros() as u64)
}

impl Stream {
    /// Begins to connect. Returns the time to ask for, in microseconds.
    pub fn dial_timed(&mut self, durable: Option<Cursor>) -> Option<u64> {
        self.timed = true;
        self.dial(durable);
        match self.phase {
            Phase::Dialing { expect } => expect.map(|cursor| overlapped(cursor.seq)),
            _ => None,
        }
    }

    /// An event with a time came. What was had before is not told apart here: who
    /// takes it in sees that it is nothing new.
    pub fn told(
        &mut self,
        now: Now,
        row: &mut Upstream,
        at: u64,
        event: [u8; 16],
        notices: &mut Vec<Notice>,
    ) -> Read {
        self.heard_at = Some(now.time);
        let this = Cursor { seq: at, event };
        match self.phase {
            Phase::Down | Phase::Dialing { .. } => PASSED,
            Phase::Fresh { .. } => {
                self.phase = Phase::Flowing;
                self.flows(now, row, this)
            }
            Phase::Awaiting { expect, .. } if this == expect => {
                self.phase = Phase::Flowing;
                self.has_read(this);
                self.repeated(row)
            }
            Phase::Awaiting { expect, lost, .. } => {
                // Older than what was asked for: its clock is another one.
                let other_clock = at < overlapped(expect.seq);
                if at <= expect.seq && !other_clock {
                    return PASSED;
                }
                self.phase = Phase::Flowing;
                if !lost {
                    reset(now, row, Reset::OtherEvent, notices);
                }
                if other_clock {
                    self.renumber(row);
                }
                self.flows(now, row, this)
            }
            Phase::Flowing => self.goes_on(now, row, this, notices),
        }
    }

    fn goes_on(
        &mut self,
        now: Now,
        row: &mut Upstream,
        this: Cursor,
        notices: &mut Vec<Notice>,
    ) -> Read {
        let last = self.read.map_or(0, |read| read.seq);
        if self.read == Some(this) {
            return self.repeated(row);
        }
        if this.seq > last {
            self.backward = 0;
            return self.flows(now, row, this);
        }
        if this.seq >= overlapped(last) {
            return PASSED;
        }
        // Its clock went back, or that one time was wrong: many of them tell.
        if self.backward == 0 {
            self.backward_since = Some(now.time);
        }
        self.backward += 1;
        notices.push(Notice::Backward);
        if self.backward < BACKWARD_FRAMES {
            return PASSED;
        }
        self.backward = 0;
        reset(now, row, Reset::Backwards, notices);
        self.renumber(row);
        self.flows(now, row, this)
    }
}
