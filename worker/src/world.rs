//! The members of a round.

use std::net::SocketAddr;

use elasticrun_protocol::{
    CommitId, LocalRank, Process, Round,
    control::{Member, RankRun, Seat, Start},
};

/// The members of a round, from the view of one of them.
///
/// `local_rank` is constant for the life of a process. All other values may change from round to
/// round.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) process: Process,
    pub(crate) local_rank: LocalRank,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) local_size: u32,
    pub(crate) cross_rank: u32,
    pub(crate) cross_size: u32,
    pub(crate) round: Round,
    pub(crate) base: Option<CommitId>,
    pub(crate) seat: Option<Seat>,
    pub(crate) replica_group_size: Option<u32>,
    pub(crate) order: Vec<RankRun>,
    pub(crate) coordinator: SocketAddr,
    pub(crate) prefix: String,
}

impl World {
    pub(crate) fn new(start: &Start, member: &Member) -> Self {
        let place = member.place;
        Self {
            process: member.process,
            local_rank: place.local_rank(member.process),
            rank: place.rank.0,
            size: start.size,
            local_size: place.local_size,
            cross_rank: place.cross_rank,
            cross_size: place.cross_size,
            round: start.round,
            base: start.base,
            seat: member.seat,
            replica_group_size: start.replica_group_size,
            order: start.order.clone(),
            coordinator: start.coordinator,
            prefix: start.prefix.clone(),
        }
    }

    /// Rank of this worker, `0..size`.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of workers of the round.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Slot of this worker on its machine. It selects the worker's device.
    pub fn local_rank(&self) -> u32 {
        self.local_rank.0
    }

    /// Number of workers of the round on this host.
    pub fn local_size(&self) -> u32 {
        self.local_size
    }

    /// Index of this host among the hosts that have this `local_rank`.
    pub fn cross_rank(&self) -> u32 {
        self.cross_rank
    }

    /// Number of hosts that have this `local_rank`.
    pub fn cross_size(&self) -> u32 {
        self.cross_size
    }

    /// The round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Slot and generation of this process.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The commit that the round began with; `None` if it began with the state of rank 0. Later
    /// commits of earlier rounds are void.
    pub fn base(&self) -> Option<CommitId> {
        self.base
    }

    /// The part of the state that this worker holds. `None` in a job whose workers each hold the whole state.
    pub fn seat(&self) -> Option<Seat> {
        self.seat
    }

    /// The number of workers of a replica group, if it is the same in all rounds and above 1.
    pub fn replica_group_size(&self) -> Option<u32> {
        self.replica_group_size
    }

    /// The ranks in the order of their seats: by replica group, and then by shard. Runs of ranks that follow each other, each the
    /// first one and their number. Empty if that is the order of ranks.
    pub fn order(&self) -> impl Iterator<Item = (u32, u32)> {
        self.order.iter().map(|run| (run.first.0, run.count))
    }

    /// An address at which rank 0 of this round may open a rendezvous of another library.
    pub fn coordinator(&self) -> SocketAddr {
        self.coordinator
    }

    /// A name that no other round has: a prefix for keys in a store that outlives rounds.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}
