//! Fleet: agents and worker processes as last observed.
//!
//! Invariant R4: a slot has at most one live process. A slot gets a new process only when the last one was reported
//! gone, or was lost with its agent. The next agent of a host waits for the lock of the host.
//!
//! Cost: a host that is gone costs the memory of its numbers of starts, which no event of an earlier process may match
//! (R3). It costs no time: no iteration visits it.

mod agent;
mod census;
mod entry;
mod host;

use std::{collections::BTreeMap, time::Duration};

use elasticrun_protocol::{HostId, LocalRank, Process, Round};

use crate::{
    journal::Changed,
    mutant::{Mutant, planted},
    time::Time,
};
pub(crate) use agent::Back;
pub use agent::{Agent, AgentUp, Away};
pub use census::Census;
use host::Slot;
pub use host::{Host, Life, Live};

/// Agents and processes as observed.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Hosts with an agent or a launch.
    hosts: BTreeMap<HostId, Host>,
    /// Hosts whose agent was lost.
    gone: BTreeMap<HostId, Host>,
    census: Census,
    /// The number of processes ever started.
    starts: u64,
    /// The number of processes that ended with code 0 without ever waiting.
    done: u64,
    /// Hosts whose record has changed.
    changed: Changed<HostId>,
}

impl Fleet {
    /// A host that has or had an agent.
    pub fn host(&self, id: &HostId) -> Option<&Host> {
        self.hosts.get(id).or_else(|| self.gone.get(id))
    }

    /// A host, to record a change; it is added if it is unknown.
    pub fn host_mut(&mut self, id: &HostId) -> &mut Host {
        self.changed.mark(id);
        let Self { hosts, gone, .. } = self;
        (hosts.entry(id.clone())).or_insert_with(|| gone.remove(id).unwrap_or_default())
    }

    /// The connected agent of a host.
    pub fn up_mut(&mut self, id: &HostId) -> Option<&mut AgentUp> {
        match &mut self.hosts.get_mut(id)?.agent {
            Agent::Up(up) => Some(up),
            _ => None,
        }
    }

    /// The hosts with an agent, a launch or a process.
    pub fn hosts(&self) -> impl Iterator<Item = (&HostId, &Host)> {
        self.hosts.iter()
    }

    /// The number of processes in each state.
    pub fn census(&self) -> Census {
        self.census
    }

    /// The number of processes ever started.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// The number of processes that ended with code 0 without ever waiting.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The live process, if it is the current one of its slot.
    pub fn current(&self, host: &HostId, process: Process) -> Option<Live> {
        let slots = &self.hosts.get(host)?.slots;
        let slot = slots.get(process.local_rank.0 as usize)?;
        slot.live.filter(|live| live.process == process)
    }

    /// Records a new process on a slot.
    pub fn start(&mut self, now: Time, host: &HostId, slot: LocalRank) -> Process {
        let process = self.host_mut(host).start(now, slot);
        self.census.starting += 1;
        self.starts += 1;
        process
    }

    /// Records a new process on each of these slots of a host.
    pub(crate) fn start_all(
        &mut self,
        now: Time,
        host: &HostId,
        slots: impl IntoIterator<Item = LocalRank>,
    ) -> Vec<Process> {
        let state = self.host_mut(host);
        let started: Vec<_> = (slots.into_iter().map(|slot| state.start(now, slot))).collect();
        self.census.starting += started.len();
        self.starts += started.len() as u64;
        started
    }

    /// Sets the newest report of a connected agent that is applied.
    pub(crate) fn set_applied(&mut self, host: &HostId, number: u64) {
        if let Some(up) = self.up_mut(host) {
            up.applied = number;
            self.changed.mark(host);
        }
    }

    /// The effects of the reports of a connected agent after this one wait for a decision. A later driver applies them again.
    pub(crate) fn hold_back_applied(&mut self, host: &HostId, number: u64) {
        if let Some(up) = self.up_mut(host) {
            up.recorded = Some(up.recorded.map_or(number, |before| before.min(number)));
            self.changed.mark(host);
        }
    }

    /// Records that a connected agent was heard.
    pub(crate) fn set_heard(&mut self, now: Time, host: &HostId) {
        if let Some(up) = self.up_mut(host) {
            (up.heard, up.silent_since) = (now, now);
        }
    }

    /// Records the end of an outage in which no agent was heard. The silence of an agent counts from now on, unless it began
    /// more than this before the outage.
    pub(crate) fn outage_ended(&mut self, now: Time, began: Time, before: Duration) {
        for host in self.hosts.values_mut() {
            let (Agent::Up(up) | Agent::Away(Away { up, .. })) = &mut host.agent else {
                continue;
            };
            if up.heard + before >= began {
                up.silent_since = now;
            }
        }
    }

    /// The reports of an agent, which may be away by now, wait for no decision any more.
    pub(crate) fn release_applied(&mut self, host: &HostId) {
        let up = match self.hosts.get_mut(host).map(|state| &mut state.agent) {
            Some(Agent::Up(up)) => up,
            Some(Agent::Away(away)) => &mut away.up,
            _ => return,
        };
        if up.recorded.take().is_some() {
            self.changed.mark(host);
        }
    }

    /// Records a process that its agent has kept, unless its slot has a later one.
    pub(crate) fn adopt(
        &mut self,
        now: Time,
        host: &HostId,
        process: Process,
        life: Life,
        data_port: u16,
    ) {
        self.raise_starts(host, &[process]);
        let slot = &mut self.host_mut(host).slots[process.local_rank.0 as usize];
        if (slot.live).is_some_and(|live| live.process.generation > process.generation) {
            return;
        }
        slot.stopping = false;
        let before = slot.live.replace(Live {
            process,
            life,
            since: now,
            data_port,
        });
        if let Some(before) = before {
            *self.census.count(before.life) -= 1;
        }
        *self.census.count(life) += 1;
    }

    /// Counts starts of slots that an agent reports.
    pub(crate) fn raise_starts(&mut self, host: &HostId, starts: &[Process]) {
        for Process {
            local_rank,
            generation,
        } in starts
        {
            let slots = &mut self.host_mut(host).slots;
            let index = local_rank.0 as usize;
            if slots.len() <= index {
                slots.resize_with(index + 1, Slot::default);
            }
            let more = generation.0.saturating_sub(slots[index].starts);
            slots[index].starts += more;
            self.starts += u64::from(more);
        }
    }

    /// Records the new state of a process.
    pub fn set_life(&mut self, host: &HostId, process: Process, life: Life) {
        self.set_lives(host, [process], life);
    }

    /// Records the new state of processes of one host.
    pub fn set_lives(
        &mut self,
        host: &HostId,
        processes: impl IntoIterator<Item = Process>,
        life: Life,
    ) {
        let Some(state) = self.hosts.get_mut(host) else {
            return;
        };
        for process in processes {
            let Some(live) = state.live_mut(process) else {
                continue;
            };
            if self.census.turn(live, life) {
                self.changed.mark(host);
            }
        }
    }

    /// Records that a process waits at `run()`, and the port of its data plane.
    pub(crate) fn set_waiting(&mut self, host: &HostId, process: Process, data_port: u16) {
        if let Some(live) = (self.hosts.get_mut(host)).and_then(|state| state.live_mut(process)) {
            live.data_port = data_port;
            if self.census.turn(live, Life::Waiting) {
                self.changed.mark(host);
            }
        }
    }

    /// Records the ports of the data plane of processes of one host.
    pub(crate) fn set_data_ports(
        &mut self,
        host: &HostId,
        ports: impl IntoIterator<Item = (Process, u16)>,
    ) {
        let Some(state) = self.hosts.get_mut(host) else {
            return;
        };
        for (process, port) in ports {
            if let Some(live) = state.live_mut(process) {
                live.data_port = port;
            }
        }
    }

    /// Records the end of a process.
    pub fn end(&mut self, host: &HostId, process: Process) {
        if let Some(live) = self.current(host, process) {
            *self.census.count(live.life) -= 1;
            self.host_mut(host).slots[process.local_rank.0 as usize].live = None;
        }
    }

    /// Records that a process ended with code 0 without ever waiting: its slot is done.
    pub fn end_done(&mut self, host: &HostId, process: Process) {
        if self.current(host, process).is_some() {
            self.end(host, process);
            self.set_done(host, process.local_rank);
        }
    }

    /// Marks a free slot as done: its last process ended with code 0 without ever waiting.
    pub fn set_done(&mut self, host: &HostId, slot: LocalRank) {
        let Self { hosts, gone, .. } = self;
        let state = hosts.get_mut(host).or_else(|| gone.get_mut(host));
        if let Some(slot) = state.and_then(|state| state.slots.get_mut(slot.0 as usize))
            && slot.live.is_none()
            && !slot.done
        {
            slot.done = true;
            self.done += 1;
            self.changed.mark(host);
        }
    }

    /// Records that all slots may be used again whose processes ended with code 0 without ever waiting.
    pub fn forget_done(&mut self) {
        let Self { hosts, gone, .. } = self;
        for (host, state) in hosts.iter_mut().chain(gone) {
            for slot in state.slots.iter_mut().filter(|slot| slot.done) {
                slot.done = false;
                self.changed.mark(host);
            }
        }
        self.done = 0;
    }

    /// Records that the memory of a host may hold commits.
    pub fn set_memory(&mut self, id: &HostId) {
        let known = self.host(id).is_some_and(|host| host.has_memory);
        if !known {
            self.host_mut(id).has_memory = true;
        }
    }

    /// Records that the connection of an agent has ended. Its processes and its memory are out of reach.
    pub(crate) fn go_away(
        &mut self,
        now: Time,
        id: &HostId,
        planned: Round,
        memory_lost: bool,
        why: &str,
    ) {
        let Some(host) = self.hosts.get_mut(id) else {
            return;
        };
        let Agent::Up(up) = host.agent.clone() else {
            return;
        };
        let live: Vec<_> = (host.slots.iter_mut())
            .filter_map(|slot| slot.live.take())
            .collect();
        for live in &live {
            *self.census.count(live.life) -= 1;
        }
        host.agent = Agent::Away(Away {
            since: now,
            why: why.to_owned(),
            up,
            live,
            planned,
            memory_lost,
            has_memory: std::mem::take(&mut host.has_memory),
        });
    }

    /// Sets the state of the processes of a host that is away, except for those that are stopping. Gives them.
    pub(crate) fn set_lives_away(
        &mut self,
        id: &HostId,
        life: impl Fn(&Live) -> Life,
    ) -> Vec<Process> {
        let Some(Agent::Away(away)) = self.hosts.get_mut(id).map(|host| &mut host.agent) else {
            return Vec::new();
        };
        let goes_on = |live: &&mut Live| live.life != Life::Stopping;
        let set = |live: &mut Live| {
            live.life = life(live);
            live.process
        };
        let processes = away.live.iter_mut().filter(goes_on).map(set).collect();
        self.changed.mark(id);
        processes
    }

    /// Records the end of a process of a host that is away.
    pub(crate) fn end_away(&mut self, id: &HostId, process: Process) -> Option<Live> {
        let Agent::Away(away) = &mut self.hosts.get_mut(id)?.agent else {
            return None;
        };
        let index = away.live.iter().position(|live| live.process == process)?;
        self.changed.mark(id);
        Some(away.live.remove(index))
    }

    /// Records the return of an agent with its processes and its memory, over another connection. `None` if it was
    /// lost.
    pub(crate) fn come_back(
        &mut self,
        id: &HostId,
        connected: impl FnOnce(AgentUp) -> AgentUp,
    ) -> Option<Back> {
        let host = self.hosts.get_mut(id)?;
        match host.agent.clone() {
            Agent::Up(up) => {
                host.agent = Agent::Up(connected(up));
                Some(Back {
                    live: host.live().collect(),
                    planned: None,
                    memory_found: false,
                })
            }
            Agent::Away(away) => {
                host.agent = Agent::Up(connected(away.up));
                host.has_memory = away.has_memory;
                for live in &away.live {
                    let slot = live.process.local_rank.0 as usize;
                    host.slots[slot].live = Some(*live);
                    *self.census.count(live.life) += 1;
                }
                Some(Back {
                    live: away.live,
                    planned: Some(away.planned),
                    memory_found: away.memory_lost,
                })
            }
            Agent::Absent | Agent::Launching { .. } => None,
        }
    }

    /// Records the loss of an agent, with all its processes and its memory. Gives the processes, also those of an agent
    /// that was away.
    pub fn lose_agent(&mut self, id: &HostId) -> Vec<Live> {
        let Some(mut host) = self.hosts.remove(id) else {
            return Vec::new();
        };
        host.applied = host.applied();
        let away = match std::mem::replace(&mut host.agent, Agent::Absent) {
            Agent::Away(away) => away.live,
            _ => Vec::new(),
        };
        host.has_memory = false;
        if planted(Mutant::GenerationAgain) {
            (host.slots.iter_mut()).for_each(|slot| slot.starts = 0);
        }
        let lost: Vec<_> = host
            .slots
            .iter_mut()
            .filter_map(|slot| slot.live.take())
            .collect();
        for live in &lost {
            *self.census.count(live.life) -= 1;
        }
        let lost: Vec<_> = lost.into_iter().chain(away).collect();
        for live in lost.iter().filter(|live| live.life == Life::Stopping) {
            host.slots[live.process.local_rank.0 as usize].stopping = true;
        }
        self.gone.insert(id.clone(), host);
        self.changed.mark(id);
        lost
    }
}
