//! Jobs with settings and faults that meet by chance only rarely.

use std::time::Duration;

use elasticrun_core::{Cooldown, FailureDomain, Time};

use super::Scenario;
use crate::rng::Rng;

impl Scenario {
    /// A long training on few of the hosts, which fail one by one and stay away for long.
    pub(super) fn split(&mut self, rng: &mut Rng) {
        self.split = true;
        self.heartbeat_timeout = rng.millis(2_000, 2_500);
        self.orphan_timeout = rng.millis(2_500, 5_000);
        (self.steps, self.step) = (40, Duration::from_millis(400));
        self.commit_every = 1;
        self.heal = Time::from_start(rng.millis(15_000, 40_000));
        let settings = &mut self.settings;
        settings.min_np = 1;
        settings.np = settings.np.min(2);
        settings.max_np = Some(settings.np + rng.range(0, 1) as u32);
        settings.failure_domain = FailureDomain::Host;
        settings.max_host_failures = None;
        settings.reset_limit = None;
        settings.cooldown = Cooldown::Range {
            low: rng.millis(0, 20_000),
            high: Duration::from_secs(20),
        };
    }

    /// Commits reach the durable store late, when others have gone on without the hosts that made them, and those that have gone on
    /// are lost before their own commits are written.
    pub(super) fn write_late(&mut self, rng: &mut Rng) {
        self.durable = Some(rng.millis(20, 300));
        self.write = Duration::from_secs(12);
        self.losses = 40;
    }

    /// Agents keep the workers of a lost driver for longer than these may train without it.
    pub(super) fn keep_orphans_long(&mut self, rng: &mut Rng) {
        self.orphan_timeout = rng.millis(31_000, 90_000);
        self.settings.fence = self.lease().fence();
        self.settings.keep = self.lease().keep();
        self.settings.silence = self.lease().silence();
        self.settings.lease = self.lease().length();
    }

    /// Of the rounds of a split job, some lose a data path at once and are fruitless.
    pub(super) fn cut(&mut self, rng: &mut Rng) {
        self.cuts = 40;
        self.stall_timeout = Duration::from_millis(500);
        self.hosts.fill(1);
        let settings = &mut self.settings;
        settings.np = 2;
        settings.max_np = Some(2);
        settings.elastic_timeout = rng.millis(6_000, 15_000);
    }

    /// A host of many is without its data path for good, so rounds break again and again, and other members die some
    /// time after that.
    pub(super) fn break_again(&mut self, rng: &mut Rng) {
        self.late_deaths = 30;
        self.stall_timeout = Duration::from_millis(500);
        (self.steps, self.step) = (40, Duration::from_millis(100));
        self.hosts.fill(1);
        self.listed = self.hosts.len().min(rng.range(5, 6) as usize);
        let settings = &mut self.settings;
        settings.np = self.listed as u32;
        settings.min_np = 1;
        settings.max_np = None;
        settings.elastic_timeout = rng.millis(20_000, 30_000);
        settings.failure_domain = FailureDomain::Host;
        settings.max_host_failures = None;
        settings.reset_limit = None;
        settings.cooldown = Cooldown::Range {
            low: Duration::ZERO,
            high: rng.millis(0, 2_000),
        };
        self.heal = self.heal.max(Time::from_start(Duration::from_secs(20)));
    }
}
