//! What only the scheduler does: registrations, barriers, the dead.

use std::sync::Arc;

use super::{Control, Node, lock};
use crate::{
    core::{
        barrier::{Barriers, Release},
        membership::Membership,
        node::{Group, NodeId, SCHEDULER},
    },
    net::Connection,
};

/// The state of the scheduler.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) members: Membership,
    barriers: Barriers,
}

impl Scheduler {
    pub(super) fn new(servers: u32, workers: u32) -> Self {
        Self {
            members: Membership::new(servers, workers),
            barriers: Barriers::default(),
        }
    }
}

impl Node {
    /// Handles a message as the scheduler. Gives back what is none of its business.
    pub(super) fn scheduler_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        message: Control,
    ) -> Option<Control> {
        let scheduler = match &self.scheduler {
            Some(scheduler) => scheduler,
            None => return Some(message),
        };
        match message {
            Control::Register { role, address } => {
                let joined = lock(scheduler).members.join(role, address, self.now());
                match joined {
                    Ok(id) => {
                        connection.set_peer(id);
                        lock(&self.connections).insert(id, Arc::clone(connection));
                        lock(&self.strangers).retain(|stranger| !Arc::ptr_eq(stranger, connection));
                        let (servers, workers) = lock(scheduler).members.awaited();
                        self.log(1, || {
                            format!("{id} is at {address}; {servers} servers and {workers} workers are missing")
                        });
                        self.send_roster();
                    }
                    Err(error) => {
                        let reason = error.to_string();
                        let _ = self.send_control(connection, &Control::Refused { reason });
                    }
                }
            }
            Control::Barrier { group } => {
                if let Some(peer) = connection.peer() {
                    self.arrived(peer, group);
                }
            }
            Control::Heartbeat => {
                let _ = self.send_control(connection, &Control::Heartbeat);
            }
            Control::Bye => {
                if let Some(peer) = connection.peer() {
                    lock(scheduler).members.leave(peer);
                    self.end_barriers();
                }
                return Some(Control::Bye);
            }
            other => return Some(other),
        }
        None
    }

    /// Tells everyone, once all are there.
    fn send_roster(self: &Arc<Self>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let Some(members) = lock(scheduler).members.roster() else {
            return;
        };
        let (servers, workers) = (self.options.servers, self.options.workers);
        self.set_roster(SCHEDULER, servers, workers, &members);
        let connections = lock(&self.connections).clone();
        for (id, connection) in connections {
            let members = members.clone();
            let roster = Control::Roster {
                id,
                servers,
                workers,
                members,
            };
            let _ = self.send_control(&connection, &roster);
        }
    }

    /// A node has arrived at a barrier.
    pub(super) fn arrived(self: &Arc<Self>, node: NodeId, group: Group) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let (servers, workers) = self.counts();
        let release = {
            let mut scheduler = lock(scheduler);
            let gone = scheduler.members.gone();
            let members = group.node_ids(servers, workers);
            scheduler.barriers.arrive(group, node, &members, &gone)
        };
        if let Some(release) = release {
            self.release(&release);
        }
    }

    fn release(self: &Arc<Self>, release: &Release) {
        let message = Control::Released {
            group: release.group,
            number: release.number,
            dead: release.dead.clone(),
        };
        self.log(1, || format!("{release:?}"));
        for node in &release.waiting {
            let connection = lock(&self.connections).get(node).cloned();
            if let Some(connection) = connection {
                let _ = self.send_control(&connection, &message);
            }
        }
        // This node is the last one: it may end as soon as it is released.
        if release.waiting.contains(&SCHEDULER) {
            lock(&self.waiting).released(release.group, release.number, release.dead.clone());
            self.changed.notify_all();
        }
    }

    /// The connection to a node broke, without a goodbye.
    pub(super) fn disconnected(self: &Arc<Self>, node: NodeId, reason: &str) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        if lock(scheduler).members.disconnected(node) {
            self.declare_dead(&[node], reason);
        }
    }

    /// Looks for nodes that were silent for too long.
    pub(super) fn expire_members(self: &Arc<Self>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let timeout = self.options.heartbeat_timeout;
        let silent = lock(scheduler).members.expire(self.now(), timeout);
        if silent.is_empty() {
            return;
        }
        let reason = format!("nothing was heard of it for {timeout:?}");
        for node in &silent {
            self.lose(*node, &reason);
        }
        self.declare_dead(&silent, &reason);
    }

    /// Tells all others, and ends the barriers that wait for these nodes.
    fn declare_dead(self: &Arc<Self>, nodes: &[NodeId], reason: &str) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let living: Vec<_> = lock(scheduler).members.living().collect();
        let message = Control::Dead {
            nodes: nodes.to_vec(),
            reason: reason.to_owned(),
        };
        for node in living {
            let connection = lock(&self.connections).get(&node).cloned();
            if let Some(connection) = connection {
                let _ = self.send_control(&connection, &message);
            }
        }
        self.end_barriers();
    }

    /// Ends the barriers that wait for nodes that have died or left: they will not come.
    fn end_barriers(self: &Arc<Self>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let (servers, workers) = self.counts();
        let releases = {
            let mut scheduler = lock(scheduler);
            let gone = scheduler.members.gone();
            scheduler
                .barriers
                .died(|group| group.node_ids(servers, workers), &gone)
        };
        for release in releases {
            self.release(&release);
        }
    }
}
