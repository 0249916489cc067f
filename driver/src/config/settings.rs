//! What the driver runs by: every setting resolved, right by itself and together with the others.

use std::{
    net::SocketAddr,
    num::{NonZeroU16, NonZeroU32},
    path::PathBuf,
    time::Duration,
};

use elasticrun_plugin_loader::{Allowed, Isolation, Spec};
use elasticrun_plugin_sdk::hosts::HostSpec;

use super::{
    cooldown::CooldownRange,
    durable::ResumeFrom,
    journal::EtcdPlace,
    kinds::{
        FailureDomain, Launcher, LogFormat, LogLevel, ReplicaGroupSize, RestartMode, SlotsPerHost,
        WorkerEnv,
    },
    line_filters::LineFilters,
    local_ranks::LocalRanks,
    network::SshOption,
    prefix_template::PrefixTemplate,
    preload::Preload,
    streams::Streams,
    variable::Variable,
};

/// A job as it was asked for. [`Settings::resolve`] is the only way to one.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// What each worker runs; the program, then its arguments. Never empty.
    pub command: Vec<String>,
    /// Whether a failed worker ends the job.
    pub mode: Mode,
    /// How many workers.
    pub workers: Workers,
    /// Where hosts come from.
    pub hosts: Hosts,
    /// How long each thing may take.
    pub timeouts: Timeouts,
    /// What follows a failure.
    pub failures: Failures,
    /// Where the journal is.
    pub journal: Journal,
    /// Whether a supervisor resumes the run when its driver dies.
    pub supervise: bool,
    /// How commits are replicated; none: not at all.
    pub replication: Option<Replication>,
    /// The parameter servers beside the workers; none: no servers.
    pub parameter_servers: Option<ParameterServers>,
    /// Where commits are written durably; none: nowhere.
    pub durable: Option<Durable>,
    /// How agents come to their hosts.
    pub launch: Launch,
    /// What is written where.
    pub output: Output,
}

/// Parameter servers beside the workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParameterServers {
    /// How many run.
    pub servers: NonZeroU32,
    /// The number of further servers that hold each value, less than `servers`. None: servers are not elastic.
    pub replicas: Option<u32>,
    /// Where elastic servers save their values.
    pub snapshots: Option<PsSnapshots>,
}

/// Snapshots of parameter servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PsSnapshots {
    /// A directory that all hosts and the driver's machine share, or the address of a bucket.
    pub place: String,
    /// The time between two of them.
    pub interval: Duration,
}

/// Whether a failed worker ends the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It does, at once and with exit code 1.
    Standard,
    /// It does not; the others go on.
    Elastic,
}

/// How many workers: 1 <= min_np <= np, and np <= max_np where there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workers {
    /// Needed to start.
    pub np: NonZeroU32,
    /// Minimum workers: training pauses below it.
    pub min_np: NonZeroU32,
    /// Maximum workers; none: as many as there are slots.
    pub max_np: Option<NonZeroU32>,
    /// Workers beyond `max_np` that wait. 0 when `max_np` is none.
    pub spares: u32,
    /// The number of workers that hold one whole state together.
    pub replica_group_size: ReplicaGroupSize,
    /// A round has a multiple of so many workers.
    pub size_multiple: NonZeroU32,
}

/// Where hosts come from. All sources are merged by host.
#[derive(Clone, PartialEq, Debug)]
pub struct Hosts {
    /// In this order; never empty.
    pub sources: Vec<Source>,
    /// Slots per host when discovery reports none.
    pub slots_per_host: SlotsPerHost,
    /// Where to look for plugins first.
    pub plugin_dirs: Vec<PathBuf>,
    /// Where plugins run that are not built in.
    pub plugin_isolation: Isolation,
    /// The only plugins that may run beside those built in; empty: all.
    pub plugin_allow: Vec<Allowed>,
    /// How often plugins that cannot push are asked.
    pub interval: Duration,
}

impl Hosts {
    /// The hosts of a job that has no other source than a fixed list.
    #[must_use]
    pub fn fixed(&self) -> Option<&[HostSpec]> {
        match self.sources.as_slice() {
            [Source::Fixed(hosts)] => Some(hosts),
            _ => None,
        }
    }
}

/// One source of hosts.
#[derive(Clone, PartialEq, Debug)]
pub enum Source {
    /// A list that does not change; never empty, each host once.
    Fixed(Vec<HostSpec>),
    /// A program that prints the current hosts; an absolute path.
    Script(PathBuf),
    /// A plugin by name.
    Plugin(Spec),
    /// Agents that register themselves are the hosts. Only with [`Launcher::Agent`].
    Registration,
}

/// How long each thing may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Wait for `min_np` workers.
    pub elastic: Duration,
    /// From the start of a worker to its waiting for a round.
    pub start: Duration,
    /// For a survivor to come back after a failure.
    pub abort: Duration,
    /// For a worker to reach the common boundary of an interrupt.
    pub interrupt: Duration,
    /// For the workers of a host that asks its agent to end (SIGTERM) to leave. May be zero.
    pub drain: Duration,
    /// For a host to go away after SIGUSR1 to its agent; none: not known.
    pub signal_notice: Option<Duration>,
    /// For the others after the first success.
    pub exit: Duration,
    /// For workers to live without a driver.
    pub orphan: Duration,
    /// From SIGTERM to SIGKILL of a worker that is stopped. May be zero.
    pub shutdown: Duration,
    /// For a growth to wait for more workers after the first. May be zero.
    pub last_call: Duration,
    /// Between two heartbeats; shorter than `heartbeat`.
    pub heartbeat_interval: Duration,
    /// Silence of a host or worker that has failed.
    pub heartbeat: Duration,
}

/// What follows a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failures {
    /// Started rounds after the first; the next fails the job.
    pub reset_limit: Option<u32>,
    /// Restarts when all workers failed by themselves, or in process mode when one failed.
    pub max_restarts: u32,
    /// What a failure or change does to the workers' processes.
    pub restart_mode: RestartMode,
    /// Cooldown of a failed domain; none: it is out for good at once.
    pub cooldown: Option<CooldownRange>,
    /// Failures after which a domain is out for good; none: no limit.
    pub max_host_failures: Option<NonZeroU32>,
    /// What a worker's failure takes out; none: the host, or the slot while there is one host.
    pub domain: Option<FailureDomain>,
}

/// How many hosts keep each commit, and how often copies are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replication {
    /// The number of hosts beyond one, at least 1.
    pub hosts: NonZeroU32,
    /// Between two copies.
    pub interval: Duration,
    /// Bytes that a host receives in a second.
    pub bandwidth: Option<u64>,
}

/// Where commits are written durably, and how often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Durable {
    /// The absolute path of a directory, or the address of a bucket with a prefix.
    pub place: String,
    /// Between two writes.
    pub interval: Duration,
    /// The former run that the job continues from.
    pub resume_from: ResumeFrom,
}

/// Where the journal of a job is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Journal {
    /// The job has none.
    None,
    /// In the state directory of the user, if it can be created there.
    InStateDirectory,
    /// In this file, by its absolute path.
    File(PathBuf),
    /// In etcd.
    Etcd(EtcdPlace),
}

/// How agents come to their hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The same for all hosts; none: [`launcher_of`](super::launcher_of) each.
    pub launcher: Option<Launcher>,
    /// Where the driver listens; none: any free port.
    pub listen: Option<SocketAddr>,
    /// Self-registration by token is open. Some with [`Launcher::Agent`], if no embedder provides the hosts.
    pub join: Option<Join>,
    /// A socket to the program that provides hosts ([`crate::embedder`]). The hosts register themselves.
    pub embedder_fd: Option<i32>,
    /// A pipe to the program whose function the workers call ([`crate::call_identity`]).
    pub call: Option<i32>,
    /// Whose variables that configure training workers on other hosts have.
    pub worker_env: WorkerEnv,
    /// Variables that workers on other hosts get in any case.
    pub env: Vec<Variable>,
    /// The cluster of Spark whose executors are the hosts, as Spark names it: `spark://host:7077`, `yarn`, `k8s://...`,
    /// `local-cluster[2,1,1024]`.
    pub spark: Option<String>,
    /// How ssh is called.
    pub ssh: Ssh,
    /// Copy this binary to hosts that do not have it.
    pub push_binary: bool,
    /// Interfaces for data between workers, in order of preference; empty: by route to the driver.
    pub network_interfaces: Vec<String>,
    /// Workers encrypt the messages of their collectives between hosts.
    pub encrypt_data: bool,
    /// The bytes of the commits of all workers of a round beyond which each worker has two buffers, not three.
    pub commit_memory: Option<u64>,
    /// What standby interpreters import before a restart in process mode.
    pub preload: Preload,
    /// A file whose appearance on a host says that the host will go away.
    pub notice_file: Option<String>,
}

/// How self-registering agents learn the join token. At least one of the two is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// A file that holds it, or that the driver makes with mode 600.
    pub token_file: Option<PathBuf>,
    /// Print address and token.
    pub print: bool,
}

/// How the system's ssh is called. What is not set is as `~/.ssh/config` says.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Ssh {
    /// `-p`
    pub port: Option<NonZeroU16>,
    /// `-i`
    pub identity_file: Option<PathBuf>,
    /// `-o`, each.
    pub options: Vec<SshOption>,
}

/// What is written where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Directory of `rank.NNN/{stdout,stderr}`.
    pub directory: Option<PathBuf>,
    /// Streams that only the files have.
    pub redirects: Streams,
    /// Texts of lines of standard output that one more file has.
    pub stdout_filters: Option<LineFilters>,
    /// Texts of lines of standard error that one more file has.
    pub stderr_filters: Option<LineFilters>,
    /// Workers whose output is shown; none: all.
    pub shown: Option<LocalRanks>,
    /// What stands before each line on the console.
    pub prefix: Prefix,
    /// Level of the log on stderr.
    pub log_level: LogLevel,
    /// Form of the log on stderr.
    pub log_format: LogFormat,
    /// No progress and no summary.
    pub quiet: bool,
}

/// What stands before each line of a worker's output on the console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prefix {
    /// Nothing.
    None,
    /// `[rank]<stdout>:`
    Rank,
    /// The time, then `[rank]<stdout>:`
    TimeAndRank,
    /// A text of the user.
    Template(PrefixTemplate),
}
