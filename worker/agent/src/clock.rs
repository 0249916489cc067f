//! The agent's time.

use std::time::Duration;

use elasticrun_core::Time;
use elasticrun_shm::boottime;
use tokio::time::Instant;

/// The time of the state machine, on the clock by which workers measure their leases. It counts while the host sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_time: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            start_time: boottime(),
        }
    }

    pub(crate) fn now(self) -> Time {
        Time::from_start(boottime().saturating_sub(self.start_time))
    }

    /// The instant of a time, if the host does not sleep; none if it is out of range.
    pub(crate) fn instant(self, time: Time) -> Option<Instant> {
        Instant::now().checked_add(time.since(self.now()))
    }

    /// The value of the system's clock at a time.
    pub(crate) fn boottime(self, time: Time) -> Duration {
        self.start_time.saturating_add(time.since_start())
    }
}
