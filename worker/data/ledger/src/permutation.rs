//! A pseudorandom permutation of `0..len` in constant memory: each element is computed.
//!
//! A Feistel network over the fewest possible bits is a bijection of `0..2^bits`, keyed by seed and epoch. A result
//! outside of `0..len` is fed back until it is inside (cycle walking). That gives a bijection of `0..len`. Since
//! `2^bits < 2 * len`, it takes less than two applications on average.

const ROUNDS: usize = 8;

/// A permutation of `0..len`; see the module.
#[derive(Clone, Debug)]
pub struct Permutation {
    len: u64,
    /// Bits of the left and the right half; they differ by at most one.
    left: u32,
    right: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of one epoch.
    pub fn new(len: u64, seed: u64, epoch: u64) -> Self {
        // Bits of the largest index.
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let mut key = mix(seed ^ mix(epoch.wrapping_add(STEP)));
        let keys = std::array::from_fn(|_| {
            key = key.wrapping_add(STEP);
            mix(key)
        });
        Self {
            len,
            left: bits / 2,
            right: bits - bits / 2,
            keys,
        }
    }

    /// The element at `index` of the permutation.
    ///
    /// # Panics
    /// If `index` is not below the length.
    pub fn at(&self, index: u64) -> u64 {
        assert!(
            index < self.len,
            "index {index} of a permutation of {}",
            self.len
        );
        let mut value = self.apply(index);
        while value >= self.len {
            value = self.apply(value);
        }
        value
    }

    /// Applies the network once.
    fn apply(&self, value: u64) -> u64 {
        let (left_mask, right_mask) = (mask(self.left), mask(self.right));
        let mut left = (value >> self.right) & left_mask;
        let mut right = value & right_mask;
        for pair in self.keys.chunks_exact(2) {
            left ^= mix(right ^ pair[0]) & left_mask;
            right ^= mix(left ^ pair[1]) & right_mask;
        }
        left << self.right | right
    }
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// 2^64 divided by the golden ratio: consecutive keys differ in many bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: each bit of the result depends on each bit of the value.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_index_has_one_place(len in 1u64..2000, seed: u64, epoch: u64) {
            let order = Permutation::new(len, seed, epoch);
            let mut seen = vec![false; len as usize];
            for position in 0..len {
                let index = order.at(position);
                prop_assert!(!std::mem::replace(&mut seen[index as usize], true));
            }
        }

        #[test]
        fn the_largest_lengths_work(len in u64::MAX - 3..=u64::MAX, place: u64) {
            let order = Permutation::new(len, 1, 2);
            prop_assert!(order.at(place.min(len - 1)) < len);
        }
    }

    /// Over many seeds, each index is equally frequent at each place. The bound of the chi-square test is exceeded by
    /// a fair permutation less than once in 10^6.
    #[test]
    fn places_are_fair() {
        const SEEDS: u64 = 20_000;
        for len in [7_u64, 10, 64] {
            for place in [0, len / 2, len - 1] {
                let mut counts = vec![0_u64; len as usize];
                for seed in 0..SEEDS {
                    counts[Permutation::new(len, seed, 0).at(place) as usize] += 1;
                }
                let expected = SEEDS as f64 / len as f64;
                let chi: f64 = counts
                    .iter()
                    .map(|count| (*count as f64 - expected).powi(2) / expected)
                    .sum();
                let freedom = (len - 1) as f64;
                assert!(
                    chi < freedom + 5.0 * (2.0 * freedom).sqrt() + 12.0,
                    "{len} {place}: {chi}"
                );
            }
        }
    }
}
