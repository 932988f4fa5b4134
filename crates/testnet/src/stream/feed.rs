//! The event stream of one host: the sequenced events, how far back they are kept, and
//! where a subscriber with a cursor begins.
//!
//! Entries are in the order in which they are sent. Faults may reorder them, so this need
//! not be the order of their numbers; a subscriber therefore holds a position, not a
//! number. A subscriber with a cursor gets what the window still has; older entries are
//! kept for a while for subscribers that are already connected. A new epoch ends every
//! subscription.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use gapless_atp::syntax::Did;
use tokio::sync::watch;

/// The bytes that one [`Feed::read`] returns, exceeded by at most one frame.
const READ_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone)]
struct Entry {
    /// `None` for `#info`, which is only sent to the subscribers of the moment.
    seq: Option<u64>,
    did: Option<Did>,
    /// `None` once the account was purged.
    frame: Option<Bytes>,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct State {
    entries: VecDeque<Entry>,
    /// Position of the first entry.
    base: u64,
    /// The position of the first entry that is replayed. Earlier entries are only for
    /// subscribers that are already reading.
    replay_base: u64,
    next_seq: u64,
    /// The highest number that has left the window.
    evicted_seq: u64,
    window_events: usize,
    /// The number of entries kept for live subscribers, whatever the window.
    buffer_events: usize,
    epoch: u64,
}

/// How a server handles cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// A PDS reports a cursor that is too old or ahead.
    Pds,
    /// A relay reports nothing and starts where it can.
    Relay,
}

/// The place where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// At a position. Entries before `live_from` are only sent if their number is above
    /// `cursor`.
    At {
        position: u64,
        cursor: u64,
        live_from: u64,
        outdated: bool,
    },
    FutureCursor,
}

/// The next frames for a subscriber.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub frames: Vec<Bytes>,
    pub position: u64,
    /// The number of entries after `position`.
    pub backlog: u64,
    /// The time until which the next entry is held back.
    pub not_before: Option<Instant>,
    /// The window has passed the subscriber's position: the wanted entries are gone.
    pub overrun: bool,
    pub epoch: u64,
}

/// The event stream of one host, shared with its subscribers.
#[derive(Debug)]
pub(crate) struct Feed {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl Feed {
    pub(crate) fn new(window_events: usize, buffer_events: u64) -> Feed {
        Feed {
            state: Mutex::new(State {
                entries: VecDeque::new(),
                base: 0,
                replay_base: 0,
                next_seq: 1,
                evicted_seq: 0,
                window_events,
                buffer_events: usize::try_from(buffer_events).unwrap_or(usize::MAX),
                epoch: 0,
            }),
            changed: watch::Sender::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// A receiver that is notified of every change.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Takes the next number.
    pub(crate) fn skip_seq(&self) -> u64 {
        let mut state = self.state();
        let seq = state.next_seq;
        state.next_seq += 1;
        seq
    }

    pub(crate) fn push(&self, seq: u64, did: &Did, frame: Bytes, not_before: Option<Instant>) {
        self.push_entry(Entry {
            seq: Some(seq),
            did: Some(did.clone()),
            frame: Some(frame),
            not_before,
        });
    }

    /// Sends a frame without a number to all present subscribers.
    pub(crate) fn push_info(&self, frame: Bytes) {
        self.push_entry(Entry {
            seq: None,
            did: None,
            frame: Some(frame),
            not_before: None,
        });
    }

    fn push_entry(&self, entry: Entry) {
        let mut state = self.state();
        state.entries.push_back(entry);
        state.evict();
        drop(state);
        self.wake();
    }

    /// The last number that was given; 0 before the first.
    pub(crate) fn last_seq(&self) -> u64 {
        self.state().next_seq - 1
    }

    /// Sets the number of events that are replayed.
    pub(crate) fn set_window(&self, events: usize) {
        let mut state = self.state();
        state.window_events = events;
        state.evict();
    }

    /// Ends all subscriptions.
    pub(crate) fn disconnect(&self) {
        self.state().epoch += 1;
        self.wake();
    }

    /// Wipes the stream: nothing is kept, and numbers begin again at `next`.
    pub(crate) fn restart(&self, next: u64) {
        let mut state = self.state();
        state.base += state.entries.len() as u64;
        state.entries.clear();
        state.replay_base = state.base;
        state.next_seq = next.max(1);
        state.evicted_seq = 0;
        state.epoch += 1;
        drop(state);
        self.wake();
    }

    /// Restores the stream from a backup: the last events are forgotten, and their
    /// numbers are given again. Returns how many events were forgotten.
    pub(crate) fn rollback(&self, events: usize) -> usize {
        let mut state = self.state();
        let gone = events.min(state.entries.len() - state.forgotten());
        let keep = state.entries.len() - gone;
        let first_gone = state.entries.range(keep..).filter_map(|entry| entry.seq);
        if let Some(seq) = first_gone.min() {
            state.next_seq = seq;
        }
        // Positions keep rising, so that no reader mistakes new entries for old ones.
        state.base += gone as u64;
        state.replay_base += gone as u64;
        state.entries.truncate(keep);
        state.epoch += 1;
        drop(state);
        self.wake();
        gone
    }

    /// Removes the frames of an account, as a PDS does on deletion.
    pub(crate) fn purge(&self, did: &Did) {
        for entry in &mut self.state().entries {
            if entry.did.as_ref() == Some(did) {
                entry.frame = None;
            }
        }
    }

    /// The place where a subscriber with this cursor begins.
    pub(crate) fn start(&self, cursor: Option<u64>, manners: Manners) -> Start {
        let state = self.state();
        let end = state.base + state.entries.len() as u64;
        let live = Start::At {
            position: end,
            cursor: 0,
            live_from: end,
            outdated: false,
        };
        let Some(cursor) = cursor else {
            return live;
        };
        let last = state.next_seq - 1;
        if cursor > last {
            // A host without events has nothing to compare a cursor with.
            return match manners {
                Manners::Pds if last > 0 => Start::FutureCursor,
                _ => live,
            };
        }
        let above = |entry: &Entry| entry.seq.is_some_and(|seq| seq > cursor);
        let forgotten = state.forgotten();
        let skipped = state.entries.range(forgotten..).position(above);
        let skipped = skipped.map_or(state.entries.len(), |skipped| forgotten + skipped);
        Start::At {
            position: state.base + skipped as u64,
            cursor,
            live_from: end,
            outdated: manners == Manners::Pds && state.evicted_seq > cursor,
        }
    }

    /// The next frames from `position` on, at most about [`READ_BYTES`].
    pub(crate) fn read(&self, position: u64, cursor: u64, live_from: u64) -> Read {
        let state = self.state();
        let mut read = Read {
            position,
            epoch: state.epoch,
            ..Read::default()
        };
        let Some(mut at) = position.checked_sub(state.base) else {
            read.overrun = true;
            return read;
        };
        let now = Instant::now();
        let mut bytes = 0;
        while bytes < READ_BYTES {
            let Some(entry) = state.entries.get(at as usize) else {
                break;
            };
            if entry.not_before.is_some_and(|at| at > now) {
                read.not_before = entry.not_before;
                break;
            }
            let is_live = state.base + at >= live_from;
            let wanted = is_live || entry.seq.is_some_and(|seq| seq > cursor);
            if let Some(frame) = entry.frame.as_ref().filter(|_| wanted) {
                bytes += frame.len();
                read.frames.push(frame.clone());
            }
            at += 1;
        }
        read.position = state.base + at;
        read.backlog = (state.entries.len() as u64).saturating_sub(at);
        read
    }

    /// The number of entries from `position` on.
    pub(crate) fn backlog(&self, position: u64) -> u64 {
        let state = self.state();
        (state.base + state.entries.len() as u64).saturating_sub(position)
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    /// All frames that a subscriber with cursor 0 would get now.
    pub(crate) fn frames(&self) -> Vec<Bytes> {
        let state = self.state();
        let replayed = state.entries.range(state.forgotten()..);
        let numbered = replayed.filter(|entry| entry.seq.is_some());
        numbered.filter_map(|entry| entry.frame.clone()).collect()
    }
}

impl State {
    /// The number of entries that are kept but no longer replayed.
    fn forgotten(&self) -> usize {
        (self.replay_base - self.base) as usize
    }

    fn evict(&mut self) {
        let forgotten = self.forgotten();
        let passed = self.entries.len().saturating_sub(self.window_events);
        for at in forgotten..passed {
            // A purged entry is already gone without a trace.
            if let Some(old) = self.entries.get(at).filter(|old| old.frame.is_some()) {
                self.evicted_seq = self.evicted_seq.max(old.seq.unwrap_or(0));
            }
        }
        self.replay_base = self.base + passed.max(forgotten) as u64;
        let kept = self.window_events.max(self.buffer_events);
        while self.entries.len() > kept {
            self.entries.pop_front();
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(events: u64, window: usize) -> Feed {
        let feed = Feed::new(window, 4);
        let did = Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
        for _ in 0..events {
            let seq = feed.skip_seq();
            feed.push(seq, &did, Bytes::from(vec![seq as u8]), None);
        }
        feed
    }

    fn replay(feed: &Feed, cursor: Option<u64>, manners: Manners) -> Result<(Vec<u8>, bool), ()> {
        match feed.start(cursor, manners) {
            Start::FutureCursor => Err(()),
            Start::At {
                position,
                cursor,
                live_from,
                outdated,
            } => {
                let read = feed.read(position, cursor, live_from);
                Ok((read.frames.concat(), outdated))
            }
        }
    }

    #[test]
    fn cursors_are_exclusive_and_pdss_say_what_relays_do_not() {
        let feed = feed(5, 3);
        for (cursor, pds, relay) in [
            (None, Ok((vec![], false)), Ok((vec![], false))),
            (
                Some(0),
                Ok((vec![3, 4, 5], true)),
                Ok((vec![3, 4, 5], false)),
            ),
            (
                Some(1),
                Ok((vec![3, 4, 5], true)),
                Ok((vec![3, 4, 5], false)),
            ),
            (
                Some(2),
                Ok((vec![3, 4, 5], false)),
                Ok((vec![3, 4, 5], false)),
            ),
            (Some(4), Ok((vec![5], false)), Ok((vec![5], false))),
            (Some(5), Ok((vec![], false)), Ok((vec![], false))),
            (Some(6), Err(()), Ok((vec![], false))),
        ] {
            assert_eq!(replay(&feed, cursor, Manners::Pds), pds, "{cursor:?}");
            assert_eq!(replay(&feed, cursor, Manners::Relay), relay, "{cursor:?}");
        }
    }

    #[test]
    fn a_rollback_gives_numbers_again() {
        let feed = feed(5, 10);
        let before = feed.epoch();
        assert_eq!(feed.rollback(2), 2);
        assert_eq!(feed.last_seq(), 3);
        assert!(feed.epoch() > before);
        assert_eq!(replay(&feed, Some(0), Manners::Relay).unwrap().0, [1, 2, 3]);
        assert_eq!(feed.skip_seq(), 4);
    }

    #[test]
    fn what_is_purged_is_not_replayed() {
        let feed = feed(3, 10);
        feed.purge(&Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").unwrap());
        assert_eq!(replay(&feed, Some(0), Manners::Pds), Ok((vec![], false)));
    }
}
