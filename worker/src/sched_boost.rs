//! How the members of a host share its processors until each has committed the first step of a round.
//!
//! Survivors of a failure compete with each other, and with their agent. Nobody should wait for a whole time
//! slice of each of the others while there is a round to form. And who has come to its first boundary leaves
//! the processor to those who have not: all meet again at the next collective anyway, and until then a second
//! failure would cost the others this step once more.

use std::time::Duration;

use elasticrun_collectives::BestEffortBarrier;
use elasticrun_shm::sched::{SHORTEST_SLICE, ShortSlice};

/// How long one waits for the others; who takes longer has more to do than to wait for a processor.
const PATIENCE: Duration = Duration::from_millis(10);

/// The calling thread takes short turns until this is dropped, if the kernel grants them.
#[derive(Debug)]
pub(crate) struct Hurry {
    _slice: Option<ShortSlice>,
}

impl Hurry {
    /// Who comes from a round is in a hurry.
    pub(crate) fn new(survivor: bool) -> Self {
        let slice = || ShortSlice::new(SHORTEST_SLICE).ok();
        Self {
            _slice: survivor.then(slice).flatten(),
        }
    }

    /// Up to the first boundary of a round, where all members of the host meet.
    pub(crate) fn until(self, meeting: BestEffortBarrier) -> Start {
        Start {
            meeting,
            _hurry: self,
        }
    }
}

/// The part of a round that is before the first boundary.
#[derive(Debug)]
pub(crate) struct Start {
    meeting: BestEffortBarrier,
    _hurry: Hurry,
}

impl Start {
    /// The first boundary is here.
    pub(crate) fn end(self) {
        self.meeting.wait(PATIENCE);
    }
}
