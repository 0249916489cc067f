//! The agent: one per host of a run, parent of the worker processes, keeper of their memory.
//!
//! [`run`] is all of it; the driver's binary calls it for `elasticrun agent`. What an agent decides is in
//! [`elasticrun_core::agent::Machine`]; here is the world around it.
//!
//! # Theory of operation
//! ```text
//! driver <--control--> [ the loop: fold -> step -> execute ] <--Unix socket--> workers
//!                         ^        ^          ^         \--pages, regions (shared memory)
//!                    deaths     pidfds      inbox <-- starter thread (fork, exec)
//!                (a thread each)                  <-- output thread --> driver (second connection)
//!                                                 <-- door (who knocks at the socket)
//!                store thread (requests of workers) <--> driver (third connection)
//! ```
//! `agent::Agent` is the loop: it folds all sources into one event, lets the machine step, and executes what
//! that commands. On the way of a recovery, from a worker's death to the report of it and the abort of its
//! peers, nothing waits and nothing is awaited: reads and writes of the loop never block.
//!
//! # Invariants
//! - A1 One agent per run and host: it holds a lock while it lives (`rundir`).
//! - A2 No process outlives its agent. At its end the agent kills all its descendants (`leftovers`); if it is
//!   killed itself, a parent-death signal ends its workers and a `guard` what these have started.
//! - A3 A process's exit is reported after all that it said and wrote.
//! - A4 At the agent's end the connection for output is closed before the control connection: a driver that
//!   has seen the end of the latter has all lines.
//!
//! # Not promised
//! Peers on this machine with our user id are trusted: who can trace our processes needs no secret.

mod agent;
mod clock;
mod connect;
mod discard;
mod error;
mod execute;
mod guard;
mod inbox;
mod launch;
mod leftovers;
mod link;
mod local;
mod memory;
mod memory_port;
mod options;
mod output;
mod ports;
mod probe;
mod process;
mod run;
mod rundir;
mod scheduling;
mod settings;
mod socket;
mod store;
mod wire;

pub use error::Error;
pub use launch::Launch;
pub use options::AgentOptions;
pub use run::{Ended, run};
pub use rundir::root as runs_directory;
pub use scheduling::{react_quickly, take_turns_as_usual};
pub use settings::{SettingsError, hex, read_settings};
pub use socket::tune_control;
