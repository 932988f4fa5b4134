//! A CAR that is whole in memory: nothing is copied.

use std::borrow::Cow;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::{CarError, block, header};
use crate::cid::Cid;
use crate::limits;
use crate::mst::{self, SourceError};

/// The blocks of a CAR, one after the other, each hashed.
#[derive(Debug, Clone)]
pub struct Blocks<'a> {
    roots: Vec<Cid>,
    rest: &'a [u8],
    read: usize,
}

/// Opens a CAR. The header is read at once, blocks as they are asked for.
pub fn read_blocks(bytes: &[u8]) -> Result<Blocks<'_>, CarError> {
    let (roots, rest) = header(bytes)?.ok_or(CarError::Truncated)?;
    Ok(Blocks {
        roots,
        rest,
        read: 0,
    })
}

impl<'a> Blocks<'a> {
    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    /// Reads all blocks that are left into a map.
    pub fn into_map(mut self) -> Result<BlockMap<'a>, CarError> {
        // A block of a repository is rarely below 100 bytes: start there.
        let guess = self.rest.len() / 256;
        let mut blocks = HashMap::with_capacity_and_hasher(guess, RandomState::default());
        let mut bytes = 0;
        while let Some((cid, data)) = self.next().transpose()? {
            bytes += data.len();
            blocks.insert(cid, data);
        }
        Ok(BlockMap {
            roots: self.roots,
            blocks,
            bytes,
        })
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<(Cid, &'a [u8]), CarError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        if self.read == limits::CAR_BLOCKS {
            self.rest = &[];
            return Some(Err(CarError::BlockCount));
        }
        match block(self.rest) {
            Ok(Some((cid, data, rest))) => {
                self.rest = rest;
                self.read += 1;
                Some(Ok((cid, data)))
            }
            other => {
                self.rest = &[];
                Some(Err(other.err().unwrap_or(CarError::Truncated)))
            }
        }
    }
}

/// All blocks of a CAR by CID; every one was hashed.
#[derive(Debug)]
pub struct BlockMap<'a> {
    roots: Vec<Cid>,
    blocks: HashMap<Cid, &'a [u8], RandomState>,
    bytes: usize,
}

impl<'a> BlockMap<'a> {
    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    pub fn get(&self, cid: &Cid) -> Option<&'a [u8]> {
        self.blocks.get(cid).copied()
    }

    /// Different blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes of all blocks, without lengths and CIDs, repeats included.
    pub fn payload_bytes(&self) -> usize {
        self.bytes
    }
}

impl mst::Blocks for BlockMap<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(self.get(cid).map(Cow::Borrowed))
    }
}
