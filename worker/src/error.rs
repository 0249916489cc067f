//! Why a worker cannot continue, in this round or at all.

use std::io;

pub use elasticrun_core::worker::Interrupt;
use elasticrun_core::worker::{Ended, Over};
use elasticrun_protocol::control::StopReason;

use crate::state;

/// Why a call of the SDK failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The round is over. Pass this error on to [`crate::run`]; do not report it.
    #[error(transparent)]
    Interrupted(#[from] Interrupt),
    /// The job continues without this process. The exit code of the process does not count as a
    /// failure.
    #[error(
        "this worker's slot is no longer part of the job (its rank is -1): the process can end"
    )]
    Removed,
    /// The process was told to end.
    #[error("this worker was told to stop: {}", why_stopped(*.why))]
    Stopped {
        /// The reason.
        why: StopReason,
    },
    /// The agent is gone, and the job with it.
    #[error("the agent of this host is gone ({why}): the process must end")]
    AgentLost {
        /// The error of the connection.
        why: String,
    },
    /// A variable that the agent sets has an invalid value.
    #[error(
        "{name}={value:?} is not what an elasticrun agent sets: start this program by `elasticrun`, or unset it to run alone"
    )]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The agent refused this process.
    #[error("the agent refused this process: {why}")]
    Refused {
        /// The agent's reason.
        why: String,
    },
    /// The agent broke the protocol of this release.
    #[error(
        "the agent's messages cannot be understood ({why}): run agent and worker of the same release"
    )]
    Protocol {
        /// The violation.
        why: String,
    },
    /// A system call that the SDK needs failed.
    #[error("cannot {what}")]
    System {
        /// What the SDK tried to do.
        what: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// The memory for commits failed.
    #[error("cannot commit")]
    Commit(#[from] elasticrun_shm::commit::Error),
    /// Saving the state failed.
    #[error("the state could not be saved")]
    Save(#[source] io::Error),
    /// The states of the workers do not fit together.
    #[error("the workers of the round do not agree")]
    Agree(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Restoring the state failed.
    #[error("the state could not be restored")]
    Restore(#[from] state::Error),
    /// A collective was called wrongly, here or on another worker.
    #[error(transparent)]
    Collective(elasticrun_collectives::Error),
    /// The members do not begin the round with the same call.
    #[error(
        "the workers do not start a round alike: run one script with one release of elasticrun on all hosts"
    )]
    StartMismatch(#[source] elasticrun_collectives::Error),
    /// The bytes of the base arrived damaged.
    #[error(
        "the state of commit {id} came damaged from {from}: the worker ends and a new one takes its place"
    )]
    Damaged {
        /// The commit.
        id: elasticrun_protocol::CommitId,
        /// The sender.
        from: &'static str,
    },
    /// Neither this host nor another holds a shard of the commit that the round begins with.
    #[error(
        "shard {shard} of commit {id} is not where the driver saw it: the worker ends and a new one takes its place"
    )]
    ShardMissing {
        /// The commit.
        id: elasticrun_protocol::CommitId,
        /// The shard.
        shard: u32,
    },
    /// The base is a whole state, and the state of this process is divided among workers.
    #[error(
        "commit {id}, from which the job continues, is not divided among workers, and the state of this worker is: do all \
         workers run the same program?"
    )]
    NotDivided {
        /// The commit.
        id: elasticrun_protocol::CommitId,
    },
    /// The base is divided among workers, and the state of this process is whole.
    #[error(
        "commit {id}, from which the job continues, is divided among workers, and the state of this worker is not: do all \
         workers run the same program?"
    )]
    Divided {
        /// The commit.
        id: elasticrun_protocol::CommitId,
    },
    /// The state of this process is divided among workers, and the job has no replica groups.
    #[error(
        "a state that is divided among workers needs replica groups: start the job with --replica-group-size all"
    )]
    NoReplicaGroups,
    /// [`crate::run`] was called before. A process is a worker once.
    #[error(
        "run() was called before in this process or in the one that it was forked from: call it once, for all that is to be trained"
    )]
    RunTwice,
    /// The key-value store refused a request or failed.
    #[error(transparent)]
    Store(#[from] elasticrun_protocol::store::Refused),
    /// This process is a forked child of a worker.
    #[error(
        "this process was forked from a worker, which alone can reach the store of the job: call it there"
    )]
    Forked,
    /// A call that belongs inside a round was made outside of one, or the reverse.
    #[error("cannot {what}: this process is not at that point of a round")]
    OutOfRound {
        /// What the caller tried to do.
        what: &'static str,
    },
    /// Fetching the base from the host that keeps it failed several times.
    #[error("cannot fetch the state of commit {id} from {address}: do the hosts reach each other?")]
    Fetch {
        /// The commit.
        id: elasticrun_protocol::CommitId,
        /// The agent that keeps it.
        address: std::net::SocketAddr,
        /// The last error.
        source: io::Error,
    },
    /// Neither a member of the round nor another process holds the commit that the round begins
    /// with.
    #[error(
        "the state of commit {id} is not where the driver saw it: the worker ends and a new one takes its place"
    )]
    BaseMissing {
        /// The commit.
        id: elasticrun_protocol::CommitId,
    },
}

impl Error {
    /// Wraps a system error, for `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// The error of a worker that was told to stop.
    pub(crate) fn stopped(why: StopReason) -> Self {
        match why {
            StopReason::Removed => Self::Removed,
            why => Self::Stopped { why },
        }
    }

    /// A call that belongs inside a round was made outside of one.
    pub(crate) const NO_ROUND: Self = Self::OutOfRound {
        what: "commit, sync, use the round's store or come to a boundary outside of a round",
    };

    /// Whether the process was told to end. The job continues without it or is over, nothing is
    /// wrong here, and the exit code does not count.
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Removed | Self::Stopped { .. })
    }

    /// The interrupt, if it is one.
    pub fn interrupt(&self) -> Option<Interrupt> {
        match self {
            Self::Interrupted(interrupt) => Some(*interrupt),
            _ => None,
        }
    }
}

impl From<Ended> for Error {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Stopped(why) => Self::stopped(why),
            Ended::AgentLost(why) => Self::AgentLost { why },
        }
    }
}

impl From<Over> for Error {
    fn from(over: Over) -> Self {
        match over {
            Over::Interrupted(interrupt) => interrupt.into(),
            Over::Ended(ended) => ended.into(),
            Over::OutOfRound => Self::NO_ROUND,
        }
    }
}

fn why_stopped(why: StopReason) -> &'static str {
    match why {
        StopReason::Removed => "its slot is no longer part of the job",
        StopReason::DomainFailed => "its host or slot has failed and is not used any more",
        StopReason::TimedOut => "it did not come back or did not start in time",
        StopReason::JobEnded => "the job is over",
    }
}
