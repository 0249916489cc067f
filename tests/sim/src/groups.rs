//! Jobs that begin with groups of processes: which they are, and how their workers behave.

use std::time::Duration;

use elasticrun_core::{Cooldown, RestartMode};

use crate::{fault::Fault, rng::Rng, scenario::Scenario};

/// How workers behave that are started in groups.
#[derive(Clone, Debug)]
pub(crate) struct GroupPlan {
    /// They have the SDK.
    pub(crate) attach: bool,
    /// Of a hundred of these, how many attach late, and how late at most.
    pub(crate) late_percent: u64,
    pub(crate) late: Duration,
}

/// Of a hundred scenarios, how many begin with groups.
const GROUPS: u64 = 4;

impl Scenario {
    /// Makes a few of all jobs such that begin with groups. The generator is a copy: what others draw stays as it is.
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
            // As torchrun has it.
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
        // Where nothing has attached a hang without an end may be a script.
        self.faults
            .retain(|(_, fault)| attach || *fault != Fault::HangHost);
        let more = self.draw_faults(&mut rng);
        self.faults.extend(more);
    }
}
