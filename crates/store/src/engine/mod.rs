//! The interface to the storage engine: tables of ordered bytes, atomic durable
//! batches, and snapshots.
//!
//! A batch is written whole or not at all, and when [`Engine::commit`] returns the
//! batch survives a power cut. A [`View`] never changes. An engine does not know
//! what the bytes mean. Failure is final: after the first error an engine returns
//! that error from every call until the process restarts, because after a failed
//! fsync the contents of the disk are unknown.

#[cfg(feature = "engine")]
mod disk;
mod memory;
#[cfg(feature = "engine")]
mod scour;
mod slice;

use std::ops::Bound;
use std::sync::Arc;

#[cfg(feature = "engine")]
pub(crate) use disk::KEYSPACES_FOLDER;
#[cfg(feature = "engine")]
pub use disk::{DiskEngine, DiskSettings};
pub use memory::MemoryEngine;
#[cfg(feature = "engine")]
pub use scour::{JOURNAL_BYTES, Scourer};
pub use slice::Slice;

use crate::table::Table;

/// The first failure of an engine, which every later call returns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the storage engine failed while {doing}: {cause}; it neither reads nor writes until Gapless is restarted"
)]
pub struct EngineError {
    pub doing: &'static str,
    pub cause: Arc<str>,
}

impl EngineError {
    pub fn new(doing: &'static str, cause: impl std::fmt::Display) -> EngineError {
        EngineError {
            doing,
            cause: cause.to_string().into(),
        }
    }
}

/// A put, or a delete if there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawWrite {
    pub table: Table,
    pub key: Slice,
    pub value: Option<Slice>,
}

/// Writes that become visible and durable together. If a key occurs twice, the
/// later write wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawBatch {
    pub writes: Vec<RawWrite>,
}

impl RawBatch {
    pub fn put(&mut self, table: Table, key: impl Into<Slice>, value: impl Into<Slice>) {
        self.writes.push(RawWrite {
            table,
            key: key.into(),
            value: Some(value.into()),
        });
    }

    pub fn delete(&mut self, table: Table, key: impl Into<Slice>) {
        self.writes.push(RawWrite {
            table,
            key: key.into(),
            value: None,
        });
    }
}

/// The key and value of a row, not decoded.
pub type RawRow = (Slice, Slice);

/// An iterator over rows that are not decoded, in key order, from either end.
pub type RawRows = Box<dyn DoubleEndedIterator<Item = Result<RawRow, EngineError>> + Send>;

/// A range of keys, in byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Bound<Vec<u8>>,
    pub end: Bound<Vec<u8>>,
}

impl KeyRange {
    pub fn all() -> KeyRange {
        KeyRange {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
        }
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange {
            start: Bound::Included(prefix.to_vec()),
            end: after_prefix(prefix),
        }
    }

    /// Every key that begins with `prefix` and is not below `from`.
    pub(crate) fn prefix_from(prefix: &[u8], from: Vec<u8>) -> KeyRange {
        KeyRange {
            start: Bound::Included(from.max(prefix.to_vec())),
            end: after_prefix(prefix),
        }
    }

    pub fn from(start: Vec<u8>) -> KeyRange {
        KeyRange {
            start: Bound::Included(start),
            end: Bound::Unbounded,
        }
    }

    /// Everything up to and including `end`.
    pub fn up_to(end: Vec<u8>) -> KeyRange {
        KeyRange {
            start: Bound::Unbounded,
            end: Bound::Included(end),
        }
    }

    /// Whether a key lies in the range.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let bounds = (self.start.as_ref(), self.end.as_ref());
        let bounds = (bounds.0.map(Vec::as_slice), bounds.1.map(Vec::as_slice));
        std::ops::RangeBounds::<[u8]>::contains(&bounds, key)
    }

    /// Whether the range cannot contain a key. Ordered maps and engines panic on such bounds.
    pub fn is_empty(&self) -> bool {
        use Bound::{Excluded, Included, Unbounded};
        match (&self.start, &self.end) {
            (Unbounded, _) | (_, Unbounded) => false,
            (Included(start), Included(end)) => start > end,
            (Included(start) | Excluded(start), Excluded(end))
            | (Excluded(start), Included(end)) => start >= end,
        }
    }
}

/// The first key after all keys with this prefix: the prefix up to its last byte that is
/// not 0xff, with that byte raised by one.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return Bound::Excluded(end);
        }
        end.pop();
    }
    Bound::Unbounded
}

/// The tables as they were at one moment.
pub trait View: Send + Sync {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>, EngineError>;

    fn range(&self, table: Table, range: KeyRange) -> RawRows;

    fn prefix(&self, table: Table, prefix: &[u8]) -> RawRows {
        self.range(table, KeyRange::prefix(prefix))
    }
}

/// Tables that can be written. There is one writer and any number of views.
pub trait Engine: Send {
    /// Writes a whole batch durably. An empty batch does nothing.
    fn commit(&mut self, batch: &RawBatch) -> Result<(), EngineError>;

    /// Returns a view of everything committed so far.
    fn snapshot(&self) -> Arc<dyn View>;

    /// Returns the present value of a key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>, EngineError> {
        self.snapshot().get(table, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_first_key_that_lacks_it() {
        assert_eq!(
            after_prefix(&[1, 2, 255]),
            Bound::Excluded(vec![1, 3]),
            "a last byte that cannot be raised is cut"
        );
        assert_eq!(after_prefix(&[255, 255]), Bound::Unbounded);
        assert_eq!(after_prefix(&[]), Bound::Unbounded);
    }

    #[test]
    fn ranges_without_room_are_known() {
        let range = |start: Bound<u8>, end: Bound<u8>| KeyRange {
            start: start.map(|byte| vec![byte]),
            end: end.map(|byte| vec![byte]),
        };
        use Bound::{Excluded, Included, Unbounded};
        assert!(!range(Included(1), Included(1)).is_empty());
        assert!(range(Included(1), Excluded(1)).is_empty());
        assert!(range(Excluded(1), Excluded(1)).is_empty());
        assert!(range(Included(2), Included(1)).is_empty());
        assert!(!range(Unbounded, Excluded(0)).is_empty());
    }
}
