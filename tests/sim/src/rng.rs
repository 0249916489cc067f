//! All chance of a simulation comes from here, and it comes from the seed.

use std::time::Duration;

use elasticrun_core::random::Random;

/// A source of choices.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Random);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring scenarios.
        let mut random = Random::from_seed(seed);
        random.next_u64();
        Self(random)
    }

    /// A number in `low..=high`.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    /// True in so many cases of a hundred.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.0.below(100) < chance
    }

    /// One of several.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let index = self.0.below(of.len() as u64) as usize;
        of.get(index).cloned()
    }

    /// A time between two, in microseconds.
    pub(crate) fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.range(low, high))
    }

    /// A time between two, in milliseconds.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        self.micros(low * 1000, high * 1000)
    }

    /// A seed for something else.
    pub(crate) fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }
}
