//! The harness of the end-to-end tests: real drivers, agents and workers, real signals.
//!
//! A test describes a [`Job`] (flags, hosts, what its workers do), starts it, waits for conditions in the
//! event log that the workers write, disturbs it, and looks at how it ended. The worker is a program of
//! this crate that trains a trivial model by the real SDK; a [`Plan`] tells it when to misbehave.
//!
//! Invariants of the harness:
//! - No sleep stands for a condition: every wait polls for what it waits for and fails at a deadline with
//!   all that is known of the run.
//! - Every process of a run carries the run's tag in its environment. When a run has ended none may be
//!   left ([`Ended`] is only made after that check), and when a test fails all of them are killed by id.
//!
//! The feature `worker`, on by default, is the test worker's side: its program and its data sets. Tests of plugins start the
//! program that is built already and do without it, so that a plugin's workspace compiles neither the SDK nor the readers.
//!
//! Not promised: that a run which is being debugged keeps its files; they go with the test.

pub mod binaries;
mod conformance;
#[cfg(feature = "worker")]
mod dataset;
mod event;
mod hosts;
mod job;
pub mod metadata;
mod plan;
mod processes;
mod running;
#[cfg(feature = "worker")]
pub mod worker;

pub use conformance::assert_conforms;
pub use event::{Event, Kind, Log};
pub use hosts::HostsFile;
pub use job::Job;
pub use plan::{DIRECTORY, Fault, Plan, Point, What, When};
pub use processes::{Tag, monotonic, send_signal};
pub use running::{Ended, PATIENCE, Running};
