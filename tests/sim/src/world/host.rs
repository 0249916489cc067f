//! A host: perhaps an agent, its workers and their memory, and how well the network reaches it.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_core::{Time, agent::Machine};
use elasticrun_protocol::{CommitId, CommitKey, DriverEpoch, HostId, Process, Round};

use super::{
    memory::{Commit, Memories},
    worker::Worker,
};

/// An agent process.
#[derive(Debug)]
pub(crate) struct AgentSim {
    /// Number of the agent process on its host.
    pub(crate) number: u64,
    pub(super) link: usize,
    /// When the agent sent its registration.
    pub(super) registered: Time,
    /// The machine; none before the driver has admitted the agent.
    pub(super) machine: Option<Machine>,
    pub(super) tick_at: Option<Time>,
    pub(super) flushing: bool,
    /// A dial is due.
    pub(super) redials: bool,
    /// The driver has answered the registration over the current connection.
    pub(super) answered: bool,
    /// The number of its launch, and the driver that launched it.
    pub(super) launch: u64,
    pub(super) launched_by: DriverEpoch,
    /// The agent was ordered to end.
    pub(super) told: bool,
}

/// A host and its connections.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) id: HostId,
    /// Slots of the machine. Discovery may report others.
    pub(crate) slots: u32,
    /// The machine runs.
    pub(crate) alive: bool,
    /// Number of cuts in each direction, and between its workers and those of other hosts.
    pub(crate) cut_up: u32,
    pub(crate) cut_down: u32,
    pub(crate) cut_data: u32,
    /// Its workers were cut off from others at some time, and are cut off for good.
    pub(crate) was_cut: bool,
    pub(crate) data_lost: bool,
    /// Every process that starts here hangs.
    pub(crate) starts_hang: bool,
    /// No agent of this host ever connects.
    pub(crate) no_way: bool,
    /// Until when the agent is suspended.
    pub(crate) stalled: Time,
    /// When the path between the host and the driver changed last.
    pub(crate) disturbed: Time,
    /// Since when the agent runs without a suspension.
    pub(crate) awake: Time,
    pub(crate) agent: Option<AgentSim>,
    pub(super) agents: u64,
    /// The last port that was offered for a coordinator.
    pub(super) ports: u16,
    pub(super) memories: Memories,
    /// Processes that are not reaped yet.
    pub(crate) workers: BTreeMap<Process, Worker>,
    /// Parameter servers, and the number of the agent of each.
    pub(crate) servers: BTreeMap<Process, u64>,
    /// The servers that each agent has started.
    pub(super) started_servers: BTreeSet<(u64, Process)>,
    /// Number of the last launch, so that an earlier one that was given up does nothing.
    pub(super) launch: u64,
    /// The driver of that launch.
    pub(super) launched_by: DriverEpoch,
    /// A launched agent waits for the host's lock.
    pub(super) launch_waits: bool,
    /// The commits in its memory when its agent answered this plan.
    pub(crate) answered: Option<(Round, Vec<CommitKey>)>,
    /// The last answer to a plan, whatever has become of its agent.
    pub(crate) told: Option<(Round, Vec<CommitKey>)>,
    /// The last round that was planned, as the last command about replicas says.
    pub(crate) planned: Round,
}

impl Host {
    pub(super) fn new(index: usize, slots: u32) -> Self {
        Self {
            id: HostId::new(format!("h{index}")),
            slots,
            alive: true,
            cut_up: 0,
            cut_down: 0,
            cut_data: 0,
            was_cut: false,
            data_lost: false,
            starts_hang: false,
            no_way: false,
            stalled: Time::ZERO,
            disturbed: Time::ZERO,
            awake: Time::ZERO,
            agent: None,
            agents: 0,
            ports: 0,
            memories: Memories::default(),
            workers: BTreeMap::new(),
            servers: BTreeMap::new(),
            started_servers: BTreeSet::new(),
            launch: 0,
            launched_by: DriverEpoch(0),
            launch_waits: false,
            answered: None,
            told: None,
            planned: Round(0),
        }
    }

    /// Whether an agent or its remaining workers hold the lock of the host.
    pub(super) fn is_locked(&self) -> bool {
        self.agent.is_some() || !self.workers.is_empty()
    }

    /// Whether an agent of this host has started a server before.
    pub(crate) fn has_started(&self, agent: u64, process: Process) -> bool {
        self.started_servers.contains(&(agent, process))
    }

    pub(super) fn is_agent(&self, number: u64) -> bool {
        self.agent
            .as_ref()
            .is_some_and(|agent| agent.number == number)
    }

    /// Sealed commits of all processes, dead and living.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = Commit> {
        self.memories.of.values().flat_map(|s| s.complete())
    }

    /// The same, with the part of the state that each is.
    pub(crate) fn keys(&self) -> Vec<CommitKey> {
        self.sealed().map(|commit| commit.key()).collect()
    }

    /// The same, without it.
    pub(crate) fn commits(&self) -> Vec<CommitId> {
        self.sealed().map(|commit| commit.id).collect()
    }

    /// Sealed commits of the processes that are dead, beside one.
    pub(crate) fn kept_beside(&self, process: Process) -> impl Iterator<Item = CommitKey> {
        let others = self.memories.of.iter();
        let dead = others
            .filter(move |(other, _)| **other != process && !self.workers.contains_key(other));
        dead.flat_map(|(_, shared)| shared.complete())
            .map(|commit| commit.key())
    }

    /// The commit that a process writes its next one over.
    pub(crate) fn overwritten(&self, process: Process) -> Option<CommitKey> {
        let shared = self.memories.of.get(&process)?;
        shared.overwritten().map(Commit::key)
    }

    /// Sealed commits of one process.
    pub(crate) fn keys_of(&self, process: Process) -> Vec<CommitKey> {
        let shared = self.memories.of.get(&process);
        let commits = shared.into_iter().flat_map(|shared| shared.complete());
        commits.map(|commit| commit.key()).collect()
    }

    /// Complete commits of one process.
    pub(crate) fn commits_of(&self, process: Process) -> Vec<CommitId> {
        let shared = self.memories.of.get(&process);
        let commits = shared.into_iter().flat_map(|shared| shared.complete());
        commits.map(|commit| commit.id).collect()
    }

    /// Complete commits of all processes but one.
    pub(crate) fn commits_beside(&self, process: Process) -> Vec<CommitId> {
        let others = self.memories.of.keys().filter(|other| **other != process);
        others.flat_map(|other| self.commits_of(*other)).collect()
    }

    /// Whether another dead process has the newest commit of this one. A living process may overwrite it.
    pub(crate) fn has_copy_of(&self, process: Process) -> bool {
        let dead = |other: &&Process| !self.workers.contains_key(other) && **other != process;
        let mut others = self.memories.of.keys().filter(dead);
        others.any(|other| self.newest(*other) == self.newest(process))
    }

    /// The newest of the commits of other dead processes. A living process may overwrite its own.
    pub(crate) fn newest_kept_beside(&self, process: Process) -> Option<CommitId> {
        let others = self.memories.of.keys().filter(|other| **other != process);
        let dead = others.filter(|other| !self.workers.contains_key(other));
        dead.filter_map(|other| self.newest(*other)).max()
    }

    /// The newest complete commit of a process.
    pub(crate) fn newest(&self, process: Process) -> Option<CommitId> {
        let shared = self.memories.of.get(&process)?;
        shared.complete().first().map(|commit| commit.id)
    }
}

/// The index in a name that [`Host::new`] gave.
pub(crate) fn index_of(id: &HostId) -> Option<usize> {
    id.as_str().strip_prefix('h')?.parse().ok()
}
