//! The agent's time.

use std::time::Duration;

use elasticrun_core::Time;
use elasticrun_shm::boottime;
use tokio::time::Instant;

/// The machine's time, on the clock that its workers measure their leases with: it counts while this machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { began: boottime() }
    }

    pub(crate) fn now(self) -> Time {
        Time::from_start(boottime().saturating_sub(self.began))
    }

    /// When a time will have come, if this machine does not sleep; none for one that never comes.
    pub(crate) fn instant(self, time: Time) -> Option<Instant> {
        Instant::now().checked_add(time.since(self.now()))
    }

    /// A time on the clock itself.
    pub(crate) fn boottime(self, time: Time) -> Duration {
        self.began.saturating_add(time.since_start())
    }
}
