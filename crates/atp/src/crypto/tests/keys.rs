//! Tests the parser of public keys: every accepted spelling of a key, and texts and points that
//! are not keys.

use data_encoding::HEXLOWER;
use p256::elliptic_curve::sec1::ToSec1Point;

use super::{CURVES, signing_key};
use crate::crypto::{Curve, KeyError, PublicKey, SeedError, SigningKey};
use crate::syntax::Excerpt;

/// Secret keys and did:keys published by the W3C for these two curves.
const PUBLISHED: [(Curve, &str, &str); 6] = [
    (
        Curve::K256,
        "9085d2bef69286a6cbb51623c8fa258629945cd55ca705cc4e66700396894e0c",
        "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
    ),
    (
        Curve::K256,
        "f0f4df55a2b3ff13051ea814a8f24ad00f2e469af73c363ac7e9fb999a9072ed",
        "did:key:zQ3shtxV1FrJfhqE1dvxYRcCknWNjHc3c5X1y3ZSoPDi2aur2",
    ),
    (
        Curve::K256,
        "6b0b91287ae3348f8c2f2552d766f30e3604867e34adc37ccbb74a8e6b893e02",
        "did:key:zQ3shZc2QzApp2oymGvQbzP8eKheVshBHbU4ZYjeXqwSKEn6N",
    ),
    (
        Curve::K256,
        "c0a6a7c560d37d7ba81ecee9543721ff48fea3e0fb827d42c1868226540fac15",
        "did:key:zQ3shadCps5JLAHcZiuX5YUtWHHL8ysBJqFLWvjZDKAWUBGzy",
    ),
    (
        Curve::K256,
        "175a232d440be1e0788f25488a73d9416c04b6f924bea6354bf05dd2f1a75133",
        "did:key:zQ3shptjE6JwdkeKN4fcpnYQY3m9Cet3NiHdAfpvSUZBFoKBj",
    ),
    (
        Curve::P256,
        "82ebbd63ebbd9ff60141a69bd4c9be282f2415e8eafa9d42c0ed396daccca979",
        "did:key:zDnaeTiq1PdzvZXUaMdezchcMJQpBdH2VN4pgrrEhMCCbmwSb",
    ),
];

/// A key in the three forms: did:key, and the legacy one with a short point.
const LEGACY: [(Curve, &str, &str); 4] = [
    (
        Curve::P256,
        "did:key:zDnaembgSGUhZULN2Caob4HLJPaxBh92N7rtH21TErzqf8HQo",
        "zxdM8dSstjrpZaRUwBmDvjGXweKuEMVN95A9oJBFjkWMh",
    ),
    (
        Curve::K256,
        "did:key:zQ3shqwJEJyMBsBXCWyCBpUBMqxcon9oHB7mCvx4sSpMdLJwc",
        "z25z9DTpsiYYJKGsWmSPJK2NFN8PcJtZig12K59UgW7q5t",
    ),
    (
        Curve::P256,
        "did:key:zDnaeT6hL2RnTdUhAPLij1QBkhYZnmuKyM7puQLW1tkF4Zkt8",
        "ze8N2PPxnu19hmBQ58t5P3E9Yj6CqakJmTVCaKvf9Byq2",
    ),
    (
        Curve::K256,
        "did:key:zQ3shnriYMXc8wvkbJqfNWh5GXn2bVAeqTC92YuNbek4npqGF",
        "z22uZXWP8fdHXi4jyx8cCDiBf9qQTsAe6VcycoMQPfcMQX",
    ),
];

fn multibase(bytes: &[u8]) -> String {
    format!("z{}", bs58::encode(bytes).into_string())
}

#[test]
fn published_keys() {
    for (curve, secret, did_key) in PUBLISHED {
        let seed = HEXLOWER.decode(secret.as_bytes()).unwrap();
        let key = SigningKey::from_seed(curve, &seed.try_into().unwrap()).unwrap();
        assert_eq!(key.public().to_did_key(), did_key);
        let read = PublicKey::from_did_key(did_key).unwrap();
        assert_eq!((&read, read.curve()), (key.public(), curve));
        let again = PublicKey::from_compressed(curve, &read.to_compressed());
        assert_eq!(again.as_ref(), Ok(&read));
        assert_eq!(format!("{read} {read:?}"), format!("{did_key} {did_key}"));
        let clone = read.clone();
        assert_eq!(PublicKey::from_multikey(&clone.to_multikey()), Ok(read));
    }
}

#[test]
fn legacy_keys_with_a_short_point() {
    for (curve, did_key, legacy) in LEGACY {
        let expected = PublicKey::from_did_key(did_key);
        assert!(expected.is_ok());
        assert_eq!(PublicKey::from_legacy(curve, legacy), expected);
    }
}

#[test]
fn legacy_keys_with_a_long_point() {
    for seed in 1..20 {
        for curve in CURVES {
            let key = signing_key(curve, seed).public().clone();
            let mut long = long_point(&key);
            let read = PublicKey::from_legacy(curve, &multibase(&long)).unwrap();
            assert_eq!((read.to_did_key(), &read), (key.to_did_key(), &key));
            // A Multikey has no room for it.
            let codec: &[u8] = if curve == Curve::K256 {
                b"\xe7\x01"
            } else {
                b"\x80\x24"
            };
            let multikey = multibase(&[codec, &long[..]].concat());
            assert_eq!(
                PublicKey::from_multikey(&multikey),
                Err(KeyError::Length(65))
            );
            // The hybrid encodings, which name the parity of y as well.
            let odd = long[64] & 1;
            for first in [6 | odd, 6 | (odd ^ 1), 2, 3, 5, 0] {
                long[0] = first;
                let refused = PublicKey::from_legacy(curve, &multibase(&long));
                assert_eq!(refused, Err(KeyError::Point(curve)));
            }
            // Off the curve.
            long[0] = 4;
            long[64] ^= 1;
            let refused = PublicKey::from_legacy(curve, &multibase(&long));
            assert_eq!(refused, Err(KeyError::Point(curve)));
        }
    }
}

fn long_point(key: &PublicKey) -> Vec<u8> {
    let short = key.to_compressed();
    match key.curve() {
        Curve::K256 => {
            let key = k256::PublicKey::from_sec1_bytes(&short).unwrap();
            key.to_sec1_point(false).as_bytes().to_vec()
        }
        Curve::P256 => {
            let key = p256::PublicKey::from_sec1_bytes(&short).unwrap();
            key.to_sec1_point(false).as_bytes().to_vec()
        }
    }
}

#[test]
fn points_that_are_on_neither_curve_nor_paper() {
    for curve in CURVES {
        let refused = |point: &[u8], expected: KeyError| {
            let read = PublicKey::from_compressed(curve, point);
            assert_eq!(read, Err(expected), "{point:02x?}");
        };
        let good = signing_key(curve, 1).public().to_compressed();
        for first in (0..=255).filter(|first| !matches!(first, 2 | 3)) {
            let mut point = good;
            point[0] = first;
            refused(&point, KeyError::Point(curve));
        }
        // A coordinate beyond the field.
        let mut point = [0xff; 33];
        point[0] = 2;
        refused(&point, KeyError::Point(curve));
        // Infinity, and other lengths.
        refused(&[0], KeyError::Length(1));
        refused(&[0; 33], KeyError::Point(curve));
        refused(&[], KeyError::Length(0));
        refused(&good[..32], KeyError::Length(32));
        refused(&[&good[..], &[0]].concat(), KeyError::Length(34));
    }
}

#[test]
fn texts_that_are_no_keys() {
    let good = signing_key(Curve::K256, 1).public().to_multikey();
    let excerpt = |text: &str| Excerpt::of(text);
    for text in ["", "did:key", "did:plc:abc", "DID:key:zQ3s", &good] {
        let read = PublicKey::from_did_key(text);
        assert_eq!(read, Err(KeyError::DidKey(excerpt(text))));
    }
    let not_base58 = good.replace(&good[5..6], "0");
    for text in [
        "",
        "Q3sh",
        "mAbc",
        "z0",
        "zl",
        "zI",
        "zé",
        "z Q3",
        &not_base58,
        &good[1..],
    ] {
        let read = PublicKey::from_multikey(text);
        assert_eq!(read, Err(KeyError::Multibase(excerpt(text))), "{text}");
    }
    let long = format!("z{}", "2".repeat(128));
    assert_eq!(PublicKey::from_multikey(&long), Err(KeyError::TooLong(129)));
    assert_eq!(
        PublicKey::from_legacy(Curve::K256, &long),
        Err(KeyError::TooLong(129))
    );
    // As long as allowed, all zeros: 127 bytes must fit the buffer.
    let zeros = format!("z{}", "1".repeat(127));
    assert_eq!(PublicKey::from_multikey(&zeros), Err(KeyError::Codec(0, 0)));
    assert_eq!(
        PublicKey::from_legacy(Curve::P256, &zeros),
        Err(KeyError::Length(127))
    );
    assert_eq!(PublicKey::from_multikey("z"), Err(KeyError::Length(0)));
    // An Ed25519 key.
    let other = multibase(&[&[0xed, 0x01][..], &[7; 32]].concat());
    assert_eq!(
        PublicKey::from_multikey(&other),
        Err(KeyError::Codec(0xed, 0x01))
    );
}

#[test]
fn keys_of_two_curves_are_never_equal() {
    // These points exist on both curves.
    let shared = (1..=255u8).find_map(|x| {
        let mut point = [0; 33];
        (point[0], point[32]) = (2, x);
        let one = PublicKey::from_compressed(Curve::K256, &point).ok()?;
        let two = PublicKey::from_compressed(Curve::P256, &point).ok()?;
        Some((one, two))
    });
    let (one, two) = shared.unwrap();
    assert_eq!(one.to_compressed(), two.to_compressed());
    assert_ne!(one, two);
    assert_ne!(one.to_did_key(), two.to_did_key());
}

#[test]
fn seeds_outside_the_group_are_refused() {
    for curve in CURVES {
        let order = *curve.order();
        for seed in [[0; 32], [0xff; 32], order] {
            let made = SigningKey::from_seed(curve, &seed).map(|_| ());
            assert_eq!(made, Err(SeedError(curve)));
        }
        let mut last = order;
        last[31] -= 1;
        assert!(SigningKey::from_seed(curve, &last).is_ok());
    }
}
