//! Discovery plugin `slurm`: the nodes of a Slurm job, as they are now.
//!
//! The job is the one that the driver runs in (`SLURM_JOB_ID`), or the one that the option `job` names. At each
//! poll `squeue` gives its nodes and `sinfo` their states: nodes that Slurm takes from the job (a shrunken
//! allocation, a failed node of a job with `--no-kill`) go, nodes that an administrator drains are left.
//!
//! # Invariants
//! - A host's id is its node's name.
//! - Slots: the option, else the tasks per node that the user asked for, else the GPUs per node, else unknown.
//! - A command of Slurm that hangs is killed at the deadline.
//!
//! # Not promised
//! The end of the job's time is no state of a node: `--signal=USR1@120` tells the agents (docs/slurm.md).

mod command;
mod hostlist;
mod nodes;
mod plugin;
mod slots;

pub use hostlist::{BadHostlist, expand};
pub use plugin::{Options, Slurm};

elasticrun_plugin_sdk::export_plugin!(Slurm);
