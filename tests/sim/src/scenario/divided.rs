//! Jobs whose state is divided among the workers of a round.

use std::time::Duration;

use elasticrun_core::ReplicaGroupSize;

use super::Scenario;
use crate::{fault::Fault, rng::Rng};

impl Scenario {
    /// Whether the state is divided among the workers.
    pub(crate) fn is_divided(&self) -> bool {
        self.settings.replica_group_size != ReplicaGroupSize::One
    }

    /// In one of six jobs the state is divided. The generator is a separate one, so other draws stay unchanged. Such a job has
    /// no durable store.
    pub(super) fn draw_divided(&mut self, mut rng: Rng) {
        if rng.range(1, 6) > 1 || self.groups.is_some() {
            return;
        }
        self.settings.replica_group_size = ReplicaGroupSize::All;
        self.durable = None;
        self.settings.durable = false;
        if self.calm || self.gentle || self.only_breaks || !self.settings.elastic {
            return;
        }
        self.strays = rng.pick(&[0, 0, 2, 10]).unwrap_or(0);
        if rng.percent(40) {
            // Workers often die while some have sealed a commit and others have not.
            self.seal = rng.millis(50, 500);
        }
        if self.hosts.len() > 100 {
            return;
        }
        if rng.percent(50) {
            self.on_one_host(&mut rng);
        }
        if rng.percent(60) {
            // A lost host takes its shards along, so the job would end.
            for (_, fault) in &mut self.faults {
                if fault.loses_memory() {
                    *fault = Fault::draw_of_worker(&mut rng);
                }
            }
        }
        if rng.percent(50) {
            self.steps = rng.range(20, 40);
            self.step = Duration::from_millis(rng.pick(&[10, 100, 400]).unwrap_or(100));
        }
        if rng.percent(60) {
            self.in_groups(&mut rng);
        }
        if rng.percent(10) {
            self.part(&mut rng);
        }
    }

    /// In a third of the jobs with a divided state training goes on while a commit is copied. The generator is a separate one, so
    /// other draws stay unchanged.
    pub(super) fn draw_asynchronous(&mut self, mut rng: Rng) {
        if !self.is_divided() || rng.range(1, 3) > 1 {
            return;
        }
        self.asynchronous = true;
        let is_quiet = self.calm || self.gentle || self.only_breaks;
        if !is_quiet && rng.percent(50) {
            // Workers often die while they copy, and some copies are not done when the next commit begins.
            self.seal = rng.millis(50, 500);
        }
    }

    /// Each host has a whole replica group, and is cut off for a while now and then. As it returns, the host with the newer commits is
    /// cut off.
    fn part(&mut self, rng: &mut Rng) {
        self.partings = 60;
        let unit = rng.range(1, 3) as u32;
        let settings = &mut self.settings;
        settings.replica_group_size = ReplicaGroupSize::Fixed(unit);
        settings.size_multiple = 1;
        settings.spares = 0;
        (settings.np, settings.min_np) = (unit, unit);
        settings.max_np = None;
        self.hosts.fill(unit);
        self.listed = self.hosts.len().min(3);
        (self.steps, self.step) = (40, Duration::from_millis(200));
        for (_, fault) in &mut self.faults {
            if rng.percent(70) {
                *fault = Fault::Cut {
                    up: true,
                    down: true,
                    data: true,
                    heal: rng.millis(2_000, 10_000),
                };
            }
        }
    }

    /// Replica groups have a fixed size, and a round has as many as there are workers for.
    fn in_groups(&mut self, rng: &mut Rng) {
        let settings = &mut self.settings;
        settings.replica_group_size = ReplicaGroupSize::Fixed(rng.range(2, 4) as u32);
        settings.size_multiple = rng.pick(&[1, 1, 1, 2]).unwrap_or(1) as u32;
        let unit = settings.unit();
        let slots: u32 = self.hosts[..self.listed].iter().sum();
        // Enough for several groups, and at times for a spare.
        let wanted = unit * rng.range(1, 4) as u32 + rng.range(0, 2) as u32;
        if slots < wanted {
            self.hosts[0] += wanted - slots;
        }
        let most = slots.max(wanted) / unit * unit;
        let whole = |count: u32| count.next_multiple_of(unit);
        settings.np = whole(settings.np).min(most);
        settings.min_np = whole(settings.min_np).min(settings.np);
        settings.max_np = settings.max_np.map(|max| whole(max).max(settings.np));
        settings.spares = rng.range(0, 3) as u32;
    }

    /// The host whose memory all workers read.
    fn on_one_host(&mut self, rng: &mut Rng) {
        self.listed = 1;
        self.hosts[0] = rng.range(2, 6) as u32;
        let slots = u64::from(self.hosts[0]);
        let settings = &mut self.settings;
        settings.np = rng.range(1, slots) as u32;
        settings.min_np = rng.range(1, u64::from(settings.np)) as u32;
        settings.max_np = rng.percent(50).then_some(self.hosts[0]);
    }
}
