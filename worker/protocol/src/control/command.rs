//! What the driver asks of an agent.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{AgentReport, Register};
use super::{Cut, Durable, Preload, ReplicaSource, Replication, ResumeFrom, Start, StoredCommit};
use crate::{Boundary, CommitId, DriverEpoch, HostId, LocalRank, Process, Rank, Round, millis};

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
        /// The number of the newest report of the agent that is applied. The agent keeps newer ones, to repeat them when
        /// it comes back. 0 from an older driver.
        #[serde(default)]
        applied: u64,
        /// Where drivers wait that would continue the run, each as `HOST:PORT`. The agent dials them too once it has lost this
        /// driver. Empty from an older driver.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        standbys: Vec<String>,
        /// The exit code of the job, once it has ended. `None` before that, and from an older driver.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job_code: Option<u8>,
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
    /// Lists the durable store. The agent reports [`AgentReport::DurableFound`]. Only sent to an agent that supports it
    /// ([`Register::durable`]).
    FindDurable {
        /// Grows with each command about the store.
        number: u64,
        /// A former run to look at, besides this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<ResumeFrom>,
    },
    /// Loads a commit of the durable store into memory, where the agent keeps it. The agent reports
    /// [`AgentReport::DurableLoaded`].
    LoadDurable {
        /// Grows with each command about the store.
        number: u64,
        /// The commit in the store.
        stored: StoredCommit,
        /// The id that it gets in this run.
        id: CommitId,
    },
    /// Keeps a replica of the newest commit of a process on another host, or none any more. The agent reports
    /// [`AgentReport::Replicated`] for each one. Only sent to an agent that supports it ([`Register::replicas`]).
    Replicate {
        /// Grows with each of these commands. An older one is a repeat.
        number: u64,
        /// The round that trains.
        round: Round,
        /// The last round that was planned. From the answer to a later plan on, no replica is given up.
        planned: Round,
        /// The commit from which the round began. Newer commits of earlier rounds are void.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<CommitId>,
        /// The process. Without one, replicas that are older than the base are given up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<ReplicaSource>,
    },
    /// Keeps shards of a divided state for other hosts.
    Cut(Cut),
    /// Runs exactly these parameter servers: starts those that never ran here, and ends others as [`AgentCommand::Stop`] does. The agent
    /// reports [`AgentReport::ServerExited`] for each that ends. Only sent to an agent that supports it ([`Register::servers`]).
    Servers {
        /// Grows with each of these commands. An older one is a repeat.
        number: u64,
        /// The servers of this host.
        run: Vec<Process>,
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
    /// Workers encrypt the messages of their collectives between hosts. False from an older driver.
    #[serde(default)]
    pub encrypt_data: bool,
    /// The bytes of the commits of all workers of a round beyond which each worker has two buffers, not three. None
    /// for no limit, and from an older driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_memory: Option<u64>,
    /// The driver goes on with the workers of the agent's [`Register::adoption`]. Otherwise an agent that has workers
    /// ends them, and begins anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// The durable store of commits. None for no store, and from an older driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<Durable>,
    /// How commits are replicated. None if they are not, and from an older driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// What standby interpreters import before a group restarts. None for no standby interpreters, and from an older
    /// driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preload: Option<Preload>,
    /// The parameter servers of the job. None if it has none, and from an older driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_servers: Option<ParameterServers>,
}

/// How the nodes of the parameter servers find each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParameterServers {
    /// The port of their scheduler, at the address of the driver.
    pub port: u16,
    /// The number of servers.
    pub servers: u32,
    /// The number of workers that the nodes wait for at their start. More may come later.
    pub workers: u32,
    /// The number of further servers that hold each value. None: servers are not elastic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
}

impl ParameterServers {
    /// The variables of each node, without its role and the address of the scheduler.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let elastic = self.replicas.map(|replicas| {
            let replicas = replicas.to_string();
            [("PS_ELASTIC", "1".to_owned()), ("PS_REPLICAS", replicas)]
        });
        [
            ("DMLC_PS_ROOT_PORT", self.port.to_string()),
            ("DMLC_NUM_SERVER", self.servers.to_string()),
            ("DMLC_NUM_WORKER", self.workers.to_string()),
        ]
        .into_iter()
        .chain(elastic.into_iter().flatten())
    }
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
