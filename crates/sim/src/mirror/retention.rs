//! Deletes what no reader of the log needs, and overruns readers that hold too long.

use gapless_core::retain::{self, ConsumerKey, Policies};
use gapless_store::change::{Change, ConsumerChange, Upkeep};

use super::SimMirror;
use super::log_event::LogEvent;
use super::purge::when;
use crate::world::World;

impl SimMirror {
    /// Trims the log up to a number, as far as readers allow it. Returns the first number that is
    /// left.
    pub fn trim_log(&mut self, world: &World, below: u64) -> u64 {
        let from = self.first_log_number();
        let at = when(world);
        self.write_upkeep(Upkeep::Trim { below, at });
        let to = self.first_log_number();
        if to > from {
            self.book.events.count(LogEvent::Trimmed);
        }
        if to < below {
            self.book.events.count(LogEvent::TrimHeldBack);
        }
        to
    }

    pub fn first_log_number(&self) -> u64 {
        let first = self.book.view().first_log_number();
        first.expect("the double does not fail")
    }

    /// Deletes the superseded records that an operation below this number replaced, as far as readers
    /// allow it. Returns how many are gone and how many are left.
    pub fn expire_versions(&mut self, world: &World, below: u64) -> (usize, usize) {
        let keys = self.superseded(below);
        if keys.is_empty() {
            return (0, 0);
        }
        let before = keys.len();
        let at = when(world);
        self.write_upkeep(Upkeep::Expire { keys, below, at });
        let left = self.superseded(below).len();
        if left < before {
            self.book.events.count(LogEvent::Expired);
        }
        if left > 0 {
            self.book.events.count(LogEvent::ExpiryHeldBack);
        }
        (before - left, left)
    }

    fn superseded(&self, below: u64) -> Vec<Vec<u8>> {
        let rows = self.book.view().superseded_keys(b"");
        let rows = rows.map(|row| row.expect("the double does not fail"));
        let old = rows.filter(|(_, by)| *by < below);
        old.map(|(key, _)| key).collect()
    }

    /// Overruns the readers whose hold has passed. Returns how many readers are overrun then.
    pub fn review_consumers(&mut self, world: &World) -> usize {
        let before = self.overrun();
        let at = when(world);
        self.write_upkeep(Upkeep::ReviewConsumers { at });
        let after = self.overrun();
        if after > before {
            self.book.events.count(LogEvent::HoldPassed);
        }
        after
    }

    fn overrun(&self) -> usize {
        let rows = self.book.view().consumers();
        let rows = rows.expect("the double does not fail");
        rows.values().filter(|row| row.overrun).count()
    }

    /// Overruns the reader that holds the lowest number, because the disk is almost full.
    pub fn relieve_disk(&mut self, world: &World) -> Option<ConsumerKey> {
        let rows = self.book.view().consumers();
        let rows = rows.expect("the double does not fail");
        let rows = rows.iter().map(|(key, row)| (*key, row));
        let head = self.book.counters().next_seq;
        let key = retain::next_to_overrun(
            rows,
            Policies {
                versions: head,
                log: head,
            },
        )?;
        let at = when(world);
        self.write_consumer(ConsumerChange::Overrun { key, at });
        self.book.events.count(LogEvent::DiskAlmostFull);
        Some(key)
    }

    /// Writes a change of a consumer. Returns the batch.
    pub(crate) fn write_consumer(&mut self, consumer: ConsumerChange) -> u64 {
        let change = Change {
            consumer: Some(consumer),
            ..Change::default()
        };
        self.book.write_upkeep(change).batch
    }
}
