//! Control messages between a node and the scheduler, and the end of a connection.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::core::{
    membership::Member,
    node::{Group, NodeId, Role},
};

/// A control message. JSON, so that an unknown field of a later release is no error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Control {
    /// A node wants to take part.
    Register { role: Role, address: SocketAddr },
    /// It cannot.
    Refused { reason: String },
    /// All nodes are there.
    Roster {
        id: NodeId,
        servers: u32,
        workers: u32,
        members: Vec<Member>,
    },
    /// A node has arrived at a barrier.
    Barrier { group: Group },
    /// All have, or some are dead.
    Released {
        group: Group,
        number: u64,
        dead: Vec<NodeId>,
    },
    /// A sign of life. The scheduler answers with the same.
    Heartbeat,
    /// These nodes are dead.
    Dead { nodes: Vec<NodeId>, reason: String },
    /// This node ends, and all is well.
    Bye,
}
