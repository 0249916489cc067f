//! What happens to a job (past tense) and what it wants done (imperative).

use std::{net::IpAddr, time::Duration};

use elasticrun_hosts::Snapshot;
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, DriverEpoch, HostId, Notice, Process, Rank, Round,
    control::{Exit, StopReason, Task},
};

use crate::{
    blacklist::{Domain, Out},
    results::Outcome,
    rounds::Cause,
    sources::Doubt,
};

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A source of hosts has answered.
    SourceAnswered {
        /// Its place among the sources.
        source: usize,
        /// The hosts that it knows.
        snapshot: Snapshot,
    },
    /// A source of hosts has failed.
    SourceFailed {
        /// Its place among the sources.
        source: usize,
        /// Trying again cannot help: bad configuration, credentials, an unknown group, a failing script.
        fatal: bool,
        /// For a person.
        why: String,
    },
    /// An agent has connected and proved itself.
    AgentConnected(AgentConnected),
    /// The connection of an agent has ended or fell silent.
    AgentLost {
        /// Its host.
        host: HostId,
        /// Which connection; an older one than the current changes nothing.
        instance: u64,
        /// For a person.
        why: String,
    },
    /// An agent could not be started.
    LaunchFailed {
        /// On which host.
        host: HostId,
        /// For a person.
        why: String,
    },
    /// An agent reports.
    Reported {
        /// Its host.
        host: HostId,
        /// Which connection.
        instance: u64,
        /// The driver that it speaks to.
        epoch: DriverEpoch,
        /// What it saw.
        report: AgentReport,
    },
    /// A person asks for something; [`Command::Answer`] says what becomes of it.
    Requested {
        /// Which request; the answer carries it.
        id: u64,
        /// What for.
        request: Request,
    },
    /// The user wants the job to end; a second time, to end at once.
    StopRequested {
        /// The signal that said so.
        signal: i32,
    },
}

/// What a person may ask of a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Leave a host at a common commit and do not use it again.
    Drain {
        /// Which host.
        host: HostId,
        /// Time until it goes; none if that is not known.
        within: Option<Duration>,
    },
}

/// Why a request is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The job is ending.
    Ending,
    /// The job is not elastic: its workers cannot go on elsewhere.
    NotElastic,
    /// The job has no such host.
    UnknownHost {
        /// Which host was named.
        host: HostId,
        /// The hosts that it has.
        known: Vec<HostId>,
    },
}

/// An agent that has connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConnected {
    /// The host it was started for, or that it names itself.
    pub host: HostId,
    /// Number of the connection; grows.
    pub instance: u64,
    /// Where other hosts reach this one.
    pub address: IpAddr,
    /// Where it hands out commits.
    pub memory_port: u16,
    /// A port that was free.
    pub free_port: u16,
    /// Slots that it offers.
    pub slots: u32,
    /// Those of them that the host shows; none if it shows nothing that could be counted.
    pub detected_slots: Option<u32>,
    /// It came by itself.
    pub self_registered: bool,
    /// It has been part of the job before, and still keeps commits of it.
    pub keeps: bool,
    /// It can be asked which hosts it reaches.
    pub probes: bool,
    /// What it is a task of, if a cluster started it as one.
    pub task: Option<Task>,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Start an agent on a host.
    Launch {
        /// Which host.
        host: HostId,
    },
    /// Send an order to the agent of a host.
    Send {
        /// Which host.
        host: HostId,
        /// What.
        order: AgentCommand,
    },
    /// Take an agent's connection for that of its host, and set the agent up.
    Admit {
        /// Which host.
        host: HostId,
        /// Which connection.
        instance: u64,
    },
    /// Have an agent that takes no part end with all it has, and close its connection.
    Refuse {
        /// Which host.
        host: HostId,
        /// Which connection; that of its host is another one, if there is one.
        instance: u64,
    },
    /// Close the connection of a host's agent.
    Disconnect {
        /// Which host.
        host: HostId,
        /// Which connection.
        instance: u64,
    },
    /// End what was launched for the agent of a host; its agent has a moment to end by itself.
    EndLaunch {
        /// Which host.
        host: HostId,
        /// Only if it has led to no agent: one that has just arrived stays, and the job hears of it next.
        unless_connected: bool,
    },
    /// A message that changes nothing was refused (invariant R3).
    Reject {
        /// From where.
        host: HostId,
        /// Why.
        why: Rejected,
    },
    /// Open the key-value store of a round, before any worker can ask it.
    OpenRound {
        /// Which round; its workers begin behind this command.
        round: Round,
    },
    /// Tell all sources of hosts what becomes of one: what takes a host back may wait for that.
    TellSources {
        /// Which one.
        host: HostId,
        /// What becomes of it.
        state: Departure,
    },
    /// Answer a request.
    Answer {
        /// Which one.
        id: u64,
        /// It is granted, or why it is not.
        answer: Result<(), Refusal>,
    },
    /// Tell the operator. Nothing acts on it.
    Announce(Decision),
    /// The job has ended. Its agents end what they run; what has not led to an agent need not.
    End(Outcome),
    /// No agent is left, or they have had their time: the driver ends. No command follows.
    Exit,
}

/// How far a host that will go away is from being released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Its workers leave it.
    Draining,
    /// It runs nothing any more and keeps nothing that is needed.
    Drained,
}

/// Why a message changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It came over a connection that was replaced.
    #[error("it came over a connection that was replaced")]
    StaleConnection,
    /// A newer attempt of its task was here.
    #[error("a newer attempt of its task was here")]
    OlderAttempt,
    /// It speaks to another driver.
    #[error("it speaks to driver {0}")]
    OtherDriver(DriverEpoch),
    /// It is about a process that was replaced, or never was.
    #[error("it is about {0:?}, which is not the current process of its slot")]
    StaleProcess(Process),
    /// It is about another round.
    #[error("it is about round {0}, which is not the current one")]
    StaleRound(Round),
    /// It answers a probe that is not the last one of its host.
    #[error("it answers probe {0}, which is not the current one")]
    StaleProbe(u64),
    /// It is the second of its kind.
    #[error("it repeats what was said")]
    Repeated,
    /// The host is not part of the job.
    #[error("its host is not part of the job")]
    UnknownHost,
}

/// A decision, with its typed reason; logged once.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Hosts or slots appeared.
    HostsChanged {
        /// Hosts that may be used now.
        hosts: usize,
        /// Slots that may be used now.
        slots: u32,
    },
    /// A host shows fewer slots than its source says.
    SlotsDoubted(Doubt),
    /// A source failed; its last answer holds.
    DiscoveryFailed {
        /// For a person.
        why: String,
    },
    /// A worker failed.
    WorkerFailed {
        /// Its host.
        host: HostId,
        /// Slot and start.
        process: Process,
        /// Its rank and round, if it was in one.
        member: Option<(Rank, Round)>,
        /// How it ended, if that is known already.
        exit: Option<Exit>,
    },
    /// A host failed: its agent was lost or could not be started.
    HostFailed {
        /// Which one.
        host: HostId,
        /// For a person.
        why: String,
    },
    /// Rounds end again and again without a commit, and the job cannot do without the host to blame.
    Fruitless {
        /// Which one.
        host: HostId,
        /// The hosts that it has no connection with, if any is named.
        others: Vec<HostId>,
    },
    /// A host may go away; nobody leaves it for that.
    AtRisk {
        /// Which one.
        host: HostId,
        /// What was heard.
        notice: Notice,
    },
    /// A host will go away: its workers leave it at a common commit.
    Draining {
        /// Which one.
        host: HostId,
        /// What was heard.
        notice: Notice,
    },
    /// A draining host runs nothing any more and keeps nothing that is needed: it may go.
    Drained {
        /// Which one.
        host: HostId,
    },
    /// A draining host went before its workers could leave it. That is no failure.
    WentEarly {
        /// Which one.
        host: HostId,
        /// For a person.
        why: String,
    },
    /// A domain is out.
    Blacklisted {
        /// Which one.
        domain: Domain,
        /// For how long.
        out: Out,
    },
    /// A cooldown is over.
    CooldownOver {
        /// Of which domain.
        domain: Domain,
    },
    /// A worker is told to stop.
    Stopped {
        /// Its host.
        host: HostId,
        /// Slot and start.
        process: Process,
        /// Why.
        why: StopReason,
    },
    /// A round is planned.
    RoundPlanned {
        /// Its number.
        round: Round,
        /// Its size.
        size: u32,
        /// Why it is formed.
        cause: Cause,
    },
    /// A round is over before its time.
    RoundAborted {
        /// Its number.
        round: Round,
        /// Whether it had started.
        started: bool,
    },
    /// A round begins.
    RoundStarted {
        /// Its number.
        round: Round,
        /// How many rounds have started before it.
        resets: u32,
        /// Its size.
        size: u32,
        /// Members of it that were in the round before.
        survivors: u32,
        /// The commit to go on from.
        base: Option<CommitId>,
        /// Why it was formed.
        cause: Cause,
        /// From the first sight of the cause to the start.
        took: Duration,
    },
    /// The next round would begin from an older commit than hosts out of reach may hold: it waits for them.
    AwaitingNewer {
        /// The newest commit in reach.
        base: Option<CommitId>,
        /// The round that started last, of which nothing is in reach.
        newer: Round,
        /// Its hosts that may come back.
        hosts: Vec<HostId>,
        /// How long it waits at most.
        wait: Duration,
    },
    /// A round begins from an older commit, and what the round that started last has committed is void.
    WentBack {
        /// The commit it begins from.
        base: Option<CommitId>,
        /// The round that started last.
        newer: Round,
    },
    /// All workers are asked to leave the round at a common boundary.
    Interrupting {
        /// The round that trains.
        round: Round,
        /// Why.
        cause: Cause,
    },
    /// There are too few usable slots; the job waits.
    WaitingForSlots {
        /// Usable now.
        usable: u32,
        /// Needed.
        needed: u32,
    },
    /// A worker returned from `run()`: no new round will be formed.
    Finishing,
    /// No worker has attached: the processes of the job are restarted as a whole.
    ProcessMode,
    /// A worker has attached: failures and changes are met in the running processes from now on.
    Attached,
    /// The processes of a group are started.
    GroupStarted {
        /// Its number.
        round: Round,
        /// Its size.
        size: u32,
        /// Why it is started.
        cause: Cause,
        /// From the first sight of the cause to the start.
        took: Duration,
    },
    /// The processes of a group are ended, to start the next one.
    GroupEnded {
        /// Its number.
        round: Round,
        /// Why.
        cause: Cause,
    },
    /// A worker of a group had failed: the group is restarted.
    GroupRestarts {
        /// Restarts used, this one included.
        used: u32,
        /// Restarts allowed.
        allowed: u32,
    },
    /// All workers had failed by themselves; the job starts again from the last commit.
    Restarting {
        /// Restarts used, this one included.
        used: u32,
        /// Restarts allowed.
        allowed: u32,
    },
}
