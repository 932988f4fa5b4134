//! Some records of a repository in a row, as they stand in a CAR.
//!
//! What the store handed out is let go of where it was read: few large pieces of memory
//! change hands between threads, and not one for every record.

use gapless_atp::car::write_block;
use gapless_atp::cid::Cid;
use gapless_atp::mst::key_height;
use gapless_store::error::StoreError;
use gapless_store::table::record::Record;

/// Bytes after which a parcel is full, however few its records are.
const BYTES: usize = 256 << 10;

/// Records as the store hands them out.
pub type Rows = Box<dyn Iterator<Item = Result<Record, StoreError>> + Send>;

/// What is wanted of records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Their blocks, hashed.
    Blocks,
    /// Their keys and CIDs, for a tree.
    Keys,
    Both,
}

/// Some records, in order.
#[derive(Default)]
pub struct Parcel {
    /// Their blocks as a CAR has them, and their keys, one after the other, as they were
    /// read.
    blocks: Vec<u8>,
    keys: Vec<u8>,
    ends: Vec<End>,
    /// They were read from the last one to the first.
    backward: bool,
}

/// Where a record's parts end.
struct End {
    block: usize,
    key: usize,
    height: u32,
    cid: Cid,
    sound: bool,
}

/// One record of a parcel.
pub struct Read<'p> {
    pub key: &'p [u8],
    /// Of the key, in the tree; 0 where only blocks were wanted.
    pub height: u32,
    pub cid: Cid,
    /// As a CAR has it; empty where only keys were wanted.
    pub block: &'p [u8],
    /// Whether it was hashed, and found to be the one that its CID names.
    pub sound: bool,
}

impl Parcel {
    /// An empty one, for records from the last one to the first.
    pub fn backward() -> Parcel {
        Parcel {
            backward: true,
            ..Parcel::default()
        }
    }

    /// An empty one with room for as much as this one has.
    pub fn another(&self) -> Parcel {
        Parcel {
            blocks: Vec::with_capacity(self.blocks.len() + self.blocks.len() / 8),
            keys: Vec::with_capacity(self.keys.len() + self.keys.len() / 8),
            ends: Vec::with_capacity(self.ends.len()),
            backward: self.backward,
        }
    }

    pub fn push(&mut self, record: &Record, wanted: Wanted) {
        let key = record.path();
        let bytes = match wanted {
            Wanted::Keys => None,
            Wanted::Blocks | Wanted::Both => Some(record.bytes().unwrap_or_default()),
        };
        if let Some(bytes) = bytes {
            write_block(&mut self.blocks, &record.cid, bytes);
        }
        self.keys.extend_from_slice(key);
        self.ends.push(End {
            block: self.blocks.len(),
            key: self.keys.len(),
            height: match wanted {
                Wanted::Blocks => 0,
                Wanted::Keys | Wanted::Both => key_height(key),
            },
            cid: record.cid,
            sound: bytes.is_some_and(|bytes| record.cid.matches(bytes)),
        });
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn is_full(&self, records: usize) -> bool {
        self.ends.len() >= records || self.blocks.len() >= BYTES
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() + self.keys.capacity() + self.ends.capacity() * size_of::<End>()
    }

    /// The record at a place.
    pub fn get(&self, at: usize) -> Option<Read<'_>> {
        if !self.backward {
            self.as_read(at)
        } else {
            self.as_read(self.ends.len().checked_sub(at + 1)?)
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Read<'_>> {
        (0..self.ends.len()).map_while(|at| self.get(at))
    }

    /// The key that was read last.
    pub fn last_read(&self) -> Option<&[u8]> {
        let last = self.ends.len().checked_sub(1)?;
        Some(self.as_read(last)?.key)
    }

    /// Leaves out those that were read last, from the first one on of which this is so;
    /// whether any was.
    pub fn cut(&mut self, beyond: impl Fn(&[u8]) -> bool) -> bool {
        let before = self.ends.len();
        while self.last_read().is_some_and(&beyond) {
            self.ends.pop();
        }
        self.ends.len() < before
    }

    fn as_read(&self, at: usize) -> Option<Read<'_>> {
        let end = self.ends.get(at)?;
        let before = at.checked_sub(1).and_then(|before| self.ends.get(before));
        let (block, key) = before.map_or((0, 0), |before| (before.block, before.key));
        Some(Read {
            key: &self.keys[key..end.key],
            height: end.height,
            cid: end.cid,
            block: &self.blocks[block..end.block],
            sound: end.sound,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use gapless_atp::syntax::Rev;
    use gapless_store::table::record::{RecordRow, encode};

    use super::*;

    /// The record with this number, or one that is not what its CID names.
    pub fn record(number: usize, spoilt: bool) -> Record {
        let bytes = format!("record {number}").into_bytes();
        let row = encode(&RecordRow {
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

    /// Checks that what was read is that record, hashed.
    pub fn assert_read(read: &Read<'_>, number: usize, spoilt: bool) {
        let whole = record(number, spoilt);
        let mut block = Vec::new();
        write_block(&mut block, &whole.cid, whole.bytes().expect("it has some"));
        assert_eq!((read.key, read.block), (whole.path(), &block[..]));
        assert_eq!((read.cid, read.sound), (whole.cid, !spoilt));
    }

    #[test]
    fn what_is_not_hashed_is_not_called_sound_and_has_no_bytes() {
        let mut parcel = Parcel::default();
        parcel.push(&record(1, false), Wanted::Keys);
        let read = parcel.get(0).expect("it was taken");
        assert!(!read.sound && read.block.is_empty());
        assert_eq!(read.height, key_height(read.key));
    }

    #[test]
    fn records_that_were_read_backward_come_out_forward_and_the_last_read_are_cut() {
        let mut parcel = Parcel::backward().another();
        for number in (0..10).rev() {
            parcel.push(&record(number, number == 6), Wanted::Both);
        }
        for (number, read) in parcel.iter().enumerate() {
            assert_read(&read, number, number == 6);
        }
        assert!(!parcel.cut(|key| key < &b"a/000000"[..]));
        assert!(parcel.cut(|key| key <= &b"a/000003"[..]));
        assert_eq!(parcel.len(), 6);
        for (at, read) in parcel.iter().enumerate() {
            assert_read(&read, at + 4, at == 2);
        }
        assert_eq!(parcel.last_read(), Some(&b"a/000004"[..]));
        assert!(parcel.cut(|_| true) && parcel.is_empty());
    }
}
