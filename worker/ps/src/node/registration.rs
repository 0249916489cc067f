//! Who takes part: the scheduler registers nodes, at the start and later.

use std::{sync::Arc, time::Duration};

use super::{Control, Node, Scheduler, lock};
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
        let reason = match self.join(connection, newcomer) {
            Ok(()) => return,
            Err(reason) => reason,
        };
        // A node that is started again may be faster than the news of its death.
        if !self.options.replace_timeout.is_zero() && self.roster.get().is_some() {
            let until = self.now() + self.options.heartbeat_timeout;
            lock(scheduler).candidates.push(Candidate {
                connection: Arc::clone(connection),
                newcomer,
                until,
            });
            return;
        }
        let _ = self.send_control(connection, &Control::Refused { reason });
    }

    /// Nodes have died: somebody may wait for their places.
    pub(super) fn replace_dead(self: &Arc<Self>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let candidates = std::mem::take(&mut lock(scheduler).candidates);
        for candidate in candidates {
            if self
                .join(&candidate.connection, candidate.newcomer)
                .is_err()
            {
                lock(scheduler).candidates.push(candidate);
            }
        }
    }

    /// Refuses processes for which no place became free.
    pub(super) fn refuse_those_that_wait(self: &Arc<Self>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let now = self.now();
        let over: Vec<_> = {
            let candidates = &mut lock(scheduler).candidates;
            candidates.extract_if(.., |it| it.until <= now).collect()
        };
        for candidate in over {
            if let Err(reason) = self.join(&candidate.connection, candidate.newcomer) {
                let _ = self.send_control(&candidate.connection, &Control::Refused { reason });
            }
        }
    }

    /// Gives a node its id, and tells all that have to know.
    fn join(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        newcomer: Newcomer,
    ) -> Result<(), String> {
        let Some(scheduler) = &self.scheduler else {
            return Ok(());
        };
        let address = newcomer.address;
        let (id, incarnation) = {
            let members = &mut lock(scheduler).members;
            let id = members
                .join(newcomer, self.now())
                .map_err(|error| error.to_string())?;
            (id, members.member(id).map_or(0, |it| it.incarnation))
        };
        self.came_back(id, incarnation, Some(address));
        connection.set_peer(id, incarnation);
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
        Ok(())
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
            if self.incarnations.of(id) > 0 {
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
