//! Drivers that are killed, and later ones that continue the run.

use std::time::Duration;

use elasticrun_core::Time;

use super::Scenario;
use crate::{fault::Fault, rng::Rng};

impl Scenario {
    /// In one of six jobs the driver dies. The generator is a separate one, so other draws stay unchanged.
    pub(super) fn draw_deaths(&mut self, mut rng: Rng) {
        let quiet = self.calm || self.gentle || self.only_breaks;
        let nameless = self.settings.self_registration && !self.wills;
        if quiet || nameless || self.hosts.len() > 100 || rng.range(1, 6) > 1 {
            return;
        }
        self.returns = rng.percent(90);
        if rng.percent(50) {
            // A long training, so that rounds train when the driver dies.
            self.steps = rng.range(20, 40);
            self.step = Duration::from_millis(rng.pick(&[50, 100, 400]).unwrap_or(100));
        }
        if rng.percent(50) {
            self.ambushing_deaths = (0..rng.range(1, 3))
                .map(|_| self.draw_death(&mut rng))
                .collect();
        }
        let latest = rng.pick(&[4_000, 15_000]).unwrap_or(0);
        let mut at = Time::from_start(rng.millis(0, latest));
        let mut down = Duration::ZERO;
        for _ in 0..rng.range(1, 3) {
            let death = self.draw_death(&mut rng);
            self.faults.push((at, death.clone()));
            if let Fault::KillDriver { down: time, .. } = death {
                down = time;
            }
            let after = match rng.percent(50) {
                // While the later driver takes over.
                true => rng.millis(0, 3_000),
                false => rng.millis(3_000, 15_000),
            };
            at = at + down + after;
        }
        self.heal = self.heal.max(at);
    }

    fn draw_death(&self, rng: &mut Rng) -> Fault {
        let lost_writes = rng.pick(&[0, 0, 1, 2, 3]).unwrap_or(0);
        let down = self.draw_down(rng);
        Fault::KillDriver { lost_writes, down }
    }

    /// How long no driver lives.
    fn draw_down(&self, rng: &mut Rng) -> Duration {
        match rng.range(0, 9) {
            0..=4 => rng.millis(50, 500),
            5..=7 => rng.millis(500, 5_000),
            8 => self.orphan_timeout + rng.millis(0, 3_000),
            _ => self.lease().keep() + self.orphan_timeout + rng.millis(0, 3_000),
        }
    }

    fn deaths(&self) -> impl Iterator<Item = usize> {
        let faults = self.faults.iter().map(|(_, fault)| fault);
        (faults.chain(&self.ambushing_deaths)).filter_map(|fault| match fault {
            Fault::KillDriver { lost_writes, .. } => Some(*lost_writes),
            _ => None,
        })
    }

    /// How many of the newest writes to the journal are not durable; none if the run needs no journal.
    pub(crate) fn lag(&self) -> Option<usize> {
        self.deaths().max()
    }
}
