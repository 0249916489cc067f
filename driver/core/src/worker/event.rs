//! What a worker hears from its agent, and what it must do at once.

use elasticrun_protocol::{
    CommitId, DriverEpoch, Rank, Round,
    control::{Member, Start, StopReason},
};

/// A round of the job, across drivers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RoundId {
    /// The driver that started it.
    pub epoch: DriverEpoch,
    /// Its number.
    pub round: Round,
}

impl RoundId {
    /// The commit of this round that is its `count`th; 0 is what the round began with.
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

/// A round that this process is a member of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundStart {
    /// Which one.
    pub id: RoundId,
    /// The rank of this process.
    pub rank: Rank,
    /// The commit that the round goes on from; `None` before the first commit of the job.
    pub base: Option<CommitId>,
    /// Where the base can be fetched.
    pub source: BaseSource,
}

impl RoundStart {
    /// What of the driver's order concerns this member. `keeper_is_local` says whether the process that keeps the base, if
    /// there is one, is of this host.
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

/// Who keeps the base of a round for a rank 0 that does not hold it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaseSource {
    /// Nobody.
    None,
    /// A process of this host, perhaps a dead one.
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
        /// Which one. Older ones are over as well.
        round: Round,
    },
    /// There will be no further round.
    Ended(Ended),
    /// Hosts of the newest round do not answer this process.
    HostsUnreachable {
        /// Their indices in the round.
        hosts: Vec<u32>,
    },
    /// An operation of a round was cut short in this process, or a call has said that the round is over (W4).
    CutShort {
        /// Which round.
        id: RoundId,
    },
}

/// What must be done at once, by the thread that handed in the event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Ends what waits in a round: collectives, transfers, calls of the store, boundaries.
    EndRound(RoundId),
    /// Ends all calls of the store: there will be no further round.
    EndCalls(Ended),
}

/// Why there will be no further round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The process was told to stop.
    Stopped(StopReason),
    /// The agent is gone.
    AgentLost(String),
}

/// The round of this worker is over and there may be a next one: the SDK's `run` sees to it.
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

/// Why a request of the training thread cannot be granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Over {
    /// The round is over: leave it, and join the next one.
    Interrupted(Interrupt),
    /// There will be no further round.
    Ended(Ended),
    /// The request does not belong to this point of a round.
    OutOfRound,
}
