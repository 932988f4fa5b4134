//! A batch of consecutive records of a repository, encoded as CAR blocks.
//!
//! The thread that reads a record from the store copies the record into a batch, so
//! threads exchange a few large buffers instead of one allocation per record.

use gapless_atp::car::write_block;
use gapless_atp::cid::Cid;
use gapless_atp::mst::key_height;
use gapless_store::error::StoreError;
use gapless_store::table::record::Record;

/// Bytes of blocks after which a batch is full, whatever its number of records.
const BATCH_BYTES: usize = 256 << 10;

/// An iterator over records of the store.
pub(crate) type RecordRows = Box<dyn Iterator<Item = Result<Record, StoreError>> + Send>;

/// Which parts of the records a batch holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchContent {
    /// Blocks, verified against their CIDs.
    Blocks,
    /// Keys and CIDs, from which a tree is built.
    Keys,
    Both,
}

/// Consecutive records of a repository.
#[derive(Default)]
pub(crate) struct RecordBatch {
    /// The CAR blocks of all records, concatenated in reading order.
    blocks: Vec<u8>,
    /// The keys of all records, concatenated in reading order.
    keys: Vec<u8>,
    bounds: Vec<RecordBounds>,
    /// The records were read from the last to the first.
    backward: bool,
}

/// Where the block and the key of a record end, and what is known about the record.
struct RecordBounds {
    block: usize,
    key: usize,
    height: u32,
    cid: Cid,
    verified: bool,
}

/// One record of a batch.
pub(crate) struct BatchRecord<'p> {
    pub(crate) key: &'p [u8],
    /// The height of the key in the tree; 0 in a batch of [`BatchContent::Blocks`].
    pub(crate) height: u32,
    pub(crate) cid: Cid,
    /// The record as a CAR block; empty in a batch of [`BatchContent::Keys`].
    pub(crate) block: &'p [u8],
    /// Whether the bytes were hashed and match the CID.
    pub(crate) verified: bool,
}

impl RecordBatch {
    /// Creates an empty batch for records that are read from the last to the first.
    pub(crate) fn backward() -> RecordBatch {
        RecordBatch {
            backward: true,
            ..RecordBatch::default()
        }
    }

    /// Creates an empty batch with the capacity that this batch needed.
    pub(crate) fn new_like(&self) -> RecordBatch {
        RecordBatch {
            blocks: Vec::with_capacity(self.blocks.len() + self.blocks.len() / 8),
            keys: Vec::with_capacity(self.keys.len() + self.keys.len() / 8),
            bounds: Vec::with_capacity(self.bounds.len()),
            backward: self.backward,
        }
    }

    pub(crate) fn push(&mut self, record: &Record, content: BatchContent) {
        let key = record.path();
        let bytes = match content {
            BatchContent::Keys => None,
            BatchContent::Blocks | BatchContent::Both => Some(record.bytes().unwrap_or_default()),
        };
        if let Some(bytes) = bytes {
            write_block(&mut self.blocks, &record.cid, bytes);
        }
        self.keys.extend_from_slice(key);
        self.bounds.push(RecordBounds {
            block: self.blocks.len(),
            key: self.keys.len(),
            height: match content {
                BatchContent::Blocks => 0,
                BatchContent::Keys | BatchContent::Both => key_height(key),
            },
            cid: record.cid,
            verified: bytes.is_some_and(|bytes| record.cid.matches(bytes)),
        });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bounds.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    pub(crate) fn is_full(&self, records: usize) -> bool {
        self.bounds.len() >= records || self.blocks.len() >= BATCH_BYTES
    }

    /// The memory that the batch occupies, approximately.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.capacity()
            + self.keys.capacity()
            + self.bounds.capacity() * size_of::<RecordBounds>()
    }

    /// The record at this index, in the order of the keys.
    pub(crate) fn get(&self, at: usize) -> Option<BatchRecord<'_>> {
        if !self.backward {
            self.as_read(at)
        } else {
            self.as_read(self.bounds.len().checked_sub(at + 1)?)
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = BatchRecord<'_>> {
        (0..self.bounds.len()).map_while(|at| self.get(at))
    }

    /// The key of the record that was read last.
    pub(crate) fn last_read(&self) -> Option<&[u8]> {
        let last = self.bounds.len().checked_sub(1)?;
        Some(self.as_read(last)?.key)
    }

    /// Removes records from the end of the reading order while `beyond` holds for their
    /// keys. Returns whether a record was removed.
    pub(crate) fn truncate_while(&mut self, beyond: impl Fn(&[u8]) -> bool) -> bool {
        let before = self.bounds.len();
        while self.last_read().is_some_and(&beyond) {
            self.bounds.pop();
        }
        self.bounds.len() < before
    }

    fn as_read(&self, at: usize) -> Option<BatchRecord<'_>> {
        let bounds = self.bounds.get(at)?;
        let before = at.checked_sub(1).and_then(|before| self.bounds.get(before));
        let (block, key) = before.map_or((0, 0), |before| (before.block, before.key));
        Some(BatchRecord {
            key: &self.keys[key..bounds.key],
            height: bounds.height,
            cid: bounds.cid,
            block: &self.blocks[block..bounds.block],
            verified: bounds.verified,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use gapless_atp::syntax::Rev;
    use gapless_store::table::record::{RecordRow, encode};

    use super::*;

    /// The record with this number; if `spoilt`, its bytes do not match its CID.
    pub(crate) fn record(number: usize, spoilt: bool) -> Record {
        let bytes = format!("record {number}").into_bytes();
        let row = encode(&RecordRow {
            seq: 1,
            rev: Rev::from_bits(7),
            cid: if !spoilt {
                Cid::dag_cbor(&bytes)
            } else {
                Cid::dag_cbor(b"another")
            },
            bytes: Some(&bytes),
        });
        let key = [&7u64.to_be_bytes()[..], format!("a/{number:06}").as_bytes()].concat();
        Record::new(key.into(), row.into()).expect("a row")
    }

    /// Asserts that `read` is the record with this number, verified.
    pub(crate) fn assert_read(read: &BatchRecord<'_>, number: usize, spoilt: bool) {
        let whole = record(number, spoilt);
        let mut block = Vec::new();
        write_block(&mut block, &whole.cid, whole.bytes().expect("it has some"));
        assert_eq!((read.key, read.block), (whole.path(), &block[..]));
        assert_eq!((read.cid, read.verified), (whole.cid, !spoilt));
    }

    #[test]
    fn what_is_not_hashed_is_not_called_sound_and_has_no_bytes() {
        let mut batch = RecordBatch::default();
        batch.push(&record(1, false), BatchContent::Keys);
        let read = batch.get(0).expect("it was taken");
        assert!(!read.verified && read.block.is_empty());
        assert_eq!(read.height, key_height(read.key));
    }

    #[test]
    fn records_that_were_read_backward_come_out_forward_and_the_last_read_are_cut() {
        let mut batch = RecordBatch::backward().new_like();
        for number in (0..10).rev() {
            batch.push(&record(number, number == 6), BatchContent::Both);
        }
        for (number, read) in batch.iter().enumerate() {
            assert_read(&read, number, number == 6);
        }
        assert!(!batch.truncate_while(|key| key < &b"a/000000"[..]));
        assert!(batch.truncate_while(|key| key <= &b"a/000003"[..]));
        assert_eq!(batch.len(), 6);
        for (at, read) in batch.iter().enumerate() {
            assert_read(&read, at + 4, at == 2);
        }
        assert_eq!(batch.last_read(), Some(&b"a/000004"[..]));
        assert!(batch.truncate_while(|_| true) && batch.is_empty());
    }
}
