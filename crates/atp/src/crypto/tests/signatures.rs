//! Tests which signatures the verifiers accept, which they refuse, and the reason given.

use data_encoding::{BASE64_NOPAD, HEXUPPER};
use proptest::prelude::*;

use super::{CURVES, negate_s, signing_key};
use crate::crypto::{Curve, PublicKey, SignatureError, SigningKey};

/// The public suite's six cases: one message, keys and signatures in base64.
const PUBLISHED: [(&str, &str, Result<(), SignatureError>); 6] = [
    (
        "did:key:zDnaembgSGUhZULN2Caob4HLJPaxBh92N7rtH21TErzqf8HQo",
        "2vZNsG3UKvvO/CDlrdvyZRISOFylinBh0Jupc6KcWoJWExHptCfduPleDbG3rko3YZnn9Lw0IjpixVmexJDegg",
        Ok(()),
    ),
    (
        "did:key:zQ3shqwJEJyMBsBXCWyCBpUBMqxcon9oHB7mCvx4sSpMdLJwc",
        "5WpdIuEUUfVUYaozsi8G0B3cWO09cgZbIIwg1t2YKdUn/FEznOndsz/qgiYb89zwxYCbB71f7yQK5Lr7NasfoA",
        Ok(()),
    ),
    (
        "did:key:zDnaembgSGUhZULN2Caob4HLJPaxBh92N7rtH21TErzqf8HQo",
        "2vZNsG3UKvvO/CDlrdvyZRISOFylinBh0Jupc6KcWoKp7O4VS9giSAah8k5IUbXIW00SuOrjfEqQ9HEkN9JGzw",
        Err(SignatureError::HighS),
    ),
    (
        "did:key:zQ3shqwJEJyMBsBXCWyCBpUBMqxcon9oHB7mCvx4sSpMdLJwc",
        "5WpdIuEUUfVUYaozsi8G0B3cWO09cgZbIIwg1t2YKdXYA67MYxYiTMAVfdnkDCMN9S5B3vHosRe07aORmoshoQ",
        Err(SignatureError::HighS),
    ),
    (
        "did:key:zDnaeT6hL2RnTdUhAPLij1QBkhYZnmuKyM7puQLW1tkF4Zkt8",
        "MEQCIFxYelWJ9lNcAVt+jK0y/T+DC/X4ohFZ+m8f9SEItkY1AiACX7eXz5sgtaRrz/SdPR8kprnbHMQVde0T2R8yOTBweA",
        Err(SignatureError::Der),
    ),
    (
        "did:key:zQ3shnriYMXc8wvkbJqfNWh5GXn2bVAeqTC92YuNbek4npqGF",
        "MEUCIQCWumUqJqOCqInXF7AzhIRg2MhwRz2rWZcOEsOjPmNItgIgXJH7RnqfYY6M0eg33wU0sFYDlprwdOcpRn78Sz5ePgk",
        Err(SignatureError::Der),
    ),
];

#[test]
fn published_signatures() {
    let message = BASE64_NOPAD.decode(b"oWVoZWxsb2V3b3JsZA").unwrap();
    for (key, signature, expected) in PUBLISHED {
        let key = PublicKey::from_did_key(key).unwrap();
        let signature = BASE64_NOPAD.decode(signature.as_bytes()).unwrap();
        assert_eq!(key.verify(&message, &signature), expected, "{key}");
        if expected.is_ok() {
            let wrong = key.verify(b"another message", &signature);
            assert_eq!(wrong, Err(SignatureError::Mismatch));
        }
    }
}

#[test]
fn signing_is_deterministic_as_rfc_6979_says() {
    // Appendix A.2.5 of the RFC: P-256, SHA-256, the message "test".
    let seed = "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721";
    let expected = "F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367\
        019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083";
    let seed = HEXUPPER.decode(seed.as_bytes()).unwrap();
    let key = SigningKey::from_seed(Curve::P256, &seed.try_into().unwrap()).unwrap();
    assert_eq!(HEXUPPER.encode(&key.sign(b"test")), expected);
    // The RFC's signature of "sample" has a high s: ours is the other one.
    let high = "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716\
        F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8";
    let negated = negate_s(Curve::P256, &key.sign(b"sample"));
    assert_eq!(HEXUPPER.encode(&negated), high);
    for curve in CURVES {
        let key = signing_key(curve, 9);
        assert_eq!(key.sign(b"again"), key.sign(b"again"));
    }
}

#[test]
fn a_high_s_is_refused_although_it_satisfies_the_equation() {
    for curve in CURVES {
        for seed in 1..30 {
            let key = signing_key(curve, seed);
            let signature = key.sign(&[seed]);
            assert_eq!(key.public().verify(&[seed], &signature), Ok(()));
            let high = negate_s(curve, &signature);
            let refused = key.public().verify(&[seed], &high);
            assert_eq!(refused, Err(SignatureError::HighS));
        }
    }
}

#[test]
fn the_border_between_low_and_high() {
    for curve in CURVES {
        let key = signing_key(curve, 1);
        let mut signature = key.sign(b"m");
        // The order is odd, so its half plus one is the first high s.
        let mut half = [0; 32];
        let mut carry = 0;
        for (place, digit) in half.iter_mut().zip(curve.order()) {
            *place = digit >> 1 | carry;
            carry = digit << 7;
        }
        signature[32..].copy_from_slice(&half);
        let last_low = key.public().verify(b"m", &signature);
        assert_eq!(last_low, Err(SignatureError::Mismatch));
        signature[63] += 1;
        let first_high = key.public().verify(b"m", &signature);
        assert_eq!(first_high, Err(SignatureError::HighS));
    }
}

#[test]
fn scalars_outside_the_group_are_refused() {
    for curve in CURVES {
        let key = signing_key(curve, 1);
        let signature = key.sign(b"m");
        for scalar in [[0; 32], *curve.order(), [0xff; 32]] {
            for at in [0, 32] {
                let mut wrong = signature;
                wrong[at..at + 32].copy_from_slice(&scalar);
                let refused = key.public().verify(b"m", &wrong);
                assert_eq!(refused, Err(SignatureError::Scalar));
            }
        }
    }
}

fn der(curve: Curve, signature: &[u8; 64]) -> Vec<u8> {
    match curve {
        Curve::K256 => {
            let signature = k256::ecdsa::Signature::from_slice(signature).unwrap();
            signature.to_der().as_bytes().to_vec()
        }
        Curve::P256 => {
            let signature = p256::ecdsa::Signature::from_slice(signature).unwrap();
            signature.to_der().as_bytes().to_vec()
        }
    }
}

#[test]
fn der_and_other_lengths_are_refused() {
    for curve in CURVES {
        let key = signing_key(curve, 3);
        for message in 0..40u8 {
            let der = der(curve, &key.sign(&[message]));
            let refused = key.public().verify(&[message], &der);
            assert_eq!(refused, Err(SignatureError::Der));
        }
        let signature = key.sign(b"m");
        for len in (0..64).chain(65..80) {
            let mut wrong = signature.to_vec();
            wrong.resize(len, 0);
            let refused = key.public().verify(b"m", &wrong);
            assert_eq!(refused, Err(SignatureError::Length(len)));
        }
    }
}

#[test]
fn every_single_flipped_bit_is_noticed() {
    for curve in CURVES {
        let key = signing_key(curve, 5);
        let message = *b"the root the owner signed";
        let signature = key.sign(&message);
        for bit in 0..512 {
            let mut wrong = signature;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(key.public().verify(&message, &wrong).is_err(), "{bit}");
        }
        for bit in 0..message.len() * 8 {
            let mut wrong = message;
            wrong[bit / 8] ^= 1 << (bit % 8);
            let refused = key.public().verify(&wrong, &signature);
            assert_eq!(refused, Err(SignatureError::Mismatch));
        }
    }
}

#[test]
fn another_key_or_curve_does_not_verify() {
    for curve in CURVES {
        let signature = signing_key(curve, 1).sign(b"m");
        for other in CURVES {
            let refused = signing_key(other, 2).public().verify(b"m", &signature);
            assert!(refused.is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_signed_verifies_and_no_longer_after_a_flip(
        seed in prop::array::uniform32(any::<u8>()),
        message in prop::collection::vec(any::<u8>(), 1..300),
        bit in 0..512usize,
        message_bit in any::<prop::sample::Index>(),
    ) {
        for curve in CURVES {
            let Ok(key) = SigningKey::from_seed(curve, &seed) else { continue };
            let signature = key.sign(&message);
            prop_assert_eq!(key.public().verify(&message, &signature), Ok(()));
            let mut wrong = signature;
            wrong[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(key.public().verify(&message, &wrong).is_err());
            let mut other = message.clone();
            let at = message_bit.index(message.len() * 8);
            other[at / 8] ^= 1 << (at % 8);
            prop_assert!(key.public().verify(&other, &signature).is_err());
        }
    }
}
