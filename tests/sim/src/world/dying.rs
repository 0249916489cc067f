//! The death of the driver, and the later driver that continues the run with the journal.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_core::{
    AgentConnected, Time,
    journal::{Applied, Saved},
};
use elasticrun_protocol::HostId;

use super::{Ev, World, driver::Driver};
use crate::invariants;

/// What a later driver waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakeOver {
    /// The job has decided whether the round of the former driver goes on.
    pub(crate) decided: bool,
    /// Hosts that had an agent by the records and whose agents are not back.
    pub(crate) absent: BTreeSet<HostId>,
    /// Hosts whose agents are back with their workers.
    pub(crate) back: BTreeSet<HostId>,
    /// When the agents that are not back are given up.
    pub(crate) until: Time,
    /// Reports of agents that former drivers have applied.
    pub(super) applied: BTreeMap<HostId, Applied>,
}

impl TakeOver {
    /// A take-over that begins with these records, and ends after `wait`.
    pub(super) fn begins(saved: &Saved, wait: Duration) -> Self {
        let slots = saved.slots.values();
        let absent = slots.clone().filter(|slots| slots.agent);
        let applied = slots.filter_map(|slots| Some((slots.host.clone(), slots.applied?)));
        Self {
            decided: false,
            absent: absent.map(|slots| slots.host.clone()).collect(),
            back: BTreeSet::new(),
            until: Time::ZERO + wait,
            applied: applied.collect(),
        }
    }

    /// The number of the newest report of an agent that a former driver has applied.
    pub(super) fn applied_before(&self, agent: &AgentConnected) -> u64 {
        let applied = self.applied.get(&agent.host);
        let same = applied.filter(|applied| agent.agent == Some(applied.agent));
        same.map_or(0, |applied| applied.number)
    }
}

impl World {
    /// The driver is killed. A later one continues the run after `down`, unless the outcome is recorded.
    pub(super) fn kill_driver(&mut self, lost: usize, down: Duration) {
        if self.driver.exited || self.driver.dead {
            return;
        }
        self.driver.dead = true;
        for link in 0..self.links.len() {
            self.close_driver_end(link);
        }
        self.forget_driver_events();
        // Between two events of a batch, the shell has not written yet.
        let whole = self.driver.job.is_settled();
        let lost = self.journal.lose(lost);
        let whole = whole && lost == 0;
        self.note(format_args!("driver dies, {lost} writes are lost"));
        if let Some((at, _)) = &mut self.driver.ended {
            // The outcome was durable before any agent was told to end.
            *at = self.now;
            self.driver.exited = true;
            return self.after(Duration::from_millis(200), Ev::Swept);
        }
        self.after(down, Ev::DriverResumes { whole });
    }

    /// What only the driver would have done. Of launches under way, some end with their driver.
    fn forget_driver_events(&mut self) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.retain(|entry| match &entry.ev {
            Ev::JobTick
            | Ev::DriverWakes
            | Ev::Job(_)
            | Ev::Poll(_)
            | Ev::Heart(_)
            | Ev::RepeatUp(..)
            | Ev::LaunchEnded { .. }
            | Ev::AgentDied { .. }
            | Ev::DriverExit => false,
            Ev::Launch { .. } => self.lateness_rng.percent(50),
            _ => true,
        });
        self.queue = queue;
    }

    /// A supervisor starts the next driver of the run.
    pub(super) fn driver_resumes(&mut self, whole: bool) {
        let (saved, known) = self.journal.read(self.now);
        let seed = self.lateness_rng.seed();
        let former = &self.driver;
        self.driver = Driver::resume(former, &self.plan, seed, self.now, saved.clone());
        let epoch = self.driver.epoch;
        self.note(format_args!("driver {epoch:?} resumes with {saved:?}"));
        invariants::later_driver::resumed(self, &saved, whole, known);
        self.begin_discovery();
        if self.healed {
            self.after(self.plan.patience(), Ev::Patience);
        }
        self.schedule_job_tick();
    }
}
