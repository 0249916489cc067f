//! The harness of the end-to-end tests: real drivers, agents and workers, real signals.
//!
//! A test describes a [`Job`] (flags, hosts, plan of its workers) and starts it. It waits for conditions in the
//! event log that the workers write, injects faults, and checks how the job ended. The worker is a program of this
//! crate that trains a trivial model with the real SDK. A [`Plan`] sets when it misbehaves.
//!
//! Invariants of the harness:
//! - No sleep stands for a condition. Every wait polls for its condition and fails at a deadline with a full
//!   report of the run.
//! - Every process of a run carries the run's tag in its environment. When a run has ended no process may be left
//!   ([`Ended`] exists only after that check). When a test fails the harness kills all of them by id.
//!
//! The feature `worker`, on by default, holds the worker's side: its program and its data sets. Tests of plugins
//! turn it off and start the program that is built already, so that a plugin's workspace compiles neither the SDK
//! nor the readers.
//!
//! Not promised: that the files of a run outlive its test.

#![forbid(unsafe_code)]

pub mod agents;
pub mod binaries;
mod conformance;
#[cfg(feature = "worker")]
mod dataset;
mod driver_command;
mod event;
mod hosts;
mod job;
pub mod metadata;
mod plan;
mod processes;
mod proxy;
mod running;
#[cfg(feature = "worker")]
pub mod worker;

pub use conformance::assert_conforms;
pub use event::{Event, Kind, Log};
pub use hosts::HostsFile;
pub use job::{Job, STATE};
pub use plan::{DIRECTORY, Fault, Plan, Point, What, When};
pub use processes::{Tag, monotonic, send_signal};
pub use proxy::Proxy;
pub use running::{Beside, Ended, PATIENCE, Running};
