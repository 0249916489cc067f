//! The connections of agents, and orders to them. The job decides which of them are the agents of their hosts.

use std::{collections::BTreeMap, net::IpAddr};

use elasticrun_core::{AgentConnected, Command};
use elasticrun_protocol::{DriverEpoch, HostId, Order, ToAgent, control::Setup};

use crate::{addresses::Addresses, control::Writer, launch, store};

/// See the module. Its store is told which agents there are.
#[derive(Debug)]
pub(crate) struct Agents {
    epoch: DriverEpoch,
    /// Connections that the job has not admitted yet, by instance.
    arrived: BTreeMap<u64, Agent>,
    admitted: BTreeMap<HostId, Agent>,
    /// Where they all are.
    addresses: Addresses,
    store: store::Handle,
}

#[derive(Debug)]
struct Agent {
    instance: u64,
    address: IpAddr,
    writer: Writer,
}

impl Agents {
    /// None yet.
    pub(crate) fn new(epoch: DriverEpoch, store: store::Handle) -> Self {
        Self {
            epoch,
            arrived: BTreeMap::new(),
            admitted: BTreeMap::new(),
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
            order: Order::Setup(Box::new(setup)),
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
            order: Order::Kill,
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
        if let Some(agent) = self.admitted.remove(host) {
            self.addresses.left(host);
            self.store.agent_lost(host);
            agent.writer.close();
        }
    }

    /// Rewrites addresses of this machine for agents that are on others.
    pub(crate) fn view(&self, commands: &mut [Command]) {
        self.addresses.view(commands, launch::own_address);
    }

    /// Sends an order to the agent of a host. The instance of one that does not read its orders is the error; where
    /// there is no agent nothing is sent.
    pub(crate) fn send(&self, host: &HostId, order: Order) -> Result<(), u64> {
        let Some(agent) = self.admitted.get(host) else {
            return Ok(());
        };
        let epoch = self.epoch;
        let sent = agent.writer.send(&ToAgent { epoch, order });
        if sent { Ok(()) } else { Err(agent.instance) }
    }
}
