//! Checks a signature: first its form, then the signature itself.
//!
//! The form is checked here for both curves, because the libraries differ: the one for
//! P-256 accepts a high s, which would let anyone turn a valid commit into another one
//! with a different CID.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use super::{Curve, PublicKey};

/// Bytes of a signature: r and s, 32 each, big-endian.
pub const SIGNATURE_BYTES: usize = 64;

type Scalar = [u8; 32];

const ZERO: Scalar = [0; 32];
const K256_ORDER: Scalar = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe,
    0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
];
const P256_ORDER: Scalar = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];
const K256_HALF: Scalar = half(K256_ORDER);
const P256_HALF: Scalar = half(P256_ORDER);

/// Why a signature is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("a signature must have {SIGNATURE_BYTES} bytes, this one has {0}")]
    Length(usize),
    #[error("the signature is in DER; only {SIGNATURE_BYTES} raw bytes are allowed")]
    Der,
    #[error("r or s of the signature is zero or not below the order of the curve")]
    Scalar,
    #[error("s of the signature is in the upper half of the group, which is not allowed")]
    HighS,
    #[error("the signature was not made by this key over this message")]
    Mismatch,
}

impl Curve {
    pub(super) const fn order(self) -> &'static Scalar {
        match self {
            Curve::K256 => &K256_ORDER,
            Curve::P256 => &P256_ORDER,
        }
    }

    const fn half_order(self) -> &'static Scalar {
        match self {
            Curve::K256 => &K256_HALF,
            Curve::P256 => &P256_HALF,
        }
    }
}

impl PublicKey {
    /// Checks a signature over the SHA-256 of `message`.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let signature = check_form(self.curve(), signature)?;
        let valid = match self {
            PublicKey::K256(key) => {
                let digest = secp256k1::Message::from_digest(Sha256::digest(message).into());
                // The library keeps one verification context per thread.
                secp256k1::ecdsa::Signature::from_compact(signature)
                    .and_then(|signature| secp256k1::ecdsa::verify(&signature, digest, key))
                    .is_ok()
            }
            PublicKey::P256(key) => key.parsed().verify_sig(message, signature).is_ok(),
        };
        valid.then_some(()).ok_or(SignatureError::Mismatch)
    }
}

fn check_form(curve: Curve, signature: &[u8]) -> Result<&[u8; SIGNATURE_BYTES], SignatureError> {
    let Ok(whole) = <&[u8; SIGNATURE_BYTES]>::try_from(signature) else {
        return Err(if is_der(signature) {
            SignatureError::Der
        } else {
            SignatureError::Length(signature.len())
        });
    };
    let (r, s) = whole.split_at(32);
    let in_group = |scalar: &[u8]| scalar != ZERO && scalar < curve.order().as_slice();
    if !in_group(r) || !in_group(s) {
        return Err(SignatureError::Scalar);
    }
    match s.cmp(curve.half_order().as_slice()) {
        Ordering::Greater => Err(SignatureError::HighS),
        _ => Ok(whole),
    }
}

/// A DER sequence of exactly this length that begins with an integer.
fn is_der(signature: &[u8]) -> bool {
    match signature {
        [0x30, len, 0x02, ..] => usize::from(*len) + 2 == signature.len(),
        _ => false,
    }
}

/// Half of an odd number, rounded down: the highest allowed s.
const fn half(order: Scalar) -> Scalar {
    let mut halved = [0; 32];
    let mut carry = 0;
    let mut at = 0;
    while at < order.len() {
        halved[at] = order[at] >> 1 | carry << 7;
        carry = order[at] & 1;
        at += 1;
    }
    halved
}
