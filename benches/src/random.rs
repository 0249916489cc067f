//! Random moments and victims.

use std::{fs::File, io::Read};

/// Splitmix64, with a seed from the system.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Draws a seed.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> anyhow::Result<Self> {
        let mut seed = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Self(u64::from_le_bytes(seed)))
    }

    /// A number in `0..limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
