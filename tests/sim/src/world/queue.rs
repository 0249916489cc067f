//! All events of the simulation, and their order.

use std::cmp::Ordering;

use elasticrun_core::{Event as JobEvent, Time, agent::Event as AgentEvent};
use elasticrun_protocol::{FromAgent, HostId, Process, Round, ToAgent};

use super::{durable::Durable, joining::Tell, memory::Commit, replica::Copying, schedule::Act};
use crate::fault::Fault;

/// A future event.
#[derive(Clone, Debug)]
pub(super) enum Ev {
    JobTick,
    DriverWakes,
    Job(JobEvent),
    Poll(usize),
    Up(usize),
    Down(usize),
    Heart(usize),
    RepeatUp(usize, FromAgent),
    RepeatDown(usize, ToAgent),
    Launch {
        host: usize,
        token: u64,
    },
    /// The process of a launched agent has ended.
    LaunchEnded {
        host: usize,
        token: u64,
    },
    /// The reaper process of an agent that registered itself reports the death of the agent.
    AgentDied {
        host: usize,
        agent: u64,
    },
    /// An agent dials for its driver again.
    Redial {
        host: usize,
        agent: u64,
    },
    Register(usize),
    AgentTick {
        host: usize,
        agent: u64,
    },
    Flush {
        host: usize,
        agent: u64,
    },
    Machine {
        host: usize,
        agent: u64,
        event: AgentEvent,
    },
    /// An agent has written a commit to the durable store.
    Stored {
        at: (usize, u64),
        commit: Commit,
    },
    /// An agent has read a commit of the durable store; none if it is gone.
    Loaded {
        at: (usize, u64),
        number: u64,
        process: Process,
        stored: Option<Durable>,
    },
    /// A copy of a commit from another agent has ended.
    Copied {
        at: (usize, u64),
        copying: Copying,
    },
    /// An agent has finished a probe.
    Dialled {
        host: usize,
        agent: u64,
        number: u64,
        unreachable: Vec<HostId>,
    },
    Worker {
        host: usize,
        process: Process,
        token: u64,
        act: Act,
    },
    Wake {
        host: usize,
        process: Process,
    },
    PeerLost {
        host: usize,
        process: Process,
        round: Round,
    },
    Tell {
        host: usize,
        agent: u64,
        process: Process,
        tell: Tell,
    },
    Kill {
        host: usize,
        process: Process,
        term: bool,
    },
    Reap {
        host: usize,
        process: Process,
    },
    GroupStep(Round),
    GroupStalled {
        round: Round,
        step: u64,
    },
    Stalled {
        round: Round,
        index: u64,
    },
    Fault(Fault),
    Uncut {
        host: usize,
        up: bool,
        down: bool,
        data: bool,
    },
    Revive(usize),
    Resume {
        host: usize,
        process: Process,
    },
    Watch,
    Heal,
    Patience,
    DriverExit,
    /// A later driver continues the run. Its records are `whole` if no write was lost.
    DriverResumes {
        whole: bool,
    },
    Swept,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) at: Time,
    pub(super) number: u64,
    pub(super) ev: Ev,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest event is the greatest, as the heap requires.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
