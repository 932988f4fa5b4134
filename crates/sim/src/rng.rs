//! Deterministic randomness: a seed gives the same run on every machine and in every
//! release. Not for secrets.

/// SplitMix64: small, fast, and good enough to choose among interleavings.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(mix(seed ^ 0x6a09_e667_f3bc_c908))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing is below zero");
        (self.draw() % bound as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low + 1)
    }

    /// True with a probability of `chance` in a thousand.
    pub(crate) fn per_mille(&mut self, chance: u32) -> bool {
        self.draw() % 1000 < u64::from(chance)
    }

    /// A random element, or `None` if there are none.
    pub fn pick<T: Clone>(&mut self, among: &[T]) -> Option<T> {
        if among.is_empty() {
            None
        } else {
            Some(among[self.below(among.len())].clone())
        }
    }
}

/// Spreads a number over all bits.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..8).map(|_| rng.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn chances_are_about_what_they_say() {
        let mut rng = Rng::new(1);
        let hits = (0..10_000).filter(|_| rng.per_mille(250)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert_eq!(Rng::new(1).pick::<u8>(&[]), None);
    }
}
