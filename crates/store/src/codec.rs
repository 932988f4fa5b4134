//! Encodes and decodes rows: a version byte, then the fields.
//!
//! The code is written by hand because rows stay on disk for years: this module
//! and [`table`](crate::table) alone define every field and the version that added
//! it. Decoding never panics, allocates no more than the row has bytes, and
//! reports bytes after the last field as damage.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{HostId, RepoId, Tick, Time, UpstreamId};

/// Why a row cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    #[error("it ends in the middle of a field")]
    Short,
    #[error("it goes on after its last field")]
    Long,
    #[error("it has version {0}, which only a newer Gapless can read")]
    Newer(u8),
    #[error("its {0} has a value that is never written")]
    Value(&'static str),
    #[error("it refers to a row that does not exist: {0}")]
    Missing(&'static str),
}

/// The longest varint: 64 bits at seven bits per byte.
const VARINT_BYTES: usize = 10;
/// A stored CID: codec and digest. Version and hash function are the same for every CID.
const CID_BYTES: usize = 33;

/// Builds a row.
#[derive(Debug, Default)]
pub struct RowWriter {
    bytes: Vec<u8>,
}

impl RowWriter {
    pub fn new(version: u8, capacity: usize) -> RowWriter {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(version);
        RowWriter { bytes }
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Begins another row in the same memory.
    pub fn restart(&mut self, version: u8) -> &mut RowWriter {
        self.bytes.clear();
        self.byte(version)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn byte(&mut self, value: u8) -> &mut RowWriter {
        self.bytes.push(value);
        self
    }

    pub fn flag(&mut self, value: bool) -> &mut RowWriter {
        self.byte(u8::from(value))
    }

    /// Writes a number as a varint, which is short for small numbers.
    pub fn number(&mut self, mut value: u64) -> &mut RowWriter {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8)
    }

    /// Writes a number in eight bytes, for numbers that are never small.
    pub fn wide(&mut self, value: u64) -> &mut RowWriter {
        self.raw(&value.to_be_bytes())
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut RowWriter {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut RowWriter {
        self.number(bytes.len() as u64).raw(bytes)
    }

    pub fn text(&mut self, text: &str) -> &mut RowWriter {
        self.bytes(text.as_bytes())
    }

    pub fn cid(&mut self, cid: &Cid) -> &mut RowWriter {
        self.byte(cid.codec()).raw(cid.digest())
    }

    pub fn rev(&mut self, rev: Rev) -> &mut RowWriter {
        self.wide(rev.to_bits())
    }

    pub fn time(&mut self, time: Time) -> &mut RowWriter {
        self.number(time.0)
    }

    pub fn tick(&mut self, tick: Tick) -> &mut RowWriter {
        self.number(tick.0)
    }

    pub fn repo(&mut self, repo: RepoId) -> &mut RowWriter {
        self.number(repo.0)
    }

    pub fn host(&mut self, host: HostId) -> &mut RowWriter {
        self.number(host.0.into())
    }

    pub fn upstream(&mut self, upstream: UpstreamId) -> &mut RowWriter {
        self.number(upstream.0.into())
    }

    /// Writes an optional value: a byte that says whether it is present, then the value.
    pub(crate) fn maybe<T>(
        &mut self,
        value: Option<T>,
        write: impl FnOnce(&mut RowWriter, T),
    ) -> &mut RowWriter {
        match value {
            None => {
                self.byte(0);
            }
            Some(value) => {
                self.byte(1);
                write(self, value);
            }
        }
        self
    }
}

/// Reads a row, field by field.
#[derive(Debug)]
pub(crate) struct RowReader<'a> {
    rest: &'a [u8],
}

/// Reads a whole row of at most the version `newest`; `read` gets the version.
pub(crate) fn read_row<'a, T>(
    bytes: &'a [u8],
    newest: u8,
    read: impl FnOnce(&mut RowReader<'a>, u8) -> Result<T, RowFault>,
) -> Result<T, RowFault> {
    let mut reader = RowReader { rest: bytes };
    let version = reader.byte()?;
    if version == 0 {
        return Err(RowFault::Value("version"));
    }
    if version > newest {
        return Err(RowFault::Newer(version));
    }
    let row = read(&mut reader, version)?;
    match reader.rest {
        [] => Ok(row),
        _ => Err(RowFault::Long),
    }
}

impl<'a> RowReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> RowReader<'a> {
        RowReader { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, RowFault> {
        let (first, rest) = self.rest.split_first().ok_or(RowFault::Short)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, RowFault> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(RowFault::Value("flag")),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, RowFault> {
        let mut value = 0u64;
        for place in 0..VARINT_BYTES {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * place as u32;
            if bits << shift >> shift != bits {
                return Err(RowFault::Value("number"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                // Every number has one encoding: a longer one is refused.
                return if byte == 0 && place > 0 {
                    Err(RowFault::Value("number"))
                } else {
                    Ok(value)
                };
            }
        }
        Err(RowFault::Value("number"))
    }

    pub(crate) fn small(&mut self) -> Result<u32, RowFault> {
        u32::try_from(self.number()?).map_err(|_| RowFault::Value("number"))
    }

    pub(crate) fn wide(&mut self) -> Result<u64, RowFault> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RowFault> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(RowFault::Short)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn raw(&mut self, count: usize) -> Result<&'a [u8], RowFault> {
        let (first, rest) = self.rest.split_at_checked(count).ok_or(RowFault::Short)?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], RowFault> {
        let count = self.number()?;
        self.raw(usize::try_from(count).map_err(|_| RowFault::Short)?)
    }

    /// Takes all bytes that are left.
    pub(crate) fn remainder(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, RowFault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| RowFault::Value("text"))
    }

    pub(crate) fn cid(&mut self) -> Result<Cid, RowFault> {
        let bytes: [u8; CID_BYTES] = self.array()?;
        let [codec, digest @ ..] = bytes;
        if codec < 0x80 {
            Ok(Cid::from_digest(codec, digest))
        } else {
            Err(RowFault::Value("CID"))
        }
    }

    pub(crate) fn rev(&mut self) -> Result<Rev, RowFault> {
        Ok(Rev::from_bits(self.wide()?))
    }

    pub(crate) fn time(&mut self) -> Result<Time, RowFault> {
        Ok(Time(self.number()?))
    }

    pub(crate) fn tick(&mut self) -> Result<Tick, RowFault> {
        Ok(Tick(self.number()?))
    }

    pub(crate) fn repo(&mut self) -> Result<RepoId, RowFault> {
        Ok(RepoId(self.number()?))
    }

    pub(crate) fn host(&mut self) -> Result<HostId, RowFault> {
        Ok(HostId(self.small()?))
    }

    pub(crate) fn upstream(&mut self) -> Result<UpstreamId, RowFault> {
        Ok(UpstreamId(self.small()?))
    }

    pub(crate) fn maybe<T>(
        &mut self,
        read: impl FnOnce(&mut RowReader<'a>) -> Result<T, RowFault>,
    ) -> Result<Option<T>, RowFault> {
        if self.flag()? {
            Ok(Some(read(self)?))
        } else {
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every kind of field, as a script of what to write or read.
    #[derive(Clone, Debug, PartialEq)]
    enum Field {
        Byte(u8),
        Flag(bool),
        Number(u64),
        Wide(u64),
        Bytes(Vec<u8>),
        Text(String),
        Cid(Cid),
        Maybe(Option<u64>),
    }

    fn field() -> impl Strategy<Value = Field> {
        prop_oneof![
            any::<u8>().prop_map(Field::Byte),
            any::<bool>().prop_map(Field::Flag),
            (any::<u64>(), 0..64u32).prop_map(|(bits, shift)| Field::Number(bits >> shift)),
            any::<u64>().prop_map(Field::Wide),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Field::Bytes),
            ".{0,40}".prop_map(Field::Text),
            (0..0x80u8, any::<[u8; 32]>())
                .prop_map(|(codec, digest)| Field::Cid(Cid::from_digest(codec, digest))),
            prop::option::of(any::<u64>()).prop_map(Field::Maybe),
        ]
    }

    fn write(fields: &[Field]) -> Vec<u8> {
        let mut writer = RowWriter::new(1, 0);
        for field in fields {
            match field {
                Field::Byte(value) => writer.byte(*value),
                Field::Flag(value) => writer.flag(*value),
                Field::Number(value) => writer.number(*value),
                Field::Wide(value) => writer.wide(*value),
                Field::Bytes(value) => writer.bytes(value),
                Field::Text(value) => writer.text(value),
                Field::Cid(value) => writer.cid(value),
                Field::Maybe(value) => writer.maybe(*value, |writer, value| {
                    writer.number(value);
                }),
            };
        }
        writer.finish()
    }

    fn read(reader: &mut RowReader<'_>, like: &[Field]) -> Result<Vec<Field>, RowFault> {
        let mut fields = Vec::new();
        for field in like {
            fields.push(match field {
                Field::Byte(_) => Field::Byte(reader.byte()?),
                Field::Flag(_) => Field::Flag(reader.flag()?),
                Field::Number(_) => Field::Number(reader.number()?),
                Field::Wide(_) => Field::Wide(reader.wide()?),
                Field::Bytes(_) => Field::Bytes(reader.bytes()?.to_vec()),
                Field::Text(_) => Field::Text(reader.text()?.to_owned()),
                Field::Cid(_) => Field::Cid(reader.cid()?),
                Field::Maybe(_) => Field::Maybe(reader.maybe(RowReader::number)?),
            });
        }
        Ok(fields)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(fields in prop::collection::vec(field(), 0..12)) {
            let bytes = write(&fields);
            let found = read_row(&bytes, 1, |reader, _| read(reader, &fields));
            prop_assert_eq!(found, Ok(fields));
        }

        #[test]
        fn a_row_cut_short_or_gone_long_is_damage(
            fields in prop::collection::vec(field(), 1..12),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = write(&fields);
            let cut = cut.index(bytes.len());
            let short = read_row(&bytes[..cut], 1, |reader, _| read(reader, &fields));
            prop_assert!(short.is_err());
            bytes.push(0);
            let long = read_row(&bytes, 1, |reader, _| read(reader, &fields));
            prop_assert_eq!(long, Err(RowFault::Long));
        }

        #[test]
        fn any_bytes_end_in_a_value_or_an_error(
            fields in prop::collection::vec(field(), 0..12),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = read_row(&bytes, u8::MAX, |reader, _| read(reader, &fields));
        }
    }

    #[test]
    fn a_number_has_one_spelling_and_64_bits() {
        let read = |bytes: &[u8]| RowReader { rest: bytes }.number();
        assert_eq!(read(&[0x80, 0x00]), Err(RowFault::Value("number")));
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read(&most), Ok(u64::MAX));
        let more = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(read(&more), Err(RowFault::Value("number")));
    }

    #[test]
    fn versions_of_the_future_are_told_apart_from_damage() {
        let row = |version| read_row(&[version], 3, |_, version| Ok(version));
        assert_eq!(row(3), Ok(3));
        assert_eq!(row(4), Err(RowFault::Newer(4)));
        assert_eq!(row(0), Err(RowFault::Value("version")));
    }
}
