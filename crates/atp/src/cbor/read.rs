//! A cursor over strict DAG-CBOR.
//!
//! Lengths are definite, heads are shortest-form, the only tag is 42 (CID), text is
//! UTF-8, integers fit `i64`, and there are no floats and no simple values except
//! `false`, `true` and `null`. The caller checks the order of map keys; a typed decoder
//! that reads its keys in order does so anyway, and [`Reader::skip`] checks the order in
//! values that are not decoded.
//!
//! Reading allocates nothing. A length is trusted only as far as bytes follow it.

use crate::cid::{CID_LEN, Cid, CidError};
use crate::limits;

/// Why bytes are not the expected DAG-CBOR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    #[error("the value ends before it is complete")]
    Truncated,
    #[error("bytes follow the value")]
    Trailing,
    #[error("expected {wanted}, found {found}")]
    Unexpected { wanted: Kind, found: Kind },
    #[error("a number or length is not in its shortest form")]
    NotShortest,
    #[error("indefinite lengths are not allowed")]
    Indefinite,
    #[error("the head byte {0:#04x} is reserved")]
    Reserved(u8),
    #[error("tag {0} is not allowed (only 42, a link)")]
    Tag(u64),
    #[error("floating-point numbers are not allowed")]
    Float,
    #[error("simple value {0} is not allowed")]
    Simple(u8),
    #[error("an integer is out of range (64 bits with sign)")]
    IntegerRange,
    #[error("text is not UTF-8")]
    Utf8,
    #[error("a map key is not text")]
    KeyType,
    #[error("map keys are not in order, or a key is repeated")]
    KeyOrder,
    #[error("the map lacks '{0}'")]
    MissingKey(&'static str),
    #[error("values are nested more than {} deep", limits::NESTING)]
    Nesting,
    #[error("a container has more than {} items", limits::CONTAINER_ITEMS)]
    Items,
    #[error("a link is not a zero byte and a CID: {0}")]
    Link(CidError),
}

/// The type of a value, according to its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Unsigned,
    Negative,
    Bytes,
    Text,
    Array,
    Map,
    Tag,
    Bool,
    Null,
    /// Floats and other simple values, which are never allowed.
    Other,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Unsigned => "non-negative integer",
            Kind::Negative => "negative integer",
            Kind::Bytes => "byte string",
            Kind::Text => "text",
            Kind::Array => "array",
            Kind::Map => "map",
            Kind::Tag => "link",
            Kind::Bool => "boolean",
            Kind::Null => "null",
            Kind::Other => "float or simple value",
        })
    }
}

fn kind_of(first: u8) -> Kind {
    match first >> 5 {
        0 => Kind::Unsigned,
        1 => Kind::Negative,
        2 => Kind::Bytes,
        3 => Kind::Text,
        4 => Kind::Array,
        5 => Kind::Map,
        6 => Kind::Tag,
        _ => match first & 0x1f {
            20 | 21 => Kind::Bool,
            22 => Kind::Null,
            _ => Kind::Other,
        },
    }
}

/// A cursor over borrowed bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The bytes that have not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Fails if any bytes are left.
    pub fn finish(self) -> Result<(), CborError> {
        match self.rest {
            [] => Ok(()),
            _ => Err(CborError::Trailing),
        }
    }

    /// The type of the next value, without reading it.
    pub fn peek(&self) -> Result<Kind, CborError> {
        let first = self.rest.first().ok_or(CborError::Truncated)?;
        Ok(kind_of(*first))
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], CborError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(CborError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads the argument of a head of the wanted kind.
    #[inline]
    fn head(&mut self, wanted: Kind) -> Result<u64, CborError> {
        let (&first, rest) = self.rest.split_first().ok_or(CborError::Truncated)?;
        let found = kind_of(first);
        if found != wanted {
            return Err(match found {
                Kind::Other => other_error(first),
                _ => CborError::Unexpected { wanted, found },
            });
        }
        self.rest = rest;
        self.argument(first & 0x1f)
    }

    #[inline]
    fn argument(&mut self, low: u8) -> Result<u64, CborError> {
        let (value, least) = match low {
            0..=23 => return Ok(u64::from(low)),
            24 => (u64::from(self.take(1)?[0]), 24),
            25 => (self.big_endian(2)?, 1 << 8),
            26 => (self.big_endian(4)?, 1 << 16),
            27 => (self.big_endian(8)?, 1 << 32),
            31 => return Err(CborError::Indefinite),
            _ => return Err(CborError::Reserved(low)),
        };
        if value < least {
            return Err(CborError::NotShortest);
        }
        Ok(value)
    }

    fn big_endian(&mut self, len: usize) -> Result<u64, CborError> {
        let bytes = self.take(len)?;
        Ok(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// Reads a length of bytes.
    #[inline]
    fn length(&mut self, wanted: Kind) -> Result<usize, CborError> {
        let len = self.head(wanted)?;
        usize::try_from(len).map_err(|_| CborError::Truncated)
    }

    /// Reads the number of items, each at least `item_bytes` long. Fails if so many
    /// cannot follow.
    fn count(&mut self, wanted: Kind, item_bytes: usize) -> Result<usize, CborError> {
        let count = self.length(wanted)?;
        if count > limits::CONTAINER_ITEMS {
            return Err(CborError::Items);
        }
        if count * item_bytes > self.rest.len() {
            return Err(CborError::Truncated);
        }
        Ok(count)
    }

    /// Opens a map and returns the number of its pairs.
    pub fn map(&mut self) -> Result<usize, CborError> {
        self.count(Kind::Map, 2)
    }

    /// Opens an array and returns the number of its items.
    pub fn array(&mut self) -> Result<usize, CborError> {
        self.count(Kind::Array, 1)
    }

    pub fn uint(&mut self) -> Result<u64, CborError> {
        let value = self.head(Kind::Unsigned)?;
        match i64::try_from(value) {
            Ok(_) => Ok(value),
            Err(_) => Err(CborError::IntegerRange),
        }
    }

    pub fn int(&mut self) -> Result<i64, CborError> {
        if self.peek()? == Kind::Negative {
            let below = self.head(Kind::Negative)?;
            let below = i64::try_from(below).map_err(|_| CborError::IntegerRange)?;
            return Ok(-1 - below);
        }
        let value = self.head(Kind::Unsigned)?;
        i64::try_from(value).map_err(|_| CborError::IntegerRange)
    }

    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], CborError> {
        let len = self.length(Kind::Bytes)?;
        self.take(len)
    }

    pub fn text(&mut self) -> Result<&'a str, CborError> {
        let len = self.length(Kind::Text)?;
        std::str::from_utf8(self.take(len)?).map_err(|_| CborError::Utf8)
    }

    /// Reads the next map key.
    pub fn key(&mut self) -> Result<&'a str, CborError> {
        match self.text() {
            Err(CborError::Unexpected { .. }) => Err(CborError::KeyType),
            other => other,
        }
    }

    /// Reads the key `name`. Any other key is an error.
    #[inline]
    pub fn expect_key(&mut self, name: &'static str) -> Result<(), CborError> {
        // Names are short, so the head of a key is one byte.
        let (head, key) = self.rest.split_first().ok_or(CborError::Truncated)?;
        match key.strip_prefix(name.as_bytes()) {
            Some(rest) if *head == 0x60 | name.len() as u8 && name.len() < 24 => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(CborError::MissingKey(name)),
        }
    }

    pub fn bool(&mut self) -> Result<bool, CborError> {
        match self.rest.first() {
            Some(first @ (0xf4 | 0xf5)) => {
                self.rest = &self.rest[1..];
                Ok(*first == 0xf5)
            }
            Some(&first) => Err(self.unexpected(Kind::Bool, first)),
            None => Err(CborError::Truncated),
        }
    }

    fn unexpected(&self, wanted: Kind, first: u8) -> CborError {
        match kind_of(first) {
            Kind::Other => other_error(first),
            found => CborError::Unexpected { wanted, found },
        }
    }

    /// Reads a `null` if one is next.
    #[inline]
    pub fn null(&mut self) -> bool {
        match self.rest {
            [0xf6, rest @ ..] => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    #[inline]
    pub fn cid(&mut self) -> Result<Cid, CborError> {
        // The head of a 36-byte link is always d8 2a 58 25 00.
        if let Some((head, rest)) = self.rest.split_first_chunk::<5>()
            && *head == [0xd8, 0x2a, 0x58, 0x25, 0x00]
            && let Some((cid, rest)) = rest.split_at_checked(CID_LEN)
        {
            let cid = Cid::from_bytes(cid).map_err(CborError::Link)?;
            self.rest = rest;
            return Ok(cid);
        }
        let tag = self.head(Kind::Tag)?;
        if tag != 42 {
            return Err(CborError::Tag(tag));
        }
        match self.bytes()? {
            [0, cid @ ..] => Cid::from_bytes(cid).map_err(CborError::Link),
            other => Err(CborError::Link(CidError::Length(other.len()))),
        }
    }

    pub fn cid_or_null(&mut self) -> Result<Option<Cid>, CborError> {
        if self.null() {
            return Ok(None);
        }
        self.cid().map(Some)
    }

    /// Checks one value of any kind strictly and discards it.
    pub fn skip(&mut self) -> Result<(), CborError> {
        self.skip_nested(limits::NESTING)
    }

    fn skip_nested(&mut self, depth: usize) -> Result<(), CborError> {
        match self.peek()? {
            Kind::Unsigned => self.uint().map(drop),
            Kind::Negative => self.int().map(drop),
            Kind::Bytes => self.bytes().map(drop),
            Kind::Text => self.text().map(drop),
            Kind::Tag => self.cid().map(drop),
            Kind::Bool => self.bool().map(drop),
            Kind::Null => {
                self.null();
                Ok(())
            }
            Kind::Other => Err(other_error(self.rest[0])),
            Kind::Array => {
                let deeper = depth.checked_sub(1).ok_or(CborError::Nesting)?;
                for _ in 0..self.array()? {
                    self.skip_nested(deeper)?;
                }
                Ok(())
            }
            Kind::Map => {
                let deeper = depth.checked_sub(1).ok_or(CborError::Nesting)?;
                let mut last = None;
                for _ in 0..self.map()? {
                    last = Some(next_key(self, last)?);
                    self.skip_nested(deeper)?;
                }
                Ok(())
            }
        }
    }
}

/// Reads a map key that must come after `last` in canonical order: shorter keys first,
/// then by bytes.
pub(super) fn next_key<'a>(
    reader: &mut Reader<'a>,
    last: Option<&str>,
) -> Result<&'a str, CborError> {
    let key = reader.key()?;
    match last {
        Some(last) if (last.len(), last) >= (key.len(), key) => Err(CborError::KeyOrder),
        _ => Ok(key),
    }
}

fn other_error(first: u8) -> CborError {
    match first & 0x1f {
        25..=27 => CborError::Float,
        31 => CborError::Indefinite,
        low => CborError::Simple(low),
    }
}
