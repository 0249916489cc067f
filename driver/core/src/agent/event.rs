//! What an agent receives, and what it asks its shell to do.

use std::time::Duration;

use elasticrun_protocol::{
    AgentReport, CommitId, CommitKey, DriverEpoch, FromAgent, FromWorker, HostId, Notice, Process,
    Round, ToAgent,
    control::{Exit, Keeper, ProbeHost, ResumeFrom, Setup, Spawn, Start, StopReason, StoredCommit},
};

#[cfg(doc)]
use super::Machine;

/// Something that happened on the host or came from the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A command of the driver has arrived.
    FromDriver(ToAgent),
    /// The connection to the driver has ended.
    DriverLost,
    /// The driver's machine has acknowledged all data up to a moment ago. The driver exists, but may be suspended and
    /// answer nothing.
    DriverReached,
    /// A dial for a driver has failed while there is no connection.
    DialFailed {
        /// The machine at the driver's address has refused the connection: no driver listens there.
        refused: bool,
    },
    /// A driver has answered the registration that carried [`Machine::adoption`].
    DriverBack {
        /// The driver.
        epoch: DriverEpoch,
        /// The settings, which say whether the driver has adopted the workers.
        setup: Box<Setup>,
    },
    /// A process has attached and opened its page.
    Attached {
        /// The process, by slot and start.
        process: Process,
    },
    /// A worker has sent a message.
    FromWorker {
        /// The worker that sent it, by slot and start.
        process: Process,
        /// The message. It may concern a round that is over.
        message: FromWorker,
    },
    /// The kernel has released the resources of a process. The process is dying, however long the release of its memory
    /// takes.
    Died {
        /// The process, by slot and start.
        process: Process,
    },
    /// A process is reaped. Its output may continue.
    Ended {
        /// The process, by slot and start.
        process: Process,
        /// Its exit code, or the signal that ended it.
        exit: Exit,
    },
    /// A process is reaped and its output has ended, or the process could not be started.
    Exited {
        /// The process, by slot and start.
        process: Process,
        /// Its exit code or signal, or why it could not be started.
        exit: Exit,
        /// The last lines of its output.
        tail: Vec<String>,
    },
    /// The resources that the members of a round share on this host cannot be created. No member has received the start.
    CannotBegin {
        /// The round of the [`Command::Start`] that failed.
        round: Round,
        /// The error message of the system.
        why: String,
    },
    /// The result of [`Command::Probe`].
    Probed {
        /// The number of the probe.
        number: u64,
        /// Hosts that did not answer in time as agents of the job.
        unreachable: Vec<HostId>,
    },
    /// The commit of a [`Command::WriteDurable`] is whole in the durable store.
    DurableWritten {
        /// The commit.
        commit: CommitId,
        /// Its number of bytes.
        bytes: u64,
        /// How long the write took.
        took: Duration,
    },
    /// The commit of a [`Command::WriteDurable`] has no bytes, so it is not written.
    DurableEmpty,
    /// The durable store cannot be used on this host. Sent at most once, beside all commands.
    DurableUnusable {
        /// The error, for the operator.
        why: String,
    },
    /// A [`Command::WriteDurable`] has failed.
    DurableFailed {
        /// The error, for the operator.
        why: String,
    },
    /// The result of [`Command::FindDurable`].
    DurableFound {
        /// The number of the command.
        number: u64,
        /// The complete commits in the store.
        commits: Vec<StoredCommit>,
        /// Why others are not used, for the operator.
        refused: Vec<String>,
    },
    /// The result of [`Command::LoadDurable`]. Without an error, the memory of the process holds the commit.
    DurableLoaded {
        /// The number of the command.
        number: u64,
        /// The process, which never lived.
        process: Process,
        /// The error, for the operator.
        refused: Option<String>,
    },
    /// The end of a [`Command::Replicate`].
    Copied {
        /// The process, which never lived. Its memory has the commit, if there is one.
        process: Process,
        /// The result.
        copied: Copied,
    },
    /// The host will go away, or may go away.
    Noticed(Notice),
    /// The host has asked the agent to end (SIGTERM). The first request is a notice, if the job can continue without
    /// the host: the workers leave first. The second request kills all workers.
    StopRequested,
}

/// The commit of another process that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The newest one, if it is newer than this.
    Newer(Option<CommitId>),
    /// A shard of a commit.
    Shard(CommitKey),
}

/// The result of a copy from another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The commit is complete, and its bytes are those of the source.
    Whole {
        /// The commit.
        commit: CommitId,
        /// Its number of bytes.
        bytes: u64,
        /// How long the copy took.
        took: Duration,
    },
    /// The source has no newer commit, or only one without bytes; or it has not the commit that is wanted.
    NothingNewer,
    /// There is no copy.
    Failed {
        /// The error, for the operator.
        why: String,
    },
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Sends a report to the driver, as [`Machine::number`] gives it.
    AgentReport(AgentReport),
    /// Sends a report again that no driver has acknowledged.
    Repeat(FromAgent),
    /// Starts a process with its own process group, page and memories.
    Spawn(Spawn),
    /// Starts a parameter server with its own process group, without page and memories.
    StartServer {
        /// The server.
        process: Process,
    },
    /// Sends a signal to the process group of a process.
    Signal {
        /// The process that leads the group.
        process: Process,
        /// Goes to every process of the group.
        signal: Signal,
    },
    /// Creates the shared region of the round and sends the start to the members on this host.
    Start(Box<Start>),
    /// Aborts the region of the round, and so wakes all members on this host, and sends them the abort.
    Abort {
        /// The round that is over.
        round: Round,
        /// The members on this host.
        members: Vec<Process>,
    },
    /// Frees the parts of the base that this host keeps for others ([`super::passing`]): the first commit of the round is
    /// complete here.
    EndPassing {
        /// The round.
        round: Round,
    },
    /// Asks a worker to end.
    TellStop {
        /// The worker, by slot and start.
        process: Process,
        /// The reason, which is sent to the worker.
        why: StopReason,
    },
    /// Releases the memory of a dead process: its commits are no longer needed.
    Forget {
        /// The dead process.
        process: Process,
    },
    /// Dials these hosts and reports those that do not answer. Replaces an earlier probe.
    Probe {
        /// The number of the probe.
        number: u64,
        /// The hosts to dial.
        hosts: Vec<ProbeHost>,
        /// The time limit for each host.
        within: Duration,
    },
    /// Writes the newest commit of a process to the durable store. [`Event::DurableWritten`], [`Event::DurableEmpty`] or
    /// [`Event::DurableFailed`] follows, however late.
    WriteDurable {
        /// The process, which may be dead.
        process: Process,
        /// The number of members of its round.
        size: u32,
    },
    /// Lists the durable store.
    FindDurable {
        /// The number of the command.
        number: u64,
        /// A former run to look at, besides this one.
        from: Option<ResumeFrom>,
    },
    /// Loads a commit of the durable store into memory.
    LoadDurable {
        /// The number of the command.
        number: u64,
        /// A process that never lived, whose memory gets the commit.
        process: Process,
        /// The commit in the store.
        stored: StoredCommit,
        /// The id that it gets in memory.
        id: CommitId,
    },
    /// Copies a commit of a process on another host into memory. [`Event::Copied`] follows.
    Replicate {
        /// A process that never lived, whose memory gets the commit.
        process: Process,
        /// The process on the other host.
        keeper: Keeper,
        /// The commit.
        wanted: Wanted,
        /// The largest commit that may be copied, in bytes. None for no limit.
        limit: Option<u64>,
    },
    /// The agent exits: all processes have ended, or the kernel does not release them.
    Exit {
        /// What made the agent end. After [`End::Orphaned`] the shell may connect to a driver again.
        why: End,
        /// Killed processes that still exist.
        stuck: Vec<Process>,
    },
}

/// The reason why an agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The driver has sent a shutdown.
    ShutDown,
    /// The host has asked the agent to end.
    Stopped,
    /// The driver was absent for too long, or has not adopted the workers.
    Orphaned,
}

/// A signal to a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}
