//! The scenario of a seed, and the generators that drew it.

use std::time::Duration;

use super::Scenario;
use crate::rng::Rng;

/// Derives the generator of batches from the seed.
const BATCHES: u64 = 0x6261_7463_6865_7300;

/// A scenario with the generators that drew it. The run continues with them.
#[derive(Debug)]
pub(crate) struct Seeded {
    pub(crate) scenario: Scenario,
    pub(crate) rng: Rng,
    /// The generator of the readers: separate, so that the data changes no other draws.
    pub(crate) data: Rng,
    /// The generator that decides which events come together.
    pub(crate) batches: Rng,
}

impl Seeded {
    /// Draws the scenario of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let (mut rng, mut data) = (Rng::new(seed), Rng::new(!seed));
        let mut scenario = Scenario::draw(&mut rng, &mut data);
        let mut batches = Rng::new(seed ^ BATCHES);
        // Zero in most runs.
        let gathers = batches.pick(&[0, 0, 0, 500, 5_000]).unwrap_or(0);
        scenario.gathers = Duration::from_micros(gathers);
        Self {
            scenario,
            rng,
            data,
            batches,
        }
    }
}
