//! Worker processes: their environment, their start, the interpreters that stand by for it, and the agent's handle of each.

mod directives;
mod environment;
mod not_started;
mod standby;
mod starter;
mod worker_process;

pub(crate) use directives::Directives;
pub use directives::{NODE_SLOTS, NUMA_BINDING, VIRTUAL_LOCAL_RANK, node_slots};
pub(crate) use environment::{
    AGENT_SOCKET, NodeAddresses, SpawnContext, server_variables, variables,
};
pub(crate) use standby::Keeper;
pub(crate) use starter::{Started, Starter, ToStart};
pub(crate) use worker_process::{ProcessState, SharedRank, WorkerProcess};
