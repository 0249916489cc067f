//! Events of a job (past tense) and the commands that follow (imperative).

use std::{net::IpAddr, time::Duration};

use elasticrun_hosts::Snapshot;
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, DriverEpoch, HostId, Notice, Process, Rank, Round,
    control::{Adoption, Exit, StopReason, Task},
};

use crate::{
    blacklist::{Domain, Out},
    results::Outcome,
    rounds::Cause,
    sources::Doubt,
};

/// Something that happened outside of the core.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A source of hosts has answered.
    SourceAnswered {
        /// The index of the source.
        source: usize,
        /// The hosts that it knows.
        snapshot: Snapshot,
    },
    /// A source of hosts has failed.
    SourceFailed {
        /// The index of the source.
        source: usize,
        /// Trying again cannot help: bad configuration, credentials, an unknown group, a failing script.
        fatal: bool,
        /// A message for the operator.
        why: String,
    },
    /// An agent has connected and authenticated itself.
    AgentConnected(AgentConnected),
    /// The connection of an agent has ended or fell silent.
    AgentLost {
        /// The host of the agent.
        host: HostId,
        /// The number of the connection. Only the loss of the current connection has an effect.
        instance: u64,
        /// A message for the operator.
        why: String,
    },
    /// An agent could not be started.
    LaunchFailed {
        /// The host on which the agent was to start.
        host: HostId,
        /// A message for the operator.
        why: String,
    },
    /// An agent that may have registered itself is dead, and none of its workers is left.
    AgentDied {
        /// The host of the agent.
        host: HostId,
        /// The random number of the agent's process.
        agent: u64,
        /// A message for the operator.
        why: String,
    },
    /// An agent has sent a report.
    Reported {
        /// The host of the agent.
        host: HostId,
        /// The number of the connection.
        instance: u64,
        /// The driver that the agent obeys.
        epoch: DriverEpoch,
        /// Grows with each report of the agent. A number that was applied before is a repeat.
        number: u64,
        /// A stale or repeated report changes nothing ([`Command::Reject`]).
        report: AgentReport,
    },
    /// A user has requested something. [`Command::Answer`] is the answer.
    Requested {
        /// The number of the request; the answer carries it.
        id: u64,
        /// The operation, with its arguments.
        request: Request,
    },
    /// The user has asked the job to end. A second request ends it at once.
    StopRequested {
        /// The signal that carried the request.
        signal: i32,
    },
}

/// A request of a user to a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Leaves a host at a common commit and does not use it again.
    Drain {
        /// The host to leave, by the name that its source gave it.
        host: HostId,
        /// The time until the host goes away; `None` if unknown.
        within: Option<Duration>,
    },
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The job is ending.
    Ending,
    /// The job is not elastic: its workers cannot continue elsewhere.
    NotElastic,
    /// The job has no such host.
    UnknownHost {
        /// The host in the request.
        host: HostId,
        /// The hosts of the job.
        known: Vec<HostId>,
    },
}

/// An agent that has connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConnected {
    /// The host for which the agent was launched, or the name that the agent registered with.
    pub host: HostId,
    /// The number of the connection; grows with each connection.
    pub instance: u64,
    /// The address at which other hosts reach this host.
    pub address: IpAddr,
    /// The port at which the agent serves commits.
    pub memory_port: u16,
    /// A port that was free.
    pub free_port: u16,
    /// Slots that the agent offers.
    pub slots: u32,
    /// Slots that the agent detected on the host; `None` if nothing could be detected.
    pub detected_slots: Option<u32>,
    /// The agent registered itself; the driver did not launch it.
    pub self_registered: bool,
    /// The agent was part of the job before, and still keeps commits of it.
    pub keeps: bool,
    /// The agent supports probes.
    pub probes: bool,
    /// The agent can read the durable store.
    pub durable: bool,
    /// The agent can keep replicas of commits.
    pub replicas: bool,
    /// The agent can keep shards of a divided state for other hosts.
    pub cuts: bool,
    /// The agent can run parameter servers.
    pub servers: bool,
    /// The task that this agent is, if a cluster started it as one.
    pub task: Option<Task>,
    /// The random number of the agent's process, if it has one.
    pub agent: Option<u64>,
    /// The agent keeps its workers when the connection ends, and returns with them.
    pub returns: bool,
    /// What the agent has kept, if it returns with workers.
    pub adoption: Option<Box<Adoption>>,
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Launches an agent on a host.
    Launch {
        /// The host, which has no agent yet.
        host: HostId,
    },
    /// Sends a command to the agent of a host.
    Send {
        /// The host of the agent.
        host: HostId,
        /// The command, to which the shell adds the driver epoch.
        command: AgentCommand,
    },
    /// Makes a connection the current one of its host, and sends the settings to its agent.
    Admit {
        /// The host that the agent registered for.
        host: HostId,
        /// The number of the connection.
        instance: u64,
        /// The job goes on with the workers that the agent has kept.
        adopted: bool,
    },
    /// Lets an agent that has kept workers end them and begin anew, and closes its connection.
    SendBack {
        /// The host that the agent registered for.
        host: HostId,
        /// The number of the connection.
        instance: u64,
    },
    /// Ends a refused agent with all its processes, and closes its connection.
    Refuse {
        /// The host that the refused agent registered for.
        host: HostId,
        /// The number of the refused connection; the current one of the host, if any, is another.
        instance: u64,
    },
    /// Refuses an agent whose name another one has, and closes its connection. It may register again.
    RefuseName {
        /// The host that the refused agent registered for.
        host: HostId,
        /// The number of the refused connection.
        instance: u64,
        /// The address of the host that has the name.
        by: IpAddr,
    },
    /// Closes the connection of a host's agent.
    Disconnect {
        /// The host of the agent.
        host: HostId,
        /// The number of the connection.
        instance: u64,
    },
    /// Ends the launch of a host's agent, after a short time in which the agent may end by itself.
    EndLaunch {
        /// The host of the agent.
        host: HostId,
        /// Has an effect only if no agent of the host has connected. An agent that has just arrived stays; its event
        /// comes next.
        unless_connected: bool,
    },
    /// Logs a message that was rejected and changed nothing (invariant R3).
    Reject {
        /// The host that sent it.
        host: HostId,
        /// The reason, for the log.
        why: Rejected,
    },
    /// Opens the key-value store of a round, before any worker can access it.
    OpenRound {
        /// The round. Its workers begin after this command.
        round: Round,
    },
    /// Informs all sources of hosts about the departure of a host: a program that takes hosts back may wait for it.
    TellSources {
        /// The host that goes away.
        host: HostId,
        /// Draining when the drain begins, drained when it is complete.
        state: Departure,
    },
    /// Answers a request.
    Answer {
        /// The number of the request.
        id: u64,
        /// Whether the request is granted.
        answer: Result<(), Refusal>,
    },
    /// Announces a decision to the operator. The core does not depend on it.
    Announce(Decision),
    /// The job has ended and its agents end what they run. Launches that have led to no agent are abandoned.
    End(Outcome),
    /// The driver exits: no agent is left, or their time is over. This is the last command.
    Exit,
}

/// How far the departure of a host has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Its workers leave it.
    Draining,
    /// It runs nothing and holds nothing that is needed.
    Drained,
}

/// Why a message changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Its connection was replaced.
    #[error("it came over a connection that was replaced")]
    StaleConnection,
    /// A newer attempt of its task has connected before.
    #[error("a newer attempt of its task was here")]
    OlderAttempt,
    /// Its agent obeys another driver.
    #[error("it speaks to driver {0}")]
    OtherDriver(DriverEpoch),
    /// Its process was replaced, or never existed.
    #[error("it is about {0:?}, which is not the current process of its slot")]
    StaleProcess(Process),
    /// Its round is not the current one.
    #[error("it is about round {0}, which is not the current one")]
    StaleRound(Round),
    /// Its probe is not the last one of the host.
    #[error("it answers probe {0}, which is not the current one")]
    StaleProbe(u64),
    /// It is a repeat.
    #[error("it repeats what was said")]
    Repeated,
    /// The host is not part of the job.
    #[error("its host is not part of the job")]
    UnknownHost,
    /// The agent returns with workers that are not those of this job as it knows them.
    #[error("its workers are of another run, or were given up")]
    Unadoptable,
}

/// A decision with its typed reason; logged once.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The number of usable hosts or slots has changed, up or down.
    HostsChanged {
        /// Hosts with a usable slot.
        hosts: usize,
        /// Usable slots.
        slots: u32,
    },
    /// An agent detected fewer slots on its host than a source reports.
    SlotsDoubted(Doubt),
    /// A source lists a host with 0 slots, so the host is not used.
    NoSlots {
        /// The host without slots.
        host: HostId,
    },
    /// A source failed; its last answer stays valid.
    DiscoveryFailed {
        /// A message for the operator.
        why: String,
    },
    /// All sources answer again after failures.
    DiscoveryWorks,
    /// A worker failed.
    WorkerFailed {
        /// The host on which the worker ran.
        host: HostId,
        /// The worker, by slot and start.
        process: Process,
        /// Its rank and round, if it was a member of one.
        member: Option<(Rank, Round)>,
        /// How it ended, if that is known.
        exit: Option<Exit>,
    },
    /// How a worker ended that failed before, when that was not known yet. It follows its `WorkerFailed` once.
    WorkerEnded {
        /// The host on which the worker ran.
        host: HostId,
        /// The worker, by slot and start.
        process: Process,
        /// Its rank and round, if it was a member of one.
        member: Option<(Rank, Round)>,
        /// How it ended.
        exit: Exit,
    },
    /// A second agent registers with the name of a host whose agent lives. Announced once for each such agent, up to 16.
    NameTaken {
        /// The name.
        host: HostId,
        /// The address of the host that has the name.
        by: IpAddr,
        /// The address of the host that is refused.
        refused: IpAddr,
    },
    /// A host failed: its agent was lost or not started, it cannot reach other hosts, or it cannot begin a round.
    HostFailed {
        /// The host that counts as failed.
        host: HostId,
        /// A message for the operator.
        why: String,
    },
    /// The connection of an agent has ended, and the agent may return with its workers.
    HostAway {
        /// The host that is out of reach.
        host: HostId,
        /// A message for the operator.
        why: String,
        /// How long the agent may take to return.
        keep: Duration,
    },
    /// The agent of a host that was out of reach is back, with its workers.
    HostReturned {
        /// The host.
        host: HostId,
    },
    /// Rounds end repeatedly without a commit, and the job cannot continue without the host that is at fault.
    Fruitless {
        /// The host at fault.
        host: HostId,
        /// Hosts to which it has no connection, if any are known.
        others: Vec<HostId>,
    },
    /// A host may go away. The job changes nothing.
    AtRisk {
        /// The host of the notice.
        host: HostId,
        /// The origin, and when the host may go away.
        notice: Notice,
    },
    /// A host will go away: its workers leave it at a common commit.
    Draining {
        /// The host that goes away.
        host: HostId,
        /// The origin, and how long the host stays.
        notice: Notice,
    },
    /// A draining host runs nothing and holds nothing that is needed: it may go away.
    Drained {
        /// The host that may go away now.
        host: HostId,
    },
    /// A draining host went away before its workers left it. This is no failure.
    WentEarly {
        /// The draining host whose agent was lost.
        host: HostId,
        /// A message for the operator.
        why: String,
    },
    /// A failure domain is out.
    Blacklisted {
        /// The host or slot that failed.
        domain: Domain,
        /// How long the domain is not used.
        out: Out,
    },
    /// A cooldown has ended.
    CooldownOver {
        /// The host or slot that may be used again.
        domain: Domain,
    },
    /// A parameter server starts.
    ServerStarted {
        /// The host on which it runs.
        host: HostId,
        /// The server.
        process: Process,
    },
    /// A parameter server has failed.
    ServerFailed {
        /// The host on which it ran.
        host: HostId,
        /// The server.
        process: Process,
        /// How it ended.
        exit: Exit,
    },
    /// A parameter server has left a host that goes away.
    ServerStopped {
        /// The host on which it ran.
        host: HostId,
        /// The server.
        process: Process,
    },
    /// A worker is asked to stop.
    Stopped {
        /// The host on which the worker runs.
        host: HostId,
        /// The worker, by slot and start.
        process: Process,
        /// The reason, which is sent to the worker.
        why: StopReason,
    },
    /// A round is planned: its members are asked for their answers.
    RoundPlanned {
        /// The number of the planned round.
        round: Round,
        /// The number of members.
        size: u32,
        /// What makes a new round necessary.
        cause: Cause,
    },
    /// A planned or started round is aborted.
    RoundAborted {
        /// The number of the round.
        round: Round,
        /// Whether its start was sent. Otherwise it was only planned.
        started: bool,
    },
    /// A round starts.
    RoundStarted {
        /// The number of the round that starts.
        round: Round,
        /// The number of rounds that started before it.
        resets: u32,
        /// The number of members.
        size: u32,
        /// Members that were in the previous round.
        survivors: u32,
        /// The commit from which it continues.
        base: Option<CommitId>,
        /// What made this round necessary.
        cause: Cause,
        /// The time from the first sight of the cause to the start.
        took: Duration,
    },
    /// The next round would begin from an older commit than unreachable hosts may hold, or the job would end since no state is in reach. It
    /// waits for these hosts.
    AwaitingNewer {
        /// The newest reachable commit.
        base: Option<CommitId>,
        /// The round that started last, of which nothing is reachable. A later driver that knows none names the one before the next round.
        newer: Round,
        /// Its hosts that may return.
        hosts: Vec<HostId>,
        /// The longest wait.
        wait: Duration,
    },
    /// A round begins from an older commit. The commits of the round that started last are void.
    WentBack {
        /// The commit from which it begins.
        base: Option<CommitId>,
        /// The round that started last.
        newer: Round,
    },
    /// Reachable memory lacks shards of a commit that is newer than the base.
    CommitIncomplete {
        /// The commit.
        commit: CommitId,
        /// The number of its shards.
        shards: u32,
        /// The number of those that are missing.
        missing: u32,
        /// The first of them.
        first: Vec<u32>,
        /// The newest complete commit, which is used.
        base: Option<CommitId>,
    },
    /// A commit is complete in the durable store.
    DurableWritten {
        /// The host whose agent wrote it.
        host: HostId,
        /// The commit.
        commit: CommitId,
        /// Its number of bytes.
        bytes: u64,
        /// How long the write took.
        took: Duration,
    },
    /// A host loads a commit of the durable store, from which the next round continues.
    DurableLoading {
        /// The host whose agent loads it.
        host: HostId,
        /// The run that made it.
        run_id: String,
        /// Its id in that run.
        commit: CommitId,
    },
    /// A commit of the durable store, or the store, cannot be used.
    DurableRefused {
        /// The host whose agent reports it.
        host: HostId,
        /// The error, for the operator.
        why: String,
    },
    /// The job is to continue from the latest run, and the store has no commit. It begins anew.
    DurableNone,
    /// The job does not continue from the former run that the user has named: its workers keep their state themselves.
    DurableUnused,
    /// A host cannot write commits durably. Training continues.
    DurableFailed {
        /// The host whose agent reports it.
        host: HostId,
        /// The error, for the operator.
        why: String,
    },
    /// The shards of a commit are complete on so many machines that the job survives the loss of some.
    CutComplete {
        /// The commit.
        commit: CommitId,
    },
    /// Shards of a divided state are in the memory of one machine only, and no copies are asked for.
    ShardsUnprotected {
        /// The number of hosts with members.
        hosts: u32,
    },
    /// A host keeps a complete replica of a commit of others, or of all shards of it that it was asked to copy.
    Replicated {
        /// The host.
        host: HostId,
        /// The commit.
        commit: CommitId,
        /// Its number of bytes.
        bytes: u64,
        /// How long the copy took.
        took: Duration,
    },
    /// A host cannot keep replicas of commits. Training continues.
    ReplicaFailed {
        /// The host.
        host: HostId,
        /// The error, for the operator.
        why: String,
    },
    /// For a while, commits were kept on fewer hosts than they must be.
    ReplicasLacking {
        /// The number of hosts on which they are kept, or will be.
        hosts: u32,
        /// The number of hosts that is needed.
        needed: u32,
    },
    /// After [`Decision::ReplicasLacking`], enough hosts keep commits again.
    ReplicasComplete {
        /// The number of hosts that is needed.
        needed: u32,
    },
    /// All workers are asked to leave the round at a common boundary.
    Interrupting {
        /// The round that trains.
        round: Round,
        /// The planned change: [`Cause::Added`], [`Cause::Removed`] or [`Cause::Mixed`].
        cause: Cause,
    },
    /// Too few slots are usable; the job waits.
    WaitingForSlots {
        /// Usable slots.
        usable: u32,
        /// Needed slots.
        needed: u32,
    },
    /// A worker returned from `run()`: no further round is formed.
    Finishing,
    /// No worker has attached: a failure or a change restarts all processes of the job.
    ProcessMode,
    /// A worker has attached. From now on failures and changes are handled within the running processes.
    Attached,
    /// The processes of a group are started.
    GroupStarted {
        /// The number of the group. Groups are counted from 1, apart from rounds.
        round: Round,
        /// The number of members.
        size: u32,
        /// What made this group necessary.
        cause: Cause,
        /// The time from the first sight of the cause to the start.
        took: Duration,
    },
    /// The processes of a group are ended, so that the next group can start.
    GroupEnded {
        /// The number of the group.
        round: Round,
        /// The failure or the change that ends it.
        cause: Cause,
    },
    /// A worker of a group failed: the group is restarted.
    GroupRestarts {
        /// Restarts used, including this one.
        used: u32,
        /// Restarts allowed.
        allowed: u32,
    },
    /// A later driver has taken over the run.
    TookOver {
        /// The round that goes on. `None` if the next one forms.
        round: Option<Round>,
        /// Workers that have come back.
        workers: usize,
    },
    /// All workers failed by themselves; the job starts again from the last commit.
    Restarting {
        /// Restarts used, including this one.
        used: u32,
        /// Restarts allowed.
        allowed: u32,
    },
}
