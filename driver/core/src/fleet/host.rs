//! A host with its slots and their processes.

use elasticrun_protocol::{Generation, LocalRank, Process, Round};

use super::{Agent, AgentUp, Away};
use crate::{
    Time,
    journal::Applied,
    mutant::{Mutant, planted},
};

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Has been started and has not reached `run()`.
    Starting {
        /// When its start timeout began: when it was started, adopted, or found to be of a job with the SDK.
        since: Time,
    },
    /// Waits at `run()`, in no round.
    Waiting,
    /// Is in a round that has started and is not over.
    Training {
        /// The number of the round.
        round: Round,
    },
    /// Its round is over, or a later round has started without it. It is on its way to `run()`, or it is there and has
    /// answered a plan, which takes the place of a report that it waits.
    Returning {
        /// The number of the round that it comes from.
        round: Round,
    },
    /// Has been asked to stop.
    Stopping,
}

/// A live process of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Slot and start number.
    pub process: Process,
    /// Its state.
    pub life: Life,
    /// When it was started.
    pub since: Time,
    /// The port of its data plane; 0 until it waits.
    pub data_port: u16,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    pub(super) starts: u32,
    pub(super) live: Option<Live>,
    /// Its process ended with code 0 without ever waiting.
    pub(super) done: bool,
    /// Its last process was stopping when its agent was lost. The agent may come back to a later driver, and say how it ended.
    pub(super) stopping: bool,
}

/// A host that has or had an agent.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its agent. A host has at most one admitted agent.
    pub agent: Agent,
    /// When the launch of its agent was requested, or when the agent came by itself.
    pub since: Time,
    /// A process of the host was in a round, so the host's memory may hold commits.
    pub has_memory: bool,
    pub(super) slots: Vec<Slot>,
    /// How far the reports of its last agent are applied, once that is lost. It may come back to a later driver.
    pub(super) applied: Option<Applied>,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            agent: Agent::Absent,
            since: Time::ZERO,
            has_memory: false,
            slots: Vec::new(),
            applied: None,
        }
    }
}

impl Host {
    /// The connected agent.
    pub fn up(&self) -> Option<&AgentUp> {
        match &self.agent {
            Agent::Up(up) => Some(up),
            _ => None,
        }
    }

    /// The agent that is away.
    pub fn away(&self) -> Option<&Away> {
        match &self.agent {
            Agent::Away(away) => Some(away),
            _ => None,
        }
    }

    /// The agent as it is or was connected, unless it is lost.
    pub fn last_up(&self) -> Option<&AgentUp> {
        self.up().or_else(|| self.away().map(|away| &away.up))
    }

    /// How far the reports of its agent are applied.
    pub(super) fn applied(&self) -> Option<Applied> {
        match self.last_up() {
            None => self.applied,
            Some(up) => up.agent.map(|agent| Applied {
                agent,
                number: up.recorded.unwrap_or(up.applied),
            }),
        }
    }

    /// The live processes in the order of their local ranks.
    pub fn live(&self) -> impl Iterator<Item = Live> + '_ {
        self.slots.iter().filter_map(|slot| slot.live)
    }

    /// The number of slots whose last process ended with code 0 without ever waiting.
    pub fn done(&self) -> usize {
        self.slots.iter().filter(|slot| slot.done).count()
    }

    /// Whether the last process of this slot ended with code 0 without ever waiting.
    pub fn is_done(&self, slot: LocalRank) -> bool {
        (self.slots.get(slot.0 as usize)).is_some_and(|slot| slot.done)
    }

    pub(super) fn live_mut(&mut self, process: Process) -> Option<&mut Live> {
        let slot = self.slots.get_mut(process.local_rank.0 as usize)?;
        slot.live.as_mut().filter(|live| live.process == process)
    }

    pub(super) fn start(&mut self, now: Time, slot: LocalRank) -> Process {
        let index = slot.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let state = &mut self.slots[index];
        state.starts += 1;
        state.stopping = false;
        let process = Process {
            local_rank: slot,
            generation: Generation(state.starts),
        };
        state.live = Some(Live {
            process,
            life: Life::Starting { since: now },
            since: now,
            data_port: 0,
        });
        process
    }

    /// Whether a new process may be started on this slot.
    pub fn is_free(&self, slot: LocalRank) -> bool {
        self.slots.get(slot.0 as usize).is_none_or(|slot| {
            let used = slot.starts > 0 && planted(Mutant::NeverRefilled);
            slot.live.is_none() && !slot.done && !used
        })
    }
}
