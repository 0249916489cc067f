//! A barrier on which no correctness depends.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::region::RegionMap;

/// Lets the members of one host wait for each other briefly. It moves no data and never fails.
///
/// It helps where members outnumber processors: a member that arrives early yields its processor to
/// the others. Each member has one per round, see
/// [`Group::best_effort_barrier`](crate::Group::best_effort_barrier).
#[derive(Debug)]
pub struct BestEffortBarrier {
    /// `None` if this member is alone on its host.
    region: Option<Arc<RegionMap>>,
    count: u32,
}

impl BestEffortBarrier {
    pub(crate) fn new(region: Option<Arc<RegionMap>>, count: u32) -> Self {
        Self { region, count }
    }

    /// Waits until all members of this host have arrived, a member leaves, the round is aborted, or
    /// `timeout` has passed.
    pub fn wait(self, timeout: Duration) {
        let Some(region) = self.region else { return };
        let deadline = Instant::now() + timeout;
        // Relaxed: no data is published through this counter.
        let before = region.best_effort_arrived().fetch_add(1, Ordering::Relaxed);
        if before + 1 == self.count {
            region.best_effort_release().notify();
        } else {
            region.best_effort_release().wait(0, 0, Some(deadline));
        }
    }
}
