//! Signing keys, for tests and the test network. The mirror itself never signs.
//!
//! Signatures are deterministic (RFC 6979), so two test networks built from one seed are
//! identical to the last byte. Keys are kept in ordinary memory and are not wiped.

use p256::ecdsa::signature::Signer;
use sha2::{Digest, Sha256};

use super::{Curve, PublicKey, SIGNATURE_BYTES};

/// A secret key on one of the two curves.
#[derive(Clone)]
pub struct SigningKey {
    secret: Secret,
    public: PublicKey,
}

#[derive(Clone)]
enum Secret {
    K256(secp256k1::SecretKey),
    P256(p256::ecdsa::SigningKey),
}

/// The seed is zero or not below the order of the curve. That happens to one in four
/// thousand million random seeds on P-256, and practically never on K-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these 32 bytes are not a secret key on the curve {0}")]
pub struct SeedError(pub Curve);

impl SigningKey {
    /// Uses the 32 bytes as the secret number itself.
    pub fn from_seed(curve: Curve, seed: &[u8; 32]) -> Result<SigningKey, SeedError> {
        match curve {
            Curve::K256 => {
                let secret =
                    secp256k1::SecretKey::from_secret_bytes(*seed).map_err(|_| SeedError(curve))?;
                let public = PublicKey::K256(secret.public_key());
                Ok(SigningKey {
                    secret: Secret::K256(secret),
                    public,
                })
            }
            Curve::P256 => {
                let secret =
                    p256::ecdsa::SigningKey::from_slice(seed).map_err(|_| SeedError(curve))?;
                let point = secret.verifying_key().to_sec1_point(true);
                let public = PublicKey::from_compressed(curve, point.as_bytes())
                    .map_err(|_| SeedError(curve))?;
                Ok(SigningKey {
                    secret: Secret::P256(secret),
                    public,
                })
            }
        }
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs the SHA-256 of `message`: r and s, with s in the lower half.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        match &self.secret {
            Secret::K256(secret) => {
                let digest = secp256k1::Message::from_digest(Sha256::digest(message).into());
                secp256k1::ecdsa::sign(digest, secret).serialize_compact()
            }
            Secret::P256(secret) => {
                let signature: p256::ecdsa::Signature = secret.sign(message);
                signature.normalize_s().to_bytes().into()
            }
        }
    }
}
