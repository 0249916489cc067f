//! Ranks, sizes and round of a process, as Python sees them.

use std::env;

use elasticrun_worker::World;
use pyo3::prelude::*;

/// Ranks, sizes and round of this process.
#[pyclass(frozen, get_all, from_py_object, module = "elasticrun._native")]
#[derive(Clone, Debug)]
pub(crate) struct WorldInfo {
    rank: u32,
    size: u32,
    local_rank: u32,
    local_size: u32,
    cross_rank: u32,
    cross_size: u32,
    pub(crate) round: u64,
    epoch: u64,
    /// Index of the replica group of this worker, or None in a job whose workers each hold the whole state.
    group: Option<u32>,
    /// Index of the shard of this worker.
    shard: Option<u32>,
    /// Number of shards of a replica group.
    shards: Option<u32>,
    /// Number of workers of a replica group, or None if it is not the same in all rounds.
    replica_group_size: Option<u32>,
    /// The ranks in the order of replica groups and shards, as runs: the first rank and their number. Empty if that is the order
    /// of ranks.
    order: Vec<(u32, u32)>,
    /// Key prefix that is unique to the round.
    prefix: String,
    /// Address (`host:port`) at which rank 0 may open a rendezvous of another library.
    coordinator: String,
    /// Name of the host in the job.
    pub(crate) host: String,
}

#[pymethods]
impl WorldInfo {
    fn __repr__(&self) -> String {
        format!(
            "<rank {} of {} in round {}>",
            self.rank, self.size, self.round
        )
    }
}

impl WorldInfo {
    /// The values that the agent set in the environment, or those of a single process without an agent.
    pub(crate) fn expected() -> Self {
        let number = |name: &str, otherwise: u32| {
            let value = env::var(name).ok().and_then(|value| value.parse().ok());
            value.unwrap_or(otherwise)
        };
        let agent = env::var_os("ELASTICRUN_AGENT_SOCKET").is_some();
        let value = |name: &str, otherwise: u32| {
            if agent {
                number(name, otherwise)
            } else {
                otherwise
            }
        };
        Self {
            rank: value("HOROVOD_RANK", 0),
            size: value("HOROVOD_SIZE", 1),
            local_rank: value("HOROVOD_LOCAL_RANK", 0),
            local_size: value("HOROVOD_LOCAL_SIZE", 1),
            cross_rank: value("HOROVOD_CROSS_RANK", 0),
            cross_size: value("HOROVOD_CROSS_SIZE", 1),
            round: 0,
            epoch: 0,
            group: None,
            shard: None,
            shards: None,
            replica_group_size: None,
            order: Vec::new(),
            prefix: String::new(),
            coordinator: String::new(),
            host: env::var("ELASTICRUN_HOST").unwrap_or_else(|_| "localhost".to_owned()),
        }
    }

    pub(crate) fn from_world(world: &World, host: String, epoch: u64) -> Self {
        Self {
            rank: world.rank(),
            size: world.size(),
            local_rank: world.local_rank(),
            local_size: world.local_size(),
            cross_rank: world.cross_rank(),
            cross_size: world.cross_size(),
            round: world.round().0,
            epoch,
            group: world.seat().map(|seat| seat.group),
            shard: world.seat().map(|seat| seat.shard),
            shards: world.seat().map(|seat| seat.of),
            replica_group_size: world.replica_group_size(),
            order: world.order().collect(),
            prefix: world.prefix().to_owned(),
            coordinator: world.coordinator().to_string(),
            host,
        }
    }
}
