//! The messages of the agent's own tasks and threads to its loop.

use elasticrun_protocol::{HostId, Process};

use crate::{local::AttachRequest, process::Started, redial::Dialled};

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
    /// All output of an ended process has been read.
    OutputEnded {
        /// The process.
        process: Process,
        /// Its last lines.
        tail: Vec<String>,
    },
}
