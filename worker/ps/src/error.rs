//! Errors of the library, and what a server answers to a request that it refuses.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::core::{
    frame::FrameError,
    keys::KeyError,
    node::{Group, NodeId},
    ranges::KeyRange,
    slicer::SliceError,
};

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A variable or option is wrong.
    #[error("{0}")]
    Options(String),
    /// The port of the scheduler is in use.
    #[error(
        "the scheduler cannot listen on {address} ({reason}): choose another DMLC_PS_ROOT_PORT"
    )]
    PortTaken {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        reason: String,
    },
    /// A node accepted no connection in time.
    #[error("{node} at {address} accepted no connection within {waited:?} ({reason})")]
    Unreachable {
        /// The node.
        node: NodeId,
        /// Its address.
        address: SocketAddr,
        /// How long this node tried.
        waited: Duration,
        /// The last error.
        reason: String,
    },
    /// The scheduler does not take this node.
    #[error("the scheduler refused this node: {0}")]
    JoinRefused(String),
    /// The other end does not have the key of this node's job.
    #[error("{node} is not of this job: {reason}; all nodes need the same ELASTICRUN_PS_KEY")]
    Stranger {
        /// The node.
        node: NodeId,
        /// How it was noticed.
        reason: String,
    },
    /// Not all nodes came in time.
    #[error(
        "not all nodes came within {waited:?}: does a process for each of DMLC_NUM_SERVER and DMLC_NUM_WORKER run?"
    )]
    StartTimedOut {
        /// How long this node waited.
        waited: Duration,
    },
    /// The other end sent something that is no frame of this protocol.
    #[error("bad connection to {node}: {error}")]
    Protocol {
        /// The node. 0 if it is unknown.
        node: NodeId,
        /// What is wrong.
        error: FrameError,
    },
    /// A node died, or nothing was heard of it for the heartbeat timeout.
    #[error("lost {node}: {reason}")]
    NodeLost {
        /// The node.
        node: NodeId,
        /// How it was noticed.
        reason: String,
    },
    /// A request was not answered in time.
    #[error(
        "no answer of {} to request {timestamp} within {waited:?}",
        names(missing)
    )]
    TimedOut {
        /// The number of the request.
        timestamp: u64,
        /// The nodes that owe an answer.
        missing: Vec<NodeId>,
        /// How long this node waited.
        waited: Duration,
    },
    /// A barrier was not complete in time.
    #[error("the barrier of {group} was not complete within {waited:?}")]
    BarrierTimedOut {
        /// The group.
        group: Group,
        /// How long this node waited.
        waited: Duration,
    },
    /// A barrier waited for nodes that are dead.
    #[error("the barrier of {group} cannot be complete: lost {}", names(dead))]
    BarrierBroken {
        /// The group.
        group: Group,
        /// The dead nodes.
        dead: Vec<NodeId>,
    },
    /// More bytes wait for a connection than the limit, and it took none for too long.
    #[error("{queued} bytes wait to be sent to {node}, which took none for {waited:?}")]
    BackPressure {
        /// The node.
        node: NodeId,
        /// How much waits.
        queued: usize,
        /// How long this node waited.
        waited: Duration,
    },
    /// The arrays of a request do not belong together.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The parts of a slicer do not fit.
    #[error(transparent)]
    Slices(#[from] SliceError),
    /// A server refused a request.
    #[error("{node} refused the request: {refusal}")]
    Refused {
        /// The server.
        node: NodeId,
        /// Why.
        refusal: Refusal,
    },
    /// An answer does not fit its request.
    #[error("the answer of {node} does not fit the request: {reason}")]
    BadAnswer {
        /// The node.
        node: NodeId,
        /// What does not fit.
        reason: String,
    },
    /// There is no such node.
    #[error("this job has no {0}")]
    NoSuchNode(NodeId),
    /// The app and customer, or the app of a server, exist already.
    #[error(
        "app {app} with customer {customer} exists in this process already: choose another number"
    )]
    CustomerExists {
        /// The app.
        app: u32,
        /// The customer.
        customer: u32,
    },
    /// All servers that had these keys are dead.
    #[error("the values of keys {} to {} are lost: all their servers are dead", keys.first, keys.last)]
    KeysLost {
        /// The range.
        keys: KeyRange,
    },
    /// An elastic server must not leave.
    #[error("this server cannot leave: {0}")]
    DrainRefused(String),
    /// An elastic server had not handed over all that it has in time.
    #[error("this server still had values after {waited:?}: it has not left")]
    DrainTimedOut {
        /// How long it waited.
        waited: Duration,
    },
    /// No elastic server has begun to serve.
    #[error(
        "no elastic servers within {waited:?}: each server must start an ElasticServer if PS_ELASTIC=1"
    )]
    NoElasticServers {
        /// How long this node waited.
        waited: Duration,
    },
    /// A snapshot cannot be taken, or a job cannot begin with one.
    #[error("snapshots: {0}")]
    Snapshot(String),
    /// The request has not begun.
    #[error("request {0} has not begun")]
    NoSuchRequest(u64),
    /// This node has been finalized.
    #[error("this node has been finalized")]
    Finalized,
    /// A system call failed.
    #[error("{call} failed: {reason}")]
    System {
        /// The system call.
        call: &'static str,
        /// Its error.
        reason: String,
    },
}

/// How a connection ended. A process that is killed closes it, or resets it if it has not read everything.
pub(crate) fn end_of_connection(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => "it closed the connection".to_owned(),
        _ => format!("the connection broke: {error}"),
    }
}

fn names(nodes: &[NodeId]) -> String {
    let names: Vec<_> = nodes.iter().map(NodeId::to_string).collect();
    names.join(", ")
}

impl Error {
    /// The text of an error of a snapshot, for another node, which adds what it is about.
    pub(crate) fn snapshot_reason(&self) -> String {
        match self {
            Self::Snapshot(reason) => reason.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn io(call: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::System {
            call,
            reason: error.to_string(),
        }
    }
}

/// Why a server did not serve a request. A later release may add reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The server's program has not registered a handler in time.
    #[error(
        "no handler for app {app} was registered within {waited:?}: create a KvServer or SimpleApp with this number there"
    )]
    NoHandler {
        /// The app.
        app: u32,
        /// How long the request waited.
        waited: Duration,
    },
    /// The type of values differs.
    #[error("its values are {expected}, not {found}")]
    TypeDiffers {
        /// The type there.
        expected: String,
        /// The type in the request.
        found: String,
    },
    /// Keys, lens and values do not belong together, or do not fit the store.
    #[error("{0}")]
    BadRequest(String),
    /// The request was cut by another range map.
    #[error("it has version {version} of the range map")]
    OtherMap {
        /// The version there.
        version: u64,
    },
    /// A pull was held back for too long: its values would be staler than allowed.
    #[error(
        "{slowest} is at clock {clock} and was not at {needed} within {waited:?}: until then the values are too stale"
    )]
    Stale {
        /// The slowest worker.
        slowest: NodeId,
        /// Its clock.
        clock: u64,
        /// The clock that it must reach.
        needed: u64,
        /// How long the pull was held.
        waited: Duration,
    },
    /// The server does not serve these keys. The worker sends the request to the one that does.
    #[error("the keys are on another server by version {version} of the range map")]
    Moved {
        /// The version by which the request was sent.
        asked: u64,
        /// The version that says where.
        version: u64,
    },
    /// The server has not got the range map by which the request was cut.
    #[error("it has no range map of version {version} after {waited:?}")]
    NoMap {
        /// The version of the request.
        version: u64,
        /// How long it waited.
        waited: Duration,
    },
    /// The handler refused it.
    #[error("{0}")]
    Handler(String),
}
