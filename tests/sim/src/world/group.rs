//! A group of scripts without the SDK: they import, meet under one coordinator, and train in step.
//!
//! A step is complete when all members do it. A member that is gone, stopped or cut off keeps the others waiting,
//! and whether they detect that by themselves is random. Scripts ignore the lease, so no agent is suspended while
//! they run: nothing would stop them. Every step is saved, so the next group goes on after it.

use std::time::Duration;

use elasticrun_protocol::{Process, Round, control::Exit};

use super::{Ev, World, schedule::Act, worker::Phase};
use crate::invariants;

/// A group that was started.
#[derive(Clone, Debug)]
pub(crate) struct GroupSim {
    /// Members by rank.
    pub(crate) members: Vec<(usize, Process)>,
    /// Number of members that have met the others.
    met: usize,
    /// A member is gone, so no step completes any more.
    broken: bool,
    /// A step waits for a member that is stopped or cut off.
    stalled: bool,
}

impl GroupSim {
    pub(crate) fn new(members: Vec<(usize, Process)>) -> Self {
        Self {
            members,
            met: 0,
            broken: false,
            stalled: false,
        }
    }

    pub(crate) fn has(&self, host: usize, process: Process) -> bool {
        self.members.contains(&(host, process))
    }
}

impl World {
    /// The group that was started last.
    pub(crate) fn last_group(&self) -> Option<(Round, &GroupSim)> {
        let (round, group) = self.groups.last_key_value()?;
        Some((*round, group))
    }

    fn group_of(&self, host: usize, process: Process) -> Option<Round> {
        let mut groups = self.groups.iter().rev();
        let found = groups.find(|(_, group)| group.has(host, process));
        found.map(|(round, _)| *round)
    }

    /// A script has finished its imports and looks for its peers.
    pub(super) fn meet(&mut self, host: usize, process: Process) {
        self.turn(host, process, Phase::Busy);
        let Some(round) = self.group_of(host, process) else {
            let what = format!("h{host} {process:?} is a script and in no group");
            return self.violate("R1", what);
        };
        let Some(group) = self.groups.get_mut(&round) else {
            return;
        };
        group.met += 1;
        let (broken, all) = (group.broken, group.met == group.members.len());
        if broken {
            self.misses_peer(host, process);
        } else if all {
            self.next_step(round);
        }
    }

    fn next_step(&mut self, round: Round) {
        let micros = self.plan.step.as_micros() as u64;
        let wait = self.rng.micros(micros / 2, micros * 3 / 2);
        self.after(wait, Ev::GroupStep(round));
    }

    /// All members of a group do a step, if all can.
    pub(super) fn group_step(&mut self, round: Round) {
        let Some(group) = self.groups.get(&round).filter(|group| !group.broken) else {
            return;
        };
        let members = group.members.clone();
        let apart = members.iter().any(|(host, _)| *host != members[0].0);
        let stands = |(host, process): &(usize, Process)| {
            let worker = self.hosts[*host].workers.get(process);
            worker.is_none_or(|worker| worker.suspended) || apart && self.hosts[*host].cut_data > 0
        };
        let stalled = members.iter().any(stands);
        if let Some(group) = self.groups.get_mut(&round) {
            group.stalled = stalled;
        }
        if stalled {
            // The library of the scripts waits for a peer that does not answer, but not for ever.
            let step = self.group_steps;
            return self.after(self.plan.stall_timeout, Ev::GroupStalled { round, step });
        }
        invariants::groups::step_done(self, round);
        self.group_steps += 1;
        if self.group_steps < self.plan.steps {
            return self.next_step(round);
        }
        for (host, process) in members {
            self.script_finishes(host, process);
        }
    }

    /// A step was stalled for too long: the members that run fail.
    pub(super) fn group_stalled(&mut self, round: Round, step: u64) {
        let group = self.groups.get_mut(&round);
        let stalled = |group: &&mut GroupSim| group.stalled && !group.broken;
        let Some(group) = group.filter(stalled) else {
            return;
        };
        if self.group_steps != step {
            return;
        }
        group.broken = true;
        for (host, process) in group.members.clone() {
            let worker = self.worker(host, process);
            if worker.is_some_and(|worker| worker.phase == Phase::Busy) {
                let wait = self.rng.millis(0, 50);
                self.act_after(host, process, wait, Act::Exit(Exit::Code(1)));
            }
        }
    }

    /// A member runs again, or is reached again.
    pub(super) fn retry_groups(&mut self) {
        let stalled = self.groups.iter().filter(|(_, group)| group.stalled);
        let stalled: Vec<_> = stalled.map(|(round, _)| *round).collect();
        for round in stalled {
            self.group_step(round);
        }
    }

    fn script_finishes(&mut self, host: usize, process: Process) {
        self.turn(host, process, Phase::Finished);
        let wait = self.rng.micros(1_000, 300_000);
        match self.pending.next_exit() {
            None => self.act_after(host, process, wait, Act::Exit(Exit::Code(0))),
            Some(true) => {
                let back = self.plan.heal.since(self.now) + Duration::from_secs(1);
                self.act_after(host, process, back, Act::Exit(Exit::Code(0)));
            }
            Some(false) => self.act_after(host, process, wait, Act::Exit(Exit::Code(1))),
        }
    }

    /// A script has ended, or is gone, before all steps were done.
    pub(super) fn script_gone(&mut self, host: usize, process: Process) {
        let Some(round) = self.group_of(host, process) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&round) else {
            return;
        };
        if std::mem::replace(&mut group.broken, true) {
            return;
        }
        for (host, process) in group.members.clone() {
            let worker = self.worker(host, process);
            if worker.is_some_and(|worker| worker.phase == Phase::Busy) {
                self.misses_peer(host, process);
            }
        }
    }

    /// A peer is gone: a script fails, or waits for it for ever.
    fn misses_peer(&mut self, host: usize, process: Process) {
        if self.rng.percent(self.plan.notice) {
            let most = self.plan.stall_timeout.as_micros() as u64;
            let wait = self.rng.micros(0, most);
            self.act_after(host, process, wait, Act::Exit(Exit::Code(1)));
        }
    }

    /// The agent stops or continues a process that ignores the lease.
    pub(super) fn freeze(&mut self, host: usize, process: Process, stop: bool) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.frozen = stop;
        match stop {
            true => self.suspend(host, process),
            false => self.resume(host, process),
        }
    }

    /// A port for a coordinator that was not offered before.
    pub(super) fn fresh_port(&mut self, host: usize) -> u16 {
        let ports = &mut self.hosts[host].ports;
        *ports = ports.wrapping_add(1);
        *ports
    }
}
