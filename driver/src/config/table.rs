//! All settings, in one table: key, type, default and help. The flags, the keys of a file, the names of
//! the environment variables, `config show` and the defaults named by `--help` are made from it.

#![allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::invalid_html_tags,
    reason = "a setting's comment is its line of --help, which is no Markdown"
)]

use std::{
    net::SocketAddr,
    num::{NonZeroU16, NonZeroU32},
    path::PathBuf,
    time::Duration,
};

use clap::Arg;
use toml::Value;

use elasticrun_plugin_loader::{Allowed, Isolation, Spec};

use super::{
    cooldown::CooldownRange,
    durable::{DurablePlace, ResumeFrom},
    error::Error,
    group::Group,
    hosts::HostList,
    journal::JournalPlace,
    kinds::{
        BlacklistPolicy, Encryption, FailureDomain, Launcher, LogFormat, LogLevel,
        ReplicaGroupSize, RestartMode, SlotsPerHost, WorkerEnv,
    },
    layer::{Layers, Origin},
    line_filters::LineFilters,
    local_ranks::LocalRanks,
    network::{Interfaces, SshOption},
    prefix_template::PrefixTemplate,
    preload::Preload,
    size::Size,
    spark::Master,
    streams::Streams,
    value::{Setting, Shape, Timeout},
    variable::Variable,
};

/// A setting as the command line needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in a file; its flag is `--name`.
    pub name: &'static str,
    /// How many words it takes.
    pub shape: Shape,
    /// The allowed words. Empty: there are too many to list.
    pub words: &'static [&'static str],
    pub(crate) heading: &'static str,
    pub(crate) value_name: &'static str,
    pub(crate) help: &'static str,
    /// Short flag and aliases.
    pub(crate) spelling: fn(Arg) -> Arg,
}

/// A value and who set it.
#[derive(Clone, Debug)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Who set it.
    pub origin: Origin,
}

impl<T: Setting> Sourced<T> {
    fn read(layers: &Layers, key: &str, default: T) -> Result<Self, Error> {
        let Some(given) = layers.get(key) else {
            return Ok(Self {
                value: default,
                origin: Origin::Default,
            });
        };
        match T::read(&given.words) {
            Ok(value) => Ok(Self {
                value,
                origin: given.origin.clone(),
            }),
            Err(allowed) => Err(Error::Value {
                written: given.origin.written(key, &given.words),
                allowed,
            }),
        }
    }
}

impl<T> Sourced<T> {
    /// Somebody set it, even if to its default.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.origin != Origin::Default
    }
}

/// A setting as `config show` prints it.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its name.
    pub key: &'static str,
    /// Its value as in a file; none if it is not set.
    pub value: Option<Value>,
    /// Who set it.
    pub origin: Origin,
    /// It is other than the default.
    pub differs: bool,
}

macro_rules! settings {
    ($(
        $heading:literal {$(
            $(#[doc = $help:literal])+
            $field:ident $key:literal $value_name:literal: $type:ty = $default:expr, $spelling:expr;
        )+}
    )+) => {
        /// Every setting with its origin, each right by itself. Whether they are right together is
        /// for [`Settings`](super::Settings) to say.
        #[derive(Clone, Debug)]
        pub struct Config {
            $($(
                $(#[doc = $help])+
                pub $field: Sourced<$type>,
            )+)+
        }

        /// All settings in the order of `--help`.
        pub const KEYS: &[Key] = &[$($(
            Key {
                name: $key,
                shape: <$type as Setting>::SHAPE,
                words: <$type as Setting>::WORDS,
                heading: $heading,
                value_name: $value_name,
                help: concat!($($help),+),
                spelling: $spelling,
            },
        )+)+];

        impl Config {
            pub(super) fn read(layers: &Layers) -> Result<Self, Error> {
                Ok(Self {
                    $($($field: Sourced::read(layers, $key, $default)?,)+)+
                })
            }

            /// All settings in the order of [`KEYS`].
            #[must_use]
            pub fn rows(&self) -> Vec<Row> {
                vec![$($({
                    let default: $type = $default;
                    let value = self.$field.value.show();
                    Row {
                        key: $key,
                        differs: value != default.show(),
                        value,
                        origin: self.$field.origin.clone(),
                    }
                },)+)+]
            }
        }
    };
}

const fn plain(arg: Arg) -> Arg {
    arg
}

const fn seconds(count: u32) -> Timeout {
    match NonZeroU32::new(count) {
        Some(count) => Timeout::seconds(count),
        None => panic!("a timeout of the table is not zero"),
    }
}

const COOLDOWN: CooldownRange =
    match CooldownRange::new(Duration::from_secs(10), Duration::from_secs(300)) {
        Some(range) => range,
        None => panic!("the range of the table is ordered"),
    };

settings! {
    "Workers" {
        /// Workers needed to start, also as -np N [default: the slots of the hosts given, else --min-np]
        np "np" "N": Option<NonZeroU32> = None,
            |arg| arg.long("num-proc").visible_alias("np");
        /// Minimum workers; training pauses below it, and the job fails after --elastic-timeout [default: -np]
        min_np "min-np" "N": Option<NonZeroU32> = None, |arg| arg.visible_alias("min-num-proc");
        /// Maximum workers [default: -np with fixed hosts, unbounded with discovery]
        max_np "max-np" "N": Option<NonZeroU32> = None, |arg| arg.visible_alias("max-num-proc");
        /// Workers beyond --max-np that are started and wait to replace a failed worker
        spares "spares" "N": u32 = 0, plain;
        /// Workers that hold one whole state together: 1 (each holds all of it), N (each holds a shard, and rounds have whole
        /// groups of N), or all (the workers of a round are one group)
        replica_group_size "replica-group-size" "N|all": ReplicaGroupSize = ReplicaGroupSize::ONE, plain;
        /// Run rounds with a multiple of M workers, such as the product of tensor and pipeline parallel sizes
        size_multiple "size-multiple" "M": NonZeroU32 = NonZeroU32::MIN, plain;
        /// Slots per host when discovery reports none; auto: the number of its GPUs, else 1
        slots_per_host "slots-per-host" "N|auto": SlotsPerHost = SlotsPerHost::Auto,
            |arg| arg.visible_alias("slots");
    }
    "Parameter servers" {
        /// Parameter servers to run beside the workers, as the same command with DMLC_ROLE=server; docs/parameter-server.md
        ps "ps" "N": u32 = 0, plain;
        /// Make the servers elastic: they join, leave and fail while the job runs, and K further ones hold each value
        ps_replicas "ps-replicas" "K": Option<u32> = None, plain;
        /// Shared directory, or s3://BUCKET/PREFIX or gs://..., in which elastic servers save their values. The next job of the
        /// same place begins with them
        ps_snapshots "ps-snapshots" "PLACE": Option<DurablePlace> = None, plain;
        /// Time between two saves to --ps-snapshots. Values are also saved when all workers have finished
        ps_snapshot_interval "ps-snapshot-interval" "TIME": Timeout = seconds(300), plain;
    }
    "Hosts" {
        /// Fixed hosts with their slots: a:4,b:4 [default: localhost:NP]
        hosts "hosts" "HOST:SLOTS,...": Option<HostList> = None, |arg| arg.short('H');
        /// File with fixed hosts, one per line: HOST slots=N
        hostfile "hostfile" "FILE": Option<PathBuf> = None, plain;
        /// Executable that prints current hosts, one per line: HOST or HOST:SLOTS
        host_discovery_script "host-discovery-script" "PATH": Option<PathBuf> = None, plain;
        /// Plugin that lists hosts; may be repeated, all sources are merged
        discovery "discovery" "NAME[:K=V,...]": Vec<Spec> = Vec::new(), plain;
        /// Hosts from EC2 Auto Scaling groups: NAME or NAME,NAME
        aws_asg "aws-asg" "NAME[:K=V,...]": Vec<Group> = Vec::new(), plain;
        /// Hosts from a Google Cloud managed instance group: PROJECT/ZONE-OR-REGION/NAME
        gcp_mig "gcp-mig" "P/Z/N[:K=V,...]": Vec<Group> = Vec::new(), plain;
        /// Hosts are the pods that match a label selector
        k8s "k8s" "SELECTOR[:K=V,...]": Vec<Group> = Vec::new(), plain;
        /// Hosts are the nodes of the current Slurm job
        slurm "slurm" "": bool = false, plain;
        /// Hosts are the executors of Spark: spark://HOST:PORT, yarn, k8s://...; docs/spark.md
        spark "spark" "MASTER": Option<Master> = None, plain;
        /// Directory to search for plugins first; may be repeated
        plugin_dir "plugin-dir" "DIR": Vec<PathBuf> = Vec::new(), plain;
        /// Where plugins run that are not built in: process (one each), or thread (in the driver)
        plugin_isolation "plugin-isolation" "WHERE": Isolation = Isolation::Process, plain;
        /// Allow only built-in plugins and those with this hash, NAME=sha256:...; may be repeated
        plugin_allow "plugin-allow" "NAME=HASH": Vec<Allowed> = Vec::new(), plain;
        /// Time between polls of a plugin that cannot push
        discovery_interval "discovery-interval" "TIME": Timeout = seconds(1), plain;
    }
    "Timeouts" {
        /// Longest wait for --min-np workers, also while discovery hangs
        elastic_timeout "elastic-timeout" "TIME": Timeout = seconds(600), plain;
        /// Longest time from the start of a worker until it waits for a round
        start_timeout "start-timeout" "TIME": Timeout = seconds(600), plain;
        /// Longest wait for a survivor to return after a failure
        abort_timeout "abort-timeout" "TIME": Timeout = seconds(60), plain;
        /// Longest wait for a worker to reach the common boundary of an interrupt
        interrupt_timeout "interrupt-timeout" "TIME": Timeout = seconds(60), plain;
        /// Time that an agent gives its workers to leave after SIGTERM; 0: none
        drain_timeout "drain-timeout" "TIME": Duration = Duration::from_secs(25), plain;
        /// Time that a host stays after SIGUSR1 to its agent [default: until the end of the Slurm job, if known]
        signal_notice "signal-notice" "TIME": Option<Timeout> = None, plain;
        /// Longest wait for the other workers after the first success
        exit_timeout "exit-timeout" "TIME": Timeout = seconds(300), plain;
        /// Time that agents keep their workers after the driver has ended
        orphan_timeout "orphan-timeout" "TIME": Timeout = seconds(5), plain;
        /// Time between SIGTERM and SIGKILL of a worker that is stopped
        shutdown_timeout "shutdown-timeout" "TIME": Duration = Duration::from_secs(5), plain;
        /// Time to wait for further workers after the first new one
        last_call "last-call" "TIME": Duration = Duration::from_secs(1), plain;
        /// Interval of heartbeats
        heartbeat_interval "heartbeat-interval" "TIME": Timeout = seconds(1), plain;
        /// Time without heartbeat after which a host or worker is failed
        heartbeat_timeout "heartbeat-timeout" "TIME": Timeout = seconds(5), plain;
    }
    "Failures" {
        /// Maximum number of rounds after the first; one more fails the job [default: no limit]
        reset_limit "reset-limit" "N": Option<u32> = None, |arg| arg.visible_alias("max-resets");
        /// Restarts after all workers failed, or in process mode after one failed; makes a job elastic
        max_restarts "max-restarts" "N": u32 = 0, plain;
        /// What a failure or change restarts: in-process (nothing, workers continue), process (all workers, for scripts
        /// without the SDK), or auto (process until a worker attaches)
        restart_mode "restart-mode" "MODE": RestartMode = RestartMode::Auto, plain;
        /// Failures after which a host is never used again; 0: no limit
        max_host_failures "max-host-failures" "N": u32 = 5, plain;
        /// Whether a failed host may return: forever (it may not), or cooldown
        blacklist "blacklist" "POLICY": BlacklistPolicy = BlacklistPolicy::Cooldown, plain;
        /// First and longest cooldown of a failed host; LO may be 0
        blacklist_cooldown_range "blacklist-cooldown-range" "LO HI": CooldownRange = COOLDOWN, plain;
        /// What to blacklist when a worker fails: host, or slot [default: host; slot when there is one host, or with
        /// --replica-group-size above 1]
        failure_domain "failure-domain" "WHAT": Option<FailureDomain> = None, plain;
    }
    "Survival" {
        /// File or etcd://HOST,... for what elasticrun resume needs; auto: in the state directory of the user
        journal "journal" "PATH|URL|auto": JournalPlace = JournalPlace::None, plain;
        /// Resume the run when its driver dies; --journal is auto unless given
        supervise "supervise" "": bool = false, plain;
        /// Keep copies of commits on further hosts, so that the state survives the loss of any K hosts
        replicate_commits "replicate-commits" "K": u32 = 0, plain;
        /// Time between two copies of --replicate-commits
        replicate_interval "replicate-interval" "TIME": Timeout = seconds(1), plain;
        /// Bytes that a host receives in a second for --replicate-commits [default: no limit]
        replicate_bandwidth "replicate-bandwidth" "SIZE": Option<Size> = None, plain;
        /// Shared directory, or s3://BUCKET/PREFIX or gs://..., to which commits are written in the background, to survive
        /// the loss of all hosts
        durable_commits "durable-commits" "PLACE": Option<DurablePlace> = None, plain;
        /// Run whose durable commits a new job continues from: RUN_ID, latest, or none
        resume_from "resume-from" "RUN": ResumeFrom = ResumeFrom::None, plain;
        /// Time between two writes to --durable-commits
        durable_interval "durable-interval" "TIME": Timeout = seconds(60), plain;
    }
    "Launch" {
        /// How agents are started: local, ssh, or agent (they register themselves) [default: by host, local or ssh]
        launcher "launcher" "HOW": Option<Launcher> = None, plain;
        /// Address where the driver listens for agents [default: a free port on the route to each host]
        listen "listen" "ADDR:PORT": Option<SocketAddr> = None, plain;
        /// Token of self-registering agents; created with mode 600 if the file does not exist
        join_token_file "join-token-file" "FILE": Option<PathBuf> = None, plain;
        /// Print the address and the token for self-registering agents
        print_join_token "print-join-token" "": bool = false, plain;
        /// (internal) An inherited socket to the program that provides the hosts
        parent_fd "parent-fd" "N": Option<NonZeroU32> = None, |arg| arg.hide(true);
        /// (internal) An inherited pipe for the key by which workers fetch the function that they call
        call_fd "call-fd" "N": Option<NonZeroU32> = None, |arg| arg.hide(true);
        /// Whose variables that configure training workers on other hosts have: driver (sent to them), or host (their own)
        worker_env "worker-env" "WHOSE": WorkerEnv = WorkerEnv::Driver, plain;
        /// Variable to send to workers on other hosts: NAME, or NAME=VALUE; may be repeated
        env "env" "NAME[=VALUE]": Vec<Variable> = Vec::new(), plain;
        /// Port of ssh [default: as ~/.ssh/config says]
        ssh_port "ssh-port" "PORT": Option<NonZeroU16> = None, |arg| arg.short('p');
        /// Private key for ssh [default: as ~/.ssh/config says]
        ssh_identity_file "ssh-identity-file" "FILE": Option<PathBuf> = None, |arg| arg.short('i');
        /// An option for ssh -o; may be repeated
        ssh_option "ssh-option" "NAME=VALUE": Vec<SshOption> = Vec::new(), plain;
        /// Copy this binary to hosts without it
        push_binary "push-binary" "": bool = false, plain;
        /// File whose appearance on a host announces that the host will go away; may contain the seconds left
        notice_file "notice-file" "PATH": Option<PathBuf> = None, plain;
        /// Interfaces for data between workers [default: by route to the driver]
        network_interface "network-interface" "NAME,...": Interfaces = Interfaces::default(),
            |arg| arg.visible_alias("network-interfaces");
        /// What standby interpreters import ahead of a restart in process mode: auto (what the script imports), none, or modules
        preload "preload" "MODULE,...": Preload = Preload::None, plain;
        /// What workers encrypt between hosts: none, or data (their collectives, which are authenticated in any case)
        encrypt "encrypt" "WHAT": Encryption = Encryption::None, plain;
        /// Memory for commits of all workers; where three of each would exceed it, each has two [default: no limit]
        commit_memory "commit-memory" "SIZE": Option<Size> = None, plain;
    }
    "Output" {
        /// Write DIR/rank.NNN/stdout and stderr
        output_filename "output-filename" "DIR": Option<PathBuf> = None, plain;
        /// Streams that are only written to files: 0, 1 (stdout), 2 (stderr), 3 (both), or by local rank: 0:1,1:3
        redirects "redirects" "STREAMS": Streams = Streams::NONE, plain;
        /// Also write lines of standard output that contain S, or one of S,S,..., to DIR/filtered_stdout.log
        duplicate_stdout_filters "duplicate-stdout-filters" "S": Option<LineFilters> = None, plain;
        /// Also write lines of standard error that contain S, or one of S,S,..., to DIR/filtered_stderr.log
        duplicate_stderr_filters "duplicate-stderr-filters" "S": Option<LineFilters> = None, plain;
        /// Show only the output of these local ranks; files have that of all
        local_ranks_filter "local-ranks-filter" "N,...": Option<LocalRanks> = None, plain;
        /// Prefix of each line of output; ${rank}, ${local_rank}, ${hostname} and ${role_name} are replaced
        line_prefix "line-prefix" "TEXT": Option<PrefixTemplate> = None, plain;
        /// Prefix each line of output with the time
        prefix_output_with_timestamp "prefix-output-with-timestamp" "": bool = false, plain;
        /// Do not prefix each line of output with [rank]<stdout>:
        no_prefix "no-prefix" "": bool = false, plain;
        /// Log level: error, warn, info, debug or trace [default: info; warn with --quiet, debug with --verbose]
        log_level "log-level" "LEVEL": Option<LogLevel> = None, plain;
        /// Log format: text, or json, where each line on standard error is an event
        log_format "log-format" "FORMAT": LogFormat = LogFormat::Text, plain;
        /// Print no progress and no summary, only errors
        quiet "quiet" "": bool = false, plain;
        /// Log each decision
        verbose "verbose" "": bool = false, plain;
    }
}
