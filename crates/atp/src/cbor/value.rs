//! Whole DAG-CBOR values, with their flaws.
//!
//! Records are kept verbatim even if they break a rule of the data model, because the
//! owner signed those bytes. [`Value::decode`] therefore reads a little more than the
//! strict form (floats, unsorted or repeated keys, long heads, wide integers, bad UTF-8,
//! `undefined`) and reports each as a flaw. [`Value::decode_strict`] refuses them.
//! Neither reads indefinite lengths, tags other than 42, deep nesting, or truncated
//! values.

use std::borrow::Cow;
use std::fmt;

use super::read::{CborError, Reader};
use super::write::Writer;
use crate::cid::{Cid, CidError};
use crate::limits;

/// A decoded value. Text and bytes are borrowed from the input.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    /// Fits `i64` in strict values; a flawed record may use the whole range of CBOR.
    Int(i128),
    /// Never occurs in strict values.
    Float(f64),
    Bytes(Cow<'a, [u8]>),
    Text(Cow<'a, str>),
    Link(Cid),
    Array(Vec<Value<'a>>),
    /// Pairs in the order of the input, which is canonical in strict values.
    Map(Vec<(Cow<'a, str>, Value<'a>)>),
}

/// The rules of the data model that a readable record breaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flaws(u8);

impl Flaws {
    pub const NONE: Flaws = Flaws(0);
    pub const FLOAT: Flaws = Flaws(1);
    pub const NOT_SHORTEST: Flaws = Flaws(2);
    pub const KEY_ORDER: Flaws = Flaws(4);
    pub const INTEGER_RANGE: Flaws = Flaws(8);
    pub const UTF8: Flaws = Flaws(16);
    pub const UNDEFINED: Flaws = Flaws(32);

    const NAMES: [(Flaws, &'static str); 6] = [
        (Flaws::FLOAT, "float"),
        (Flaws::NOT_SHORTEST, "not_shortest"),
        (Flaws::KEY_ORDER, "key_order"),
        (Flaws::INTEGER_RANGE, "integer_range"),
        (Flaws::UTF8, "utf8"),
        (Flaws::UNDEFINED, "undefined"),
    ];

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, other: Flaws) -> bool {
        self.0 & other.0 == other.0
    }

    fn add(&mut self, other: Flaws) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Flaws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Flaws::NAMES
            .iter()
            .filter(|(flaw, _)| self.contains(*flaw))
            .map(|(_, name)| *name);
        if let Some(first) = names.next() {
            f.write_str(first)?;
        }
        for name in names {
            write!(f, ",{name}")?;
        }
        Ok(())
    }
}

/// The flaws of a record, or the reason why it cannot be read at all.
pub fn check_record(bytes: &[u8]) -> Result<Flaws, CborError> {
    let mut strict = Reader::new(bytes);
    if strict.skip().is_ok() && strict.rest().is_empty() {
        return Ok(Flaws::NONE);
    }
    Value::decode(bytes).map(|(_, flaws)| flaws)
}

impl<'a> Value<'a> {
    /// Decodes one value and reports its flaws.
    pub fn decode(bytes: &'a [u8]) -> Result<(Value<'a>, Flaws), CborError> {
        let mut lenient = Lenient {
            rest: bytes,
            flaws: Flaws::NONE,
        };
        let value = lenient.value(limits::NESTING)?;
        match lenient.rest {
            [] => Ok((value, lenient.flaws)),
            _ => Err(CborError::Trailing),
        }
    }

    /// Decodes one value and refuses any flaw.
    pub fn decode_strict(bytes: &'a [u8]) -> Result<Value<'a>, CborError> {
        let mut reader = Reader::new(bytes);
        reader.skip()?;
        reader.finish()?;
        Value::decode(bytes).map(|(value, _)| value)
    }

    /// The value of `key`, if this is a map that has the key.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Map(pairs) => pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The strict encoding, with map keys put in order; `None` if the value contains
    /// something that has no strict form (a float, a wide integer, a repeated key).
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut writer = Writer::new();
        encode_into(self, &mut writer)?;
        Some(writer.into_bytes())
    }
}

fn encode_into(value: &Value<'_>, writer: &mut Writer) -> Option<()> {
    match value {
        Value::Null => drop(writer.null()),
        Value::Bool(value) => drop(writer.bool(*value)),
        Value::Int(value) => drop(writer.int(i64::try_from(*value).ok()?)),
        Value::Float(_) => return None,
        Value::Bytes(bytes) => drop(writer.bytes(bytes)),
        Value::Text(text) => drop(writer.text(text)),
        Value::Link(cid) => drop(writer.cid(cid)),
        Value::Array(items) => {
            writer.array(items.len());
            for item in items {
                encode_into(item, writer)?;
            }
        }
        Value::Map(pairs) => {
            let mut sorted: Vec<_> = pairs.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
            if sorted.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return None;
            }
            writer.map(sorted.len());
            for (key, item) in sorted {
                writer.text(key);
                encode_into(item, writer)?;
            }
        }
    }
    Some(())
}

/// The number of items for which memory is reserved before they are read. Nested
/// containers may all claim the same bytes, so the claimed count is not reserved for
/// each.
const ROOM_ITEMS: usize = 64;

/// Reads what [`Reader`] refuses and records the flaws.
struct Lenient<'a> {
    rest: &'a [u8],
    flaws: Flaws,
}

impl<'a> Lenient<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], CborError> {
        let len = usize::try_from(len).map_err(|_| CborError::Truncated)?;
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(CborError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self, len: u64) -> Result<u64, CborError> {
        Ok(self
            .take(len)?
            .iter()
            .fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// The major type, the low bits and the argument of the next head.
    fn head(&mut self) -> Result<(u8, u8, u64), CborError> {
        let first = self.take(1)?[0];
        let (major, low) = (first >> 5, first & 0x1f);
        let (value, least) = match low {
            0..=23 => (u64::from(low), 0),
            24 => (self.number(1)?, 24),
            25 => (self.number(2)?, 1 << 8),
            26 => (self.number(4)?, 1 << 16),
            27 => (self.number(8)?, 1 << 32),
            31 => return Err(CborError::Indefinite),
            _ => return Err(CborError::Reserved(low)),
        };
        if value < least && major != 7 {
            self.flaws.add(Flaws::NOT_SHORTEST);
        }
        Ok((major, low, value))
    }

    fn int(&mut self, value: i128) -> Value<'a> {
        if i64::try_from(value).is_err() {
            self.flaws.add(Flaws::INTEGER_RANGE);
        }
        Value::Int(value)
    }

    fn text(&mut self, len: u64) -> Result<Cow<'a, str>, CborError> {
        let text = String::from_utf8_lossy(self.take(len)?);
        if matches!(text, Cow::Owned(_)) {
            self.flaws.add(Flaws::UTF8);
        }
        Ok(text)
    }

    /// Checks that the remaining bytes can hold so many items.
    fn count(&self, count: u64, item_bytes: u64) -> Result<usize, CborError> {
        if count > limits::CONTAINER_ITEMS as u64 {
            return Err(CborError::Items);
        }
        if count * item_bytes > self.rest.len() as u64 {
            return Err(CborError::Truncated);
        }
        Ok(count as usize)
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>, CborError> {
        let (major, low, argument) = self.head()?;
        match major {
            0 => Ok(self.int(i128::from(argument))),
            1 => Ok(self.int(-1 - i128::from(argument))),
            2 => Ok(Value::Bytes(Cow::Borrowed(self.take(argument)?))),
            3 => Ok(Value::Text(self.text(argument)?)),
            4 => self.array(argument, depth),
            5 => self.map(argument, depth),
            6 => self.link(argument),
            _ => self.simple(low, argument),
        }
    }

    fn array(&mut self, count: u64, depth: usize) -> Result<Value<'a>, CborError> {
        let deeper = depth.checked_sub(1).ok_or(CborError::Nesting)?;
        let count = self.count(count, 1)?;
        let mut items = Vec::with_capacity(count.min(ROOM_ITEMS));
        for _ in 0..count {
            items.push(self.value(deeper)?);
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, count: u64, depth: usize) -> Result<Value<'a>, CborError> {
        let deeper = depth.checked_sub(1).ok_or(CborError::Nesting)?;
        let count = self.count(count, 2)?;
        let mut pairs: Vec<(Cow<'a, str>, Value<'a>)> = Vec::with_capacity(count.min(ROOM_ITEMS));
        for _ in 0..count {
            let (3, _, len) = self.head()? else {
                return Err(CborError::KeyType);
            };
            let key = self.text(len)?;
            if let Some((last, _)) = pairs.last()
                && (last.len(), last) >= (key.len(), &key)
            {
                self.flaws.add(Flaws::KEY_ORDER);
            }
            pairs.push((key, self.value(deeper)?));
        }
        Ok(Value::Map(pairs))
    }

    fn link(&mut self, tag: u64) -> Result<Value<'a>, CborError> {
        if tag != 42 {
            return Err(CborError::Tag(tag));
        }
        let (2, _, len) = self.head()? else {
            return Err(CborError::Link(CidError::Length(0)));
        };
        match self.take(len)? {
            [0, cid @ ..] => Cid::from_bytes(cid)
                .map(Value::Link)
                .map_err(CborError::Link),
            other => Err(CborError::Link(CidError::Length(other.len()))),
        }
    }

    fn simple(&mut self, low: u8, argument: u64) -> Result<Value<'a>, CborError> {
        match low {
            20 | 21 => Ok(Value::Bool(low == 21)),
            22 => Ok(Value::Null),
            23 => {
                self.flaws.add(Flaws::UNDEFINED);
                Ok(Value::Null)
            }
            25..=27 => {
                self.flaws.add(Flaws::FLOAT);
                Ok(Value::Float(match low {
                    25 => half_to_f64(argument as u16),
                    26 => f64::from(f32::from_bits(argument as u32)),
                    _ => f64::from_bits(argument),
                }))
            }
            _ => Err(CborError::Simple(argument as u8)),
        }
    }
}

/// IEEE 754 half precision: one sign bit, five exponent bits, ten of fraction.
fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(bits & 0x3ff);
    sign * match bits >> 10 & 0x1f {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    }
}
