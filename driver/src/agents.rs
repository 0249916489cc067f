//! The connections of agents, and orders to them. The job decides which of them are the agents of their hosts.

use std::{collections::BTreeMap, mem, net::IpAddr};

use elasticrun_core::{AgentConnected, Command};
use elasticrun_protocol::{AgentCommand, DriverEpoch, HostId, ToAgent, control::Setup, frame};

use crate::{addresses::Addresses, control::Writer, launch, store};

/// See the module. Its store is told which agents there are.
#[derive(Debug)]
pub(crate) struct Agents {
    epoch: DriverEpoch,
    /// Connections that the job has not admitted yet, by instance.
    arrived: BTreeMap<u64, Agent>,
    admitted: BTreeMap<HostId, Agent>,
    /// Hosts with orders that are queued and not sent, in the order of their first one.
    unsent: Vec<HostId>,
    /// Where they all are.
    addresses: Addresses,
    store: store::Handle,
}

#[derive(Debug)]
struct Agent {
    instance: u64,
    address: IpAddr,
    writer: Writer,
    /// Frames of orders that are queued.
    frames: Vec<u8>,
}

impl Agents {
    /// None yet.
    pub(crate) fn new(epoch: DriverEpoch, store: store::Handle) -> Self {
        Self {
            epoch,
            arrived: BTreeMap::new(),
            admitted: BTreeMap::new(),
            unsent: Vec::new(),
            addresses: Addresses::default(),
            store,
        }
    }

    /// The driver's epoch, which all orders carry.
    pub(crate) fn epoch(&self) -> DriverEpoch {
        self.epoch
    }

    /// An agent has connected, and the job is told next.
    pub(crate) fn arrive(&mut self, agent: &AgentConnected, writer: Writer) {
        let (instance, address) = (agent.instance, agent.address);
        // The orders that follow its admission are written with it.
        self.addresses.connected(agent.host.clone(), address);
        let arrived = Agent {
            instance,
            address,
            writer,
            frames: Vec::new(),
        };
        self.arrived.insert(instance, arrived);
    }

    /// A connection that has arrived is that of its host. Its agent is set up.
    pub(crate) fn admit(&mut self, host: HostId, instance: u64, setup: &Setup) {
        let Some(agent) = self.arrived.remove(&instance) else {
            return;
        };
        self.store.agent_connected(&host, instance);
        self.addresses.connected(host.clone(), agent.address);
        let setup = Setup {
            instance,
            ..setup.clone()
        };
        agent.writer.send(&ToAgent {
            epoch: self.epoch,
            order: AgentCommand::Setup(Box::new(setup)),
        });
        self.admitted.insert(host, agent);
    }

    /// A connection that has arrived is not wanted: its agent ends with all it has.
    pub(crate) fn refuse(&mut self, host: &HostId, instance: u64) {
        let Some(agent) = self.arrived.remove(&instance) else {
            return;
        };
        agent.writer.send(&ToAgent {
            epoch: self.epoch,
            order: AgentCommand::Kill,
        });
        agent.writer.close();
        match self.admitted.get(host) {
            Some(other) => self.addresses.connected(host.clone(), other.address),
            None => self.addresses.left(host),
        }
    }

    /// Closes the connection of a host's agent; a newer one stays.
    pub(crate) fn disconnect(&mut self, host: &HostId, instance: u64) {
        let admitted = self.admitted.get(host);
        if admitted.is_none_or(|agent| agent.instance != instance) {
            return;
        }
        if let Some(mut agent) = self.admitted.remove(host) {
            self.addresses.left(host);
            self.store.agent_lost(host);
            agent.send_queued();
            agent.writer.close();
        }
    }

    /// Rewrites addresses of this machine for agents that are on others.
    pub(crate) fn view(&self, commands: &mut [Command]) {
        self.addresses.view(commands, launch::own_address);
    }

    /// Queues an order for the agent of a host, if there is one. [`Agents::flush`] sends it.
    ///
    /// # Errors
    /// The instance of the agent, if the order is too large for a frame.
    pub(crate) fn queue(&mut self, host: &HostId, order: AgentCommand) -> Result<(), u64> {
        let Some(agent) = self.admitted.get_mut(host) else {
            return Ok(());
        };
        if agent.frames.is_empty() {
            self.unsent.push(host.clone());
        }
        let epoch = self.epoch;
        frame::encode(&ToAgent { epoch, order }, &mut agent.frames).map_err(|error| {
            tracing::error!(%error, "an order is too large for a frame");
            agent.instance
        })
    }

    /// Sends what is queued, to each agent at once. Gives those that do not read their orders.
    pub(crate) fn flush(&mut self) -> Vec<(HostId, u64)> {
        let mut unheard = Vec::new();
        for host in mem::take(&mut self.unsent) {
            if let Some(agent) = self.admitted.get_mut(&host)
                && !agent.send_queued()
            {
                unheard.push((host, agent.instance));
            }
        }
        unheard
    }
}

impl Agent {
    /// Gives whether the agent still takes orders.
    fn send_queued(&mut self) -> bool {
        let frames = mem::take(&mut self.frames);
        frames.is_empty() || self.writer.send_frames(frames)
    }
}
