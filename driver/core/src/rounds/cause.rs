//! The cause of a round, and its text for the operator.

use elasticrun_protocol::{HostId, Process};

/// The cause of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is the first round.
    First,
    /// A worker failed.
    WorkerFailed {
        /// The host on which the worker ran.
        host: HostId,
        /// Slot and start.
        process: Process,
    },
    /// A host failed.
    HostFailed {
        /// The host that failed.
        host: HostId,
    },
    /// Workers lost a peer, and no report of its death has come.
    PeerLost {
        /// The host of the first worker that reported it.
        host: HostId,
    },
    /// Workers can be added.
    Added,
    /// Slots are gone or draining.
    Removed,
    /// Workers can be added, and slots are gone or draining.
    Mixed,
    /// All workers failed by themselves.
    Restart,
    /// A later driver has taken over, and the round of the former one cannot go on.
    DriverReplaced,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::First => f.write_str("first round"),
            Self::WorkerFailed { host, process } => {
                write!(
                    f,
                    "worker failed ({host}, local rank {})",
                    process.local_rank
                )
            }
            Self::HostFailed { host } => write!(f, "host failed ({host})"),
            Self::PeerLost { host } => write!(f, "peer lost (seen by {host})"),
            Self::Added => f.write_str("workers added"),
            Self::Removed => f.write_str("slots removed"),
            Self::Mixed => f.write_str("workers added and slots removed"),
            Self::Restart => f.write_str("restart after all workers failed"),
            Self::DriverReplaced => f.write_str("driver replaced"),
        }
    }
}
