#![no_main]
//! Keys and signatures of any bytes: each key has one text form, and no signature
//! verifies but the one that was made.

use gapless_atp::crypto::{Curve, POINT_BYTES, PublicKey, SigningKey};
use libfuzzer_sys::fuzz_target;

#[derive(arbitrary::Arbitrary, Debug)]
struct Input<'a> {
    p256: bool,
    seed: [u8; 32],
    message: &'a [u8],
    flip: u16,
    bytes: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let curve = if input.p256 { Curve::P256 } else { Curve::K256 };
    if let Ok(text) = std::str::from_utf8(input.bytes) {
        let keys = [
            PublicKey::from_did_key(text),
            PublicKey::from_multikey(text),
            PublicKey::from_legacy(curve, text),
            PublicKey::from_did_key(&format!("did:key:{text}")),
        ];
        keys.into_iter().flatten().for_each(|key| round_trip(&key));
    }
    if let Ok(key) = PublicKey::from_compressed(curve, input.bytes) {
        assert_eq!(key.to_compressed().as_slice(), input.bytes);
        round_trip(&key);
    }
    let mut point = [2; POINT_BYTES];
    point[1..].copy_from_slice(&input.seed);
    if let Ok(key) = PublicKey::from_compressed(curve, &point) {
        round_trip(&key);
        assert!(key.verify(input.message, input.bytes).is_err());
    }
    let Ok(key) = SigningKey::from_seed(curve, &input.seed) else {
        return;
    };
    round_trip(key.public());
    let signature = key.sign(input.message);
    assert_eq!(key.public().verify(input.message, &signature), Ok(()));
    let mut forged = signature;
    let bit = usize::from(input.flip) % 512;
    forged[bit / 8] ^= 1 << (bit % 8);
    assert!(key.public().verify(input.message, &forged).is_err());
    if input.bytes != signature {
        assert!(key.public().verify(input.message, input.bytes).is_err());
    }
});

fn round_trip(key: &PublicKey) {
    let text = key.to_did_key();
    assert_eq!(PublicKey::from_did_key(&text).as_ref(), Ok(key));
    assert_eq!(
        PublicKey::from_multikey(&key.to_multikey()).as_ref(),
        Ok(key)
    );
    let point = key.to_compressed();
    let again = PublicKey::from_compressed(key.curve(), &point);
    assert_eq!(again.as_ref(), Ok(key));
}
