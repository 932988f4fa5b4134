//! Tests keys and signatures, and compares both verifiers with independent libraries.

mod keys;
mod oracles;
mod signatures;

use super::{Curve, SigningKey};

const CURVES: [Curve; 2] = [Curve::K256, Curve::P256];

fn signing_key(curve: Curve, seed: u8) -> SigningKey {
    SigningKey::from_seed(curve, &[seed; 32]).unwrap()
}

/// The other signature that satisfies the equation: s becomes order minus s.
fn negate_s(curve: Curve, signature: &[u8; 64]) -> [u8; 64] {
    let mut negated = *signature;
    let mut borrow = 0;
    for at in (0..32).rev() {
        let digit = i16::from(curve.order()[at]) - i16::from(signature[32 + at]) - borrow;
        borrow = i16::from(digit < 0);
        negated[32 + at] = digit.rem_euclid(256) as u8;
    }
    negated
}
