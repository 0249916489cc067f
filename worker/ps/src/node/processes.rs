//! The processes behind the ids of nodes: which one has an id now, and whether it is lost.
//!
//! A process may take the place of a dead node, under its id. The number of processes that have had an id before is the incarnation.
//!
//! # Invariants
//! - PI1 What is said of a process concerns neither one that had the id before nor one that has it later: connections, deaths and
//!   messages that are sent again have the incarnation.
//! - PI2 Each process is lost once.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Control, Death, Node, lock};
use crate::{
    core::{
        membership::Member,
        node::{NodeId, SCHEDULER},
    },
    error::Error,
};

/// A process: the id, and the incarnation.
pub(crate) type Process = (NodeId, u16);

/// What this node knows of others.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: Mutex<BTreeMap<NodeId, Known>>,
    /// The deaths that the scheduler has declared.
    declared: Mutex<Vec<Death>>,
    /// Losses that others have named at their end. They explain it, and nothing else: another node may be cut off from one that
    /// this node reaches.
    named: Mutex<Vec<Death>>,
    /// Whether `unnoticed` is set anywhere.
    has_news: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    incarnation: u16,
    /// Where it is, if the scheduler has said so later than in the roster.
    address: Option<SocketAddr>,
    /// Why it is lost.
    lost: Option<Error>,
    /// It has come while the program may not have had a request in flight to the process before.
    unnoticed: bool,
}

impl Processes {
    /// How many processes have had the id before.
    pub(super) fn incarnation(&self, node: NodeId) -> u16 {
        lock(&self.known).get(&node).map_or(0, |it| it.incarnation)
    }

    /// Where the process is that has the id, as far as it was said later than in the roster.
    ///
    /// # Errors
    /// It is lost, or it has taken the place of another one and nobody has said where it is.
    pub(super) fn address(&self, node: NodeId) -> Result<Option<SocketAddr>, Error> {
        let known = lock(&self.known);
        let Some(process) = known.get(&node) else {
            return Ok(None);
        };
        match (&process.lost, process.address) {
            (Some(error), _) => Err(error.clone()),
            (None, None) if process.incarnation > 0 => Err(Error::NodeLost {
                node,
                reason: "another process takes its place".to_owned(),
            }),
            (None, address) => Ok(address),
        }
    }

    /// Whether the process that has the id is lost, and why.
    pub(super) fn why_lost(&self, node: NodeId) -> Option<Error> {
        lock(&self.known).get(&node)?.lost.clone()
    }

    /// The nodes that are lost.
    pub(super) fn lost(&self) -> Vec<NodeId> {
        let known = lock(&self.known);
        let lost = known.iter().filter(|(_, it)| it.lost.is_some());
        lost.map(|(node, _)| *node).collect()
    }

    /// Fails the first request to a process that has taken the place of another one: it has none of the values, and a program that had no
    /// request in flight would not notice.
    pub(super) fn tell(&self, node: NodeId) -> Result<(), Error> {
        if !self.has_news.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut known = lock(&self.known);
        let told = known
            .get_mut(&node)
            .map(|it| std::mem::take(&mut it.unnoticed));
        match told {
            Some(true) => Err(Error::NodeLost {
                node,
                reason: "another process has taken its place".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Notes deaths that are declared, for the goodbye of this node.
    pub(super) fn declare(&self, deaths: &[Death]) {
        lock(&self.declared).extend_from_slice(deaths);
    }

    /// Notes losses that others have named at their end.
    pub(super) fn name(&self, losses: &[Death]) {
        let mut named = lock(&self.named);
        for loss in losses {
            if !named.contains(loss) {
                named.push(loss.clone());
            }
        }
    }

    /// Losses that explain why nodes end: those that others have named, then those of this node.
    pub(super) fn reasons(&self) -> Vec<Death> {
        let mut reasons = lock(&self.named).clone();
        for (&node, process) in lock(&self.known).iter() {
            if let Some(Error::NodeLost { reason, .. }) = &process.lost {
                reasons.push(Death {
                    node,
                    incarnation: process.incarnation,
                    reason: reason.clone(),
                });
            }
        }
        reasons
    }

    /// Notes that a process is lost. Returns whether that is news: the first reason counts, as a broken connection may follow from it.
    fn lose(&self, (node, incarnation): Process, error: &Error) -> bool {
        let mut known = lock(&self.known);
        let process = known.entry(node).or_default();
        let is_news = process.lost.is_none() && process.incarnation == incarnation;
        if is_news {
            process.lost = Some(error.clone());
        }
        is_news
    }

    /// Notes a process, unless it is an earlier one. Returns whether it is a later one.
    fn note(&self, (node, incarnation): Process, address: Option<SocketAddr>) -> bool {
        let mut known = lock(&self.known);
        let process = known.entry(node).or_default();
        let is_later = incarnation > process.incarnation;
        if is_later {
            *process = Known {
                incarnation,
                address,
                lost: None,
                unnoticed: true,
            };
            self.has_news.store(true, Ordering::Release);
        } else if incarnation == process.incarnation && address.is_some() {
            process.address = address;
        }
        is_later
    }
}

impl Node {
    /// How many processes have had the id of this node before.
    pub(crate) fn incarnation(&self) -> u16 {
        self.processes.incarnation(self.id())
    }

    /// Notes that the process is lost that has the id now, and fails all that waits for it.
    pub(super) fn lose_node(&self, node: NodeId, reason: &str) {
        self.lose((node, self.processes.incarnation(node)), reason);
    }

    /// Notes that a process is lost, and fails all that waits for it.
    pub(super) fn lose(&self, process: Process, reason: &str) {
        let node = process.0;
        let reason = reason.to_owned();
        let error = Error::NodeLost { node, reason };
        if !self.processes.lose(process, &error) {
            return;
        }
        let connection = {
            let mut connections = lock(&self.connections);
            let has = |it: &Arc<_>| crate::net::Connection::process(it) == Some(process);
            match connections.get(&node).is_some_and(has) {
                true => connections.remove(&node),
                false => None,
            }
        };
        if self.is_stopped() {
            return;
        }
        self.log(1, || error.to_string());
        if let Some(connection) = connection {
            connection.close(error.clone());
        }
        self.fail_waiting(process, &error);
    }

    /// Fails all that waits for a process.
    pub(super) fn fail_waiting(&self, process: Process, error: &Error) {
        let node = process.0;
        if let Some(resends) = &self.resends {
            resends.forget(process);
        }
        if node == SCHEDULER {
            lock(&self.waiting).scheduler_lost = Some(error.clone());
            self.changed.notify_all();
            if let Some(elastic) = &self.elastic {
                elastic.scheduler_lost(error);
            }
        }
        for customer in self.registry.customers() {
            customer.node_lost(node, error);
        }
        for app in self.registry.apps() {
            app.node_left(node);
        }
    }

    /// The nodes that are dead.
    pub(crate) fn dead_nodes(&self) -> Vec<NodeId> {
        self.processes.lost()
    }

    /// The roster has come: what it says of processes is the beginning.
    pub(super) fn processes_at_start(&self, members: &[Member]) {
        for member in members.iter().filter(|member| member.incarnation > 0) {
            let process = (member.id, member.incarnation);
            self.processes.note(process, Some(member.address));
            // The program has had nothing to do with the process before.
            let _ = self.processes.tell(member.id);
        }
    }

    /// The scheduler says who has come.
    pub(super) fn members_came(self: &Arc<Self>, members: &[Member]) {
        for member in members.iter().filter(|member| member.incarnation > 0) {
            self.came_back((member.id, member.incarnation), Some(member.address));
        }
    }

    /// A process has the id of a node. If it is not the one that is known, that one is lost and this one is not.
    pub(super) fn came_back(self: &Arc<Self>, process: Process, address: Option<SocketAddr>) {
        let node = process.0;
        let known = self.processes.incarnation(node);
        if process.1 > known {
            // First, so that nothing fails that waits for the new one.
            self.lose((node, known), "another process has taken its place");
        }
        if process.1 > 0 && self.processes.note(process, address) {
            self.log(1, || format!("{node} has come back"));
        }
    }

    /// Nodes have died, as the scheduler says.
    pub(super) fn declared_dead(self: &Arc<Self>, deaths: Vec<Death>) {
        self.died(&deaths);
        self.processes.declare(&deaths);
    }

    /// Nodes have died.
    pub(super) fn died(self: &Arc<Self>, deaths: &[Death]) {
        for death in deaths {
            self.lose((death.node, death.incarnation), &death.reason);
            self.elastic_death(death.node);
        }
    }

    /// What is said at the end of this node: with the deaths that the scheduler has declared. A node that waits for this one may not
    /// have heard of them yet.
    pub(super) fn goodbye(&self) -> Control {
        let deaths = match self.elastic {
            // Nobody fails there because others have died.
            Some(_) => Vec::new(),
            None => lock(&self.processes.declared).clone(),
        };
        let finished = self.finished.load(Ordering::SeqCst);
        // What is lost may be replaced.
        let explains =
            !finished && self.elastic.is_none() && self.options.replace_timeout.is_zero();
        let because = match explains {
            true => self.processes.reasons(),
            false => Vec::new(),
        };
        Control::Bye {
            deaths,
            because,
            finished,
        }
    }
}
