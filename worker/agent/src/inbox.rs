//! The messages of the agent's own tasks and threads to its loop.

use elasticrun_core::agent::Copied;
use elasticrun_protocol::{HostId, Process};

use crate::{
    durable::{Found, Written},
    local::AttachRequest,
    process::Started,
    redial::Dialled,
};

/// A message to the loop.
#[derive(Debug)]
pub(crate) enum InboxMessage {
    /// A process asks at the Unix socket to attach as a worker.
    Attach(Box<AttachRequest>),
    /// A dial for the driver has had a result.
    Dialled(Dialled),
    /// A process was started, or could not be.
    Started {
        /// The process.
        process: Process,
        /// Its descriptors, or an error for users.
        result: Result<Started, String>,
    },
    /// Hosts were dialled ([`crate::probe`]).
    Probed {
        /// The number of the probe.
        number: u64,
        /// The hosts that did not answer.
        unreachable: Vec<HostId>,
    },
    /// Commits cannot be written to the durable store: an error for the operator.
    DurableUnusable(String),
    /// A write to the durable store has ended: a complete commit, none without a state, or an error for the operator.
    DurableEnded(Result<Option<Written>, String>),
    /// The durable store is listed.
    DurableFound {
        /// The number of the command.
        number: u64,
        /// What it holds.
        found: Found,
    },
    /// A load from the durable store has ended: the memory of the process has the commit, or an error for the operator.
    DurableLoaded {
        /// The number of the command.
        number: u64,
        /// The process, which never lived.
        process: Process,
        /// Whether its memory has the commit.
        result: Result<(), String>,
    },
    /// A copy of a commit of another host has ended.
    Copied {
        /// The process, which never lived.
        process: Process,
        /// The result.
        copied: Copied,
    },
    /// All output of an ended process has been read.
    OutputEnded {
        /// The process.
        process: Process,
        /// Its last lines.
        tail: Vec<String>,
    },
}
