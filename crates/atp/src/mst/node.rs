//! Decodes one tree node strictly, and computes the height of a key.
//!
//! A node is `{e: [{k, p, t, v}], l}`. Only its canonical bytes are accepted: exact maps
//! in key order, prefix lengths as long as possible, keys strictly rising, links in
//! DAG-CBOR. [`check_heights`] checks separately that every key has the node's height,
//! because a node without keys learns its height from its place in the tree.

use crate::cbor::{CborError, Reader};
use crate::cid::Cid;
use crate::hash::leading_zeros;
use crate::limits;

/// Why a block is not a canonical tree node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    #[error("node is not canonical DAG-CBOR: {0}")]
    Cbor(#[from] CborError),
    #[error("node has a map of {0} fields instead of {1}")]
    Fields(usize, usize),
    #[error("node has {0} entries, more than {limit}", limit = limits::NODE_ENTRIES)]
    Entries(usize),
    #[error("entry shares {found} bytes with the previous key but claims {said}")]
    Prefix { said: u64, found: usize },
    #[error("key of {0} bytes is longer than {limit}", limit = limits::KEY_BYTES)]
    KeyLength(usize),
    #[error("keys are not in rising order")]
    KeyOrder,
    #[error("link to a subtree is not DAG-CBOR")]
    Link,
    #[error("key of height {key} is in a node of height {node}")]
    Height { key: u32, node: u32 },
    #[error("tree is higher than {}", limits::TREE_HEIGHT)]
    TooHigh,
    #[error("node of height 0 has a subtree")]
    BelowLeaf,
    #[error("node without keys at the top or the bottom of the tree")]
    Keyless,
    #[error("node is linked from two places")]
    Twice,
}

/// The level of the tree at which a key lives: the number of leading pairs of zero bits
/// in its SHA-256.
pub fn key_height(key: &[u8]) -> u32 {
    leading_zeros(key) / 2
}

/// The number of leading bytes that two keys share.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The place of a key in a buffer of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub start: u32,
    pub len: u16,
}

impl Span {
    #[inline]
    pub(super) fn of(self, keys: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &keys[start..start + usize::from(self.len)]
    }

    /// Appends a key and returns its place; `None` if the buffer or the key is too large.
    pub(super) fn push(keys: &mut Vec<u8>, key: &[u8]) -> Option<Span> {
        let span = Span {
            start: u32::try_from(keys.len()).ok()?,
            len: u16::try_from(key.len()).ok()?,
        };
        keys.extend_from_slice(key);
        Some(span)
    }
}

/// One decoded entry: a key, its value, and the subtree to its right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub key: Span,
    pub value: Cid,
    pub right: Option<Cid>,
}

/// Decodes a node. Appends whole keys to `keys` and entries to `entries`; returns the
/// link to the leftmost subtree.
pub(super) fn decode(
    block: &[u8],
    keys: &mut Vec<u8>,
    entries: &mut Vec<Entry>,
) -> Result<Option<Cid>, NodeError> {
    let mut reader = Reader::new(block);
    fields(&mut reader, 2)?;
    reader.expect_key("e")?;
    let count = reader.array()?;
    if count > limits::NODE_ENTRIES {
        return Err(NodeError::Entries(count));
    }
    entries.reserve(count);
    let mut previous: Option<Span> = None;
    for _ in 0..count {
        let entry = decode_entry(&mut reader, keys, previous)?;
        previous = Some(entry.key);
        entries.push(entry);
    }
    reader.expect_key("l")?;
    let left = subtree(&mut reader)?;
    reader.finish()?;
    Ok(left)
}

fn decode_entry(
    reader: &mut Reader<'_>,
    keys: &mut Vec<u8>,
    previous: Option<Span>,
) -> Result<Entry, NodeError> {
    fields(reader, 4)?;
    reader.expect_key("k")?;
    let suffix = reader.bytes()?;
    reader.expect_key("p")?;
    let said = reader.uint()?;
    let key = whole_key(keys, previous, said, suffix)?;
    reader.expect_key("t")?;
    let right = subtree(reader)?;
    reader.expect_key("v")?;
    let value = reader.cid()?;
    Ok(Entry { key, value, right })
}

/// Joins a key from its prefix and its suffix. The prefix must be as long as the two keys
/// agree, and the key must be greater than the previous one.
fn whole_key(
    keys: &mut Vec<u8>,
    previous: Option<Span>,
    said: u64,
    suffix: &[u8],
) -> Result<Span, NodeError> {
    let previous = previous.map_or(0..0, |span| {
        let start = span.start as usize;
        start..start + usize::from(span.len)
    });
    let shared = match usize::try_from(said) {
        Ok(shared) if shared <= previous.len() => shared,
        _ => {
            let found = previous.len();
            return Err(NodeError::Prefix { said, found });
        }
    };
    let Some(first) = suffix.first() else {
        return Err(NodeError::KeyOrder);
    };
    if shared + suffix.len() > limits::KEY_BYTES {
        return Err(NodeError::KeyLength(shared + suffix.len()));
    }
    if let Some(parted) = keys[previous.clone()].get(shared) {
        if parted == first {
            let found = shared + common_prefix(&keys[previous.clone()][shared..], suffix);
            return Err(NodeError::Prefix { said, found });
        }
        if parted > first {
            return Err(NodeError::KeyOrder);
        }
    }
    let start = keys.len();
    keys.extend_from_within(previous.start..previous.start + shared);
    keys.extend_from_slice(suffix);
    if keys.len() >= u32::MAX as usize {
        return Err(NodeError::KeyLength(keys.len()));
    }
    Ok(Span {
        start: start as u32,
        len: (shared + suffix.len()) as u16,
    })
}

fn fields(reader: &mut Reader<'_>, wanted: usize) -> Result<(), NodeError> {
    match reader.map()? {
        found if found == wanted => Ok(()),
        found => Err(NodeError::Fields(found, wanted)),
    }
}

fn subtree(reader: &mut Reader<'_>) -> Result<Option<Cid>, NodeError> {
    match reader.cid_or_null()? {
        Some(cid) if !cid.is_dag_cbor() => Err(NodeError::Link),
        link => Ok(link),
    }
}

/// Checks every key against the node's height. The height of the top node is found from
/// its keys.
pub(super) fn check_heights(
    keys: &[u8],
    entries: &[Entry],
    left: Option<Cid>,
    expected: Option<u32>,
) -> Result<u32, NodeError> {
    let height = match (expected, entries.first()) {
        (Some(height), _) => height,
        (None, Some(first)) => key_height(first.key.of(keys)),
        (None, None) => return Err(NodeError::Keyless),
    };
    if height > limits::TREE_HEIGHT {
        return Err(NodeError::TooHigh);
    }
    if entries.is_empty() && left.is_none() {
        return Err(NodeError::Keyless);
    }
    for entry in entries {
        let key = key_height(entry.key.of(keys));
        if key != height {
            return Err(NodeError::Height { key, node: height });
        }
    }
    if height == 0 && (left.is_some() || entries.iter().any(|entry| entry.right.is_some())) {
        return Err(NodeError::BelowLeaf);
    }
    Ok(height)
}
