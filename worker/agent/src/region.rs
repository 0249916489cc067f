//! The memory region that the members of a round on this host share.

use std::os::fd::OwnedFd;

use elasticrun_collectives::{Error, RegionMap, abort_region, create_region};
use elasticrun_protocol::Round;

/// The region of a round. The agent maps it to abort the round.
#[derive(Debug)]
pub(crate) struct Region {
    round: Round,
    map: RegionMap,
}

impl Region {
    /// Creates the region for so many members on this host. The descriptor is for them.
    ///
    /// # Errors
    /// The system is out of descriptors or memory.
    pub(crate) fn create(round: Round, members: u32) -> Result<(Self, OwnedFd), Error> {
        let fd = create_region(members)?;
        let map = RegionMap::map(&fd, members)?;
        Ok((Self { round, map }, fd))
    }

    /// Wakes the members in collectives, if it is the region of this round.
    pub(crate) fn abort(&self, round: Round) {
        if self.round == round {
            abort_region(&self.map);
        }
    }
}
