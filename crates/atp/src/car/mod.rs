//! CAR v1 files: a sequence of blocks, each preceded by its length and its CID.
//!
//! Every reader hashes each block as it reads it. No reader can tell whether the file was
//! cut at the end of a block; [`crate::mst::walk`] shows whether all blocks of a tree are
//! there.

mod slice;
mod stream;
mod write;

pub use slice::{BlockMap, Blocks, read_blocks};
pub use stream::CarStream;
pub use write::{write_block, write_header};

use crate::cbor::{CborError, Reader};
use crate::cid::{CID_LEN, Cid, CidError};
use crate::limits;

/// Why bytes are not a usable CAR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CarError {
    #[error("the file has {0} bytes, too many to read from memory")]
    Size(usize),
    #[error("the file ends in the middle of its header or of a block")]
    Truncated,
    #[error("a length is not a shortest-form varint of 64 bits")]
    Varint,
    #[error("the header has {0} bytes, more than {limit}", limit = limits::CAR_HEADER_BYTES)]
    HeaderSize(u64),
    #[error("the header cannot be read: {0}")]
    Header(#[from] CborError),
    #[error("CAR version {0} is not supported (only 1)")]
    Version(u64),
    #[error("the header names {0} roots, more than {limit}", limit = limits::CAR_ROOTS)]
    Roots(usize),
    #[error("a block has {0} bytes, more than {limit}", limit = limits::BLOCK_BYTES)]
    BlockSize(u64),
    #[error("more than {} blocks", limits::CAR_BLOCKS)]
    BlockCount,
    #[error("the CID of a block cannot be used: {0}")]
    Cid(#[from] CidError),
    #[error("block {0} does not hash to its CID")]
    Hash(Cid),
}

/// Reads a varint; `None` if `bytes` ends inside it.
fn varint(bytes: &[u8]) -> Result<Option<(u64, &[u8])>, CarError> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(limits::VARINT_BYTES).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if at == limits::VARINT_BYTES - 1 && bits > 1 {
            return Err(CarError::Varint);
        }
        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            if at > 0 && *byte == 0 {
                return Err(CarError::Varint);
            }
            return Ok(Some((value, &bytes[at + 1..])));
        }
    }
    if bytes.len() < limits::VARINT_BYTES {
        Ok(None)
    } else {
        Err(CarError::Varint)
    }
}

/// The roots, and the bytes after the header.
type Header<'a> = (Vec<Cid>, &'a [u8]);

/// Reads the header; `None` if `bytes` ends inside it.
fn header(bytes: &[u8]) -> Result<Option<Header<'_>>, CarError> {
    let Some((len, rest)) = varint(bytes)? else {
        return Ok(None);
    };
    if len > limits::CAR_HEADER_BYTES as u64 {
        return Err(CarError::HeaderSize(len));
    }
    let Some((header, rest)) = rest.split_at_checked(len as usize) else {
        return Ok(None);
    };
    let mut reader = Reader::new(header);
    let (mut version, mut roots) = (None, Vec::new());
    let mut last: Option<&str> = None;
    for _ in 0..reader.map()? {
        let key = reader.key()?;
        if last.is_some_and(|last| (last.len(), last) >= (key.len(), key)) {
            return Err(CborError::KeyOrder.into());
        }
        last = Some(key);
        match key {
            "version" => version = Some(reader.uint()?),
            "roots" => {
                let count = reader.array()?;
                if count > limits::CAR_ROOTS {
                    return Err(CarError::Roots(count));
                }
                for _ in 0..count {
                    roots.push(reader.cid()?);
                }
            }
            _ => reader.skip()?,
        }
    }
    reader.finish()?;
    match version {
        Some(1) => Ok(Some((roots, rest))),
        Some(other) => Err(CarError::Version(other)),
        None => Err(CborError::MissingKey("version").into()),
    }
}

/// One block as it is in the file. Its CID is not checked yet.
struct Section<'a> {
    cid: Cid,
    data: &'a [u8],
    rest: &'a [u8],
}

/// Reads one block without hashing it (see [`check`]); `None` if `bytes` ends inside it.
#[inline]
fn section(bytes: &[u8]) -> Result<Option<Section<'_>>, CarError> {
    let Some((len, rest)) = varint(bytes)? else {
        return Ok(None);
    };
    if len > (limits::BLOCK_BYTES + CID_LEN) as u64 {
        return Err(CarError::BlockSize(len));
    }
    if len < CID_LEN as u64 {
        return Err(CidError::Length(len as usize).into());
    }
    let Some((section, rest)) = rest.split_at_checked(len as usize) else {
        return Ok(None);
    };
    let (cid, data) = section.split_at(CID_LEN);
    let cid = Cid::from_bytes(cid)?;
    Ok(Some(Section { cid, data, rest }))
}

#[inline]
fn check(cid: &Cid, data: &[u8]) -> Result<(), CarError> {
    if cid.matches(data) {
        Ok(())
    } else {
        Err(CarError::Hash(*cid))
    }
}
