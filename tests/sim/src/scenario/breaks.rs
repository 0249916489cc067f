//! Networks between driver and agents that break and heal, and agents that return with their workers.

use std::time::Duration;

use elasticrun_core::Time;

use super::Scenario;
use crate::{fault::Fault, rng::Rng};

impl Scenario {
    /// Whether agents return, and how their network breaks. The generator is a separate one, so other draws stay
    /// unchanged.
    pub(super) fn draw_breaks(&mut self, mut rng: Rng) {
        self.returns = rng.percent(60);
        let quiet = self.calm || self.gentle;
        if !self.returns || quiet || self.hosts.len() > 100 {
            return;
        }
        if rng.percent(15) && self.settings.elastic && !self.split {
            return self.only_breaks(&mut rng);
        }
        if rng.percent(30) {
            for _ in 0..rng.range(1, 4) {
                let at = Time::from_start(rng.millis(0, 15_000));
                self.faults.push((at, Fault::draw_break(&mut rng)));
            }
        }
    }

    /// Nothing happens but breaks, each shorter than agents keep their workers. All workers are needed, or the breaks concern
    /// all hosts, or they are shorter than a silence. So none of them costs a process or a round.
    fn only_breaks(&mut self, rng: &mut Rng) {
        self.only_breaks = true;
        (self.faults, self.ambushes, self.repeats) = (Vec::new(), 0, 0);
        (self.raises_at, self.late) = (None, Duration::ZERO);
        (self.cuts, self.late_deaths) = (0, 0);
        self.orphan_timeout = rng.millis(2_000, 5_000);
        self.heartbeat_timeout = rng.millis(3_000, 5_000);
        self.hearing = Duration::from_millis(1);
        (self.steps, self.step) = (40, Duration::from_millis(400));
        self.stall_timeout = Duration::from_secs(60);
        self.import = Duration::from_millis(500);
        self.listings.fill(crate::listing::Listing::plain());
        let settings = &mut self.settings;
        settings.sources = 1;
        settings.slots_per_host = None;
        settings.np = self.hosts[..self.listed].iter().sum();
        (settings.min_np, settings.max_np) = (settings.np, Some(settings.np));
        settings.spares = 0;
        settings.elastic_timeout = Duration::from_secs(120);
        settings.exit_timeout = Duration::from_secs(120);
        settings.start_timeout = Duration::from_secs(120);
        let lease = self.lease();
        let settings = &mut self.settings;
        (settings.fence, settings.keep) = (lease.fence(), lease.keep());
        (settings.silence, settings.lease) = (lease.silence(), lease.length());
        settings.probe_timeout = self.heartbeat_timeout;
        let others_suffice = rng.percent(50);
        if others_suffice {
            settings.min_np = rng.range(1, u64::from(settings.np)) as u32;
        }
        let mut at = Time::from_start(rng.millis(0, 5_000));
        for _ in 0..rng.range(1, 3) {
            // The shortest time that agents keep their workers is 26 s.
            let mut heal = rng.millis(100, 20_000);
            let mut fault = Fault::draw_break_of(rng, heal);
            if others_suffice
                && let Fault::BreakNetwork {
                    all,
                    up,
                    down,
                    heal: time,
                    ..
                } = &mut fault
            {
                // A host that is heard all the same shows that the network of the driver is well.
                (*up, *down) = (true, true);
                if !*all {
                    // An agent dials again within a second.
                    heal = heal.min(self.heartbeat_timeout / 2);
                    *time = heal;
                }
            }
            self.faults.push((at, fault));
            at = at + heal + rng.millis(8_000, 12_000);
        }
        self.heal = at;
    }
}
