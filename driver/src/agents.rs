//! The agents that are connected, and orders to them.

use std::{collections::BTreeMap, net::IpAddr};

use elasticrun_core::Command;
use elasticrun_protocol::{
    DriverEpoch, HostId, Order, ToAgent,
    control::{Setup, Task},
};

use crate::{
    addresses::Addresses,
    control::Writer,
    launch,
    machines::{Admission, Machines},
    store,
};

/// See the module. Its store hears who comes and goes.
#[derive(Debug)]
pub(crate) struct Agents {
    epoch: DriverEpoch,
    connected: BTreeMap<HostId, Agent>,
    /// Those that are tasks, by the machine they share.
    machines: Machines,
    /// Where they all are.
    addresses: Addresses,
    store: store::Handle,
}

#[derive(Debug)]
struct Agent {
    instance: u64,
    writer: Writer,
}

/// An older attempt of a task.
#[derive(Debug)]
pub(crate) enum Older {
    /// It is the one that registers: a newer one was here.
    Comes,
    /// It was there, and is told to end.
    Retired {
        /// The host that it was.
        host: HostId,
        /// Its connection.
        instance: u64,
    },
}

impl Agents {
    /// None yet.
    pub(crate) fn new(epoch: DriverEpoch, store: store::Handle) -> Self {
        Self {
            epoch,
            connected: BTreeMap::new(),
            machines: Machines::default(),
            addresses: Addresses::default(),
            store,
        }
    }

    /// The driver's epoch, which all orders carry.
    pub(crate) fn epoch(&self) -> DriverEpoch {
        self.epoch
    }

    /// An agent has connected; any other of its host was removed. It is set up. Others reach its host at this address.
    pub(crate) fn add(
        &mut self,
        host: HostId,
        instance: u64,
        address: IpAddr,
        writer: Writer,
        setup: &Setup,
    ) {
        self.store.agent_connected(&host, instance);
        self.addresses.connected(host.clone(), address);
        let setup = Setup {
            instance,
            ..setup.clone()
        };
        writer.send(&ToAgent {
            epoch: self.epoch,
            order: Order::Setup(Box::new(setup)),
        });
        self.connected.insert(host, Agent { instance, writer });
    }

    /// Ends the connection of a host's agent; gives its instance, if there was one.
    pub(crate) fn remove(&mut self, host: &HostId) -> Option<u64> {
        let agent = self.connected.remove(host)?;
        self.machines.leave(host);
        self.addresses.left(host);
        self.store.agent_lost(host);
        agent.writer.close();
        Some(agent.instance)
    }

    /// The same for this connection only: a newer one of the host stays. Gives whether it was there.
    pub(crate) fn remove_instance(&mut self, host: &HostId, instance: u64) -> bool {
        let current = self.connected.get(host).map(|agent| agent.instance);
        current == Some(instance) && self.remove(host).is_some()
    }

    /// Has an agent that is not wanted end with all it has, and closes its connection.
    pub(crate) fn send_away(&self, writer: &Writer) {
        writer.send(&ToAgent {
            epoch: self.epoch,
            order: Order::Kill,
        });
        writer.close();
    }

    /// An agent registers as a task: which older attempt of that has no part in the job, if there is one.
    pub(crate) fn admit(&mut self, task: &Task, host: &HostId) -> Option<Older> {
        let Admission::Welcome { retired } = self.machines.admit(task, host) else {
            return Some(Older::Comes);
        };
        let host = retired?;
        // One that does not read it hears of its end by that of the connection.
        let _ = self.send(&host, Order::Kill);
        let instance = self.remove(&host)?;
        Some(Older::Retired { host, instance })
    }

    /// Rewrites what workers are told of their neighbours where agents share a machine, and addresses of this machine
    /// for those that are on others.
    pub(crate) fn view(&self, commands: &mut [Command]) {
        self.machines.view(commands);
        self.addresses.view(commands, launch::own_address);
    }

    /// Whether this is the connection of the host's agent, and no older one.
    pub(crate) fn is_current(&self, host: &HostId, instance: u64) -> bool {
        self.connected
            .get(host)
            .is_some_and(|agent| agent.instance == instance)
    }

    /// Sends an order to the agent of a host. The instance of one that does not read its orders is the error; where
    /// there is no agent nobody minds.
    pub(crate) fn send(&self, host: &HostId, order: Order) -> Result<(), u64> {
        let Some(agent) = self.connected.get(host) else {
            return Ok(());
        };
        let epoch = self.epoch;
        let sent = agent.writer.send(&ToAgent { epoch, order });
        if sent { Ok(()) } else { Err(agent.instance) }
    }

    /// Sends an order to all.
    pub(crate) fn send_to_all(&self, order: Order) {
        let epoch = self.epoch;
        let order = ToAgent { epoch, order };
        for agent in self.connected.values() {
            agent.writer.send(&order);
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.connected.is_empty()
    }

    /// The hosts that have one.
    pub(crate) fn hosts(&self) -> Vec<HostId> {
        self.connected.keys().cloned().collect()
    }
}
