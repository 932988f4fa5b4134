//! Content identifiers: CIDv1 with SHA-256, the only kind that repositories use.
//!
//! A [`Cid`] is a value of 36 bytes: version 1, a one-byte codec, the code and length of
//! SHA-256, and the digest. Other versions, hashes and multi-byte codecs are refused. The
//! codec is kept as it was read, because a leaf may have an unusual one and must still
//! reproduce its tree; code that needs DAG-CBOR checks [`Cid::is_dag_cbor`].

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, Encoding};

use crate::hash::sha256;

/// Bytes of a binary CID.
pub const CID_LEN: usize = 36;
/// Codec of commits, tree nodes and records.
pub const CODEC_DAG_CBOR: u8 = 0x71;
/// Codec of blobs.
pub const CODEC_RAW: u8 = 0x55;

const SHA2_256: u8 = 0x12;
const DIGEST_LEN: u8 = 0x20;

/// A CIDv1 with a SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cid([u8; CID_LEN]);

/// Hashes half of the digest. That is enough: to make CIDs collide in a table, an
/// attacker would need SHA-256 digests that agree in 128 bits.
impl std::hash::Hash for Cid {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let mut half = [0; 16];
        half.copy_from_slice(&self.0[4..20]);
        state.write_u128(u128::from_le_bytes(half));
    }
}

/// Why bytes or text are not a CID that a repository may contain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidError {
    #[error("a CID must have {CID_LEN} bytes, this one has {0}")]
    Length(usize),
    #[error("CID version {0} is not supported (only 1)")]
    Version(u8),
    #[error("CID codec {0:#x} is not a one-byte codec")]
    Codec(u8),
    #[error("CID hash {0:#x} of {1} bytes is not supported (only SHA-256)")]
    Hash(u8, u8),
    #[error("a CID must be written in base32 with the prefix 'b'")]
    Text,
}

impl Cid {
    /// The CID of a DAG-CBOR block.
    pub fn dag_cbor(block: &[u8]) -> Cid {
        Cid::of(CODEC_DAG_CBOR, block)
    }

    /// The CID of a raw block (a blob).
    pub fn raw(block: &[u8]) -> Cid {
        Cid::of(CODEC_RAW, block)
    }

    fn of(codec: u8, block: &[u8]) -> Cid {
        Cid::from_digest(codec, sha256(block))
    }

    /// Makes a CID from a digest that is already known. Panics unless `codec` is below
    /// 0x80.
    pub fn from_digest(codec: u8, digest: [u8; 32]) -> Cid {
        assert!(codec < 0x80, "codec must be one byte of varint");
        let mut bytes = [0; CID_LEN];
        bytes[..4].copy_from_slice(&[1, codec, SHA2_256, DIGEST_LEN]);
        bytes[4..].copy_from_slice(&digest);
        Cid(bytes)
    }

    /// Reads exactly one binary CID.
    pub fn from_bytes(bytes: &[u8]) -> Result<Cid, CidError> {
        // A CIDv0 is a bare multihash; name it before complaining of its length.
        if bytes.first() == Some(&SHA2_256) && bytes.len() == 34 {
            return Err(CidError::Version(0));
        }
        let array: [u8; CID_LEN] = bytes
            .try_into()
            .map_err(|_| CidError::Length(bytes.len()))?;
        match array {
            [1, codec, _, _, ..] if codec >= 0x80 => Err(CidError::Codec(codec)),
            [1, _, SHA2_256, DIGEST_LEN, ..] => Ok(Cid(array)),
            [1, _, hash, len, ..] => Err(CidError::Hash(hash, len)),
            [version, ..] => Err(CidError::Version(version)),
        }
    }

    pub fn as_bytes(&self) -> &[u8; CID_LEN] {
        &self.0
    }

    pub fn codec(&self) -> u8 {
        self.0[1]
    }

    pub fn is_dag_cbor(&self) -> bool {
        self.codec() == CODEC_DAG_CBOR
    }

    pub fn digest(&self) -> &[u8] {
        &self.0[4..]
    }

    /// Whether `block` hashes to this CID.
    pub fn matches(&self, block: &[u8]) -> bool {
        sha256(block) == *self.digest()
    }
}

/// Lower-case base32 without padding; trailing bits must be zero, so that one
/// CID has one spelling.
fn base32_lower() -> Encoding {
    let mut spec = BASE32_NOPAD.specification();
    spec.symbols = spec.symbols.to_lowercase();
    match spec.encoding() {
        Ok(encoding) => encoding,
        Err(_) => unreachable!("the lower-cased base32 alphabet is a valid specification"),
    }
}

thread_local! {
    static BASE32: Encoding = base32_lower();
}

/// Encodes bytes as lower-case base32 without padding (also did:plc's alphabet).
pub fn base32_encode(bytes: &[u8]) -> String {
    BASE32.with(|encoding| encoding.encode(bytes))
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", base32_encode(&self.0))
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Cid {
    type Err = CidError;

    fn from_str(text: &str) -> Result<Cid, CidError> {
        // 36 bytes are 58 characters of base32; anything longer is not decoded.
        let rest = text.strip_prefix('b').ok_or(CidError::Text)?;
        if rest.len() > 64 {
            return Err(CidError::Length(rest.len() * 5 / 8));
        }
        let bytes = BASE32
            .with(|encoding| encoding.decode(rest.as_bytes()))
            .map_err(|_| CidError::Text)?;
        Cid::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_round_trip() {
        let cid = Cid::dag_cbor(b"hello");
        assert_eq!(cid.to_string().parse(), Ok(cid));
        assert_eq!(Cid::from_bytes(cid.as_bytes()), Ok(cid));
        assert!(cid.to_string().starts_with("bafyrei"));
        assert!(Cid::raw(b"hello").to_string().starts_with("bafkrei"));
        assert!(cid.matches(b"hello") && !cid.matches(b"hullo"));
    }

    #[test]
    fn refuses_what_repositories_may_not_contain() {
        let good = *Cid::dag_cbor(b"x").as_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Cid::from_bytes(&bytes)
        };
        assert_eq!(with(0, 2), Err(CidError::Version(2)));
        assert_eq!(with(1, 0x80), Err(CidError::Codec(0x80)));
        assert_eq!(with(2, 0x13), Err(CidError::Hash(0x13, 0x20)));
        assert_eq!(with(3, 0x21), Err(CidError::Hash(0x12, 0x21)));
        assert_eq!(Cid::from_bytes(&good[..35]), Err(CidError::Length(35)));
        assert_eq!(Cid::from_bytes(&good[2..]), Err(CidError::Version(0)));
        assert_eq!(Cid::from_bytes(&[]), Err(CidError::Length(0)));
    }

    #[test]
    fn one_cid_has_one_spelling() {
        let text = Cid::dag_cbor(b"x").to_string();
        assert!(text.to_uppercase().parse::<Cid>().is_err());
        assert!(text[1..].parse::<Cid>().is_err());
        assert!(format!("{text}a").parse::<Cid>().is_err());
        // The last character carries two padding bits: only zeros are legal.
        let mut trailing = text.clone();
        let last = trailing.pop().unwrap();
        let alphabet = "abcdefghijklmnopqrstuvwxyz234567";
        let next = alphabet.find(last).unwrap() + 1;
        trailing.push(alphabet.chars().nth(next).unwrap());
        assert!(trailing.parse::<Cid>().is_err());
    }
}
