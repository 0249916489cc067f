//! Who is in the job: ranks at registration, and who is dead. The scheduler keeps it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::node::{Group, NodeId, Role, SCHEDULER};

/// A node and where it accepts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The node.
    pub id: NodeId,
    /// Its address.
    pub address: SocketAddr,
    /// How many processes have had this id before: a dead node may be replaced under its id.
    #[serde(default, skip_serializing_if = "is_first")]
    pub incarnation: u16,
}

fn is_first(incarnation: &u16) -> bool {
    *incarnation == 0
}

/// What a node says of itself when it registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Newcomer {
    /// Its role.
    pub role: Role,
    /// Where it accepts connections.
    pub address: SocketAddr,
    /// The rank that it gets unless another node has it or, in an open job, has had it.
    pub rank: Option<u32>,
    /// How many workers there are, as it knows.
    pub workers: u32,
}

/// Why a registration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinError {
    /// All ranks of the role are taken.
    #[error("the job has its {count} {role}s already: does DMLC_NUM_{variable} say how many run?")]
    Full {
        /// The role.
        role: Role,
        /// How many there are.
        count: u32,
        /// The end of the variable's name.
        variable: &'static str,
    },
    /// A second scheduler.
    #[error("a scheduler runs at this address already")]
    SecondScheduler,
}

/// The nodes of a job. Times are durations since a start that the caller chooses.
#[derive(Debug)]
pub(crate) struct Membership {
    servers: u32,
    workers: u32,
    /// How many workers the barriers of an open job wait for: the number that the newest worker has given, without those that
    /// died since.
    expected: u32,
    members: BTreeMap<NodeId, Member>,
    last_seen: BTreeMap<NodeId, Duration>,
    left: BTreeSet<NodeId>,
    /// The dead, and when they died.
    dead: BTreeMap<NodeId, Duration>,
    /// How long barriers wait for a process in the place of a dead one. Zero: nobody takes it.
    patience: Duration,
    /// Whether further nodes may join. Ranks are never given twice then.
    open: bool,
}

impl Membership {
    /// A job with so many servers and workers.
    pub(crate) fn new(servers: u32, workers: u32) -> Self {
        Self {
            servers,
            workers,
            expected: workers,
            members: BTreeMap::new(),
            last_seen: BTreeMap::new(),
            left: BTreeSet::new(),
            dead: BTreeMap::new(),
            patience: Duration::ZERO,
            open: false,
        }
    }

    /// Barriers wait so long for a process in the place of a dead one.
    pub(crate) fn await_replacements(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// From now on further nodes may join than the job begins with.
    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Registers a node, and gives it the rank that it wants, or the next one of its role, or that of a dead node.
    ///
    /// # Errors
    /// The role has no rank left.
    pub(crate) fn join(&mut self, newcomer: Newcomer, now: Duration) -> Result<NodeId, JoinError> {
        let Newcomer { role, address, .. } = newcomer;
        let (count, variable, id): (_, _, fn(u32) -> NodeId) = match role {
            Role::Scheduler => return Err(JoinError::SecondScheduler),
            Role::Server => (self.servers, "SERVER", NodeId::server),
            Role::Worker => (self.workers, "WORKER", NodeId::worker),
        };
        let count_or_more = if self.open { u32::MAX / 4 } else { count };
        let wanted = newcomer.rank.filter(|rank| *rank < count_or_more).map(id);
        let is_free = |id: &NodeId| !self.members.contains_key(id);
        let replaces = !self.open && !self.patience.is_zero();
        let is_vacant = |id: &NodeId| replaces && self.dead.contains_key(id);
        // The place of a dead node is for whoever wants it, or wants none.
        let any_vacant = || {
            (0..count)
                .map(id)
                .find(is_vacant)
                .filter(|_| wanted.is_none())
        };
        let found = wanted
            .filter(|id| is_free(id) || is_vacant(id))
            .or_else(|| (0..count_or_more).map(id).find(is_free))
            .or_else(any_vacant);
        let id = found.ok_or(JoinError::Full {
            role,
            count,
            variable,
        })?;
        self.dead.remove(&id);
        let before = self.members.get(&id);
        let member = Member {
            id,
            address,
            incarnation: before.map_or(0, |before| before.incarnation.saturating_add(1)),
        };
        self.members.insert(id, member);
        self.last_seen.insert(id, now);
        if role == Role::Worker {
            self.expected = newcomer.workers;
        }
        Ok(id)
    }

    /// All members, once all have registered.
    pub(crate) fn roster(&self) -> Option<Vec<Member>> {
        let complete = self.awaited() == (0, 0);
        complete.then(|| self.members.values().copied().collect())
    }

    /// How many nodes have not registered: servers and workers.
    pub(crate) fn awaited(&self) -> (u32, u32) {
        let count = |role| {
            self.members
                .keys()
                .filter(|id| id.role() == Some(role))
                .count() as u32
        };
        (
            self.servers.saturating_sub(count(Role::Server)),
            self.workers.saturating_sub(count(Role::Worker)),
        )
    }

    /// A sign of life. A node that was declared dead stays so: others have acted on it.
    pub(crate) fn seen(&mut self, node: NodeId, now: Duration) {
        if let Some(last) = self.last_seen.get_mut(&node) {
            *last = now;
        }
    }

    /// A node has finished. Its silence is no death from now on.
    pub(crate) fn leave(&mut self, node: NodeId) {
        self.left.insert(node);
    }

    /// The connection to a process broke: a node, and how many others have had its id. Returns the node if this is its death.
    pub(crate) fn disconnected(
        &mut self,
        (node, incarnation): (NodeId, u16),
        now: Duration,
    ) -> Option<Member> {
        let died = (self.member(node)).is_some_and(|member| member.incarnation == incarnation)
            && !self.left.contains(&node)
            && !self.dead.contains_key(&node);
        if died {
            self.dead.insert(node, now);
            self.expect_no_more_than_live();
        }
        self.member(node).filter(|_| died)
    }

    /// Declares those dead that were silent for `timeout`, and returns them.
    pub(crate) fn expire(&mut self, now: Duration, timeout: Duration) -> Vec<Member> {
        let silent = self
            .last_seen
            .iter()
            .filter(|(_, seen)| **seen + timeout <= now);
        let silent: Vec<_> = silent
            .map(|(&node, _)| node)
            .filter(|node| !self.left.contains(node) && !self.dead.contains_key(node))
            .collect();
        self.dead.extend(silent.iter().map(|node| (*node, now)));
        if !silent.is_empty() {
            self.expect_no_more_than_live();
        }
        silent
            .into_iter()
            .filter_map(|node| self.member(node))
            .collect()
    }

    /// The nodes that have left, or have died and are not awaited any more: they come to no barrier.
    pub(crate) fn gone(&self, now: Duration) -> BTreeSet<NodeId> {
        let given_up = |died: &Duration| *died + self.patience <= now;
        let dead = self.dead.iter().filter(|(_, died)| given_up(died));
        let dead = dead.map(|(node, _)| *node);
        dead.chain(self.left.iter().copied()).collect()
    }

    /// Whether somebody may come in the place of a dead node.
    pub(crate) fn awaits_replacements(&self) -> bool {
        !self.patience.is_zero() && !self.dead.is_empty()
    }

    /// What is known of a node.
    pub(crate) fn member(&self, node: NodeId) -> Option<Member> {
        self.members.get(&node).copied()
    }

    /// The dead whose places are vacant.
    pub(crate) fn dead(&self) -> Vec<Member> {
        let dead = self.dead.keys();
        dead.filter_map(|node| self.member(*node)).collect()
    }

    /// All that have registered.
    pub(crate) fn all(&self) -> Vec<Member> {
        self.members.values().copied().collect()
    }

    /// Workers that die are not awaited, but the last of them: others will take its place.
    fn expect_no_more_than_live(&mut self) {
        self.expected = self.expected.min(self.living_workers().max(1));
    }

    fn living_workers(&self) -> u32 {
        self.living().filter(is_worker).count() as u32
    }

    /// The members of a group that are there, of a job in which nodes come and go. Nobody while workers are awaited and none has
    /// finished: servers that ended now would take the values with them.
    pub(crate) fn present(&self, group: Group) -> Vec<NodeId> {
        let awaits_workers =
            !self.left.iter().any(is_worker) && self.living_workers() < self.expected;
        if group.has(Role::Worker) && awaits_workers {
            return Vec::new();
        }
        let all = self.living().chain([SCHEDULER]);
        all.filter(|node| group.contains(*node)).collect()
    }

    /// The nodes that live, without the scheduler.
    pub(crate) fn living(&self) -> impl Iterator<Item = NodeId> {
        let members = self.members.keys().copied();
        members.filter(|node| {
            !self.dead.contains_key(node) && !self.left.contains(node) && *node != SCHEDULER
        })
    }
}

fn is_worker(node: &NodeId) -> bool {
    node.role() == Some(Role::Worker)
}

#[cfg(test)]
mod tests;
