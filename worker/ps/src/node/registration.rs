//! Who takes part: the scheduler registers nodes, at the start and later.

use std::{sync::Arc, time::Duration};

use super::{Control, Death, Node, Scheduler, lock};
use crate::{
    core::{
        membership::Newcomer,
        node::{ALL_NODES, NodeId, Role, SCHEDULER},
    },
    net::Connection,
};

/// A process for which there is no place yet.
#[derive(Debug)]
pub(super) struct Candidate {
    connection: Arc<Connection>,
    newcomer: Newcomer,
    /// When it is refused.
    until: Duration,
}

impl Node {
    /// A node wants to take part.
    pub(super) fn registers(self: &Arc<Self>, connection: &Arc<Connection>, newcomer: Newcomer) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let now = self.now();
        let mut guard = lock(scheduler);
        let reason = match guard.members.join(newcomer, now) {
            Ok(id) => {
                drop(guard);
                return self.take_in(connection, id);
            }
            Err(error) => error.to_string(),
        };
        // A node that is started again may be faster than the news of its death.
        if !self.options.replace_timeout.is_zero() && self.roster.get().is_some() {
            let until = now + self.options.heartbeat_timeout;
            let connection = Arc::clone(connection);
            return guard.candidates.push(Candidate {
                connection,
                newcomer,
                until,
            });
        }
        drop(guard);
        let _ = self.send_control(connection, &Control::Refused { reason });
    }

    /// Nodes have died: somebody may wait for their places.
    pub(super) fn replace_dead(self: &Arc<Self>) {
        self.take_candidates(|_| false);
    }

    /// Refuses processes for which no place became free. One that wanted a certain rank may have another one now.
    pub(super) fn refuse_those_that_wait(self: &Arc<Self>) {
        let now = self.now();
        let over = self.take_candidates(|candidate| candidate.until <= now);
        for candidate in over {
            let reason = "nobody has died whose place it could take".to_owned();
            let _ = self.send_control(&candidate.connection, &Control::Refused { reason });
        }
    }

    /// Takes in those for whom there is a place, and removes and returns those whose time is over.
    fn take_candidates(self: &Arc<Self>, is_over: impl Fn(&Candidate) -> bool) -> Vec<Candidate> {
        let (mut taken, mut over) = (Vec::new(), Vec::new());
        let Some(scheduler) = &self.scheduler else {
            return over;
        };
        {
            let now = self.now();
            let mut guard = lock(scheduler);
            for candidate in std::mem::take(&mut guard.candidates) {
                let mut newcomer = candidate.newcomer;
                if is_over(&candidate) {
                    newcomer.rank = None;
                }
                match guard.members.join(newcomer, now) {
                    Ok(id) => taken.push((candidate, id)),
                    Err(_) if is_over(&candidate) => over.push(candidate),
                    Err(_) => guard.candidates.push(candidate),
                }
            }
        }
        for (candidate, id) in taken {
            self.take_in(&candidate.connection, id);
        }
        over
    }

    /// A process that has no place has ended.
    pub(super) fn candidate_left(&self, connection: &Arc<Connection>) {
        if let Some(scheduler) = &self.scheduler {
            let candidates = &mut lock(scheduler).candidates;
            candidates.retain(|candidate| !Arc::ptr_eq(&candidate.connection, connection));
        }
    }

    /// Tells a node its id, and all others that have to know.
    fn take_in(self: &Arc<Self>, connection: &Arc<Connection>, id: NodeId) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let Some(member) = lock(scheduler).members.member(id) else {
            return;
        };
        let (process, address) = ((id, member.incarnation), member.address);
        self.came_back(process, Some(address));
        connection.set_peer(id, member.incarnation);
        lock(&self.connections).insert(id, Arc::clone(connection));
        lock(&self.strangers).retain(|stranger| !Arc::ptr_eq(stranger, connection));
        let (servers, workers) = {
            let mut scheduler = lock(scheduler);
            let is_worker = id.role() == Some(Role::Worker);
            let snapshots = scheduler.snapshots.as_mut().filter(|_| is_worker);
            snapshots
                .into_iter()
                .for_each(|it| it.schedule.worker_came());
            scheduler.members.awaited()
        };
        self.log(1, || {
            format!("{id} is at {address}; {servers} servers and {workers} workers are missing")
        });
        self.admit(id, connection);
        // Its receiving thread may have come to the end before it knew who it is.
        let is_open = lock(&self.open)
            .iter()
            .any(|open| Arc::ptr_eq(open, connection));
        if !is_open {
            let reason = "it closed the connection";
            self.lose(process, reason);
            self.disconnected(process, reason);
        }
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
        self.set_roster(SCHEDULER, (servers, workers), &members, false);
        let connections = lock(&self.connections).clone();
        for (id, connection) in connections {
            let members = members.clone();
            let roster = Control::Roster {
                id,
                servers,
                workers,
                members,
                late: false,
            };
            let _ = self.send_control(&connection, &roster);
        }
    }

    /// A node has registered.
    fn admit(self: &Arc<Self>, id: NodeId, connection: &Arc<Connection>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        if self.roster.get().is_none() {
            self.send_roster();
            if self.processes.incarnation(id) > 0 {
                self.tell_others(&lock(scheduler), id);
            }
            return;
        }
        // The job runs already.
        let (servers, workers) = self.counts();
        let mut guard = lock(scheduler);
        guard.barriers.admit(id);
        let late = guard.barriers.has_met(ALL_NODES);
        let members = guard.members.all();
        let roster = Control::Roster {
            id,
            servers,
            workers,
            members: members.clone(),
            late,
        };
        let _ = self.send_control(connection, &roster);
        if guard.coordinator.is_none() {
            let deaths = guard.members.dead().into_iter().map(|member| Death {
                node: member.id,
                incarnation: member.incarnation,
                reason: "it died before this node came".to_owned(),
            });
            let deaths: Vec<_> = deaths.collect();
            if !deaths.is_empty() {
                let _ = self.send_control(connection, &Control::Dead { deaths });
            }
        }
        if let Some(coordinator) = &guard.coordinator {
            if let Some(map) = coordinator.map() {
                let _ = self.send_control(connection, &Control::Map { map: map.clone() });
            }
            if coordinator.is_loading() {
                let _ = self.send_control(connection, &Control::Loading { loads: true });
            }
        }
        self.log(1, || format!("{id} has come later"));
        if let (Some(elastic), Some(member)) = (&self.elastic, guard.members.member(id)) {
            elastic.add_address(&member);
        }
        self.tell_others(&guard, id);
    }

    /// Tells the others of a node that has come after them.
    fn tell_others(&self, scheduler: &Scheduler, id: NodeId) {
        let others = scheduler.members.living().filter(|node| *node != id);
        let members = scheduler.members.member(id).into_iter().collect();
        self.send_to(&others.collect::<Vec<_>>(), &Control::Members { members });
    }
}
