//! Public keys: parsed once from any of their text forms, cheap to clone.
//!
//! The text forms are `did:key:z…`; a Multikey (`z`, base58, two bytes of codec, a
//! compressed point); and the two legacy verification keys (`z`, base58, a point without
//! codec). A point that is off the curve, at infinity or in another encoding never
//! becomes a [`PublicKey`].

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};

use crate::limits::KEY_TEXT_BYTES;
use crate::syntax::Excerpt;

/// Bytes of a compressed point.
pub const POINT_BYTES: usize = 33;
/// Bytes of an uncompressed point.
const LONG_POINT_BYTES: usize = 65;
/// Enough for anything that [`KEY_TEXT_BYTES`] characters of base58 can encode.
const DECODED_BYTES: usize = KEY_TEXT_BYTES;
const DID_KEY_PREFIX: &str = "did:key:";
const K256_CODEC: [u8; 2] = [0xe7, 0x01];
const P256_CODEC: [u8; 2] = [0x80, 0x24];

/// The elliptic curves of the AT Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Curve {
    /// secp256k1, written K-256 or ES256K.
    K256,
    /// NIST P-256, also called secp256r1 or ES256.
    P256,
}

/// A public key on one of the two curves.
#[derive(Clone)]
pub enum PublicKey {
    K256(secp256k1::PublicKey),
    P256(P256Key),
}

/// A P-256 key in the form that its library needs, and its compressed point.
#[derive(Clone)]
pub struct P256Key(Arc<ParsedP256>);

struct ParsedP256 {
    parsed: ParsedPublicKey,
    point: [u8; POINT_BYTES],
}

/// Why text or bytes are not a usable public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("{0} is not a did:key")]
    DidKey(Excerpt),
    #[error("{0} is not base58 with the prefix z")]
    Multibase(Excerpt),
    #[error("a public key has at most {KEY_TEXT_BYTES} characters, this one has {0}")]
    TooLong(usize),
    #[error("key codec {0:#04x} {1:#04x} is neither K-256 (0xe7 0x01) nor P-256 (0x80 0x24)")]
    Codec(u8, u8),
    #[error("a point must not have {0} bytes here")]
    Length(usize),
    #[error("the bytes are not a point on the curve {0}")]
    Point(Curve),
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Curve::K256 => "K-256",
            Curve::P256 => "P-256",
        })
    }
}

impl PublicKey {
    /// Parses `did:key:z…`.
    pub fn from_did_key(text: &str) -> Result<PublicKey, KeyError> {
        let multibase = text
            .strip_prefix(DID_KEY_PREFIX)
            .ok_or_else(|| KeyError::DidKey(Excerpt::of(text)))?;
        PublicKey::from_multikey(multibase)
    }

    /// Parses the `publicKeyMultibase` of a Multikey.
    pub fn from_multikey(multibase: &str) -> Result<PublicKey, KeyError> {
        let mut buffer = [0; DECODED_BYTES];
        let bytes = decode_base58(multibase, &mut buffer)?;
        let Some((codec, point)) = bytes.split_first_chunk::<2>() else {
            return Err(KeyError::Length(bytes.len()));
        };
        match *codec {
            K256_CODEC => PublicKey::from_compressed(Curve::K256, point),
            P256_CODEC => PublicKey::from_compressed(Curve::P256, point),
            [first, second] => Err(KeyError::Codec(first, second)),
        }
    }

    /// Parses the `publicKeyMultibase` of a legacy verification key: a bare point,
    /// compressed or not. The curve comes from the type of the key.
    pub fn from_legacy(curve: Curve, multibase: &str) -> Result<PublicKey, KeyError> {
        let mut buffer = [0; DECODED_BYTES];
        let bytes = decode_base58(multibase, &mut buffer)?;
        match bytes.len() {
            LONG_POINT_BYTES => PublicKey::from_uncompressed(curve, bytes),
            _ => PublicKey::from_compressed(curve, bytes),
        }
    }

    /// Parses a compressed point: 33 bytes that begin with 2 or 3.
    pub fn from_compressed(curve: Curve, point: &[u8]) -> Result<PublicKey, KeyError> {
        let point: [u8; POINT_BYTES] = point
            .try_into()
            .map_err(|_| KeyError::Length(point.len()))?;
        match curve {
            Curve::K256 => parse_k256(&point),
            Curve::P256 => parse_p256(&point, point),
        }
    }

    fn from_uncompressed(curve: Curve, point: &[u8]) -> Result<PublicKey, KeyError> {
        // Hybrid encodings begin with 6 or 7. They are not allowed, although libraries
        // read them.
        let [4, coordinates @ ..] = point else {
            return Err(KeyError::Point(curve));
        };
        if curve == Curve::K256 {
            return parse_k256(point);
        }
        let (x, y) = coordinates.split_at(32);
        let y_is_odd = y.last().is_some_and(|byte| byte & 1 == 1);
        let mut compressed = [0; POINT_BYTES];
        compressed[0] = if y_is_odd { 3 } else { 2 };
        compressed[1..].copy_from_slice(x);
        parse_p256(point, compressed)
    }

    pub fn curve(&self) -> Curve {
        match self {
            PublicKey::K256(_) => Curve::K256,
            PublicKey::P256(_) => Curve::P256,
        }
    }

    /// The compressed point.
    pub fn to_compressed(&self) -> [u8; POINT_BYTES] {
        match self {
            PublicKey::K256(key) => key.serialize(),
            PublicKey::P256(key) => key.0.point,
        }
    }

    /// The `publicKeyMultibase` of a Multikey.
    pub fn to_multikey(&self) -> String {
        let mut bytes = [0; 2 + POINT_BYTES];
        bytes[..2].copy_from_slice(match self.curve() {
            Curve::K256 => &K256_CODEC,
            Curve::P256 => &P256_CODEC,
        });
        bytes[2..].copy_from_slice(&self.to_compressed());
        format!("z{}", bs58::encode(bytes).into_string())
    }

    pub fn to_did_key(&self) -> String {
        format!("{DID_KEY_PREFIX}{}", self.to_multikey())
    }
}

impl P256Key {
    pub(super) fn parsed(&self) -> &ParsedPublicKey {
        &self.0.parsed
    }
}

fn decode_base58<'a>(
    multibase: &str,
    buffer: &'a mut [u8; DECODED_BYTES],
) -> Result<&'a [u8], KeyError> {
    if multibase.len() > KEY_TEXT_BYTES {
        return Err(KeyError::TooLong(multibase.len()));
    }
    let refused = || KeyError::Multibase(Excerpt::of(multibase));
    let digits = multibase.strip_prefix('z').ok_or_else(refused)?;
    let len = bs58::decode(digits)
        .onto(&mut buffer[..])
        .map_err(|_| refused())?;
    Ok(&buffer[..len])
}

fn parse_k256(point: &[u8]) -> Result<PublicKey, KeyError> {
    secp256k1::PublicKey::from_slice(point)
        .map(PublicKey::K256)
        .map_err(|_| KeyError::Point(Curve::K256))
}

fn parse_p256(encoded: &[u8], point: [u8; POINT_BYTES]) -> Result<PublicKey, KeyError> {
    let parsed = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, encoded)
        .map_err(|_| KeyError::Point(Curve::P256))?;
    let key = ParsedP256 { parsed, point };
    Ok(PublicKey::P256(P256Key(Arc::new(key))))
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &PublicKey) -> bool {
        match (self, other) {
            (PublicKey::K256(one), PublicKey::K256(two)) => one == two,
            (PublicKey::P256(one), PublicKey::P256(two)) => one.0.point == two.0.point,
            _ => false,
        }
    }
}

impl Eq for PublicKey {}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_did_key())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for P256Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&PublicKey::P256(self.clone()), f)
    }
}
