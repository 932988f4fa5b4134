//! Public keys and signatures on both curves that accounts may use.
//!
//! A signature is exactly 64 bytes, r then s, with s in the lower half of the group, over
//! the SHA-256 of the message. Every other form that some library accepts (DER, high s,
//! hybrid point encodings) is refused, each with an error of its own. Signing exists only
//! for tests and the test network.

mod public_key;
mod signature;
#[cfg(any(test, feature = "sign"))]
mod signing_key;

pub use public_key::{Curve, KeyError, P256Key, POINT_BYTES, PublicKey};
pub use signature::{SIGNATURE_BYTES, SignatureError};
#[cfg(any(test, feature = "sign"))]
pub use signing_key::{SeedError, SigningKey};

#[cfg(test)]
mod tests;
