//! Jobs whose commits are replicated, and that lose all hosts of a round at once.

use std::time::Duration;

use elasticrun_core::{ReplicaGroupSize, Time};

use super::Scenario;
use crate::{fault::Fault, rng::Rng};

impl Scenario {
    /// In one of five jobs commits are replicated. The generator is a separate one, so other draws stay unchanged.
    pub(super) fn draw_replicas(&mut self, mut rng: Rng) {
        let rare = self.calm || self.gentle || self.only_breaks || !self.settings.elastic;
        // Groups commit nothing, and copies of shards are drawn by themselves.
        let rare = rare || self.groups.is_some() || self.is_divided();
        if rare || self.hosts.len() > 100 || !rng.percent(20) {
            return;
        }
        self.settings.replicas = rng.pick(&[1, 1, 1, 2]).unwrap_or(1);
        self.replicas = Some(rng.millis(20, 2_000));
        if rng.percent(60) {
            // A long training on few of the hosts.
            self.steps = rng.range(20, 40);
            self.step = Duration::from_millis(rng.pick(&[100, 400, 400]).unwrap_or(400));
            let settings = &mut self.settings;
            settings.min_np = 1;
            settings.np = settings.np.min(2);
            settings.max_np = Some(settings.np);
        }
        let mut at = Time::ZERO;
        for _ in 0..rng.range(0, 2) {
            at = at + rng.millis(1_000, 10_000);
            let back = rng.millis(100, 20_000);
            self.faults.push((at, Fault::KillMembers { back }));
        }
        self.heal = self.heal.max(at);
    }

    /// In half of the jobs with a divided state its shards are copied to other hosts, and hosts are lost.
    pub(super) fn draw_cuts(&mut self, mut rng: Rng) {
        let rare = self.calm || self.gentle || self.only_breaks || !self.settings.elastic;
        let is_on_one = self.listed < 2 || self.hosts.len() > 100;
        // Groups of a fixed size are copies of each other.
        let is_copied = self.settings.replica_group_size == ReplicaGroupSize::All;
        if rare || is_on_one || !is_copied || !rng.percent(50) {
            return;
        }
        self.settings.replicas = rng.pick(&[1, 1, 1, 2]).unwrap_or(1);
        let interval = rng.millis(20, 2_000);
        self.settings.replica_interval = interval;
        self.replicas = Some(interval);
        if rng.percent(60) {
            self.steps = rng.range(30, 80);
            self.step = Duration::from_millis(rng.pick(&[100, 400, 400]).unwrap_or(400));
            let settings = &mut self.settings;
            let few = 2u32.next_multiple_of(settings.unit());
            settings.min_np = settings.min_np.min(few);
        }
        let mut at = Time::ZERO;
        for _ in 0..rng.range(0, 3) {
            at = at + rng.millis(1_000, 15_000);
            let back = rng.millis(100, 20_000);
            self.faults.push((at, Fault::KillHost { back }));
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self.heal = self.heal.max(at);
    }
}
