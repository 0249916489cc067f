//! Jobs that begin with groups of processes: their share of the scenarios, and the behaviour of their workers.

use std::time::Duration;

use elasticrun_core::{Cooldown, RestartMode, Time};

use crate::{fault::Fault, rng::Rng, scenario::Scenario};

/// Behaviour of workers that start in groups.
#[derive(Clone, Debug)]
pub(crate) struct GroupPlan {
    /// The workers have the SDK.
    pub(crate) attach: bool,
    /// Percentage of workers that attach late, and how late at most.
    pub(crate) late_percent: u64,
    pub(crate) late: Duration,
}

/// Percentage of scenarios that begin with groups.
const GROUPS: u64 = 4;

impl Scenario {
    /// Turns a few of all jobs into jobs that begin with groups. The generator is a copy, so other draws stay
    /// unchanged.
    pub(crate) fn draw_groups(&mut self, mut rng: Rng) {
        if !rng.percent(GROUPS) || !self.settings.elastic || self.hosts.len() > 100 {
            return;
        }
        let auto = rng.percent(50);
        let settings = &mut self.settings;
        settings.restart_mode = match auto {
            true => RestartMode::Auto,
            false => RestartMode::Process,
        };
        settings.max_restarts = rng.pick(&[0, 1, 3, 10]).unwrap_or(0);
        if rng.percent(15) {
            // The settings of torchrun.
            settings.cooldown = Cooldown::Range {
                low: Duration::ZERO,
                high: Duration::ZERO,
            };
            settings.max_host_failures = None;
        }
        let attach = rng.percent(if auto { 60 } else { 10 });
        self.groups = Some(GroupPlan {
            attach,
            late_percent: rng.pick(&[0, 0, 30, 100]).unwrap_or(0),
            late: rng
                .pick(&[5, 20, 45])
                .map_or(Duration::ZERO, Duration::from_secs),
        });
        if !attach {
            let step = rng.pick(&[50, 300, 1_500]).unwrap_or(50);
            self.step = Duration::from_millis(step);
        }
        if auto && rng.percent(50) {
            self.heal = self.heal + Duration::from_secs(30);
        }
        // Before any worker has attached, an endless hang may be a script.
        self.faults
            .retain(|(_, fault)| attach || *fault != Fault::HangHost);
        let more = self.draw_faults(&mut rng);
        self.faults.extend(more);
        if !attach && self.listed > 1 && rng.percent(8) {
            self.cut_whole_group(&mut rng);
        }
    }

    /// A group of one process is cut off for longer than its agent keeps it, and the next one starts on another host. So the
    /// agent ends a process that it has stopped at the end of the lease.
    fn cut_whole_group(&mut self, rng: &mut Rng) {
        self.returns = true;
        self.ambushes = 0;
        self.orphan_timeout = rng.millis(1_000, 2_000);
        // It trains until the lease ends, and does a step within the grace period if it goes on.
        (self.steps, self.step) = (40, Duration::from_millis(300));
        self.grace = Duration::from_secs(2);
        let lease = self.lease();
        let settings = &mut self.settings;
        (settings.np, settings.min_np, settings.max_np) = (1, 1, Some(1));
        (settings.fence, settings.keep) = (lease.fence(), lease.keep());
        (settings.silence, settings.lease) = (lease.silence(), lease.length());
        settings.grace = self.grace;
        let at = Time::from_start(rng.millis(500, 3_000));
        let heal = lease.keep() + rng.millis(5_000, 10_000);
        let (up, down) = (true, true);
        self.faults = vec![(at, Fault::CutMembers { up, down, heal })];
        self.heal = self.heal.max(at + heal);
    }
}
