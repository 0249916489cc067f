//! Events of a worker and the commands that follow at once.

use elasticrun_protocol::{
    CommitId, DriverEpoch, Rank, Round,
    control::{Member, Start, StopReason},
};

/// A round of the job, unique across drivers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RoundId {
    /// The driver that started it.
    pub epoch: DriverEpoch,
    /// Its number.
    pub round: Round,
}

impl RoundId {
    /// The commit of this round with this count; 0 is the state with which the round began.
    pub fn commit(self, count: u64) -> CommitId {
        CommitId {
            epoch: self.epoch,
            round: self.round,
            count,
        }
    }
}

impl From<&Start> for RoundId {
    fn from(start: &Start) -> Self {
        Self {
            epoch: start.epoch,
            round: start.round,
        }
    }
}

/// The start of a round that this process is a member of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundStart {
    /// The round, which is part of the ids of its commits.
    pub id: RoundId,
    /// The rank of this process.
    pub rank: Rank,
    /// The commit from which the round continues; `None` before the first commit of the job.
    pub base: Option<CommitId>,
    /// The location of the base.
    pub source: BaseSource,
}

impl RoundStart {
    /// The part of the driver's start command that concerns this member. `keeper_is_local` is whether the keeper of the
    /// base, if there is one, is a process of this host.
    pub fn new(start: &Start, member: &Member, keeper_is_local: bool) -> Self {
        let source = match start.keeper {
            None => BaseSource::None,
            Some(_) if keeper_is_local => BaseSource::SameHost,
            Some(_) => BaseSource::OtherHost,
        };
        Self {
            id: start.into(),
            rank: member.place.rank,
            base: start.base,
            source,
        }
    }
}

/// The location of the base for a rank 0 that does not hold it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaseSource {
    /// There is no keeper.
    None,
    /// A process of this host, which may be dead.
    SameHost,
    /// The agent of another host.
    OtherHost,
}

/// What happened to a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The agent starts a round with this process.
    Started(RoundStart),
    /// A round is over.
    Aborted {
        /// The round. Older ones are over as well.
        round: Round,
    },
    /// There will be no further round.
    Ended(Ended),
    /// Hosts of the newest round do not answer this process.
    HostsUnreachable {
        /// Their indices in the round.
        hosts: Vec<u32>,
    },
    /// An operation of a round was cut short in this process, or a call has returned that the round is over (W4).
    CutShort {
        /// The round of the operation.
        id: RoundId,
    },
}

/// An action that the thread with the event must carry out at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Ends all waits in a round: collectives, transfers, calls of the store, boundaries.
    EndRound(RoundId),
    /// Ends all calls of the store: no further round will come.
    EndCalls(Ended),
}

/// Why no further round will come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The process was asked to stop.
    Stopped(StopReason),
    /// The agent is gone.
    AgentLost(String),
}

/// The round of this worker is over and another may follow; the SDK's `run` handles it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Interrupt {
    /// A worker of the round failed. Training goes on from the newest commit.
    #[error(
        "a worker of the round failed: return this error to run(), which continues from the newest commit"
    )]
    WorkersFailed,
    /// The job's hosts change. All workers stopped at this boundary, and it is committed.
    #[error(
        "the hosts of the job change: return this error to run(), which continues in the next round"
    )]
    HostsUpdated,
}

/// Why a request of the training thread is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Over {
    /// The round is over. The caller leaves it and joins the next one.
    Interrupted(Interrupt),
    /// No further round will come.
    Ended(Ended),
    /// The request is not valid at this point of a round.
    OutOfRound,
}
