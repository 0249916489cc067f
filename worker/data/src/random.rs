//! SplitMix64: a random source whose numbers are the same in every version and on every machine.
//!
//! The order of rows is part of what a checkpoint means, so the source is ours and never changes.
//! Algorithm: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// 2^64 divided by the golden ratio: keys that follow each other differ in many bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A source that depends on all of `keys` and on their order.
    pub(crate) fn new(keys: &[u64]) -> Self {
        let state = keys.iter().fold(
            0,
            |state: u64, key| mix(mix(state.wrapping_add(STEP)) ^ key),
        );
        Self(state)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `end`, which is at least 1. The upper half of a product: a number is at most
    /// `end / 2^64` more likely than another.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u32
    }
}

/// The finaliser of SplitMix64: each bit of the result depends on each bit of the value.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
