//! Why a round is formed, in the words that a person reads.

use elasticrun_protocol::{HostId, Process};

/// Why a round is formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is the first.
    First,
    /// A worker failed.
    WorkerFailed {
        /// Its host.
        host: HostId,
        /// Slot and start.
        process: Process,
    },
    /// A host failed.
    HostFailed {
        /// Which one.
        host: HostId,
    },
    /// Workers lost a peer that nobody else misses.
    PeerLost {
        /// The host of the first that said so.
        host: HostId,
    },
    /// Workers are there that can be added.
    Added,
    /// Slots are gone or draining.
    Removed,
    /// Both.
    Mixed,
    /// All workers had failed by themselves.
    Restart,
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
        }
    }
}
