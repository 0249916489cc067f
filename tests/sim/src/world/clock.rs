//! The driver's clock: it does not count what the driver stood still, nor a moment after it, as the shell's
//! [`RunningTime`](elasticrun_core::RunningTime) has it.

use std::time::Duration;

use elasticrun_core::Time;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// All that was not counted.
    lost: Duration,
    /// The driver stands still until then.
    stalled: Time,
    /// The clock stands still until then.
    settled: Time,
}

impl Clock {
    /// The driver's time when this is the world's.
    pub(super) fn time(&self, now: Time) -> Time {
        Time::from_start(now.max(self.settled).since_start() - self.lost)
    }

    /// The world's time when this is the driver's.
    pub(super) fn back(&self, time: Time) -> Time {
        time + self.lost
    }

    /// The driver stands still until then, and its clock for a little longer. Gives whether it did not already.
    pub(super) fn stall(&mut self, now: Time, until: Time, settles: Duration) -> bool {
        if now < self.settled {
            return false;
        }
        self.stalled = until;
        self.settled = until + settles;
        self.lost += self.settled.since(now);
        true
    }

    /// Until when the driver stands still.
    pub(super) fn stalls(&self, now: Time) -> Option<Time> {
        (now < self.stalled).then_some(self.stalled)
    }
}
