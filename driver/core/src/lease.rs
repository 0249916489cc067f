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
//! - L3 Workers train without contact for at most the shorter of the orphan timeout and the train timeout. So an orphan
//!   timeout of minutes, which only says when workers are ended, makes neither the lease nor the fence longer.
//! - L4 A network outage shorter than the heartbeat timeout costs nothing. The first heartbeat after it is due within
//!   one interval. The rest of the silence is for TCP, which repeats lost data only some time after the network is
//!   back.

use std::time::Duration;

use elasticrun_protocol::control::Setup;

/// How long workers may train without contact to the driver, beyond the heartbeats, if the orphan timeout is longer.
pub const TRAIN: Duration = Duration::from_secs(30);

/// How long agents keep the workers of a silent driver, as a multiple of the orphan timeout. The driver may only be
/// suspended, as by a paused virtual machine or a network interruption.
const KEEP_FACTOR: u32 = 12;

/// The longest that agents keep the workers of a silent driver, in addition to the orphan timeout.
const MAX_KEEP: Duration = Duration::from_secs(70);

/// The lease of a job, derived from its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `--heartbeat-interval`.
    pub interval: Duration,
    /// `--heartbeat-timeout`.
    pub timeout: Duration,
    /// `--orphan-timeout`: when workers without a driver are ended.
    pub orphan: Duration,
    /// The train timeout: when workers without a driver stop at a boundary, if the orphan timeout is longer.
    pub train: Duration,
}

/// The lease in a job that never starts a second round elsewhere: its workers never have to stop.
pub const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);

impl Lease {
    /// The lease by the settings that an agent has received. A granted lease replaces its length.
    pub fn from_setup(setup: &Setup) -> Self {
        Self {
            interval: setup.heartbeat_interval,
            timeout: setup.heartbeat_timeout,
            orphan: setup.orphan_timeout,
            train: TRAIN,
        }
    }

    /// The silence, in the driver's own time, after which the driver gives an agent up.
    pub fn silence(&self) -> Duration {
        self.timeout + self.interval * 5 / 2
    }

    /// How long workers may train after their agent sent the last answered heartbeat.
    pub fn length(&self) -> Duration {
        self.interval + self.timeout + self.unattended()
    }

    /// How long the driver waits, after the loss of all members of a round, before it starts the next round.
    pub fn fence(&self) -> Duration {
        self.length() + (self.timeout / 2).max(self.interval)
    }

    /// How much longer than the orphan timeout agents keep the workers of a silent driver whose connection is open.
    pub fn keep(&self) -> Duration {
        (self.orphan * KEEP_FACTOR).min(MAX_KEEP)
    }

    /// How long a control connection may stay without any acknowledgement of the driver's machine. `keep` is
    /// [`Lease::keep`], or what the driver says. With a long orphan timeout the connection ends before the workers do,
    /// so that an agent does not hold on to a connection whose other end has vanished.
    pub fn peer_timeout(&self, keep: Duration) -> Duration {
        self.timeout + self.unattended() + keep
    }

    /// How long workers train once the driver counts as lost.
    fn unattended(&self) -> Duration {
        self.orphan.min(self.train)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Lease = Lease {
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(5),
        orphan: Duration::from_secs(5),
        train: TRAIN,
    };

    #[test]
    fn of_the_defaults() {
        assert_eq!(DEFAULTS.silence(), Duration::from_millis(7500));
        assert_eq!(DEFAULTS.length(), Duration::from_secs(11));
        assert_eq!(DEFAULTS.fence(), Duration::from_millis(13_500));
        assert_eq!(DEFAULTS.keep(), Duration::from_secs(60));
        assert_eq!(
            DEFAULTS.peer_timeout(DEFAULTS.keep()),
            Duration::from_secs(70)
        );
    }

    #[test]
    fn a_long_orphan_timeout_makes_no_long_fence() {
        let lease = Lease {
            orphan: Duration::from_secs(600),
            ..DEFAULTS
        };
        assert_eq!(lease.silence(), DEFAULTS.silence());
        assert_eq!(lease.length(), Duration::from_secs(36));
        assert_eq!(lease.fence(), Duration::from_millis(38_500));
        assert_eq!(lease.keep(), Duration::from_secs(70));
        assert_eq!(lease.peer_timeout(lease.keep()), Duration::from_secs(105));
    }

    #[test]
    fn the_fence_is_longer_than_the_lease() {
        for millis in [0, 100, 5_000, 30_000, 30_001, 3_600_000] {
            let lease = Lease {
                orphan: Duration::from_millis(millis),
                ..DEFAULTS
            };
            assert!(lease.length() < lease.fence(), "{lease:?}");
            assert!(lease.length() <= Duration::from_secs(36), "{lease:?}");
        }
    }
}
