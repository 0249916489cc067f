//! Shares a host's processors among its members until each has committed the first step of a round.
//!
//! Survivors of a failure compete with each other and with their agent. With short time slices, no
//! survivor waits long for another while a round forms. A member that reaches its first boundary
//! yields its processor to the others. It would wait for them at the next collective anyway, and
//! until then a second failure would cost the others this step again.

use std::time::Duration;

use elasticrun_collectives::BestEffortBarrier;
use elasticrun_shm::sched::{SHORTEST_SLICE, ShortSlice};

/// Maximum wait for the other members. A member that takes longer does more than wait for a
/// processor.
const BARRIER_TIMEOUT: Duration = Duration::from_millis(10);

/// Gives the calling thread short time slices until this is dropped, if the kernel permits it.
#[derive(Debug)]
pub(crate) struct SchedBoost {
    _slice: Option<ShortSlice>,
}

impl SchedBoost {
    /// Boosts a survivor of an earlier round.
    pub(crate) fn new(survivor: bool) -> Self {
        let slice = || ShortSlice::new(SHORTEST_SLICE).ok();
        Self {
            _slice: survivor.then(slice).flatten(),
        }
    }

    /// Extends the boost up to the first boundary of a round, where the members of the host wait
    /// for each other.
    pub(crate) fn until_first_boundary(self, barrier: BestEffortBarrier) -> UntilFirstBoundary {
        UntilFirstBoundary {
            barrier,
            _boost: self,
        }
    }
}

/// The part of a round before the first boundary.
#[derive(Debug)]
pub(crate) struct UntilFirstBoundary {
    barrier: BestEffortBarrier,
    _boost: SchedBoost,
}

impl UntilFirstBoundary {
    /// The first boundary is reached.
    pub(crate) fn end(self) {
        self.barrier.wait(BARRIER_TIMEOUT);
    }
}
