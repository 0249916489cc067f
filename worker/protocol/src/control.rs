//! The messages between driver and agent after the handshake.
//!
//! Fencing: a command carries the driver's epoch, a message about a round its number, and a message about a worker its
//! [`Process`] (slot and start). Stale messages are rejected with a typed reason, and a repeated message changes
//! nothing (invariant R3). Fields are only ever added; unknown ones are ignored.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    Blob, Boundary, CommitId, DriverEpoch, HostId, LocalRank, Process, Rank, Round, millis,
};

/// The first frame of an agent after the handshake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Register {
    /// The host for which the agent was launched. An agent that registers itself uses its host name.
    pub host: HostId,
    /// The release of the agent, for messages to users.
    pub software: String,
    /// Slots that the agent was given or found (GPUs, else 1).
    pub slots: u32,
    /// Slots that the host itself shows (its GPUs), or that were given there; `None` if nothing there states the number.
    #[serde(default, rename = "counted")]
    pub detected_slots: Option<u32>,
    /// The agent registers itself (join token); the driver did not launch it.
    #[serde(rename = "itself")]
    pub self_registered: bool,
    /// The port at which the agent serves the commits that it keeps.
    pub memory_port: u16,
    /// A port that was free, for a coordinator of the user's library.
    pub free_port: u16,
    /// The address at which other hosts reach this one, if it is not the peer address of this connection.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// The task that this agent is, if a cluster started it as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// The run of which the agent was part before, if it still keeps commits of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps_run: Option<String>,
    /// The agent supports [`AgentCommand::Probe`].
    #[serde(default)]
    pub probes: bool,
    /// A random number of the agent's process. The same process has the same number when it connects anew. Agents that
    /// have one support [`AgentCommand::NameTaken`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<u64>,
}

/// An agent as a task of a cluster: one of several tasks on a machine, and one of several attempts at a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The machine's name in the cluster. Tasks of one machine are neighbours.
    pub machine: String,
    /// The index of the task in the job.
    pub slot: u32,
    /// Grows with each attempt at this task, over all machines. A newer attempt retires the older one.
    pub attempt: u64,
}

impl Task {
    /// The host that this agent is to the job. Each attempt is another host, so failures of an earlier attempt do not
    /// count against it.
    pub fn host(&self) -> HostId {
        HostId::new(format!("{}/{}.{}", self.machine, self.slot, self.attempt))
    }
}

/// A command for an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToAgent {
    /// The driver that sends it.
    pub epoch: DriverEpoch,
    /// The command. On the wire the field is `order`.
    #[serde(rename = "order")]
    pub command: AgentCommand,
}

/// The commands of a driver for an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// Refuses an agent that registers itself: another agent has registered with this name and lives.
    NameTaken {
        /// The address of the other agent's host.
        by: IpAddr,
    },
    /// The first command: all settings that do not change while the job runs.
    Setup(Box<Setup>),
    /// Starts a process on a slot.
    Spawn(Spawn),
    /// Ends a process. An attached worker gets a message. If it is removed, or its failure domain failed, it then has
    /// the grace to leave by itself. SIGTERM follows, and after the grace SIGKILL, to the process group.
    Stop {
        /// The process, by slot and start.
        process: Process,
        /// The reason, for the worker's own message.
        why: StopReason,
    },
    /// Announces a planned round. The agent reports [`AgentReport::Ready`] when all these members are at `run()`. An
    /// agent without members answers as well, since it may keep the newest commit.
    Plan {
        /// The number of the round. A plan changes nothing if this round or a later one was planned or aborted before.
        round: Round,
        /// The members on this host.
        members: Vec<Process>,
    },
    /// Starts the planned round.
    Start(Box<Start>),
    /// Holds every worker of this round at its next boundary. The agent reports [`AgentReport::BoundaryCounted`].
    Hold {
        /// The round that trains.
        round: Round,
    },
    /// Lets held workers run to this boundary, where all commit and leave.
    Leave {
        /// The round that trains.
        round: Round,
        /// The common boundary.
        at: Boundary,
    },
    /// Withdraws a hold.
    Withdraw {
        /// The round that trains.
        round: Round,
    },
    /// Ends a round: wakes all its workers, whatever they wait for.
    Abort {
        /// The number of the round.
        round: Round,
    },
    /// Answers an [`AgentReport::Heartbeat`]: the driver is alive.
    #[serde(rename = "beat")]
    Heartbeat {
        /// The count of the heartbeat that is answered. The lease counts from when the agent sent that heartbeat, so a
        /// late answer extends nothing.
        #[serde(rename = "heard")]
        acked_count: u64,
        /// How long workers may train after the answered heartbeat was sent (R11). `None` from an older driver: the
        /// agent then derives the lease from its settings.
        #[serde(with = "millis::option", default)]
        lease: Option<Duration>,
    },
    /// Dials the memory ports of these hosts. The agent reports [`AgentReport::Probed`]. Only sent to an agent that
    /// supports it ([`Register::probes`]).
    Probe {
        /// Grows with each probe of the job. A newer probe replaces an older one.
        number: u64,
        /// The hosts to dial.
        hosts: Vec<ProbeHost>,
        /// The time limit for the answer of each host.
        #[serde(with = "millis")]
        within: Duration,
    },
    /// Ends all processes, then the agent.
    Shutdown,
    /// Kills all processes, then ends the agent: the user has asked twice, or the time for the shutdown is over.
    Kill,
}

/// A host that is dialled by a probe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbeHost {
    /// The host that [`AgentReport::Probed`] names if it does not answer.
    pub host: HostId,
    /// The address at which its agent serves commits.
    pub address: SocketAddr,
}

/// The settings of the job for an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The name of the run in logs, sockets and locks.
    pub run_id: String,
    /// The user's command.
    pub command: Vec<String>,
    /// Variables for the workers, in addition to the agent's own environment.
    pub env: BTreeMap<String, String>,
    /// The working directory of the workers if it exists on the host; otherwise the agent's own directory.
    pub directory: Option<String>,
    /// The interval of the heartbeats of agents and workers.
    #[serde(with = "millis")]
    pub heartbeat_interval: Duration,
    /// The silence after which a host or worker has failed.
    #[serde(with = "millis")]
    pub heartbeat_timeout: Duration,
    /// How long to keep workers without a driver.
    #[serde(with = "millis")]
    pub orphan_timeout: Duration,
    /// How much longer to keep the workers of a driver that is silent while its connection is open: it may only be
    /// suspended. Zero from an older driver.
    #[serde(with = "millis", default)]
    pub keep_timeout: Duration,
    /// How long a survivor may take to return from a round that is over.
    #[serde(with = "millis")]
    pub abort_timeout: Duration,
    /// The time between SIGTERM and SIGKILL.
    #[serde(with = "millis")]
    pub grace: Duration,
    /// How long an agent that its host asks to end (SIGTERM) waits for its workers to leave. Zero for no wait.
    #[serde(with = "millis", default)]
    pub drain_timeout: Duration,
    /// A file whose appearance means that the host will go away.
    #[serde(default)]
    pub notice_file: Option<String>,
    /// How long the host stays after SIGUSR1 to its agent. None if it is not known, and from an older driver.
    #[serde(with = "millis::option", default)]
    pub signal_notice: Option<Duration>,
    /// The driver's number of this connection; further connections of the agent carry it.
    #[serde(default)]
    pub instance: u64,
    /// Workers may be started in groups: the driver needs [`AgentReport::Attached`] and [`AgentReport::FreePort`].
    #[serde(default)]
    pub groups: bool,
}

/// A process to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spawn {
    /// Slot and start number.
    pub process: Process,
    /// The place that the process would have in a round now, for its environment.
    pub place: Place,
    /// The address of the coordinator of the user's library, for its environment.
    pub coordinator: SocketAddr,
    /// Set if the process is a member of a group, whose processes are started and ended together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
}

/// The restarts of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restarts {
    /// Restarts used.
    pub used: u32,
    /// Restarts allowed.
    pub allowed: u32,
}

/// The place of a worker among the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// From 0 to size - 1.
    pub rank: Rank,
    /// Workers of the round.
    pub size: u32,
    /// Workers of the round on this host.
    pub local_size: u32,
    /// The index of this host among the hosts that have this local_rank.
    pub cross_rank: u32,
    /// The number of hosts that have this local_rank.
    pub cross_size: u32,
    /// The local_rank, if it differs from the slot because several agents share the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<LocalRank>,
}

impl Place {
    /// The local_rank of a process that has this place.
    pub fn local_rank(&self, process: Process) -> LocalRank {
        self.local_rank.unwrap_or(process.local_rank)
    }
}

/// The start of a round, with the data that one host needs. Beside the host's own members it grows with the number of
/// neighbours, which is at most 2 + log2(hosts), rounded up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The driver that starts the round; it is part of the ids of the round's commits.
    pub epoch: DriverEpoch,
    /// The number of the planned round that starts.
    pub round: Round,
    /// The commit from which the round continues; `None` before the first commit.
    pub base: Option<CommitId>,
    /// The keeper of the base; rank 0 fetches the base there, unless it holds it.
    pub keeper: Option<Keeper>,
    /// Workers of the round.
    pub size: u32,
    /// Members on this host, by rank.
    pub members: Vec<Member>,
    /// The index of this host among the hosts of the round, in the order of ranks.
    pub host_index: u32,
    /// The number of hosts of the round.
    pub host_count: u32,
    /// Addresses of the leaders (lowest rank) of the neighbour hosts, by host index (see [`crate::topology`]).
    pub peers: BTreeMap<u32, SocketAddr>,
    /// The address at which rank 0 of this round may open the user's own rendezvous.
    pub coordinator: SocketAddr,
    /// A prefix for a store that outlives rounds: run id / driver epoch / round.
    pub prefix: String,
}

/// A member of a round that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Slot and start number.
    pub process: Process,
    /// Its rank in the round, its cross rank, and the sizes.
    pub place: Place,
}

/// The process whose memory has the base of a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keeper {
    /// The host whose memory has the base.
    pub host: HostId,
    /// The process that made the commit. It may be dead.
    pub process: Process,
    /// The address at which the host's agent serves it.
    pub address: SocketAddr,
}

/// The reason why a worker is asked to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Its slot is no longer part of the job (rank -1).
    Removed,
    /// Its failure domain failed.
    DomainFailed,
    /// It did not return or start in time.
    TimedOut,
    /// The job is over.
    JobEnded,
}

/// A report of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FromAgent {
    /// The driver that the agent obeys.
    pub epoch: DriverEpoch,
    /// Counts the reports of this agent, from 1.
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
    },
    /// The host of this agent will go away, or may.
    Noticed {
        /// The notice, as the agent received it.
        notice: Notice,
    },
    /// The result of a probe.
    Probed {
        /// The number of the probe.
        number: u64,
        /// Hosts that did not answer in time as agents of the job. Whether these hosts can dial this one is not tested.
        unreachable: Vec<HostId>,
    },
    /// The agent is alive. Sent at every heartbeat interval.
    #[serde(rename = "beat")]
    Heartbeat {
        /// The number of commits of the workers on this host, since they started.
        commits: u64,
        /// The number of heartbeats of this agent including this one, from 1.
        #[serde(default)]
        count: u64,
    },
}

/// A notice that a host will go away, or may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// The origin, which also decides whether the host may stay ([`NoticeKind::is_risk_only`]).
    pub kind: NoticeKind,
    /// How long the host stays, counted from the notice; `None` if unknown.
    #[serde(with = "millis::option", default)]
    pub within: Option<Duration>,
}

/// The origin of a notice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// EC2 reclaims a spot instance (`spot/instance-action`).
    SpotInterruption,
    /// EC2 sees a higher risk of a reclaim (`events/recommendations/rebalance`).
    RebalanceRecommendation,
    /// Its Auto Scaling group terminates it (`autoscaling/target-lifecycle-state`).
    TargetLifecycleState,
    /// Compute Engine reclaims a spot or preemptible instance (`instance/preempted`).
    Preempted,
    /// Compute Engine terminates it for maintenance (`instance/maintenance-event`).
    Maintenance,
    /// Azure has scheduled an event that terminates or restarts it.
    ScheduledEvent,
    /// Its agent received a signal (Slurm's `--signal`, a pod that is deleted).
    Signal,
    /// The file of `--notice-file` has appeared.
    File,
    /// A source of hosts reports it.
    Discovery,
    /// The operator has requested it (`elasticrun drain`).
    Operator,
    /// A kind that only a newer agent knows.
    #[serde(other)]
    Other,
}

impl NoticeKind {
    /// Whether the host may stay, so that no worker leaves it.
    pub fn is_risk_only(self) -> bool {
        self == Self::RebalanceRecommendation
    }
}

impl std::fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SpotInterruption => "EC2 takes the spot instance back",
            Self::RebalanceRecommendation => "EC2 recommends to rebalance",
            Self::TargetLifecycleState => "its Auto Scaling group ends it",
            Self::Preempted => "Compute Engine preempts it",
            Self::Maintenance => "Compute Engine ends it for maintenance",
            Self::ScheduledEvent => "Azure has scheduled an event",
            Self::Signal => "its agent got a signal",
            Self::File => "its notice file has appeared",
            Self::Discovery => "discovery says so",
            Self::Operator => "a person said so",
            Self::Other => "its agent says so",
        })
    }
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
    /// The commit is empty: the process keeps its state itself, and no other process can bring a round to it.
    #[serde(default)]
    pub empty: bool,
    /// The port of its data plane.
    pub data_port: u16,
}

/// Commits in the memory of a process that is not a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The process, by slot and start. It may be dead.
    pub process: Process,
    /// Complete commits, at most two.
    pub commits: Vec<CommitId>,
}

/// How a process ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It ended by itself with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
}

impl Exit {
    /// Whether the process ended with code 0.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::NotStarted(why) => write!(f, "could not be started: {why}"),
        }
    }
}

/// A piece of a worker's output, on the output connection. The pieces of a stream together are its bytes: a piece may end
/// within a line, and nothing is added.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Slot and start number.
    pub process: Process,
    /// Its rank when it wrote the piece; before its first round, the rank in its environment.
    pub rank: Option<Rank>,
    /// Standard error, not standard output.
    pub stderr: bool,
    /// The piece as text. If it is not UTF-8, the other bytes are replaced, for a reader that ignores `bytes`.
    pub text: String,
    /// The piece itself, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Blob>,
    /// Bytes of this stream before this piece that the agent dropped, because the driver did not take them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

impl Output {
    /// A piece of these bytes, before which nothing was dropped.
    pub fn new(process: Process, rank: Option<Rank>, stderr: bool, bytes: Vec<u8>) -> Self {
        let (text, bytes) = match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let bytes = error.into_bytes();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                (text, Some(Blob(bytes)))
            }
        };
        Self {
            process,
            rank,
            stderr,
            text,
            bytes,
            dropped: 0,
        }
    }

    /// The bytes of the worker.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .as_ref()
            .map_or(self.text.as_bytes(), |bytes| &bytes.0)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The first frame on the output connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputOf {
    /// The host whose output follows.
    pub host: HostId,
}

/// A request on the memory connection. The answer is [`MemoryAnswer`] and then `length` raw bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRequest {
    /// The process whose memory has the commit.
    pub process: Process,
    /// The commit to read. The answer is [`MemoryAnswer::Missing`] unless that memory holds it complete.
    pub commit: CommitId,
}

/// Answer to a [`MemoryRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryAnswer {
    /// The commit exists and its bytes follow.
    Found {
        /// The number of bytes.
        length: u64,
        /// The xxh3 digest of the bytes, which are checked because they leave the host.
        digest: u64,
    },
    /// The commit does not exist, or no longer.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, frame};

    #[test]
    fn output_is_its_bytes_on_the_wire() {
        let process = Process {
            local_rank: LocalRank(0),
            generation: Generation(1),
        };
        let all: Vec<u8> = (0..=255).collect();
        for bytes in ["é\r\n".as_bytes(), b"", b"\xc3", &all] {
            let sent = Output::new(process, Some(Rank(3)), true, bytes.to_vec());
            let frame = frame::to_frame(&sent).unwrap();
            let got: Output = frame::decode(&frame[4..]).unwrap();
            assert_eq!(got, sent);
            assert_eq!(got.as_bytes(), bytes);
            // An earlier reader shows the text.
            assert_eq!(got.text, String::from_utf8_lossy(bytes));
        }
    }
}
