//! What driver and agent say to each other once both are authenticated.
//!
//! Fencing: an order carries the driver's epoch, what concerns a round carries its number, what concerns
//! a worker carries its [`Process`] (slot and start). Whatever is stale is refused by type, and a
//! repeated message changes nothing (invariant R3). Fields are only ever added; unknown ones are ignored.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Boundary, CommitId, DriverEpoch, HostId, LocalRank, Process, Rank, Round, millis};

/// First frame of an agent after the handshake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Register {
    /// The host it was started for; by itself it takes its host name.
    pub host: HostId,
    /// The release of the agent, for messages to people.
    pub software: String,
    /// Slots that it was told of or found (GPUs, else 1).
    pub slots: u32,
    /// Slots that the host itself shows (its GPUs) or that were given there; none if nothing there says how many.
    #[serde(default, rename = "counted")]
    pub detected_slots: Option<u32>,
    /// It came by itself (join token) and not because the driver started it.
    #[serde(rename = "itself")]
    pub self_registered: bool,
    /// Where the agent hands out the commits it keeps.
    pub memory_port: u16,
    /// A port that was free, for a coordinator of the user's library.
    pub free_port: u16,
    /// Where other hosts reach this one, if not at the address that this connection comes from.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// What it is a task of, if a cluster started it as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// It has been part of this run before, and still keeps commits of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps_run: Option<String>,
    /// It knows [`AgentCommand::Probe`].
    #[serde(default)]
    pub probes: bool,
}

/// An agent as a task of a cluster: one of several on a machine, and one of several attempts at the same thing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The machine, as the cluster names it. Tasks of one machine are neighbours.
    pub machine: String,
    /// Which of the tasks of the job.
    pub slot: u32,
    /// Grows with each attempt of this slot, over all machines: a newer one retires the older.
    pub attempt: u64,
}

impl Task {
    /// The host that it is to a job: each attempt is another one, so that what befell the last is not held against it.
    pub fn host(&self) -> HostId {
        HostId::new(format!("{}/{}.{}", self.machine, self.slot, self.attempt))
    }
}

/// An order to an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToAgent {
    /// The driver that speaks.
    pub epoch: DriverEpoch,
    /// What to do.
    pub order: AgentCommand,
}

/// What a driver wants of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// The first order: all that does not change while the job runs.
    Setup(Box<Setup>),
    /// Start a process on a slot.
    Spawn(Spawn),
    /// End a process: let it go by itself if it can hear, then SIGTERM, grace, SIGKILL to its group.
    Stop {
        /// Which one.
        process: Process,
        /// Why, for the worker's own message.
        why: StopReason,
    },
    /// A round is planned with these members of this host; report [`AgentReport::Ready`] when all are at `run()`.
    /// An agent without members answers as well, since it may keep the newest commit.
    Plan {
        /// Its number.
        round: Round,
        /// Members of this host.
        members: Vec<Process>,
    },
    /// The planned round begins.
    Start(Box<Start>),
    /// Stop every worker of this round at its next boundary and report [`AgentReport::BoundaryCounted`].
    Hold {
        /// The round that trains.
        round: Round,
    },
    /// Let held workers run to this boundary; there all commit and leave.
    Leave {
        /// The round that trains.
        round: Round,
        /// The common boundary.
        at: Boundary,
    },
    /// Take the hold back.
    Withdraw {
        /// The round that trains.
        round: Round,
    },
    /// The round is over: wake every worker of it wherever it waits.
    Abort {
        /// Which round.
        round: Round,
    },
    /// The driver lives: the answer to a [`AgentReport::Heartbeat`].
    #[serde(rename = "beat")]
    Heartbeat {
        /// The count of the beat that it answers. An agent is obeyed, and obeys, for a heartbeat timeout from
        /// when it sent that one: what comes late extends nothing.
        #[serde(rename = "heard")]
        acked_count: u64,
        /// The rest of the driver's lease when it sent this: workers train for at most so long after the beat that is
        /// answered was sent, and no round is started by who has no other word (R11).
        #[serde(with = "millis::option", default)]
        lease: Option<Duration>,
    },
    /// Dial the memory ports of these hosts and report [`AgentReport::Probed`]. Only to an agent that knows it
    /// ([`Register::probes`]).
    Probe {
        /// Grows with each probe of the job. A newer one replaces an older.
        number: u64,
        /// Whom to dial.
        hosts: Vec<ProbeHost>,
        /// How long each may take to answer.
        #[serde(with = "millis")]
        within: Duration,
    },
    /// End all processes, then yourself.
    Shutdown,
    /// Kill all processes, then end yourself: the user has asked twice.
    Kill,
}

/// A host that another one dials, to see whether it can.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbeHost {
    /// Which one.
    pub host: HostId,
    /// Where its agent hands out commits.
    pub address: SocketAddr,
}

/// All that an agent must know of the job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Names the run in logs, sockets and locks.
    pub run_id: String,
    /// The user's command.
    pub command: Vec<String>,
    /// Variables for the workers, beside what the agent's own environment has.
    pub env: BTreeMap<String, String>,
    /// Where to start the workers, if it exists there; else the agent's own directory.
    pub directory: Option<String>,
    /// How often host and worker beat.
    #[serde(with = "millis")]
    pub heartbeat_interval: Duration,
    /// After which silence a host or worker has failed.
    #[serde(with = "millis")]
    pub heartbeat_timeout: Duration,
    /// How long to keep workers without a driver.
    #[serde(with = "millis")]
    pub orphan_timeout: Duration,
    /// How much longer to keep those of a driver that is silent while the connection to it is open: it may only be
    /// suspended. Zero from an older driver.
    #[serde(with = "millis", default)]
    pub keep_timeout: Duration,
    /// How long a survivor may take to come back from a round that is over.
    #[serde(with = "millis")]
    pub abort_timeout: Duration,
    /// Between SIGTERM and SIGKILL.
    #[serde(with = "millis")]
    pub grace: Duration,
    /// How long an agent whose host asks it to end (SIGTERM) waits for its workers to leave; zero: not at all.
    #[serde(with = "millis", default)]
    pub drain_timeout: Duration,
    /// A file whose appearance on the host says that the host will go away.
    #[serde(default)]
    pub notice_file: Option<String>,
    /// The driver's number of this connection; further connections of the agent name it.
    #[serde(default)]
    pub instance: u64,
    /// Workers may be started in groups: the driver wants [`AgentReport::Attached`] and [`AgentReport::FreePort`].
    #[serde(default)]
    pub groups: bool,
}

/// A process to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spawn {
    /// Slot and start number.
    pub process: Process,
    /// The place it would have in a round of now: values of the environment at its start.
    pub place: Place,
    /// Address of the user's coordinator at its start.
    pub coordinator: SocketAddr,
    /// It is a member of a group: all of them are started and ended together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
}

/// How often a group was started again after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restarts {
    /// So often.
    pub used: u32,
    /// So often at most.
    pub allowed: u32,
}

/// A worker's place among the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// 0 to size - 1.
    pub rank: Rank,
    /// Workers of the round.
    pub size: u32,
    /// Workers of the round on this host.
    pub local_size: u32,
    /// This host's place among the hosts that have this local_rank.
    pub cross_rank: u32,
    /// How many hosts have this local_rank.
    pub cross_size: u32,
    /// Its local_rank, if that is not its slot: several agents share its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<LocalRank>,
}

impl Place {
    /// The local_rank of a process that has this place.
    pub fn local_rank(&self, process: Process) -> LocalRank {
        self.local_rank.unwrap_or(process.local_rank)
    }
}

/// A round that begins, as one host needs to know it. Its size does not depend on the number of hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The driver that starts it: part of the ids of its commits.
    pub epoch: DriverEpoch,
    /// Which round.
    pub round: Round,
    /// The commit to go on from; none before the first one.
    pub base: Option<CommitId>,
    /// Who keeps the base when no member holds it: rank 0 fetches it there.
    pub keeper: Option<Keeper>,
    /// Workers of the round.
    pub size: u32,
    /// Members of this host, by rank.
    pub members: Vec<Member>,
    /// Place of this host among the hosts of the round, in order of ranks.
    pub host_index: u32,
    /// Hosts of the round.
    pub host_count: u32,
    /// Addresses of the leaders (lowest rank) of the neighbour hosts, by host index (see [`crate::topology`]).
    pub peers: BTreeMap<u32, SocketAddr>,
    /// Where rank 0 of this round may open the user's own rendezvous.
    pub coordinator: SocketAddr,
    /// Prefix for a store that outlives rounds: run id / driver epoch / round.
    pub prefix: String,
}

/// A member of a round that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Slot and start number.
    pub process: Process,
    /// Its place.
    pub place: Place,
}

/// Whose memory has a commit that no living member of a round holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keeper {
    /// On which host.
    pub host: HostId,
    /// Which process made it, perhaps a dead one.
    pub process: Process,
    /// Where the host's agent hands it out.
    pub address: SocketAddr,
}

/// Why a worker is told to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Its slot is no longer part of the job (rank -1).
    Removed,
    /// Its failure domain failed.
    DomainFailed,
    /// It did not come back or did not start in time.
    TimedOut,
    /// The job is over.
    JobEnded,
}

/// A report of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FromAgent {
    /// The driver it obeys.
    pub epoch: DriverEpoch,
    /// Counts the reports of this agent, from 1.
    pub number: u64,
    /// What it saw.
    pub report: AgentReport,
}

/// What an agent saw.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentReport {
    /// A process has attached to its agent: it has the SDK. Only if [`Setup::groups`] asks for it.
    Attached {
        /// Which one.
        process: Process,
    },
    /// A port that was free and that was never named before, for a coordinator of the user's library. Comes before
    /// each [`AgentReport::Exited`], if [`Setup::groups`] asks for it.
    FreePort {
        /// Which one.
        port: u16,
    },
    /// Workers reached `run()`, or came back to it, and no plan is known to include them.
    Waiting {
        /// Which, and where their data plane listens.
        workers: Vec<Waiting>,
    },
    /// All members of this host for this round are at `run()`.
    Ready {
        /// Which round.
        round: Round,
        /// What each member holds.
        members: Vec<Held>,
        /// What this host's memory has of other processes, dead or living.
        kept: Vec<Kept>,
        /// A port that was free, for a coordinator of the user's library.
        free_port: u16,
    },
    /// The hold words are set; this is the largest boundary that any worker of this host has reached.
    #[serde(rename = "counted")]
    BoundaryCounted {
        /// Which round.
        round: Round,
        /// The largest count.
        highest: Boundary,
    },
    /// Workers came back from a round that was not aborted, since they lost a peer of it.
    #[serde(rename = "broken")]
    PeerLost {
        /// Which round.
        round: Round,
        /// Who came back.
        process: Process,
        /// Hosts of that round that it could not reach or that fell silent towards it, by [`Start::host_index`].
        /// Empty if it cannot tell.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unreachable: Vec<u32>,
    },
    /// This host has no means to begin a round: its members wait at `run()` as before.
    Unable {
        /// Which round.
        round: Round,
        /// What the system said.
        why: String,
    },
    /// A process has died or fell silent and was killed; how it ended follows as [`AgentReport::Exited`]. Also of
    /// one that was told to stop and died before it could have heard.
    #[serde(rename = "lost")]
    WorkerLost {
        /// Which one.
        process: Process,
        /// It was alive and did not beat.
        silent: bool,
    },
    /// Workers returned from `run()`: training is done for them.
    Finished {
        /// The round they were in.
        round: Round,
        /// Which ones.
        workers: Vec<Process>,
    },
    /// A process is gone and reaped, or could not be started.
    Exited {
        /// Which one.
        process: Process,
        /// How it ended.
        exit: Exit,
        /// Its last lines of output.
        tail: Vec<String>,
    },
    /// The host of this agent will go away, or may.
    Noticed {
        /// What was heard.
        notice: Notice,
    },
    /// What a probe has shown.
    Probed {
        /// Which one.
        number: u64,
        /// The hosts that did not answer as agents of the job, in time. That they can dial this host is not shown.
        unreachable: Vec<HostId>,
    },
    /// The agent lives. Sent every heartbeat interval.
    #[serde(rename = "beat")]
    Heartbeat {
        /// Commits made by the workers of this host, in sum, since their start.
        commits: u64,
        /// Beats of this agent up to this one, from 1.
        #[serde(default)]
        count: u64,
    },
}

/// Word that a host will go away, or may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// Who says so.
    pub kind: NoticeKind,
    /// How long it stays, from the moment of the notice; unknown if missing.
    #[serde(with = "millis::option", default)]
    pub within: Option<Duration>,
}

/// Who says that a host will go away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// EC2 takes a spot instance back (`spot/instance-action`).
    SpotInterruption,
    /// EC2 sees a higher risk of that (`events/recommendations/rebalance`).
    RebalanceRecommendation,
    /// Its Auto Scaling group ends it (`autoscaling/target-lifecycle-state`).
    TargetLifecycleState,
    /// Compute Engine takes a spot or preemptible instance back (`instance/preempted`).
    Preempted,
    /// Compute Engine ends it for maintenance (`instance/maintenance-event`).
    Maintenance,
    /// Azure has scheduled an event that ends or restarts it.
    ScheduledEvent,
    /// Its agent got a signal (Slurm's `--signal`, a pod that is deleted).
    Signal,
    /// The file of `--notice-file` has appeared.
    File,
    /// A source of hosts says so.
    Discovery,
    /// A person said so (`elasticrun drain`).
    Operator,
    /// A newer agent knows what.
    #[serde(other)]
    Other,
}

impl NoticeKind {
    /// Whether the host may well stay: nobody leaves it for that.
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
    /// The round it came from, if it was in one: a late repeat says nothing of a newer round.
    pub left: Option<Round>,
    /// Where its data plane listens.
    pub data_port: u16,
}

/// What a member of a planned round holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Slot and start number.
    pub process: Process,
    /// Its newest complete commit.
    pub commit: Option<CommitId>,
    /// That commit holds no bytes: the process keeps its state by itself, and nobody else can bring a round to it.
    #[serde(default)]
    pub empty: bool,
    /// Where its data plane listens.
    pub data_port: u16,
}

/// Commits in the memory of a process that is no member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Whose memory.
    pub process: Process,
    /// Complete commits there, at most two.
    pub commits: Vec<CommitId>,
}

/// How a process ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
}

impl Exit {
    /// Whether it is code 0.
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

/// Lines of a worker, on the connection for output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Slot and start number.
    pub process: Process,
    /// Its rank when it wrote them; before its first round the one that its environment names.
    pub rank: Option<Rank>,
    /// Standard error instead of standard output.
    pub stderr: bool,
    /// Whole lines with their ends; the last may lack one at the end of the stream.
    pub text: String,
}

/// First frame on the connection for output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputOf {
    /// Whose output follows.
    pub host: HostId,
}

/// Request on the connection for memory; the answer is [`MemoryAnswer`] and then `length` raw bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRequest {
    /// Whose memory.
    pub process: Process,
    /// Which commit.
    pub commit: CommitId,
}

/// Answer to a [`MemoryRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryAnswer {
    /// The bytes follow.
    Found {
        /// How many.
        length: u64,
        /// xxh3 of them: they leave the host, so they are checked.
        digest: u64,
    },
    /// It is not there (any more).
    Missing,
}
