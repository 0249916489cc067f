//! The command line: `elasticrun [run] [OPTIONS] [--] COMMAND...`, `elasticrun agent`, `elasticrun drain`,
//! `elasticrun config show`.
//!
//! Parsing is a function of the arguments and the environment; it starts nothing and prints nothing.
//!
//! # Invariants
//! - COMMAND starts at the first word that is neither an option nor an option's value, or behind `--`; nothing of
//!   it is ever read as ours. `run`, `agent`, `drain` and `config` are subcommands only as the very first word.
//! - Whatever is wrong is one [`Error`](crate::config::Error), one line.

mod agent;
mod argv;
mod command;
mod drain;
mod horovod;
mod invocation;
mod refusal;

pub use agent::{AgentStart, Endpoint, JoinRequest};
pub use drain::DrainRequest;
pub use invocation::{Invocation, RunRequest, parse};
