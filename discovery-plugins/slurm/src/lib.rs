//! Discovery plugin `slurm`: the current nodes of a Slurm job.
//!
//! The job is the one of the driver (`SLURM_JOB_ID`), or that of the option `job`. At each poll `squeue` lists its nodes and
//! `sinfo` their states. Nodes that Slurm removes from the job (a shrunken allocation, a failed node of a job with
//! `--no-kill`) are gone. The job drains nodes that an administrator drains.
//!
//! # Invariants
//! - A host's id is its node's name.
//! - Slots: the option, else the requested tasks per node, else the GPUs per node, else unknown.
//! - A Slurm command that hangs is killed at the deadline.
//!
//! # Not promised
//! The plugin does not report the job's time limit. `--signal=USR1@120` notifies the agents (docs/slurm.md).

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod any_input;
mod command;
mod hostlist;
mod nodes;
mod plugin;
mod slots;

pub use hostlist::{BadHostlist, expand};
pub use plugin::{Options, Slurm};

elasticrun_plugin_sdk::export_plugin!(Slurm);
