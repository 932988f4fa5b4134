//! Compares the crate's verdicts on keys and signatures with those of k256 and p256, which
//! share no code with the verifiers under test. For p256 the low-s rule is added.

use k256::ecdsa::signature::Verifier;
use proptest::prelude::*;

use super::{CURVES, negate_s, signing_key};
use crate::crypto::{Curve, PublicKey};

fn oracle_accepts(curve: Curve, point: &[u8], message: &[u8], signature: &[u8]) -> bool {
    match curve {
        Curve::K256 => {
            let key = k256::ecdsa::VerifyingKey::from_sec1_bytes(point).unwrap();
            k256::ecdsa::Signature::from_slice(signature)
                .and_then(|signature| key.verify(message, &signature))
                .is_ok()
        }
        Curve::P256 => {
            let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(point).unwrap();
            p256::ecdsa::Signature::from_slice(signature).is_ok_and(|signature| {
                let low = signature.normalize_s() == signature;
                low && key.verify(message, &signature).is_ok()
            })
        }
    }
}

fn oracle_reads_point(curve: Curve, point: &[u8]) -> bool {
    match curve {
        Curve::K256 => k256::PublicKey::from_sec1_bytes(point).is_ok(),
        Curve::P256 => p256::PublicKey::from_sec1_bytes(point).is_ok(),
    }
}

/// One way to spoil (or not) a signature of 64 bytes.
#[derive(Debug, Clone)]
enum Change {
    None,
    NegateS,
    NegateSTwice,
    SwapHalves,
    FlipBit(usize),
    FlipTwoBits(usize, usize),
    Scalar(usize, [u8; 32]),
    Random(Vec<u8>),
    Cut(usize),
}

fn changes() -> impl Strategy<Value = Change> {
    let bit = 0..512usize;
    prop_oneof![
        Just(Change::None),
        Just(Change::NegateS),
        Just(Change::NegateSTwice),
        Just(Change::SwapHalves),
        bit.clone().prop_map(Change::FlipBit),
        (bit.clone(), bit).prop_map(|(one, two)| Change::FlipTwoBits(one, two)),
        (0..2usize, prop::array::uniform32(any::<u8>()))
            .prop_map(|(half, scalar)| Change::Scalar(half * 32, scalar)),
        prop::collection::vec(any::<u8>(), 64).prop_map(Change::Random),
        (0..64usize).prop_map(Change::Cut),
    ]
}

fn apply(change: &Change, curve: Curve, signature: [u8; 64]) -> Vec<u8> {
    let mut changed = signature;
    match change {
        Change::None => {}
        Change::NegateS => changed = negate_s(curve, &signature),
        Change::NegateSTwice => changed = negate_s(curve, &negate_s(curve, &signature)),
        Change::SwapHalves => changed.rotate_left(32),
        Change::FlipBit(bit) => changed[bit / 8] ^= 1 << (bit % 8),
        Change::FlipTwoBits(one, two) => {
            changed[one / 8] ^= 1 << (one % 8);
            changed[two / 8] ^= 1 << (two % 8);
        }
        Change::Scalar(at, scalar) => changed[*at..at + 32].copy_from_slice(scalar),
        Change::Random(bytes) => return bytes.clone(),
        Change::Cut(len) => return changed[..*len].to_vec(),
    }
    changed.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn both_verifiers_agree_with_their_oracles(
        seed in 1..=254u8,
        message in prop::collection::vec(any::<u8>(), 0..200),
        change in changes(),
    ) {
        for curve in CURVES {
            let key = signing_key(curve, seed);
            let signature = apply(&change, curve, key.sign(&message));
            let point = key.public().to_compressed();
            let ours = key.public().verify(&message, &signature).is_ok();
            let theirs = oracle_accepts(curve, &point, &message, &signature);
            prop_assert_eq!(ours, theirs);
            // Agreeing is not enough: the unspoiled ones must be accepted.
            if matches!(change, Change::None | Change::NegateSTwice) {
                prop_assert!(ours);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_key_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for curve in CURVES {
            if let Ok(key) = PublicKey::from_compressed(curve, &bytes) {
                prop_assert_eq!(key.to_compressed().to_vec(), bytes.clone());
            }
        }
        let text = format!("z{}", bs58::encode(&bytes).into_string());
        if let Ok(key) = PublicKey::from_multikey(&text) {
            prop_assert_eq!(key.to_multikey(), text);
        }
    }

    #[test]
    fn any_text_is_a_key_or_an_error(text in any::<String>(), near in "(did:key:)?z?[1-9A-Za-z]{0,140}") {
        for text in [text, near] {
            let _ = PublicKey::from_did_key(&text);
            let _ = PublicKey::from_multikey(&text);
            let _ = PublicKey::from_legacy(Curve::K256, &text);
            let _ = PublicKey::from_legacy(Curve::P256, &text);
        }
    }

    #[test]
    fn any_bytes_are_a_signature_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..150)) {
        for curve in CURVES {
            prop_assert!(signing_key(curve, 1).public().verify(b"m", &bytes).is_err());
        }
    }

    #[test]
    fn the_same_points_are_on_the_curve(sign in 2..=3u8, x in prop::array::uniform32(any::<u8>())) {
        let point = [&[sign][..], &x].concat();
        for curve in CURVES {
            let ours = PublicKey::from_compressed(curve, &point).is_ok();
            prop_assert_eq!(ours, oracle_reads_point(curve, &point));
        }
    }
}

#[test]
fn small_coordinates_are_judged_alike() {
    for curve in CURVES {
        let mut on_curve = 0;
        for x in 0..=255u8 {
            let mut point = [0; 33];
            (point[0], point[32]) = (3, x);
            let ours = PublicKey::from_compressed(curve, &point).is_ok();
            assert_eq!(ours, oracle_reads_point(curve, &point), "{x}");
            on_curve += usize::from(ours);
        }
        // About half of all numbers are coordinates.
        assert!((80..=176).contains(&on_curve), "{on_curve}");
    }
}
