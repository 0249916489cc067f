//! The command line: `elasticrun [run] [OPTIONS] [--] COMMAND...`, `elasticrun agent`,
//! `elasticrun completions`, `elasticrun config show`, `elasticrun data`, `elasticrun drain`, `elasticrun hosts`,
//! `elasticrun man`, `elasticrun plugin`, `elasticrun resume`, `elasticrun task-service`,
//! `elasticrun token`, `elasticrun torchrun`.
//!
//! Parsing is a function of the arguments and the environment; it starts nothing and prints nothing.
//!
//! # Invariants
//! - COMMAND starts at the first word that is neither an option nor an option's value, or after `--`. Its words are
//!   never parsed. The names of subcommands (`tree`) and `task-service` are subcommands only as the first word.
//! - Each mistake is one [`Error`](crate::config::Error) of one line.

mod agent;
#[cfg(any(test, fuzzing))]
pub mod any_input;
mod argv;
mod command;
mod completions;
mod drain;
mod horovod;
mod invocation;
mod man;
mod parse;
mod plugin;
mod refusal;
mod resume;
mod token;
mod torchrun;
mod tree;

pub use agent::{AgentStart, Endpoint, JoinRequest};
pub use drain::DrainRequest;
pub use invocation::{HostsRequest, Invocation, RunRequest, SparkRequest};
pub use parse::parse;
pub use plugin::{Language, NewPlugin, PluginCommand, PluginRequest};
pub use torchrun::{ElectedRequest, NodeRequest};
