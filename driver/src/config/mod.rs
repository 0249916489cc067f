//! The configuration, merged from all sources: defaults < `--config FILE` < `ELASTICRUN_*` < flags.
//!
//! [`Sources`] collects words. [`Config`] holds each setting with its origin, and each value is valid by itself.
//! [`Settings`] holds the complete and consistent settings of a job. A setting is one entry of the table in `table.rs`.
//!
//! # Invariants
//! - A value has the same meaning in each source. An invalid value gives one line with the flag, key or variable, the
//!   value, and what is allowed.
//! - Nothing is started and nothing is written before [`Settings`] exists. Only files are read.
//!
//! # Not promised
//! That a checked path still exists when the job starts.

#[cfg(any(test, fuzzing))]
pub mod any_input;
mod command;
mod cooldown;
mod counts;
mod durable;
pub mod duration;
mod error;
mod file;
mod group;
mod host_sources;
mod hosts;
mod journal;
mod kinds;
mod layer;
mod line_filters;
mod local_ranks;
mod locality;
mod nearest;
mod network;
mod parameter_servers;
mod paths;
mod plugin;
mod prefix_template;
mod preload;
mod replica_groups;
mod replication;
mod resolve;
mod settings;
mod show;
mod size;
mod source;
mod spark;
mod streams;
mod table;
mod unknown;
mod value;
mod variable;
mod words;

pub use command::check_command;
pub use cooldown::CooldownRange;
pub(crate) use counts::idle_slots;
pub use durable::{DurablePlace, ResumeFrom};
pub use error::{Error, Written};
pub use group::Group;
pub use hosts::HostList;
pub(crate) use journal::lease as lease_in_etcd;
pub use journal::{EtcdPlace, JournalPlace};
pub use kinds::{
    BlacklistPolicy, Encryption, FailureDomain, Launcher, LogFormat, LogLevel, ReplicaGroupSize,
    RestartMode, SlotsPerHost, WorkerEnv,
};
pub use layer::{Origin, flag, variable};
pub use line_filters::LineFilters;
pub use local_ranks::LocalRanks;
pub(crate) use locality::interface_addresses;
pub use locality::{is_local, launcher_of};
pub use network::{Interfaces, SshOption, check_interfaces};
pub(crate) use paths::reason;
pub use prefix_template::{Labels, PrefixTemplate};
pub use preload::Preload;
pub use settings::{
    Durable, Failures, Hosts, Join, Journal, Launch, Mode, Output, ParameterServers, Prefix,
    PsSnapshots, Settings, Source, Ssh, Timeouts, Workers,
};
pub use size::Size;
pub use source::{FlagWords, Sources};
pub use streams::Streams;
pub use table::{Config, KEYS, Key, Row, Sourced};
pub(crate) use unknown::{PREFIX, unknown_variables};
pub use value::{Setting, Shape, Timeout};
pub use variable::Variable;
pub use words::Words;
