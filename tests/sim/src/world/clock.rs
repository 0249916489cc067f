//! The driver's clock. It does not count the time while the driver is suspended, nor a moment after it, like the
//! shell's [`RunningTime`](elasticrun_core::RunningTime).

use std::time::Duration;

use elasticrun_core::Time;

/// The offset between the driver's time and the world's.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// All time that was not counted.
    lost: Duration,
    /// Until when the driver is suspended.
    stalled: Time,
    /// Until when the clock is stopped.
    settled: Time,
}

impl Clock {
    /// A clock at zero.
    pub(super) fn begins(now: Time) -> Self {
        Self {
            lost: now.since_start(),
            ..Self::default()
        }
    }

    /// The driver's time at this time of the world.
    pub(super) fn time(&self, now: Time) -> Time {
        Time::from_start(now.max(self.settled).since_start() - self.lost)
    }

    /// The world's time at this time of the driver.
    pub(super) fn back(&self, time: Time) -> Time {
        time + self.lost
    }

    /// Suspends the driver until then, and its clock for a little longer. Gives `false` if the clock is stopped
    /// already.
    pub(super) fn stall(&mut self, now: Time, until: Time, settles: Duration) -> bool {
        if now < self.settled {
            return false;
        }
        self.stalled = until;
        self.settled = until + settles;
        self.lost += self.settled.since(now);
        true
    }

    /// Until when the driver is suspended.
    pub(super) fn stalls(&self, now: Time) -> Option<Time> {
        (now < self.stalled).then_some(self.stalled)
    }
}
