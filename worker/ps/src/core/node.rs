//! Identities of nodes, and groups of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of the scheduler.
pub const SCHEDULER: NodeId = NodeId(1);
/// The group of the scheduler alone.
pub const SCHEDULER_GROUP: Group = Group(1);
/// The group of all servers.
pub const SERVER_GROUP: Group = Group(2);
/// The group of all workers.
pub const WORKER_GROUP: Group = Group(4);
/// The group of all nodes.
pub const ALL_NODES: Group = Group(7);

/// The first id that is not a group.
const FIRST: u32 = 8;

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Gives ranks, counts barriers, notices dead nodes.
    Scheduler,
    /// Keeps values.
    Server,
    /// Pushes and pulls values.
    Worker,
}

impl Role {
    /// The group of all nodes with this role.
    pub fn group(self) -> Group {
        match self {
            Self::Scheduler => SCHEDULER_GROUP,
            Self::Server => SERVER_GROUP,
            Self::Worker => WORKER_GROUP,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheduler => "scheduler",
            Self::Server => "server",
            Self::Worker => "worker",
        })
    }
}

/// The id of a node: 1 for the scheduler, `8 + 2 * rank` for a server, `9 + 2 * rank` for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The server with this rank.
    pub fn server(rank: u32) -> Self {
        Self(rank * 2 + FIRST)
    }

    /// The worker with this rank.
    pub fn worker(rank: u32) -> Self {
        Self(rank * 2 + FIRST + 1)
    }

    /// The role that the id says. `None` if it is the id of no node.
    pub fn role(self) -> Option<Role> {
        match self.0 {
            1 => Some(Role::Scheduler),
            id if id < FIRST => None,
            id if id % 2 == 0 => Some(Role::Server),
            _ => Some(Role::Worker),
        }
    }

    /// The rank among the nodes of its role.
    pub fn rank(self) -> u32 {
        self.0.saturating_sub(FIRST) / 2
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role() {
            Some(Role::Scheduler) => f.write_str("scheduler"),
            Some(role) => write!(f, "{role} {}", self.rank()),
            None => write!(f, "unknown node {}", self.0),
        }
    }
}

/// A sum of the masks 1 (scheduler), 2 (servers) and 4 (workers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Group(u32);

impl Group {
    /// The group with this mask. `None` unless the mask is between 1 and 7.
    pub fn from_mask(mask: u32) -> Option<Self> {
        (1..FIRST).contains(&mask).then_some(Self(mask))
    }

    /// The mask.
    pub fn mask(self) -> u32 {
        self.0
    }

    /// Whether nodes with this role are members.
    pub fn has(self, role: Role) -> bool {
        self.0 & role.group().0 != 0
    }

    /// Whether the node is a member.
    pub fn contains(self, node: NodeId) -> bool {
        node.role().is_some_and(|role| self.has(role))
    }

    /// All members, in ascending order of ids, of a job with so many servers and workers.
    pub fn node_ids(self, servers: u32, workers: u32) -> Vec<NodeId> {
        let mut ids = Vec::new();
        if self.has(Role::Scheduler) {
            ids.push(SCHEDULER);
        }
        if self.has(Role::Server) {
            ids.extend((0..servers).map(NodeId::server));
        }
        if self.has(Role::Worker) {
            ids.extend((0..workers).map(NodeId::worker));
        }
        ids.sort_unstable();
        ids
    }
}

impl std::ops::Add for Group {
    type Output = Self;

    /// The union.
    #[allow(
        clippy::suspicious_arithmetic_impl,
        reason = "a sum of groups has the members of both, each once"
    )]
    fn add(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Role::Scheduler, "scheduler"),
            (Role::Server, "servers"),
            (Role::Worker, "workers"),
        ];
        let members = names.iter().filter(|(role, _)| self.has(*role));
        for (index, (_, name)) in members.enumerate() {
            let separator = if index == 0 { "" } else { "+" };
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}

/// To whom a simple request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipients {
    /// One node.
    Node(NodeId),
    /// All members of a group, the sender too if it is one.
    Group(Group),
}

impl From<NodeId> for Recipients {
    fn from(node: NodeId) -> Self {
        Self::Node(node)
    }
}

impl From<Group> for Recipients {
    fn from(group: Group) -> Self {
        Self::Group(group)
    }
}

impl Recipients {
    /// The nodes, in a job with so many servers and workers.
    pub fn node_ids(self, servers: u32, workers: u32) -> Vec<NodeId> {
        match self {
            Self::Node(node) => vec![node],
            Self::Group(group) => group.node_ids(servers, workers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_ps_lite() {
        assert_eq!(NodeId::server(0), NodeId(8));
        assert_eq!(NodeId::worker(0), NodeId(9));
        assert_eq!(NodeId::server(3), NodeId(14));
        for rank in [0, 1, 299] {
            assert_eq!(NodeId::server(rank).role(), Some(Role::Server));
            assert_eq!(NodeId::worker(rank).role(), Some(Role::Worker));
            assert_eq!(NodeId::server(rank).rank(), rank);
            assert_eq!(NodeId::worker(rank).rank(), rank);
        }
        assert_eq!(SCHEDULER.role(), Some(Role::Scheduler));
        assert_eq!(NodeId(0).role(), None);
        assert_eq!(NodeId(7).role(), None);
    }

    #[test]
    fn groups_are_sums() {
        let both = SERVER_GROUP + WORKER_GROUP;
        assert_eq!(both.mask(), 6);
        assert_eq!(both + SCHEDULER_GROUP, ALL_NODES);
        assert_eq!(ALL_NODES.node_ids(2, 2), [1, 8, 9, 10, 11].map(NodeId));
        assert_eq!(both.node_ids(1, 2), [8, 9, 11].map(NodeId));
        assert!(both.contains(NodeId(8)) && !both.contains(SCHEDULER));
        assert_eq!(both.to_string(), "servers+workers");
        assert_eq!(Group::from_mask(0), None);
        assert_eq!(Group::from_mask(8), None);
        assert_eq!(
            Group::from_mask(5).map(|group| group.node_ids(9, 0)),
            Some(vec![SCHEDULER])
        );
    }
}
