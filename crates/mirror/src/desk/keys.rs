//! Public keys that were read from their bytes lately: reading a compressed point
//! takes a square root, a tenth of what checking a signature takes.

use gapless_atp::crypto::PublicKey;
use gapless_core::ledger::KeyBytes;

use gapless_net::public_key;

/// Keys at one desk, about a hundred bytes each.
const PLACES: usize = 1 << 16;

/// A place holds one of the keys that share it, the last.
#[derive(Default)]
pub struct Keys(Vec<Option<(KeyBytes, PublicKey)>>);

impl Keys {
    /// None when these are no key's bytes.
    pub fn read(&mut self, bytes: &KeyBytes) -> Option<PublicKey> {
        if self.0.is_empty() {
            self.0.resize_with(PLACES, || None);
        }
        let place = &mut self.0[place(bytes)];
        if let Some((of, key)) = place
            && of == bytes
        {
            return Some(key.clone());
        }
        let key = public_key(bytes)?;
        *place = Some((*bytes, key.clone()));
        Some(key)
    }
}

/// Points are as good as random. Whoever chooses theirs to meet another's costs us
/// that square root.
fn place(bytes: &KeyBytes) -> usize {
    let [.., a, b, c, d] = bytes.point;
    u32::from_be_bytes([a, b, c, d]) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The points of a private key of one and of two.
    const POINTS: [&str; 2] = [
        "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",
        "02c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5",
    ];

    fn bytes(point: &str) -> KeyBytes {
        let point: Vec<u8> = (0..point.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&point[at..at + 2], 16).expect("hex"))
            .collect();
        let point = point.try_into().expect("33 bytes");
        KeyBytes { curve: 0, point }
    }

    #[test]
    fn a_key_is_the_one_of_its_bytes() {
        let mut keys = Keys::default();
        for _ in 0..2 {
            for point in POINTS {
                let key = keys.read(&bytes(point)).expect("a key");
                assert_eq!(key.to_compressed(), bytes(point).point);
            }
        }
    }

    #[test]
    fn another_key_in_the_same_place_is_another_key() {
        let mut keys = Keys::default();
        let even = bytes(POINTS[0]);
        let odd = KeyBytes {
            point: {
                let mut point = even.point;
                point[0] = 3;
                point
            },
            ..even
        };
        assert_eq!(place(&even), place(&odd));
        for bytes in [even, odd, even] {
            let key = keys.read(&bytes).expect("a key");
            assert_eq!(key.to_compressed(), bytes.point);
        }
        assert!(keys.read(&KeyBytes { curve: 9, ..even }).is_none());
    }
}
