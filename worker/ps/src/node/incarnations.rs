//! Processes that take the place of a dead node, under its id.
//!
//! # Invariants
//! - PI1 What is said of a process concerns neither one that had the id before nor one that has it later: connections and deaths have a
//!   number, the incarnation.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use super::{Control, Death, Node, lock};
use crate::core::{membership::Member, node::NodeId};

/// The nodes whose id had another process before, as this node knows.
#[derive(Debug, Default)]
pub(super) struct Incarnations {
    known: Mutex<BTreeMap<NodeId, Process>>,
    /// The deaths that the scheduler has declared.
    declared: Mutex<Vec<Death>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Process {
    incarnation: u16,
    /// `None` until the scheduler says it.
    address: Option<SocketAddr>,
}

impl Incarnations {
    /// How many processes have had the id before.
    pub(super) fn of(&self, node: NodeId) -> u16 {
        lock(&self.known).get(&node).map_or(0, |it| it.incarnation)
    }

    /// The address of a process that came later than the roster.
    pub(super) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        lock(&self.known).get(&node)?.address
    }

    /// Notes a process, unless a later one is known.
    fn note(&self, node: NodeId, found: Process) {
        if found.incarnation == 0 {
            return;
        }
        let mut known = lock(&self.known);
        let process = known.entry(node).or_default();
        if found.incarnation > process.incarnation {
            *process = found;
        } else if found.incarnation == process.incarnation {
            process.address = found.address.or(process.address);
        }
    }
}

impl Node {
    /// How many processes have had the id of this node before.
    pub(crate) fn incarnation(&self) -> u16 {
        self.incarnations.of(self.id())
    }

    /// The roster has come: processes that came since the first ones are those to deal with.
    pub(super) fn incarnations_at_start(&self, members: &[Member]) {
        for member in members.iter().filter(|member| member.incarnation > 0) {
            let found = Process {
                incarnation: member.incarnation,
                address: Some(member.address),
            };
            self.incarnations.note(member.id, found);
            lock(&self.lost).remove(&member.id);
        }
    }

    /// The scheduler says who has come.
    pub(super) fn members_came(self: &Arc<Self>, members: &[Member]) {
        for member in members.iter().filter(|member| member.incarnation > 0) {
            self.came_back(member.id, member.incarnation, Some(member.address));
        }
    }

    /// A process has the id of a node. If it is not the one that is known, that one is lost and this one is not.
    pub(super) fn came_back(
        self: &Arc<Self>,
        node: NodeId,
        incarnation: u16,
        address: Option<SocketAddr>,
    ) {
        let is_newer = incarnation > self.incarnations.of(node);
        if is_newer {
            self.lose(node, "another process has taken its place");
        }
        let found = Process {
            incarnation,
            address,
        };
        self.incarnations.note(node, found);
        if is_newer {
            lock(&self.lost).remove(&node);
            self.log(1, || format!("{node} has come back"));
        }
    }

    /// Nodes have died, as the scheduler says.
    pub(super) fn declared_dead(self: &Arc<Self>, deaths: Vec<Death>) {
        self.died(&deaths);
        lock(&self.incarnations.declared).extend(deaths);
    }

    /// Nodes have died.
    pub(super) fn died(self: &Arc<Self>, deaths: &[Death]) {
        for death in deaths {
            if death.incarnation >= self.incarnations.of(death.node) {
                self.lose(death.node, &death.reason);
                self.elastic_death(death.node);
            }
        }
    }

    /// What is said at the end of this node: with the deaths that the scheduler has declared. A node that waits for this one may not
    /// have heard of them yet.
    pub(super) fn goodbye(&self) -> Control {
        let deaths = match self.elastic {
            // Nobody fails there because others have died.
            Some(_) => Vec::new(),
            None => lock(&self.incarnations.declared).clone(),
        };
        Control::Bye { deaths }
    }
}
