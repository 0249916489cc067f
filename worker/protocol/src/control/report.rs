//! What an agent reports to the driver.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{AgentCommand, Setup, Start};
use super::{CutShard, Exit, Notice, StoredCommit};
use crate::{Boundary, CommitId, CommitKey, DriverEpoch, HostId, Process, Round, Shard, millis};

/// A report of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FromAgent {
    /// The driver that the agent obeys.
    pub epoch: DriverEpoch,
    /// Counts the reports of this agent, from 1, over all its connections to drivers of a run.
    pub number: u64,
    /// The report. A driver with another epoch rejects it.
    pub report: AgentReport,
}

/// The reports of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentReport {
    /// A process has attached to its agent, so it has the SDK. Only if [`Setup::groups`] is set.
    Attached {
        /// The process, by slot and start.
        process: Process,
    },
    /// A port that was free and was never reported before, for a coordinator of the user's library. Sent before each
    /// [`AgentReport::Exited`], if [`Setup::groups`] is set.
    FreePort {
        /// The port, on the host of the agent.
        port: u16,
    },
    /// Workers have reached `run()`, or returned to it, and no plan is known to include them.
    Waiting {
        /// The workers, with the ports of their data planes.
        workers: Vec<Waiting>,
    },
    /// All members of this round on this host are at `run()`.
    Ready {
        /// The number of the planned round.
        round: Round,
        /// The commit of each member.
        members: Vec<Held>,
        /// Commits that the host's memory holds of other processes, dead or alive.
        kept: Vec<Kept>,
        /// A port that was free, for a coordinator of the user's library.
        free_port: u16,
    },
    /// The hold words are set. The report has the largest boundary that any worker of this host has reached.
    #[serde(rename = "counted")]
    BoundaryCounted {
        /// The number of the round.
        round: Round,
        /// The largest boundary that any worker of this host has reached.
        highest: Boundary,
    },
    /// A worker has returned from a round that was not aborted, because it lost a peer.
    #[serde(rename = "broken")]
    PeerLost {
        /// The round that the worker has left.
        round: Round,
        /// The worker that has returned.
        process: Process,
        /// Hosts of that round that it could not reach, or that fell silent towards it, by [`Start::host_index`]. Empty
        /// if they are unknown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unreachable: Vec<u32>,
    },
    /// This host lacks the resources to begin a round. Its members wait at `run()` as before.
    Unable {
        /// The round of the [`Start`] that failed.
        round: Round,
        /// The error message of the system.
        why: String,
    },
    /// A process has died, or fell silent and was killed. Its exit follows as [`AgentReport::Exited`]. Also sent for a
    /// process that was asked to stop and died before it could act on that.
    #[serde(rename = "lost")]
    WorkerLost {
        /// The process, by slot and start.
        process: Process,
        /// It was alive but sent no heartbeat.
        silent: bool,
    },
    /// Workers have returned from `run()`: their training is complete.
    Finished {
        /// The round that they were in.
        round: Round,
        /// The workers, by slot and start.
        workers: Vec<Process>,
    },
    /// A process has ended and is reaped, or could not be started.
    Exited {
        /// The process, by slot and start.
        process: Process,
        /// Its exit code or signal, or why it could not be started.
        exit: Exit,
        /// The last lines of its output.
        tail: Vec<String>,
        /// The agent was told to stop it, so its end is neither a success nor a failure. A driver that has lost its record of
        /// that learns it here.
        #[serde(default)]
        stopped: bool,
    },
    /// A parameter server has ended and is reaped, or could not be started.
    ServerExited {
        /// The server.
        process: Process,
        /// Its exit code or signal, or why it could not be started.
        exit: Exit,
        /// The last lines of its output.
        tail: Vec<String>,
        /// The agent was told to end it, so its end is no failure. A later driver learns that here.
        #[serde(default)]
        stopped: bool,
    },
    /// The host of this agent will go away, or may.
    Noticed {
        /// The notice, as the agent received it.
        notice: Notice,
    },
    /// The agent ends by itself, and does not return when its connection ends.
    Leaving,
    /// The result of a probe.
    Probed {
        /// The number of the probe.
        number: u64,
        /// Hosts that did not answer in time as agents of the job. Whether these hosts can dial this one is not tested.
        unreachable: Vec<HostId>,
    },
    /// The agent has written a commit durably, and it is complete. Only if [`Setup::durable`] is set.
    DurableWritten {
        /// The commit.
        commit: CommitId,
        /// Its number of bytes.
        bytes: u64,
        /// How long the write took.
        #[serde(with = "millis")]
        took: Duration,
    },
    /// The agent cannot write commits durably. Sent once until it can again. Only if [`Setup::durable`] is set.
    DurableFailed {
        /// The error, for the operator.
        why: String,
    },
    /// The complete commits in the durable store, of this run and of the one asked for.
    DurableFound {
        /// The number of the command.
        number: u64,
        /// The commits, in any order.
        commits: Vec<StoredCommit>,
        /// Why commits, or the whole store, are not used: errors for the operator.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<String>,
    },
    /// The end of a load. The commit is kept, or it is refused.
    DurableLoaded {
        /// The number of the command.
        number: u64,
        /// Why it is refused: an error for the operator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// All members of the round here have sealed the cut of [`AgentCommand::Cut`], or a newer commit.
    CutHeld {
        /// The cut.
        commit: CommitId,
        /// The members that hold it. One that is not among them has written over it, or has another round.
        held: Vec<CutShard>,
    },
    /// The agent keeps a complete replica of a commit, or all shards of a cut that it was asked to copy. Only if [`Setup::replication`] is set.
    Replicated {
        /// The commit.
        commit: CommitId,
        /// Its number of bytes.
        bytes: u64,
        /// How long the copy took.
        #[serde(with = "millis")]
        took: Duration,
    },
    /// The agent cannot keep replicas. Sent once until it can again. Only if [`Setup::replication`] is set.
    ReplicaFailed {
        /// The error, for the operator.
        why: String,
        /// The cut that cannot be copied. None for a replica of a whole state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit: Option<CommitId>,
    },
    /// The agent is alive. Sent at every heartbeat interval.
    #[serde(rename = "beat")]
    Heartbeat {
        /// The number of commits of the workers on this host, since they started.
        commits: u64,
        /// The number of heartbeats of this agent including this one, from 1.
        #[serde(default)]
        count: u64,
        /// The newest commit in the memory of this host. Only if [`Setup::replication`] is set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<CommitId>,
        /// The newest commit that all members of the round on this host have sealed. Only of a state that is divided among
        /// workers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<CommitId>,
    },
}

/// A worker at `run()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// Slot and start number.
    pub process: Process,
    /// The round that it left, if it was in one. So a late repeat is not taken for a report about a newer round.
    pub left: Option<Round>,
    /// The port of its data plane.
    pub data_port: u16,
}

/// The commit of a member of a planned round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Slot and start number.
    pub process: Process,
    /// The newest complete commit of the process.
    pub commit: Option<CommitId>,
    /// The part of the state that this commit is.
    #[serde(default, skip_serializing_if = "Shard::is_whole")]
    pub shard: Shard,
    /// The commit is empty: the process keeps its state itself, and no other process can bring a round to it.
    #[serde(default)]
    pub empty: bool,
    /// The port of its data plane.
    pub data_port: u16,
}

/// Commits in the memory of a process: all of one that is not a member, and those of a member that are older than
/// [`Held::commit`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The process, by slot and start. It may be dead.
    pub process: Process,
    /// Complete commits, at most one for each buffer.
    pub commits: Vec<CommitId>,
    /// The part of the state that each commit is. Empty if all are whole states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Shard>,
}

impl Kept {
    /// Commits of a process.
    pub fn new(process: Process, keys: &[CommitKey]) -> Self {
        let is_whole = keys.iter().all(|key| key.shard.is_whole());
        let shards = keys.iter().filter(|_| !is_whole).map(|key| key.shard);
        Self {
            process,
            commits: keys.iter().map(|key| key.commit).collect(),
            shards: shards.collect(),
        }
    }

    /// The commits, each with the part of the state that it is.
    pub fn keys(&self) -> impl Iterator<Item = CommitKey> + Clone {
        let shards = self.shards.iter().copied();
        let shards = shards.chain(std::iter::repeat(Shard::default()));
        let commits = self.commits.iter().copied();
        (commits.zip(shards)).map(|(commit, shard)| CommitKey { commit, shard })
    }
}
