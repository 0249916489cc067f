//! Why a worker cannot go on: in this round, or at all.

use std::io;

pub use elasticrun_core::worker::Interrupt;
use elasticrun_core::worker::{Ended, Over};
use elasticrun_protocol::control::StopReason;

use crate::state;

/// Why a call of the SDK failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The round is over; an error to pass on to [`crate::run`] and not to report.
    #[error(transparent)]
    Interrupted(#[from] Interrupt),
    /// The job goes on without this process. Whatever its exit code, it is no failure.
    #[error(
        "this worker's slot is no longer part of the job (its rank is -1): the process can end"
    )]
    Removed,
    /// The process was told to end.
    #[error("this worker was told to stop: {}", why_stopped(*.why))]
    Stopped {
        /// Why.
        why: StopReason,
    },
    /// There is no agent any more, so there is no job either.
    #[error("the agent of this host is gone ({why}): the process must end")]
    AgentLost {
        /// What the connection said.
        why: String,
    },
    /// A variable that the agent sets is not what an agent sets.
    #[error(
        "{name}={value:?} is not what an elasticrun agent sets: start this program by `elasticrun`, or unset it to run alone"
    )]
    Environment {
        /// The variable.
        name: &'static str,
        /// What it holds.
        value: String,
    },
    /// The agent did not let this process in.
    #[error("the agent refused this process: {why}")]
    Refused {
        /// What it said.
        why: String,
    },
    /// The agent did not speak as an agent of this release does.
    #[error(
        "the agent's messages cannot be understood ({why}): run agent and worker of the same release"
    )]
    Protocol {
        /// What was wrong.
        why: String,
    },
    /// The system refused something that the SDK needs.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The memory for commits.
    #[error("cannot commit")]
    Commit(#[from] elasticrun_shm::commit::Error),
    /// The state did not write itself.
    #[error("the state could not be saved")]
    Save(#[source] io::Error),
    /// The states of the workers do not fit together.
    #[error("the workers of the round do not agree")]
    Agree(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The state did not read itself.
    #[error("the state could not be restored")]
    Restore(#[from] state::Error),
    /// A collective was called wrongly, here or on another worker.
    #[error(transparent)]
    Collective(elasticrun_collectives::Error),
    /// The bytes of the base did not come over whole.
    #[error(
        "the state of commit {id} came damaged from {from}: the worker ends and a new one takes its place"
    )]
    Damaged {
        /// Which commit.
        id: elasticrun_protocol::CommitId,
        /// From whom.
        from: &'static str,
    },
    /// [`crate::run`] has returned before: a process is a worker once.
    #[error(
        "run() was called before in this process or in the one that it was forked from: call it once, for all that is to be trained"
    )]
    RunTwice,
    /// The key-value store did not do what it was asked for.
    #[error(transparent)]
    Store(#[from] elasticrun_protocol::store::Refused),
    /// This process is a child of a worker and not one itself.
    #[error(
        "this process was forked from a worker, which alone can reach the store of the job: call it there"
    )]
    Forked,
    /// A call that is made within a round came outside of one, or the other way round.
    #[error("cannot {what}: this process is not at that point of a round")]
    OutOfRound {
        /// What was tried.
        what: &'static str,
    },
    /// The base could not be fetched from the host that keeps it, several times.
    #[error("cannot fetch the state of commit {id} from {address}: do the hosts reach each other?")]
    Fetch {
        /// Which commit.
        id: elasticrun_protocol::CommitId,
        /// The agent that keeps it.
        address: std::net::SocketAddr,
        /// What went wrong the last time.
        source: io::Error,
    },
    /// No member of the round has the commit that the round begins with, nor is it kept elsewhere.
    #[error(
        "the state of commit {id} is not where the driver saw it: the worker ends and a new one takes its place"
    )]
    BaseMissing {
        /// Which commit.
        id: elasticrun_protocol::CommitId,
    },
}

impl Error {
    /// For `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// What a worker told to stop returns.
    pub(crate) fn stopped(why: StopReason) -> Self {
        match why {
            StopReason::Removed => Self::Removed,
            why => Self::Stopped { why },
        }
    }

    /// A call that belongs to a round came outside of one.
    pub(crate) const NO_ROUND: Self = Self::OutOfRound {
        what: "commit, sync, use the round's store or come to a boundary outside of a round",
    };

    /// Whether the process was told to end: the job goes on without it or is over, nothing is wrong here, and the
    /// exit code does not count.
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
