//! The position of a member in a round.

use std::ops::Range;

pub use elasticrun_protocol::topology::neighbours;

use crate::error::Error;

/// The position of one member in a started round. The ranks of a host are contiguous and ordered by
/// local index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Index of this member in the round, `0..size`.
    pub rank: u32,
    /// Members of the round.
    pub size: u32,
    /// Index among this round's members of this host, `0..local_count`. Not the slot number.
    pub local_index: u32,
    /// Members of the round on this host.
    pub local_count: u32,
    /// Index of this host among the hosts of the round, `0..host_count`.
    pub host_index: u32,
    /// Hosts of the round.
    pub host_count: u32,
    /// Lowest rank on this host. That member is the host's leader.
    pub first_rank: u32,
}

impl Topology {
    /// Whether this member connects to other hosts on behalf of its host.
    pub fn is_leader(&self) -> bool {
        self.local_index == 0
    }

    /// The ranks on this host.
    pub fn local_ranks(&self) -> Range<u32> {
        self.first_rank..self.first_rank + self.local_count
    }

    /// Checks that the numbers are consistent.
    ///
    /// # Errors
    /// [`Error::Config`] naming the first rule that is broken.
    pub fn check(&self) -> Result<(), Error> {
        let last = self.first_rank.checked_add(self.local_count);
        let rule = if self.size == 0 || self.rank >= self.size {
            "rank must be below size"
        } else if self.local_index >= self.local_count {
            "local_index must be below local_count"
        } else if self.host_index >= self.host_count || self.host_count > self.size {
            "host_index must be below host_count, and host_count at most size"
        } else if last.is_none_or(|last| last > self.size) {
            "the ranks of a host must be below size"
        } else if self.first_rank + self.local_index != self.rank {
            "rank must be first_rank + local_index"
        } else if (self.host_count == 1) != (self.local_count == self.size) {
            "a single host has all ranks, several share them"
        } else if (self.host_index == 0) != (self.first_rank == 0)
            || (self.host_index == self.host_count - 1) != (last == Some(self.size))
        {
            "ranks must ascend with the host index"
        } else {
            return Ok(());
        };
        Err(Error::Config(format!("{rule}: {self:?}")))
    }
}
