//! Standby interpreters: Python processes that have imported what the script imports, and become workers at a restart.
//!
//! A group without the SDK restarts as a whole, and most of the time its interpreters import the same modules again. So a fork
//! server imports them once per host, while the group runs. It forks interpreters ahead, and more on demand. A worker that
//! comes of one is an ordinary worker: a child of the agent, the leader of its session, with the same variables, output,
//! arguments and exit code.
//!
//! ```text
//! agent -- keeper thread --fork, exec--> fork server --fork--> parent --fork--> interpreter
//!   \-- starter thread --variables, pipes--------------------------------------/  (a child of the agent once its
//!                                                                                  parent has ended)
//! ```
//!
//! # Invariants
//! - The first group starts without standby interpreters, so nothing delays it.
//! - A worker starts at most once: an interpreter that does not confirm its start is killed before the ordinary start.
//! - No error here fails a worker. The ordinary start takes over.
//! - The fork server has one thread, no child and no open device, socket or file to write to. A module whose import changes this is
//!   left out, and the server begins anew.
//! - Each interpreter has the environment that a fresh one would have had when it imported the modules, but for the
//!   variables that differ between workers ([`is_of_process`](super::environment::is_of_process)).
//!
//! # Not promised
//! Interpreters of one server share their hash seed. `/proc/PID/environ` lacks the variables that differ between workers.

mod error;
mod fork_server;
mod interpreter;
mod keeper;
mod keeping;
mod python_command;
mod sources;
mod stock;
mod template;

pub(crate) use keeper::Keeper;
