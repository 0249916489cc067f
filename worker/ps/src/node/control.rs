//! Control messages between a node and the scheduler, and the end of a connection.

use serde::{Deserialize, Serialize};

use crate::core::{
    elastic::{
        balance::RangeLoad,
        map::{App, ChainMap},
        message::{Order, Report},
    },
    membership::{Member, Newcomer},
    node::{Group, NodeId},
};

/// A control message. JSON, so that an unknown field of a later release is no error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Control {
    /// A node wants to take part.
    Register(Newcomer),
    /// It cannot.
    Refused { reason: String },
    /// All nodes are there.
    Roster {
        id: NodeId,
        servers: u32,
        workers: u32,
        members: Vec<Member>,
        /// Whether the others have met already, so that this node does not wait for them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// Nodes that have come since: further ones of an elastic job, or some in the place of dead ones.
    Members { members: Vec<Member> },
    /// An elastic server is ready to serve.
    Ready { apps: Vec<App> },
    /// It takes part.
    Accepted,
    /// The range map of an elastic job.
    Map { map: ChainMap },
    /// What an elastic server has to do.
    Order { order: Order },
    /// What it has done.
    Report { report: Report },
    /// How its ranges were used.
    Load { loads: Vec<RangeLoad> },
    /// It wants to leave.
    Drain,
    /// It may.
    Drained,
    /// It must not.
    DrainRefused { reason: String },
    /// Servers load a snapshot, so the first map may take any time. `loads` is false if they cannot.
    Loading { loads: bool },
    /// A worker asks for a snapshot; `last` once it has finished: then all must have asked.
    Save { last: bool },
    /// The snapshot is there, or has failed. 0 if there is none.
    SaveEnded {
        number: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A node has arrived at a barrier.
    Barrier { group: Group },
    /// All have, or some are dead.
    Released {
        group: Group,
        number: u64,
        dead: Vec<NodeId>,
        /// Losses that explain why nodes have ended.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        because: Vec<Death>,
    },
    /// A sign of life. The scheduler answers with the same.
    Heartbeat,
    /// These nodes are dead.
    Dead { deaths: Vec<Death> },
    /// A server of an elastic job sends its answers to this worker over this connection from now on. Those over an earlier one may be
    /// lost.
    Opened,
    /// This node ends. It knows of these deaths, which may be the reason.
    Bye {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        deaths: Vec<Death>,
        /// Losses that explain why it ends. They may be its own alone, so others do not act on them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        because: Vec<Death>,
        /// Whether all nodes have met before.
        #[serde(default)]
        finished: bool,
    },
}

/// The end of a node without a goodbye.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Death {
    pub(crate) node: NodeId,
    /// Which process of that id.
    #[serde(default)]
    pub(crate) incarnation: u16,
    pub(crate) reason: String,
}
