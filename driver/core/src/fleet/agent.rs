//! The agent of a host, as it is connected, or as it was when its connection ended.

use std::{
    collections::{BTreeSet, VecDeque},
    net::IpAddr,
};

use elasticrun_protocol::{Notice, Round};

use super::Live;
use crate::Time;

/// The agent of a host, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    /// There is no agent.
    Absent,
    /// A launch was requested.
    Launching {
        /// When the launch was requested.
        since: Time,
    },
    /// The agent is connected.
    Up(AgentUp),
    /// The connection of the agent has ended, and the agent may return with its processes.
    Away(Away),
}

/// An agent whose connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// When the connection ended.
    pub since: Time,
    /// Why the connection ended, for the operator.
    pub why: String,
    /// The agent as it was connected.
    pub up: AgentUp,
    /// Its processes at that time. They count as gone until the agent returns.
    pub live: Vec<Live>,
    /// The last round that was planned by then.
    pub planned: Round,
    /// The end of the connection has put the commits of the job out of reach that the host holds.
    pub(crate) memory_lost: bool,
    pub(super) has_memory: bool,
}

/// What an agent that has returned has brought back.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    /// Its processes, as they were when its connection ended.
    pub(crate) live: Vec<Live>,
    /// The last round that was planned by then; `None` if the end of the connection was not known yet.
    pub(crate) planned: Option<Round>,
    /// Commits of the job are within reach again.
    pub(crate) memory_found: bool,
}

/// A connected agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentUp {
    /// The number of its connection ([`crate::AgentConnected::instance`]). Events of other connections are stale.
    pub instance: u64,
    /// The address at which other hosts reach this host.
    pub address: IpAddr,
    /// The port at which the agent serves commits.
    pub memory_port: u16,
    /// The free port that the agent reported last.
    pub free_port: u16,
    /// The notice with the earliest deadline that its host goes away, and when it arrived.
    pub notice: Option<(Time, Notice)>,
    /// The latest notices of the agent, newest last.
    pub said: VecDeque<Notice>,
    /// The random number of the agent's process, if it has one.
    pub agent: Option<u64>,
    /// The agent keeps its workers when the connection ends, and returns with them.
    pub returns: bool,
    /// The number of the newest report of the agent that is applied.
    pub applied: u64,
    /// The newest report whose effects the records have, while later ones wait for a decision.
    pub recorded: Option<u64>,
    /// When the last heartbeat or new report of the agent arrived.
    pub heard: Time,
    /// When it was last heard, or the end of an outage that began about then.
    pub(crate) silent_since: Time,
    /// The agent can run parameter servers.
    pub servers: bool,
    /// Why the launch of the agent has ended, if it has: its process is gone.
    pub launch_ended: Option<String>,
    /// Other agents that were refused because of their name, as far as that was announced.
    pub refused: BTreeSet<u64>,
}
