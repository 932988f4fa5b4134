//! A small random number generator: the same seed always gives the same numbers.
//!
//! The algorithm is SplitMix64. It is good enough to scatter test data, and unfit for
//! real secrets.

use gapless_atp::crypto::{Curve, SigningKey};

/// A random number generator with a fixed sequence per seed.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x6a09_e667_f3bc_c908)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`. Panics if `bound` is zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "the bound must not be zero");
        // The bias is below 2^-40 for every bound that a test network uses.
        (self.next_u64() % bound as u64) as usize
    }

    /// Returns true in `percent` of a hundred cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    pub(crate) fn key(&mut self, curve: Curve) -> SigningKey {
        loop {
            let mut seed = [0; 32];
            for part in seed.chunks_mut(8) {
                part.copy_from_slice(&self.next_u64().to_be_bytes());
            }
            // One seed in four thousand million is not a key on P-256.
            if let Ok(key) = SigningKey::from_seed(curve, &seed) {
                return key;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        let key = |seed| Rng::new(seed).key(Curve::P256).public().to_did_key();
        assert_eq!(key(7), key(7));
        assert_ne!(key(7), key(8));
    }
}
