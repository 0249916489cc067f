//! The start of a round.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::{Deserialize, Serialize};

use super::Place;
use crate::{CommitId, DriverEpoch, HostId, Process, Rank, Round};

/// The start of a round, with the data that one host needs. Beside the host's own members it grows with the number of
/// neighbours, which is at most 2 + log2(hosts), rounded up, and with the number of runs of `order`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The driver that starts the round; it is part of the ids of the round's commits.
    pub epoch: DriverEpoch,
    /// The number of the planned round that starts.
    pub round: Round,
    /// The commit from which the round continues; `None` before the first commit.
    pub base: Option<CommitId>,
    /// The layout of the base, if it is divided among workers. Each member fetches the shards that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_shards: Option<BaseShards>,
    /// The address at which other hosts reach the agent of this host for commits. Only with `base_shards`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<SocketAddr>,
    /// Shards of the base that no host with a member holds, and who keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<ShardHolder>,
    /// The keeper of the base; rank 0 fetches the base there, unless it holds it.
    pub keeper: Option<Keeper>,
    /// Workers of the round.
    pub size: u32,
    /// Members on this host, by rank.
    pub members: Vec<Member>,
    /// The number of workers of a replica group, if it is the same in all rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_group_size: Option<u32>,
    /// The ranks in the order of their seats: by replica group, and then by shard. Empty if that is the order of ranks. Failures
    /// and hosts that share a group add to the number of runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<RankRun>,
    /// The index of this host among the hosts of the round, in the order of ranks.
    pub host_index: u32,
    /// The number of hosts of the round.
    pub host_count: u32,
    /// Addresses of the leaders (lowest rank) of the neighbour hosts, by host index (see [`crate::topology`]).
    pub peers: BTreeMap<u32, SocketAddr>,
    /// The address at which rank 0 of this round may open the user's own rendezvous.
    pub coordinator: SocketAddr,
    /// A prefix for a store that outlives rounds: run id / driver epoch / round.
    pub prefix: String,
}

/// A member of a round that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Slot and start number.
    pub process: Process,
    /// Its rank in the round, its cross rank, and the sizes.
    pub place: Place,
    /// The part of the state that it holds in this round. None if replica groups have one worker: each holds the whole
    /// state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<Seat>,
}

/// The part of the state that a member of a round holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seat {
    /// The index of its replica group.
    pub group: u32,
    /// The index of its shard.
    pub shard: u32,
    /// The number of shards of a group.
    pub of: u32,
}

/// Ranks that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankRun {
    /// The first of them.
    pub first: Rank,
    /// Their number.
    pub count: u32,
}

/// The layout of a commit that is divided among workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BaseShards {
    /// [`Shard::layout`](crate::Shard::layout) of its shards.
    pub layout: u64,
    /// The number of its shards.
    pub of: u32,
}

/// A shard of the base of a round, and who keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardHolder {
    /// The index of the shard.
    pub shard: u32,
    /// The process whose memory has it.
    pub keeper: Keeper,
}

/// The process whose memory has the base of a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keeper {
    /// The host whose memory has the base.
    pub host: HostId,
    /// The process that made the commit. It may be dead.
    pub process: Process,
    /// The address at which the host's agent serves it.
    pub address: SocketAddr,
}
