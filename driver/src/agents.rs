//! The connections of agents, and commands to them. The job decides which connection is that of its host's agent.

use std::{collections::BTreeMap, mem};

use elasticrun_core::{AgentConnected, Command};
use elasticrun_protocol::{AgentCommand, DriverEpoch, HostId, ToAgent, control::Setup, frame};

use crate::{addresses::Addresses, control::Writer, launch, store};

/// Room for the queued commands of one agent, in bytes: the starts of the workers of a host take as much.
const FRAMES: usize = 2 << 10;

/// The connections of agents. Keeps the store informed about admitted agents.
#[derive(Debug)]
pub(crate) struct Agents {
    epoch: DriverEpoch,
    /// Connections that the job has not admitted yet, by instance.
    pending: BTreeMap<u64, Agent>,
    admitted: BTreeMap<HostId, Agent>,
    /// Hosts with queued orders, in the order of their first one.
    unsent: Vec<HostId>,
    /// Addresses of all admitted agents.
    addresses: Addresses,
    store: store::Handle,
}

#[derive(Debug)]
struct Agent {
    instance: u64,
    writer: Writer,
    /// Queued commands, as frames.
    frames: Vec<u8>,
}

impl Agents {
    /// Without connections.
    pub(crate) fn new(epoch: DriverEpoch, store: store::Handle) -> Self {
        Self {
            epoch,
            pending: BTreeMap::new(),
            admitted: BTreeMap::new(),
            unsent: Vec::new(),
            addresses: Addresses::default(),
            store,
        }
    }

    /// The driver's epoch, which all commands carry.
    pub(crate) fn epoch(&self) -> DriverEpoch {
        self.epoch
    }

    /// Adds the connection of an agent, before the job decides on it.
    pub(crate) fn connected(&mut self, agent: &AgentConnected, writer: Writer) {
        let instance = agent.instance;
        self.addresses.connected(instance, agent.address);
        let pending = Agent {
            instance,
            writer,
            frames: Vec::new(),
        };
        self.pending.insert(instance, pending);
    }

    /// Admits a pending connection as that of its host, and sends the setup to its agent. `adopted` says whether the job
    /// goes on with the workers that the agent has kept.
    pub(crate) fn admit(&mut self, host: HostId, instance: u64, setup: &Setup, adopted: bool) {
        let Some(agent) = self.pending.remove(&instance) else {
            return;
        };
        self.store.agent_connected(&host, instance);
        let setup = Setup {
            instance,
            adopted,
            ..setup.clone()
        };
        agent.writer.send(&ToAgent {
            epoch: self.epoch,
            command: AgentCommand::Setup(Box::new(setup)),
        });
        self.admitted.insert(host, agent);
    }

    /// Refuses a pending connection with this command: after `Kill` its agent kills its workers and ends, and after settings
    /// that adopt nothing an agent with workers begins anew.
    pub(crate) fn refuse(&mut self, instance: u64, command: AgentCommand) {
        let Some(agent) = self.pending.remove(&instance) else {
            return;
        };
        agent.writer.send(&ToAgent {
            epoch: self.epoch,
            command,
        });
        agent.writer.close();
    }

    /// Closes the connection of a host's agent, unless it is a newer one.
    pub(crate) fn disconnect(&mut self, host: &HostId, instance: u64) {
        let admitted = self.admitted.get(host);
        if admitted.is_none_or(|agent| agent.instance != instance) {
            return;
        }
        if let Some(mut agent) = self.admitted.remove(host) {
            self.addresses.disconnected(host, instance);
            self.store.agent_lost(host);
            agent.send_queued();
            agent.writer.close();
        }
    }

    /// Replaces loopback addresses in orders to agents on other machines.
    pub(crate) fn rewrite_addresses(&mut self, commands: &mut [Command]) {
        self.addresses
            .rewrite(commands, launch::local_address_toward);
    }

    /// Queues a command for the agent of a host, if there is one. [`Agents::flush`] sends it.
    ///
    /// # Errors
    /// The instance of the agent, if the command is too large for a frame.
    pub(crate) fn queue(&mut self, host: &HostId, command: AgentCommand) -> Result<(), u64> {
        let Some(agent) = self.admitted.get_mut(host) else {
            return Ok(());
        };
        if agent.frames.is_empty() {
            self.unsent.push(host.clone());
            agent.frames.reserve(FRAMES);
        }
        let epoch = self.epoch;
        frame::encode(&ToAgent { epoch, command }, &mut agent.frames).map_err(|error| {
            tracing::error!(%error, "a command is too large for a frame");
            agent.instance
        })
    }

    /// Queues a command for the agents of all hosts.
    pub(crate) fn queue_for_all(&mut self, command: &AgentCommand) {
        let hosts: Vec<_> = self.admitted.keys().cloned().collect();
        for host in hosts {
            if let Err(instance) = self.queue(&host, command.clone()) {
                tracing::debug!(%host, instance, "a command does not reach its agent");
            }
        }
    }

    /// Sends the queued commands, in one write for each agent. Returns the agents that do not read their commands.
    pub(crate) fn flush(&mut self) -> Vec<(HostId, u64)> {
        let mut unresponsive = Vec::new();
        for host in mem::take(&mut self.unsent) {
            if let Some(agent) = self.admitted.get_mut(&host)
                && !agent.send_queued()
            {
                unresponsive.push((host, agent.instance));
            }
        }
        unresponsive
    }
}

impl Agent {
    /// Returns whether the agent still takes commands.
    fn send_queued(&mut self) -> bool {
        let frames = mem::take(&mut self.frames);
        frames.is_empty() || self.writer.send_frames(frames)
    }
}
