//! What only the scheduler does: barriers, the dead, the orders of the coordinator.

use std::sync::Arc;

use super::{Control, Death, Node, Process, lock, registration::Candidate, snapshots::Snapshots};
use crate::{
    core::{
        barrier::{Barriers, Release},
        elastic::{
            coordinator::{Action, Coordinator},
            message::{Order, Report},
        },
        membership::{Member, Membership},
        node::{ALL_NODES, Group, NodeId, Role, SCHEDULER},
    },
    error::Error,
    net::Connection,
    options::Options,
};

/// The state of the scheduler.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) members: Membership,
    pub(super) barriers: Barriers,
    /// Processes that may take the place of a node whose death is not known yet.
    pub(super) candidates: Vec<Candidate>,
    /// Only in an elastic job.
    pub(super) coordinator: Option<Coordinator>,
    /// This node waits for all others to end.
    ends: bool,
    /// Only if the job takes some.
    pub(super) snapshots: Option<Snapshots>,
}

impl Scheduler {
    /// # Errors
    /// Snapshots cannot be read or written.
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let (servers, workers) = (options.servers, options.workers);
        let mut members = Membership::new(servers, workers);
        if options.elastic {
            members.open();
        }
        members.await_replacements(options.replace_timeout);
        let mut coordinator =
            (options.elastic).then(|| Coordinator::new(servers, options.replicas));
        let (snapshots, newest) = Snapshots::open(options)?.unzip();
        if let (Some(coordinator), Some(newest)) = (&mut coordinator, newest.flatten()) {
            coordinator.begin_with(newest);
        }
        Ok(Self {
            members,
            barriers: Barriers::default(),
            candidates: Vec::new(),
            coordinator,
            ends: false,
            snapshots,
        })
    }

    /// The members of a group that a barrier waits for.
    fn members_of(&self, group: Group, (servers, workers): (u32, u32)) -> Vec<NodeId> {
        match self.coordinator {
            // Nodes come and go; one that is dead is replaced.
            Some(_) => self.members.present(group),
            None => group.node_ids(servers, workers),
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
            Control::Register(newcomer) => self.registers(connection, newcomer),
            Control::Barrier { group } => {
                if let Some(peer) = connection.peer() {
                    self.arrived(peer, group);
                }
            }
            Control::Heartbeat => {
                let _ = self.send_control(connection, &Control::Heartbeat);
            }
            Control::Bye {
                because, finished, ..
            } => {
                // First: the barriers that end now say so.
                self.processes.name(&because);
                if let Some(process) = connection.process() {
                    let peer = process.0;
                    if !finished && !self.options.replace_timeout.is_zero() {
                        // It is started again, perhaps.
                        let reason = "it has ended before the others";
                        self.lose(process, reason);
                        self.disconnected(process, reason);
                        return None;
                    }
                    lock(scheduler).members.leave(peer);
                    self.coordinate(|coordinator| coordinator.died(peer));
                    self.end_barriers();
                }
                // This node knows better who is dead.
                return Some(Control::Bye {
                    deaths: Vec::new(),
                    because,
                    finished,
                });
            }
            other => return self.coordinator_message(connection, other),
        }
        None
    }

    /// A node has arrived at a barrier.
    pub(super) fn arrived(self: &Arc<Self>, node: NodeId, group: Group) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let (servers, workers) = self.counts();
        let release = {
            let mut scheduler = lock(scheduler);
            let gone = scheduler.members.gone(self.now());
            let members = scheduler.members_of(group, (servers, workers));
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
            because: match release.dead.is_empty() {
                true => Vec::new(),
                false => self.processes.reasons(),
            },
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
            if release.group == ALL_NODES {
                let mut scheduler = self.scheduler.as_ref().map(|scheduler| lock(scheduler));
                if let Some(scheduler) = &mut scheduler
                    && scheduler.ends
                    && let Some(coordinator) = &mut scheduler.coordinator
                {
                    coordinator.end();
                }
            }
            lock(&self.waiting).released(release.group, release.number, release.dead.clone());
            self.changed.notify_all();
        }
    }

    /// The connection to a node broke, without a goodbye.
    pub(super) fn disconnected(self: &Arc<Self>, process: Process, reason: &str) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let died = lock(scheduler).members.disconnected(process, self.now());
        if let Some(member) = died {
            self.declare_dead(&[member], reason);
        }
    }

    /// Looks for nodes that were silent for too long.
    pub(super) fn expire_members(self: &Arc<Self>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let timeout = self.options.heartbeat_timeout;
        let (silent, awaits) = {
            let members = &mut lock(scheduler).members;
            let silent = members.expire(self.now(), timeout);
            (silent, members.awaits_replacements())
        };
        if silent.is_empty() {
            // The time for one may be over.
            if awaits {
                self.end_barriers();
            }
            self.refuse_those_that_wait();
            return;
        }
        let reason = format!("nothing was heard of it for {timeout:?}");
        for member in &silent {
            self.lose((member.id, member.incarnation), &reason);
        }
        self.declare_dead(&silent, &reason);
    }

    /// Tells all others, and ends the barriers that wait for these nodes.
    fn declare_dead(self: &Arc<Self>, dead: &[Member], reason: &str) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let living: Vec<_> = lock(scheduler).members.living().collect();
        let deaths = dead.iter().map(|member| Death {
            node: member.id,
            incarnation: member.incarnation,
            reason: reason.to_owned(),
        });
        let deaths: Vec<_> = deaths.collect();
        // First: once somebody is told and ends, this node may end before it has told the others.
        self.processes.declare(&deaths);
        let message = Control::Dead { deaths };
        for node in living {
            let connection = lock(&self.connections).get(&node).cloned();
            if let Some(connection) = connection {
                let _ = self.send_control(&connection, &message);
            }
        }
        for member in dead {
            self.coordinate(|coordinator| coordinator.died(member.id));
        }
        self.end_barriers();
        self.replace_dead();
    }

    /// Ends the barriers that wait for nodes that have died or left: they will not come.
    fn end_barriers(self: &Arc<Self>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let (servers, workers) = self.counts();
        let releases = {
            let mut scheduler = lock(scheduler);
            let gone = scheduler.members.gone(self.now());
            let mut barriers = std::mem::take(&mut scheduler.barriers);
            let of = |group| scheduler.members_of(group, (servers, workers));
            let releases = barriers.died(of, &gone);
            scheduler.barriers = barriers;
            releases
        };
        for release in releases {
            self.release(&release);
        }
    }

    pub(super) fn send_to(&self, nodes: &[NodeId], message: &Control) {
        for node in nodes {
            let connection = lock(&self.connections).get(node).cloned();
            if let Some(connection) = connection {
                let _ = self.send_control(&connection, message);
            }
        }
    }

    /// Handles a message of an elastic job as the scheduler. Gives back what is none.
    fn coordinator_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        message: Control,
    ) -> Option<Control> {
        let Some(peer) = connection.peer() else {
            return Some(message);
        };
        match message {
            Control::Ready { apps } => {
                self.log(1, || format!("{peer} is ready"));
                self.coordinate(|coordinator| coordinator.ready(peer, &apps));
            }
            Control::Report { report } => {
                if let Report::Failed { reason } = &report {
                    tracing::error!(%peer, reason, "a server has failed");
                }
                self.coordinate(|coordinator| coordinator.report(peer, &report));
            }
            Control::Load { loads } => {
                self.coordinate(|coordinator| coordinator.load(peer, &loads));
            }
            Control::Drain => self.coordinate(|coordinator| coordinator.drain(peer)),
            Control::Save { last } => {
                if let Some(scheduler) = &self.scheduler {
                    self.snapshot_asked(scheduler, peer, last);
                }
            }
            other => return Some(other),
        }
        None
    }

    /// Asks the coordinator, and does what it wants, in order.
    pub(super) fn coordinate(self: &Arc<Self>, ask: impl FnOnce(&mut Coordinator) -> Vec<Action>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let mut scheduler = lock(scheduler);
        let Some(coordinator) = &mut scheduler.coordinator else {
            return;
        };
        let actions = ask(coordinator);
        // Servers first, so that they know the map before requests by it come.
        let mut living: Vec<_> = scheduler.members.living().collect();
        living.sort_by_key(|node| (node.role() == Some(Role::Worker), *node));
        for action in actions {
            match action {
                Action::Publish(map) => {
                    self.log(1, || format!("range map {}", map.version));
                    self.send_to(&living, &Control::Map { map });
                }
                Action::Order { to, order } => {
                    self.log(1, || format!("{to}: {order:?}"));
                    if matches!(order, Order::Load { .. }) {
                        self.send_to(&living, &Control::Loading { loads: true });
                    }
                    self.send_to(&[to], &Control::Order { order });
                }
                Action::Drained(node) => {
                    self.log(1, || format!("{node} is drained"));
                    self.send_to(&[node], &Control::Drained);
                }
                Action::DrainRefused { node, reason } => {
                    self.log(1, || format!("{node} must not leave: {reason}"));
                    self.send_to(&[node], &Control::DrainRefused { reason });
                }
                Action::Accept(node) => self.send_to(&[node], &Control::Accepted),
                Action::Refuse { node, reason } => {
                    tracing::warn!(%node, reason, "a server cannot take part");
                    self.send_to(&living, &Control::Loading { loads: false });
                    self.send_to(&[node], &Control::Refused { reason });
                }
                Action::Saved { number, ranges } => {
                    self.complete_snapshot(&scheduler, number, Ok(ranges));
                }
                Action::NotSaved { number, reason } => {
                    self.complete_snapshot(&scheduler, number, Err(reason));
                }
                Action::Note(text) => {
                    tracing::warn!("{text}");
                    self.log(1, || text.clone());
                }
            }
        }
    }

    /// Whether another node is there. Only the scheduler knows.
    pub(crate) fn has_others(&self) -> bool {
        let scheduler = self.scheduler.as_ref();
        scheduler.is_some_and(|scheduler| lock(scheduler).members.living().next().is_some())
    }

    /// The program of this node has nothing more to do.
    pub(crate) fn ends(&self) {
        if let Some(scheduler) = &self.scheduler {
            lock(scheduler).ends = true;
        }
    }
}
