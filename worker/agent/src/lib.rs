//! The agent: one per host of a run. It is the parent of the worker processes and owns their memory.
//!
//! [`run`] is the entry point; the driver's binary calls it for `elasticrun agent`.
//! [`elasticrun_core::agent::Machine`] makes the decisions. This crate does the I/O.
//!
//! # Theory of operation
//! ```text
//! driver <--control--> [ the loop: fold -> step -> execute ] <--Unix socket--> workers
//!                         ^        ^          ^         \--pages, regions (shared memory)
//!                  liveness     pidfds      inbox <-- starter thread (fork, exec; or standby interpreters, which
//!                (a thread each)                  |   a thread keeps)
//!                                                 <-- output thread --> driver (second connection)
//!                                                 <-- acceptor (attach requests at the socket)
//!                store thread (requests of workers) <--> driver (third connection)
//! ```
//! `agent::Agent` is the loop. It folds all sources into one event, lets the machine step, and executes its
//! commands. Reads and writes of the loop never block. So nothing delays the path from a worker's death to the
//! report of it and the abort of its peers.
//!
//! # Invariants
//! - A1 There is one agent per run and host. It holds a lock while it lives (`run_dir`).
//! - A2 No process outlives its agent. At its end the agent kills all its descendants (`orphans`). If the agent
//!   is killed, a parent-death signal ends its workers, and `reaper_process` ends what these have started.
//! - A3 The exit of a process is reported after all its messages and its output.
//! - A4 At the agent's end the connection for output closes before the control connection. A driver that has
//!   seen the end of the latter therefore has all lines.
//!
//! # Not promised
//! Processes of this machine with our user id are trusted, since they can trace our processes and need no secret.

mod agent;
mod clock;
mod connect;
mod deferred_free;
mod duplex;
mod durable;
mod error;
mod execute;
mod inbox;
mod interfaces;
mod join;
mod keys;
mod last_will;
mod launch;
mod link;
mod local;
mod memory;
mod memory_port;
mod numa;
mod open_files;
mod options;
mod orphans;
mod output;
mod passing_on;
mod ports;
mod probe;
mod process;
mod reaper_process;
mod redial;
mod region;
mod replica;
mod return_to_driver;
mod run;
mod run_dir;
mod scheduling;
mod session;
mod settings;
mod socket;
mod spans;
mod stop_signals;
mod store;
mod token_file;

#[cfg(any(test, fuzzing))]
pub use durable::any_manifest;
pub use error::Error;
pub use interfaces::LocalInterfaces;
pub use launch::Launch;
pub use open_files::{raise_open_files, restore_open_files};
pub use options::{Access, AgentOptions};
pub use ports::{ReservedPort, reserve_port};
pub use process::{NODE_SLOTS, NUMA_BINDING, VIRTUAL_LOCAL_RANK, node_slots};
pub use run::{Ended, machine_name, run};
pub use run_dir::{remove_stale_runs, root as runs_directory};
pub use scheduling::{use_default_time_slices, use_short_time_slices};
pub use settings::{SettingsError, read_settings};
pub use socket::tune_control;
pub use token_file::{JoinToken, TokenFileError, read_token_file};
