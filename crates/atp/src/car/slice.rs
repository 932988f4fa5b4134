//! Reads a CAR that is whole in memory, without copying blocks.

use std::borrow::Cow;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::{CarError, Section, check, header, section};
use crate::cid::{CID_LEN, Cid};
use crate::limits;
use crate::mst::{self, SourceError};

/// An iterator over the blocks of a CAR. Each block is hashed; the first error ends the
/// iteration.
#[derive(Debug, Clone)]
pub struct Blocks<'a> {
    car: &'a [u8],
    roots: Vec<Cid>,
    rest: &'a [u8],
    read: usize,
}

/// Opens a CAR. The header is read at once, each block when it is asked for.
pub fn read_blocks(bytes: &[u8]) -> Result<Blocks<'_>, CarError> {
    if bytes.len() > limits::CAR_SLICE_BYTES {
        return Err(CarError::Size(bytes.len()));
    }
    let (roots, rest) = header(bytes)?.ok_or(CarError::Truncated)?;
    Ok(Blocks {
        car: bytes,
        roots,
        rest,
        read: 0,
    })
}

impl<'a> Blocks<'a> {
    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    /// Reads all remaining blocks into a map.
    pub fn into_map(mut self) -> Result<BlockMap<'a>, CarError> {
        // Blocks of real repositories take at least 300 bytes each with their CIDs; the
        // map grows if these are smaller.
        let guess = self.rest.len() / 300;
        let mut map = BlockMap::new(self.car, std::mem::take(&mut self.roots), guess);
        while let Some(Section { cid, data, rest }) = self.section()? {
            let data_at = self.car.len() - rest.len() - data.len();
            // Look up the slot first: it is loaded from memory while the block is hashed.
            let slot = map.reserve(&cid);
            check(&cid, data)?;
            map.note(slot, data_at, data.len());
        }
        Ok(map)
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<(Cid, &'a [u8]), CarError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.section().and_then(|section| match section {
            Some(Section { cid, data, .. }) => check(&cid, data).map(|()| Some((cid, data))),
            None => Ok(None),
        });
        if next.is_err() {
            self.rest = &[];
        }
        next.transpose()
    }
}

impl<'a> Blocks<'a> {
    /// The next block, not hashed yet.
    #[inline]
    fn section(&mut self) -> Result<Option<Section<'a>>, CarError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if self.read == limits::CAR_BLOCKS {
            return Err(CarError::BlockCount);
        }
        let section = section(self.rest)?.ok_or(CarError::Truncated)?;
        self.rest = section.rest;
        self.read += 1;
        Ok(Some(section))
    }
}

/// All blocks of a CAR by CID, each of them hashed.
///
/// A hash table with open addressing, at most half full, with eight bytes per slot: the
/// block's place in the file, its length, and a few bits of its hash, so that most
/// mismatches are skipped without reading the file. The table of an ordinary repository
/// stays in the cache; a map of CIDs would not.
#[derive(Debug)]
pub struct BlockMap<'a> {
    car: &'a [u8],
    roots: Vec<Cid>,
    /// The length is a power of two; zero marks a free slot.
    slots: Vec<u64>,
    hasher: RandomState,
    len: usize,
}

/// The fields of a slot, from the top bit: hash, length, place.
const PLACE_BITS: u32 = 32;
const LENGTH_BITS: u32 = 22;
const _: () = assert!(limits::BLOCK_BYTES < 1 << LENGTH_BITS);
const _: () = assert!(limits::CAR_SLICE_BYTES < 1 << PLACE_BITS);

impl<'a> BlockMap<'a> {
    fn new(car: &'a [u8], roots: Vec<Cid>, guess: usize) -> BlockMap<'a> {
        BlockMap {
            car,
            roots,
            slots: vec![0; (2 * guess).next_power_of_two().max(16)],
            hasher: RandomState::default(),
            len: 0,
        }
    }

    /// The free slot for a CID, with its hash bits; `None` if the block is already there.
    #[inline]
    fn reserve(&mut self, cid: &Cid) -> Option<(usize, u64)> {
        if 2 * (self.len + 1) > self.slots.len() {
            self.grow();
        }
        self.find(cid).err()
    }

    #[inline]
    fn note(&mut self, slot: Option<(usize, u64)>, data_at: usize, len: usize) {
        if let Some((slot, tag)) = slot {
            self.slots[slot] = tag | (len as u64) << PLACE_BITS | data_at as u64;
            self.len += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let double = vec![0; 2 * self.slots.len()];
        let old = std::mem::replace(&mut self.slots, double);
        self.len = 0;
        for packed in old.into_iter().filter(|packed| *packed != 0) {
            let (data_at, len) = unpack(packed);
            // The bytes were a valid CID when the block was added.
            if let Ok(cid) = Cid::from_bytes(&self.car[data_at - CID_LEN..data_at]) {
                let slot = self.find(&cid).err();
                self.note(slot, data_at, len);
            }
        }
    }

    /// The block's place and length, or the free slot for it with the hash bits to store
    /// there.
    #[inline]
    fn find(&self, cid: &Cid) -> Result<(usize, usize), (usize, u64)> {
        const TAG_SHIFT: u32 = PLACE_BITS + LENGTH_BITS;
        // The seed is random, so that no file can be prepared whose blocks collide.
        let hash = self.hasher.hash_one(cid);
        let tag = hash >> TAG_SHIFT << TAG_SHIFT;
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let packed = self.slots[slot];
            if packed == 0 {
                return Err((slot, tag));
            }
            if packed >> TAG_SHIFT == tag >> TAG_SHIFT {
                let (data_at, len) = unpack(packed);
                if self.car[data_at - CID_LEN..data_at] == *cid.as_bytes() {
                    return Ok((data_at, len));
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    #[inline]
    pub fn get(&self, cid: &Cid) -> Option<&'a [u8]> {
        let (data_at, len) = self.find(cid).ok()?;
        Some(&self.car[data_at..data_at + len])
    }

    /// The number of different blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn unpack(packed: u64) -> (usize, usize) {
    let data_at = packed & ((1 << PLACE_BITS) - 1);
    let len = packed >> PLACE_BITS & ((1 << LENGTH_BITS) - 1);
    (data_at as usize, len as usize)
}

impl mst::Blocks for BlockMap<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(self.get(cid).map(Cow::Borrowed))
    }
}
