//! The options of a job that affect decisions of the core.

use std::time::Duration;

use elasticrun_protocol::control::ResumeFrom;

/// When a slot or host that failed may be used again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cooldown {
    /// Never: Horovod's default.
    Forever,
    /// After a time that doubles with each failure, from `low` up to `high`.
    Range {
        /// Cooldown of the first failure; zero is allowed.
        low: Duration,
        /// The longest cooldown, and the time of health that forgives one failure.
        high: Duration,
    },
}

/// What the failure of one worker takes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureDomain {
    /// Its host, unless there is only one host or the state is divided among workers: then its slot.
    Auto,
    /// Its host.
    Host,
    /// Its slot.
    Slot,
}

/// The effect of a failure or a change of the members on the processes of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartMode {
    /// Workers attach (the SDK does so) and continue in their processes.
    InProcess,
    /// All processes end and are started anew as one group ([`crate::groups`]).
    Process,
    /// Groups until a worker of the job attaches, in-process from then on.
    Auto,
}

/// The number of workers that hold one whole state together (`--replica-group-size`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaGroupSize {
    /// Each worker holds the whole state.
    One,
    /// So many workers, more than one, hold one state together: each holds a shard. A round has copies of the state in as many
    /// groups as there are workers for.
    Fixed(u32),
    /// All workers of a round hold one state together: each holds a shard.
    All,
}

/// Settings of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The job continues after failures; otherwise a failed worker ends it at once.
    pub elastic: bool,
    /// Workers needed to start.
    pub np: u32,
    /// Minimum workers; training pauses below this number.
    pub min_np: u32,
    /// Maximum workers; `None` for no limit.
    pub max_np: Option<u32>,
    /// Workers beyond `max_np` that are started and wait.
    pub spares: u32,
    /// Longest time with fewer than `min_np` workers that wait at `run()` or train.
    pub elastic_timeout: Duration,
    /// Longest time from the start of a process or an agent until it waits or connects.
    pub start_timeout: Duration,
    /// How long a survivor may take to return to `run()`.
    pub abort_timeout: Duration,
    /// How long a worker may take to reach the common boundary.
    pub interrupt_timeout: Duration,
    /// How long the other workers may take to end after the first success.
    pub exit_timeout: Duration,
    /// How long the driver waits, after it has lost all members of a round with their hosts, before it starts the next
    /// round ([`crate::lease::Lease::fence`]).
    pub fence: Duration,
    /// How long a host may be out of reach beyond the fence, before it is lost ([`crate::lease::Lease::keep`]).
    pub keep: Duration,
    /// The silence after which a host is out of reach ([`crate::lease::Lease::silence`]).
    pub silence: Duration,
    /// How long workers may train after a heartbeat of their agent ([`crate::lease`]).
    pub lease: Duration,
    /// How long workers may take to end after SIGTERM before they are killed.
    pub grace: Duration,
    /// How long a host of the round may take to answer a newcomer that dials it.
    pub probe_timeout: Duration,
    /// How long a growth waits for more workers after the first newcomer.
    pub last_call: Duration,
    /// Started rounds after the first that are allowed; one more fails the job.
    pub reset_limit: Option<u32>,
    /// Restarts after a failure of all workers; in process mode, after the failure of one worker ([`crate::groups`]).
    pub max_restarts: u32,
    /// Failures after which a domain is out for good; `None` for no limit.
    pub max_host_failures: Option<u32>,
    /// When a failed domain may be used again.
    pub cooldown: Cooldown,
    /// What the failure of a worker takes out.
    pub failure_domain: FailureDomain,
    /// The number of sources of hosts.
    pub sources: usize,
    /// Slots of a host whose source reports none; `None` for the slots that its agent offers.
    pub slots_per_host: Option<u32>,
    /// Hosts register themselves; the driver launches no agents.
    pub self_registration: bool,
    /// The number of agents that are launched at the same time, by ssh for example.
    pub launches_at_once: usize,
    /// The number of hosts beyond one that keep each commit, so that as many may be lost (`--replicate-commits`).
    pub replicas: u32,
    /// The time between the begins of two copies, of a state that is divided among workers.
    pub replica_interval: Duration,
    /// The job has a durable store of commits.
    pub durable: bool,
    /// The former run that the job continues from, by its durable commits.
    pub resume_from: Option<ResumeFrom>,
    /// The effect of a failure or a change on processes. Without effect in a job that is not elastic.
    pub restart_mode: RestartMode,
    /// The number of parameter servers that run beside the workers.
    pub servers: u32,
    /// Failures of parameter servers, one after the other, that end the job.
    pub server_failures: u32,
    /// The number of workers that hold one whole state together.
    pub replica_group_size: ReplicaGroupSize,
    /// A round has a multiple of so many workers, at least 1. `np`, `min_np` and `max_np` are multiples of it, and of the size of a
    /// replica group ([`Settings::unit`]).
    pub size_multiple: u32,
}

/// How long agents may take to reach a later driver, beyond the heartbeat timeout: their longest pause between two dials, and
/// the start of a connection.
const RECONNECT: Duration = Duration::from_secs(2);

impl Settings {
    /// How long a later driver of the run waits for agents that come back. An agent that has not noticed the end of the
    /// former driver does so after the heartbeat timeout.
    pub fn take_over(&self) -> Duration {
        self.probe_timeout + RECONNECT
    }

    /// Failures of elastic parameter servers, each soon after its start, after which the program is at fault.
    pub const SERVER_FAILURES: u32 = 5;

    /// How many agents the driver launches at the same time. More processes of ssh at once would slow down its machine.
    pub const LAUNCHES_AT_ONCE: usize = 64;

    /// A standard job of `np` workers with the defaults of the command line.
    pub fn standard(np: u32) -> Self {
        Self {
            elastic: false,
            np,
            min_np: np,
            max_np: Some(np),
            spares: 0,
            elastic_timeout: Duration::from_secs(600),
            start_timeout: Duration::from_secs(600),
            abort_timeout: Duration::from_secs(60),
            interrupt_timeout: Duration::from_secs(60),
            exit_timeout: Duration::from_secs(300),
            fence: Duration::from_secs(11),
            keep: Duration::from_secs(60),
            silence: Duration::from_millis(7_500),
            lease: crate::lease::UNLIMITED,
            grace: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(5),
            last_call: Duration::from_secs(1),
            reset_limit: None,
            max_restarts: 0,
            max_host_failures: Some(5),
            cooldown: Cooldown::Range {
                low: Duration::from_secs(10),
                high: Duration::from_secs(300),
            },
            failure_domain: FailureDomain::Auto,
            sources: 1,
            slots_per_host: None,
            self_registration: false,
            launches_at_once: Self::LAUNCHES_AT_ONCE,
            replicas: 0,
            replica_interval: Duration::from_secs(1),
            durable: false,
            resume_from: None,
            restart_mode: RestartMode::Auto,
            servers: 0,
            server_failures: Self::SERVER_FAILURES,
            replica_group_size: ReplicaGroupSize::One,
            size_multiple: 1,
        }
    }

    /// A round has a multiple of so many workers.
    pub fn unit(&self) -> u32 {
        let multiple = self.size_multiple.max(1);
        match self.replica_group_size {
            ReplicaGroupSize::Fixed(size) => {
                let (mut a, mut b) = (multiple, size.max(1));
                while b > 0 {
                    (a, b) = (b, a % b);
                }
                (multiple / a).saturating_mul(size.max(1))
            }
            ReplicaGroupSize::One | ReplicaGroupSize::All => multiple,
        }
    }

    /// Whether a failed domain may always be used again at once.
    pub fn nothing_is_blacklisted(&self) -> bool {
        let at_once = matches!(self.cooldown, Cooldown::Range { low, high } if low.is_zero() && high.is_zero());
        at_once && self.max_host_failures.is_none()
    }

    /// An elastic job with the defaults of the command line.
    pub fn elastic(np: u32, min_np: u32, max_np: Option<u32>) -> Self {
        Self {
            elastic: true,
            min_np,
            max_np,
            ..Self::standard(np)
        }
    }
}
