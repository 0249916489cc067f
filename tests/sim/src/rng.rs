//! The only source of randomness of a simulation, seeded by the seed of the run.

use std::time::Duration;

use elasticrun_core::random::Random;

/// A random number generator.
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

    /// True in `chance` of a hundred cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.0.below(100) < chance
    }

    /// One of several values.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let index = self.0.below(of.len() as u64) as usize;
        of.get(index).cloned()
    }

    /// A duration in `low..=high` microseconds.
    pub(crate) fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.range(low, high))
    }

    /// A duration in `low..=high` milliseconds, drawn in microseconds.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        self.micros(low * 1000, high * 1000)
    }

    /// A seed for another generator.
    pub(crate) fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }
}
