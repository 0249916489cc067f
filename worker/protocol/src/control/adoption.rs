//! The state of an agent that comes back to its run: what a driver needs to go on with its workers.
//!
//! The network broke, or a new driver has taken over. In both cases the agent has kept its workers, and registers with
//! an [`Adoption`]. A driver that cannot go on with them answers with [`Setup::adopted`](super::Setup::adopted) unset.
//! The agent then ends its workers and begins anew.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::AgentReport;
use super::{FromAgent, Kept, Member};
use crate::{CommitId, DriverEpoch, Process, Round};

/// What an agent that comes back has kept.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Adoption {
    /// The run that the workers belong to.
    pub run_id: String,
    /// The driver that the agent has obeyed last. A driver of an older epoch is not obeyed any more.
    pub epoch: DriverEpoch,
    /// The number of the newest report that a driver has acknowledged, 0 if there is none.
    pub acknowledged: u64,
    /// The processes that are not reaped yet. Their states include everything that `reports` says.
    pub workers: Vec<AdoptedWorker>,
    /// The last start of each slot. A command for that start or an older one is a repeat.
    pub starts: Vec<Process>,
    /// Rounds up to this one were planned or aborted here. A plan of such a round changes nothing.
    pub seen: Round,
    /// Holds of rounds up to this one were withdrawn. A hold of such a round changes nothing.
    pub released: Round,
    /// The round that was started last. `None` if no member here trains, has finished, or has an end that is not acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<AdoptedRound>,
    /// The commits of dead processes, and those of living ones.
    pub kept: Vec<Kept>,
    /// The newest cut of a divided state whose copies are complete, as the former driver has said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CommitId>,
    /// The parameter servers that run here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Process>,
    /// The reports that no driver has acknowledged, in the order of their numbers.
    pub reports: Vec<FromAgent>,
}

/// A process of an agent that comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdoptedWorker {
    /// Slot and start number.
    pub process: Process,
    /// How far it has come.
    pub phase: AdoptedPhase,
    /// It has attached, so it has the SDK and reads its lease.
    pub attached: bool,
    /// The round that it left when it came to `run()` last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Round>,
    /// The port of its data plane; 0 until it has joined.
    pub data_port: u16,
    /// The newest complete commit that it named when it came to `run()` last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// That commit is empty: the process keeps its state itself.
    pub empty: bool,
    /// It was asked to stop.
    pub stopping: bool,
}

/// The phase of a process of an agent that comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdoptedPhase {
    /// It has not reached `run()`.
    Starting,
    /// It waits at `run()`.
    Joined,
    /// It is a member of this round, which is not over as far as the agent knows.
    Training {
        /// The number of the round.
        round: Round,
    },
    /// Its round is over, and it is on its way to `run()`.
    Returning {
        /// The number of the round.
        round: Round,
    },
    /// It has returned from `run()`.
    Finished,
    /// It is dead or being killed, and its exit follows.
    Dying,
}

/// A round that trains on a host whose agent comes back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdoptedRound {
    /// The driver that started it; it is part of the ids of its commits.
    pub epoch: DriverEpoch,
    /// The number of the round.
    pub round: Round,
    /// The number of its members on all hosts.
    pub size: u32,
    /// The commit from which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<CommitId>,
    /// Its members on this host as they were started, with their ranks. Some may have ended since.
    pub members: Vec<Member>,
}

impl AdoptedRound {
    /// Whether each member holds a part of the state.
    pub fn is_divided(&self) -> bool {
        self.members.iter().any(|member| member.seat.is_some())
    }
}
