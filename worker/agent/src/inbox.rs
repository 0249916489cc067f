//! What the agent's own tasks and threads tell its loop.

use elasticrun_protocol::{HostId, Process};

use crate::{local::Knock, process::Started};

/// A note to the loop.
#[derive(Debug)]
pub(crate) enum Note {
    /// A process says at the Unix socket that it is a worker.
    Knock(Box<Knock>),
    /// A process was started, or why not.
    Started {
        /// Which one.
        process: Process,
        /// Its descriptors, or what to tell people.
        result: Result<Started, String>,
    },
    /// Hosts were dialled ([`crate::probe`]).
    Probed {
        /// Which probe.
        number: u64,
        /// Those that did not answer.
        unreachable: Vec<HostId>,
    },
    /// All that a dead process wrote has been read.
    OutputEnded {
        /// Which one.
        process: Process,
        /// Its last lines.
        tail: Vec<String>,
    },
}
