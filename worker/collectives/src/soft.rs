//! A barrier on which nothing depends.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::region::RegionMap;

/// Where the members of one host wait for each other for a moment: it moves nothing and never fails.
///
/// Of use where there are more members than processors: who has come this far leaves the processor to those
/// that have not. Each member has one for each round, see [`Group::soft_barrier`](crate::Group::soft_barrier).
#[derive(Debug)]
pub struct SoftBarrier {
    /// `None` if this member is alone on its host.
    region: Option<Arc<RegionMap>>,
    count: u32,
}

impl SoftBarrier {
    pub(crate) fn new(region: Option<Arc<RegionMap>>, count: u32) -> Self {
        Self { region, count }
    }

    /// Waits until all members of this host have come here, one has left, the round is aborted, or it has
    /// waited for `patience`.
    pub fn wait(self, patience: Duration) {
        let Some(region) = self.region else { return };
        let deadline = Instant::now() + patience;
        // Relaxed: nothing is read on the strength of it.
        let before = region.gathered().fetch_add(1, Ordering::Relaxed);
        if before + 1 == self.count {
            region.gathering().ring();
        } else {
            region.gathering().wait(0, 0, Some(deadline));
        }
    }
}
