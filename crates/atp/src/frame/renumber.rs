//! Gives a frame another sequence number and keeps every other byte as the owner's host
//! sent it.
//!
//! Numbers belong to a stream, so a server that passes an event on gives it a number of
//! its own. A number is written in as few bytes as possible, so the frame may grow or
//! shrink by a few bytes. The rest of the frame is not interpreted.

use std::ops::Range;

use super::decode::{FrameError, PayloadError};
use crate::cbor::{CborError, Kind, Reader, Writer};
use crate::limits;

/// A frame in three parts, which are written one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renumbered<'a> {
    before: &'a [u8],
    seq: Vec<u8>,
    after: &'a [u8],
}

impl<'a> Renumbered<'a> {
    /// The length of all parts together.
    pub fn len(&self) -> usize {
        self.before.len() + self.seq.len() + self.after.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn parts(&self) -> [&[u8]; 3] {
        [self.before, &self.seq, self.after]
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}

/// Replaces the sequence number of a frame. Fails if `message` is not a frame or has no
/// number.
pub fn renumber(message: &[u8], seq: u64) -> Result<Renumbered<'_>, FrameError> {
    let place = place_of_seq(message)?;
    let mut number = Writer::new();
    number.uint(seq);
    let (before, rest) = message.split_at(place.start);
    let (_, after) = rest.split_at(place.len());
    Ok(Renumbered {
        before,
        seq: number.into_bytes(),
        after,
    })
}

/// The place of the sequence number in the message.
fn place_of_seq(message: &[u8]) -> Result<Range<usize>, FrameError> {
    let mut reader = Reader::new(message);
    pass_over(&mut reader, limits::NESTING).map_err(FrameError::Header)?;
    let faulty = |error: CborError| FrameError::Payload {
        kind: "an event",
        seq: None,
        repo: None,
        error: PayloadError::Cbor(error),
    };
    let pairs = reader.map().map_err(faulty)?;
    for _ in 0..pairs {
        if reader.key().map_err(faulty)? != "seq" {
            pass_over(&mut reader, limits::NESTING).map_err(faulty)?;
            continue;
        }
        let start = message.len() - reader.rest().len();
        reader.uint().map_err(faulty)?;
        return Ok(start..message.len() - reader.rest().len());
    }
    Err(faulty(CborError::MissingKey("seq")))
}

/// Skips one value of any kind. Unlike [`Reader::skip`] it allows any order of keys,
/// because the fields of events may come in any order.
fn pass_over(reader: &mut Reader<'_>, depth: usize) -> Result<(), CborError> {
    let deeper = depth.checked_sub(1).ok_or(CborError::Nesting)?;
    match reader.peek()? {
        Kind::Array => {
            for _ in 0..reader.array()? {
                pass_over(reader, deeper)?;
            }
            Ok(())
        }
        Kind::Map => {
            for _ in 0..reader.map()? {
                reader.key()?;
                pass_over(reader, deeper)?;
            }
            Ok(())
        }
        _ => reader.skip(),
    }
}
