//! Tracks how far the events of each upstream are done: the low-water mark.
//!
//! Events begin in the order in which they are read and are done in any order. The
//! cursor is the last event up to which all events are done, so a restart from it
//! repeats events and never skips one. The cursor is written in the batch that
//! holds the effects of the event that moved it, so it is never ahead of them.
//!
//! Every upstream has a numbering, which is raised when its cursor is cleared
//! because the host restarted its sequence numbers. Events that began under an
//! older numbering no longer move the cursor.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, MutexGuard};

use gapless_core::ledger::{Cursor, UpstreamId};

use crate::sync::Mutex;

/// An event by its position in an upstream's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPosition {
    pub upstream: UpstreamId,
    pub numbering: u32,
    pub seq: u64,
    /// The first 16 bytes of the event's hash.
    pub event: [u8; 16],
}

/// The low-water mark of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LowWaterMark {
    numbering: u32,
    cursor: Option<Cursor>,
    /// Sequence numbers of begun events above the cursor, in order, each with the hash of its
    /// event once that is done.
    begun: VecDeque<(u64, Option<[u8; 16]>)>,
}

impl LowWaterMark {
    /// Creates a mark from the stored numbering and cursor.
    pub fn resume(numbering: u32, cursor: Option<Cursor>) -> LowWaterMark {
        LowWaterMark {
            numbering,
            cursor,
            begun: VecDeque::new(),
        }
    }

    pub fn numbering(&self) -> u32 {
        self.numbering
    }

    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// Records that an event was read and holds the cursor back until it is done. Does
    /// nothing if the cursor has passed the event or the event has begun already.
    pub fn begin(&mut self, numbering: u32, seq: u64) {
        if numbering < self.numbering {
            return;
        }
        self.renumber(numbering);
        if self.cursor.is_some_and(|cursor| seq <= cursor.seq) {
            return;
        }
        if self.begun.back().is_none_or(|(last, _)| seq > *last) {
            self.begun.push_back((seq, None));
        } else if let Err(index) = self.begun_index(seq) {
            // Late, but the cursor must not pass it before it is done.
            self.begun.insert(index, (seq, None));
        }
    }

    /// Records that the effects of an event are in the batch being built. Returns the
    /// new cursor if it moved.
    pub fn done(&mut self, numbering: u32, seq: u64, event: [u8; 16]) -> Option<Cursor> {
        if numbering != self.numbering {
            return None;
        }
        let index = self.begun_index(seq).ok()?;
        let (_, done) = self.begun.get_mut(index)?;
        *done = Some(event);
        let mut moved = None;
        while let Some((seq, Some(event))) = self.begun.front().copied() {
            moved = Some(Cursor { seq, event });
            self.begun.pop_front();
        }
        if moved.is_some() {
            self.cursor = moved;
        }
        moved
    }

    /// Clears the cursor and all begun events, because the host restarted its sequence
    /// numbers. Does nothing unless `numbering` is higher than the present one.
    pub fn renumber(&mut self, numbering: u32) {
        if numbering > self.numbering {
            *self = LowWaterMark::resume(numbering, None);
        }
    }

    /// Forgets the begun events, which will never be done; a new epoch covers what
    /// they would have changed.
    pub fn abandon(&mut self) {
        self.begun.clear();
    }

    fn begun_index(&self, seq: u64) -> Result<usize, usize> {
        self.begun.binary_search_by_key(&seq, |(seq, _)| *seq)
    }
}

/// The low-water marks of all upstreams.
#[derive(Clone, Debug, Default)]
pub struct Cursors {
    marks: BTreeMap<UpstreamId, LowWaterMark>,
}

impl Cursors {
    pub fn insert(&mut self, upstream: UpstreamId, mark: LowWaterMark) {
        self.marks.insert(upstream, mark);
    }

    pub fn get(&self, upstream: UpstreamId) -> Option<&LowWaterMark> {
        self.marks.get(&upstream)
    }

    /// See [`LowWaterMark::begin`].
    pub fn begin(&mut self, upstream: UpstreamId, numbering: u32, seq: u64) {
        let mark = self.marks.entry(upstream).or_default();
        mark.begin(numbering, seq);
    }

    /// See [`LowWaterMark::done`].
    pub fn done(&mut self, position: &EventPosition) -> Option<Cursor> {
        let mark = self.marks.get_mut(&position.upstream)?;
        mark.done(position.numbering, position.seq, position.event)
    }

    /// See [`LowWaterMark::renumber`].
    pub fn renumber(&mut self, upstream: UpstreamId, numbering: u32) {
        self.marks.entry(upstream).or_default().renumber(numbering);
    }

    /// See [`LowWaterMark::abandon`].
    pub fn abandon(&mut self, upstream: UpstreamId) {
        if let Some(mark) = self.marks.get_mut(&upstream) {
            mark.abandon();
        }
    }
}

/// The low-water marks of all upstreams, shared between the committer and the readers of
/// events.
#[derive(Clone, Default)]
pub struct SharedCursors(Arc<Mutex<Cursors>>);

impl SharedCursors {
    pub fn lock(&self) -> MutexGuard<'_, Cursors> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const EVENT: [u8; 16] = [7; 16];

    fn seq(cursor: Option<Cursor>) -> Option<u64> {
        cursor.map(|cursor| cursor.seq)
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Read this many numbers further on.
        Begin(u64),
        /// Read an older number again.
        Again(u64),
        /// Finish one of those that are open, or have been.
        Done(prop::sample::Index),
        Renumber,
        /// Finish something of the numbering before.
        Late(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (1..4u64).prop_map(Step::Begin),
            1 => (0..40u64).prop_map(Step::Again),
            8 => any::<prop::sample::Index>().prop_map(Step::Done),
            1 => Just(Step::Renumber),
            1 => (1..40u64).prop_map(Step::Late),
        ]
    }

    proptest! {
        /// Against the definition: nothing at or below the cursor is open, and
        /// everything done below the lowest open one is at or below the cursor.
        #[test]
        fn the_cursor_is_the_low_water_mark(steps in prop::collection::vec(step(), 0..80)) {
            let mut mark = LowWaterMark::default();
            let (mut numbering, mut read) = (0, 0);
            let mut begun = BTreeSet::new();
            let mut done = BTreeSet::new();
            let mut last = None;
            for step in steps {
                match step {
                    Step::Begin(gap) => {
                        read += gap;
                        mark.begin(numbering, read);
                        begun.insert(read);
                    }
                    Step::Again(back) => {
                        let again = read.saturating_sub(back);
                        if begun.contains(&again) {
                            mark.begin(numbering, again);
                        }
                    }
                    Step::Done(index) => {
                        let all: Vec<u64> = begun.iter().copied().collect();
                        if !all.is_empty() {
                            let seq = *index.get(&all);
                            mark.done(numbering, seq, EVENT);
                            done.insert(seq);
                        }
                    }
                    Step::Renumber => {
                        numbering += 1;
                        mark.renumber(numbering);
                        read = 0;
                        begun.clear();
                        done.clear();
                        last = None;
                    }
                    Step::Late(seq) => {
                        if numbering > 0 {
                            mark.begin(numbering - 1, seq);
                            prop_assert_eq!(mark.done(numbering - 1, seq, EVENT), None);
                        }
                    }
                }
                let lowest_open = begun.difference(&done).next().copied().unwrap_or(u64::MAX);
                let expected = done.iter().take_while(|seq| **seq < lowest_open).last().copied();
                prop_assert_eq!(seq(mark.cursor()), expected);
                prop_assert!(seq(mark.cursor()) >= last, "it never goes back");
                last = seq(mark.cursor());
            }
        }
    }

    #[test]
    fn one_slow_event_holds_the_cursor_and_lets_it_go_at_once() {
        let mut mark = LowWaterMark::resume(
            3,
            Some(Cursor {
                seq: 10,
                event: EVENT,
            }),
        );
        for seq in 11..=20 {
            mark.begin(3, seq);
        }
        for seq in 12..=20 {
            assert_eq!(mark.done(3, seq, EVENT), None);
        }
        assert_eq!(seq(mark.cursor()), Some(10));
        assert_eq!(seq(mark.done(3, 11, EVENT)), Some(20));
        assert!(mark.begun.is_empty());
    }

    #[test]
    fn an_event_begun_late_is_not_passed() {
        let mut mark = LowWaterMark::default();
        for seq in [1, 3, 2] {
            mark.begin(0, seq);
        }
        assert_eq!(seq(mark.done(0, 1, EVENT)), Some(1));
        assert_eq!(mark.done(0, 3, EVENT), None, "two is not done");
        assert_eq!(seq(mark.done(0, 2, EVENT)), Some(3));
    }

    #[test]
    fn what_was_read_before_the_cursor_was_cleared_writes_it_never_again() {
        let mut mark = LowWaterMark::resume(
            0,
            Some(Cursor {
                seq: 500,
                event: EVENT,
            }),
        );
        mark.begin(0, 501);
        mark.renumber(1);
        assert_eq!(mark.cursor(), None);
        mark.begin(1, 1);
        assert_eq!(mark.done(0, 501, EVENT), None);
        mark.begin(0, 502);
        assert_eq!(mark.done(0, 502, EVENT), None);
        assert_eq!(mark.cursor(), None);
        assert_eq!(seq(mark.done(1, 1, EVENT)), Some(1));
    }

    #[test]
    fn what_was_abandoned_holds_nothing_back() {
        let mut mark = LowWaterMark::default();
        mark.begin(0, 1);
        mark.begin(0, 2);
        mark.abandon();
        mark.begin(0, 9);
        assert_eq!(
            mark.done(0, 2, EVENT),
            None,
            "its number is not known any more"
        );
        assert_eq!(seq(mark.done(0, 9, EVENT)), Some(9));
    }
}
