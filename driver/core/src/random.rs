//! Randomness that is handed in: a seed, and the same numbers ever after.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, good enough for jitter.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A source that gives the same sequence for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A source for each sequence of keys, such as a seed and an epoch: they have nothing to do with each other.
    pub fn keyed(keys: &[u64]) -> Self {
        let mix = |state: u64, key: &u64| Self(state ^ key).next_u64();
        Self(keys.iter().fold(0, mix))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in `0..n`; 0 for an empty range.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next_u64() % n }
    }
}
