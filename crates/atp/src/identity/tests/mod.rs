//! Tests the parsers of DID documents and audit logs on valid and invalid answers of
//! directories.

mod audit_logs;
mod datetimes;
mod documents;
mod endpoints;

use crate::crypto::{Curve, PublicKey, SigningKey};
use crate::syntax::Did;

const PLC: &str = "did:plc:7iza6de2dwap2sbkpav7c6c6";

fn did() -> Did {
    Did::parse(PLC).unwrap()
}

fn key(curve: Curve, seed: u8) -> PublicKey {
    let key = SigningKey::from_seed(curve, &[seed; 32]).unwrap();
    key.public().clone()
}
