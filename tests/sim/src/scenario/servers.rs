//! Jobs with parameter servers, some of which die.

use super::Scenario;
use crate::{fault::Fault, rng::Rng};

impl Scenario {
    /// One of eight jobs has servers. The generator is a separate one, so other draws stay unchanged.
    pub(super) fn draw_servers(&mut self, mut rng: Rng) {
        if self.hosts.len() > 100 || !rng.percent(12) {
            return;
        }
        self.settings.servers = rng.range(1, 4) as u32;
        if self.calm {
            return;
        }
        // Fewer than those after which the job ends.
        for _ in 0..rng.range(0, 3) {
            let at = elasticrun_core::Time::from_start(rng.millis(500, 20_000));
            self.faults.push((at, Fault::KillServer));
            self.heal = self.heal.max(at);
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }
}
