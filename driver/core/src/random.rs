//! Deterministic randomness: a seed always gives the same numbers.

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): one word of state.
///
/// Jitter is drawn from it, and the order of the rows of a data set. A checkpoint depends on that order, so the numbers
/// of a seed never change.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A source that gives the same sequence for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A source for each sequence of keys, such as a seed and an epoch. Different sequences give independent sources.
    pub fn keyed(keys: &[u64]) -> Self {
        let fold = |state: u64, key: &u64| mix(mix(state.wrapping_add(STEP)) ^ key);
        Self(keys.iter().fold(0, fold))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in `0..n`; 0 for an empty range. It is the upper half of a product, so the probabilities of two numbers
    /// differ by at most a factor of `1 + n / 2^64`.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Puts items into a random order, each order equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// 2^64 divided by the golden ratio: keys that follow each other differ in many bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: each bit of the result depends on each bit of the value.
#[inline]
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
