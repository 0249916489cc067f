//! The registration of an agent.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Adoption;
#[cfg(doc)]
use super::AgentCommand;
use crate::HostId;

/// The first frame of an agent after the handshake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Register {
    /// The host for which the agent was launched. An agent that registers itself uses its host name.
    pub host: HostId,
    /// The release of the agent, for messages to users.
    pub software: String,
    /// Slots that the agent was given or found (GPUs, else 1).
    pub slots: u32,
    /// Slots that the host itself shows (its GPUs), or that were given there; `None` if nothing there states the number.
    #[serde(default, rename = "counted")]
    pub detected_slots: Option<u32>,
    /// The agent registers itself (join token); the driver did not launch it.
    #[serde(rename = "itself")]
    pub self_registered: bool,
    /// The port at which the agent serves the commits that it keeps.
    pub memory_port: u16,
    /// A port that was free, for a coordinator of the user's library.
    pub free_port: u16,
    /// The address at which other hosts reach this one, if it is not the peer address of this connection.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// The task that this agent is, if a cluster started it as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// The run of which the agent was part before, if it still keeps commits of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps_run: Option<String>,
    /// The agent supports [`AgentCommand::Probe`].
    #[serde(default)]
    pub probes: bool,
    /// The agent supports [`AgentCommand::FindDurable`] and [`AgentCommand::LoadDurable`].
    #[serde(default)]
    pub durable: bool,
    /// The agent supports [`AgentCommand::Replicate`].
    #[serde(default)]
    pub replicas: bool,
    /// The agent supports [`AgentCommand::Cut`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cuts: bool,
    /// The agent supports [`AgentCommand::Servers`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub servers: bool,
    /// A random number of the agent's process. The same process has the same number when it connects anew. Agents that
    /// have one support [`AgentCommand::NameTaken`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<u64>,
    /// Set if the agent comes back to its run with workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption: Option<Box<Adoption>>,
}

/// An agent as a task of a cluster: one of several tasks on a machine, and one of several attempts at a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The machine's name in the cluster. Tasks of one machine are neighbours.
    pub machine: String,
    /// The index of the task in the job.
    pub slot: u32,
    /// Grows with each attempt at this task, over all machines. A newer attempt retires the older one.
    pub attempt: u64,
}

impl Task {
    /// The host that this agent is to the job. Each attempt is another host, so failures of an earlier attempt do not
    /// count against it.
    pub fn host(&self) -> HostId {
        HostId::new(format!("{}/{}.{}", self.machine, self.slot, self.attempt))
    }
}
