//! Reads a CAR that arrives in pieces. Memory is bounded by one block and one piece.
//!
//! The reader does no I/O. [`CarStream::feed`] takes the bytes that arrived,
//! [`CarStream::next_block`] returns each whole block, and [`CarStream::finish`] checks
//! that the file ended at the end of a block.

use super::{CarError, check, header, section};
use crate::cid::Cid;
use crate::limits;

/// A reader of a CAR that is fed in pieces of any size.
#[derive(Debug, Default)]
pub struct CarStream {
    buffer: Vec<u8>,
    /// Bytes at the front of the buffer that were already returned.
    used: usize,
    roots: Option<Vec<Cid>>,
    blocks: usize,
}

impl CarStream {
    pub fn new() -> CarStream {
        CarStream::default()
    }

    /// Adds bytes that arrived. Call [`CarStream::next_block`] until it returns `None`
    /// before feeding more; otherwise the buffer grows.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The roots, once the header has arrived.
    pub fn roots(&self) -> Option<&[Cid]> {
        self.roots.as_deref()
    }

    /// The next whole block, hashed; `None` until more bytes are fed.
    pub fn next_block(&mut self) -> Result<Option<(Cid, &[u8])>, CarError> {
        if self.roots.is_none() {
            let Some((roots, rest)) = header(&self.buffer[self.used..])? else {
                return Ok(None);
            };
            self.used = self.buffer.len() - rest.len();
            self.roots = Some(roots);
        }
        let unread = &self.buffer[self.used..];
        if unread.is_empty() {
            return Ok(None);
        }
        if self.blocks == limits::CAR_BLOCKS {
            return Err(CarError::BlockCount);
        }
        let Some(section) = section(unread)? else {
            return Ok(None);
        };
        check(&section.cid, section.data)?;
        self.used = self.buffer.len() - section.rest.len();
        self.blocks += 1;
        Ok(Some((section.cid, section.data)))
    }

    /// The number of bytes that wait for the rest of their block.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.used
    }

    /// Ends the file and returns the number of blocks. Fails if the file ends inside its
    /// header or a block.
    pub fn finish(self) -> Result<usize, CarError> {
        if self.roots.is_some() && self.buffered() == 0 {
            Ok(self.blocks)
        } else {
            Err(CarError::Truncated)
        }
    }
}
