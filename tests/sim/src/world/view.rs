//! Queries of the invariants about the world.

use std::time::Duration;

use elasticrun_core::Time;
use elasticrun_protocol::{Process, control::Exit};

use super::{World, worker::Phase};

/// How long the report of an end may take. An agent or the driver may be suspended meanwhile.
const UNHEARD: Duration = Duration::from_secs(40);

impl World {
    /// Whether the driver can reach the agent of a host now, as the world shows it.
    pub(crate) fn reaches(&self, host: usize) -> bool {
        let state = &self.hosts[host];
        let Some(agent) = &state.agent else {
            return false;
        };
        let open = self.driver.current[host].is_some_and(|link| {
            let link = &self.links[link];
            link.driver_open && link.agent_open && link.agent == agent.number
        });
        open && state.alive && state.cut_up == 0 && state.cut_down == 0
    }

    /// Whether the driver has a connection with the agent that this process belongs to.
    pub(crate) fn is_connected(&self, host: usize, worker: &super::worker::Worker) -> bool {
        let link = self.driver.current[host].map(|link| &self.links[link]);
        link.is_some_and(|link| link.driver_open && link.agent == worker.agent)
    }

    /// Whether the lease of any member of a round lasts.
    pub(crate) fn may_pass(&self, round: elasticrun_protocol::Round) -> bool {
        let lasts = |seat: &super::Seat| {
            let shared = self.hosts[seat.host].memories.of.get(&seat.process);
            shared.is_some_and(|shared| !shared.lease_is_over(self.now))
        };
        self.rounds
            .get(&round)
            .is_some_and(|round| round.seats.iter().any(lasts))
    }

    /// Whether a worker is at `run()`, runs, and was not ordered to stop.
    pub(crate) fn waits_well(&self, host: usize, process: Process) -> bool {
        let worker = self.hosts[host].workers.get(&process);
        worker.is_some_and(|w| w.phase == Phase::Joined && !w.told_to_stop && !w.suspended)
    }

    /// Number of processes that are past their start, or whose end may be on its way to the driver. None if a host
    /// is out of reach, so that the number is unknown.
    pub(crate) fn workers_there(&self, heard: impl Fn(usize, Process) -> bool) -> Option<usize> {
        let with_workers = self.hosts.iter().enumerate();
        let mut hosts = with_workers.filter(|(_, host)| host.agent.is_some() || !host.alive);
        let known = hosts.all(|(index, _)| self.reaches(index));
        let workers = self.hosts.iter().flat_map(|host| host.workers.values());
        let living =
            |worker: &&super::worker::Worker| !worker.is_dead() && worker.phase != Phase::Starting;
        let news = |((host, process), fate): &(&(usize, Process), &Fate)| {
            let recent = (fate.at).is_some_and(|at| self.now.since(at) < UNHEARD);
            recent && !heard(*host, *process)
        };
        known.then(|| workers.filter(living).count() + self.fates.iter().filter(news).count())
    }

    /// How a process ended, if it has.
    pub(crate) fn fate(&self, host: usize, process: Process) -> Fate {
        self.fates
            .get(&(host, process))
            .cloned()
            .unwrap_or_default()
    }

    /// Whether an agent has started a process.
    pub(crate) fn has_begun(&self, host: usize, process: Process) -> bool {
        let ended = self.fates.contains_key(&(host, process));
        ended || self.hosts[host].workers.contains_key(&process)
    }

    /// A process begins. An earlier one of its slot may have had its number, if its agent has ended and the record of its start
    /// is lost.
    pub(super) fn forget_namesake(&mut self, host: usize, process: Process) {
        self.fates.remove(&(host, process));
        crate::invariants::later_driver::forget(self, host, process);
    }

    pub(super) fn ends(&mut self, host: usize, process: Process, end: &Exit, lost: bool) {
        let fate = self.fates.entry((host, process)).or_default();
        (fate.end, fate.lost) = (Some(end.clone()), lost);
        fate.at = Some(self.now);
        // Another end came first.
        fate.obeyed &= matches!(end, Exit::Code(0 | 1));
    }

    /// A process is ended by a signal of its agent.
    pub(super) fn signal_ends(&mut self, host: usize, process: Process) {
        self.fates.entry((host, process)).or_default().signalled = true;
    }

    /// A process ends as ordered.
    pub(super) fn obeys(&mut self, host: usize, process: Process) {
        self.fates.entry((host, process)).or_default().obeyed = true;
    }

    /// The job has ordered a process to stop.
    pub(crate) fn told_to_stop(&mut self, host: usize, process: Process) {
        self.fates.entry((host, process)).or_default().told = true;
    }

    /// A process sent no heartbeat, or did not come back, and its agent kills it.
    pub(super) fn given_up(&mut self, host: usize, process: Process) {
        self.fates.entry((host, process)).or_default().given_up = true;
    }
}

/// The end of a process and its causes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    pub(crate) end: Option<Exit>,
    at: Option<Time>,
    /// The process went with its agent.
    pub(crate) lost: bool,
    /// The job has ordered the process to stop.
    pub(crate) told: bool,
    /// The process sent no heartbeat, or did not come back.
    pub(crate) given_up: bool,
    /// The process ended as ordered.
    pub(crate) obeyed: bool,
    /// The process ended by a signal of its agent.
    pub(crate) signalled: bool,
}
