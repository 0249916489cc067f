//! The command line: `elasticrun [run] [OPTIONS] [--] COMMAND...`, `elasticrun agent`, `elasticrun config show`,
//! `elasticrun drain`, `elasticrun hosts`, `elasticrun plugin`, `elasticrun task-service`.
//!
//! Parsing is a function of the arguments and the environment; it starts nothing and prints nothing.
//!
//! # Invariants
//! - COMMAND starts at the first word that is neither an option nor an option's value, or behind `--`; nothing of
//!   it is ever read as ours. `run`, `agent`, `config`, `drain`, `hosts`, `plugin` and `task-service` are subcommands
//!   only as the very first word.
//! - Whatever is wrong is one [`Error`](crate::config::Error), one line.

mod agent;
mod argv;
mod command;
mod drain;
mod horovod;
mod invocation;
mod plugin;
mod refusal;

pub use agent::{AgentStart, Endpoint, JoinRequest};
pub use drain::DrainRequest;
pub use invocation::{HostsRequest, Invocation, RunRequest, SparkRequest, parse};
pub use plugin::{Language, NewPlugin, PluginCommand, PluginRequest};
