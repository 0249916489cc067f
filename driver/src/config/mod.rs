//! One configuration is the truth: defaults < `--config FILE` < `ELASTICRUN_*` < flags.
//!
//! [`Sources`] gathers words, [`Config`] holds every setting with its origin, each right by itself, and
//! [`Settings`] is the job they describe together: what the driver runs by. A setting is one entry of the
//! table in `table.rs`.
//!
//! # Invariants
//! - A value means the same wherever it was written; a wrong one is one line that names the flag, key or
//!   variable, the value, and what is allowed.
//! - Nothing is started and nothing is written before [`Settings`] exists; only files are read.
//!
//! # Not promised
//! That what a path names is still there when the job starts.

mod cooldown;
mod counts;
pub mod duration;
mod error;
mod file;
mod group;
mod hosts;
mod kinds;
mod layer;
mod locality;
mod nearest;
mod network;
mod paths;
mod plugin;
mod resolve;
mod settings;
mod show;
mod source;
mod spark;
mod table;
mod value;
mod variable;

pub use cooldown::CooldownRange;
pub use error::{Error, Written};
pub use group::Group;
pub use hosts::HostList;
pub use kinds::{
    BlacklistPolicy, FailureDomain, Launcher, LogFormat, LogLevel, RestartMode, SlotsPerHost,
};
pub use layer::{Origin, flag, variable};
pub use locality::{is_local, launcher_of};
pub use network::{Interfaces, SshOption};
pub use settings::{
    Failures, Hosts, Join, Launch, Mode, Output, Prefix, Settings, Source, Ssh, Timeouts, Workers,
};
pub use source::{FlagWords, Sources};
pub use table::{Config, KEYS, Key, Row, Sourced};
pub use value::{Setting, Shape, Timeout};
pub use variable::Variable;
