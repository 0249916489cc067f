//! The times by which driver, agents and workers agree on losses, and by which no two rounds train at once (R11).
//!
//! ```text
//! agent    beat sent                                          lease over: workers pass no boundary
//!          |----------------- lease ------------------------->|
//! driver      beat read ... silence ... agent given up -------- fence ----------->| next round may start
//! ```
//! - L1 The lease of a worker counts from when its agent *sent* the last heartbeat that the driver has answered. The
//!   fence counts from when the driver gave the agent up, which is later. So lease < fence is enough, whatever the
//!   network delays.
//! - L2 The difference covers what the lease does not stop: a step that is under way, and clocks that differ in speed.
//! - L3 A network outage shorter than the heartbeat timeout costs nothing. The first heartbeat after it is due within
//!   one interval. The rest of the silence is for TCP, which repeats lost data only some time after the network is
//!   back.

use std::time::Duration;

/// The lease of a job, derived from its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `--heartbeat-interval`.
    pub interval: Duration,
    /// `--heartbeat-timeout`.
    pub timeout: Duration,
    /// `--orphan-timeout`.
    pub orphan: Duration,
}

/// The lease in a job that never starts a second round elsewhere: its workers never have to stop.
pub const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);

impl Lease {
    /// The silence, in the driver's own time, after which the driver gives an agent up.
    pub fn silence(&self) -> Duration {
        self.timeout + self.interval * 5 / 2
    }

    /// How long workers may train after their agent sent the last answered heartbeat.
    pub fn length(&self) -> Duration {
        self.interval + self.timeout + self.orphan
    }

    /// How long the driver waits, after the loss of all members of a round, before it starts the next round.
    pub fn fence(&self) -> Duration {
        self.length() + (self.timeout / 2).max(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_defaults() {
        let lease = Lease {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            orphan: Duration::from_secs(5),
        };
        assert_eq!(lease.silence(), Duration::from_millis(7500));
        assert_eq!(lease.length(), Duration::from_secs(11));
        assert_eq!(lease.fence(), Duration::from_millis(13_500));
    }
}
