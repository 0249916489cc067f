//! The driver's time: it counts only while the driver runs.
//!
//! A driver that is suspended (Ctrl-Z, a paused virtual machine, a debugger, a machine that swaps) reads nothing
//! meanwhile. If its clock ran on, every deadline would be over when it comes back, before it has read what lies in its
//! sockets, and healthy hosts would be blamed for its own absence.
//!
//! Invariants: the time never goes back, and never runs faster than the monotonic clock. So a fence (R11) that is
//! measured with it is never too short.

use std::time::Duration;

use crate::Time;

/// See the module. The shell looks at it often: a gap between two looks is time in which the driver did not run.
#[derive(Clone, Debug)]
pub struct RunningTime {
    /// A longer gap between two looks is a stall.
    threshold: Duration,
    /// When it was looked at last, on the shell's monotonic clock.
    last: Duration,
    now: Time,
    /// So long after a stall no time is counted: what has come meanwhile is read first.
    settling: Duration,
}

impl RunningTime {
    /// A clock at zero. A gap between two looks that is longer than `threshold` is a stall.
    pub fn new(threshold: Duration) -> Self {
        Self {
            threshold,
            last: Duration::ZERO,
            now: Time::ZERO,
            settling: Duration::ZERO,
        }
    }

    /// A threshold for jobs with this heartbeat timeout: short enough that no stall matters that is not seen, and longer
    /// than what a busy machine takes to run the driver.
    pub fn threshold(heartbeat_timeout: Duration) -> Duration {
        (heartbeat_timeout / 5).clamp(Duration::from_millis(200), Duration::from_secs(1))
    }

    /// How often the shell must look at least.
    pub fn interval(&self) -> Duration {
        self.threshold / 4
    }

    /// Looks: so much has passed on the monotonic clock since the start. Gives the length of a stall that has just ended.
    pub fn look(&mut self, elapsed: Duration) -> Option<Duration> {
        let gap = elapsed.saturating_sub(self.last);
        self.last = self.last.max(elapsed);
        if gap > self.threshold {
            self.settling = self.threshold;
            return Some(gap);
        }
        let uncounted = gap.min(self.settling);
        self.settling -= uncounted;
        self.now = self.now + (gap - uncounted);
        None
    }

    /// The time as of the last look.
    pub fn now(&self) -> Time {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: Duration = Duration::from_secs(1);

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_driver_that_runs_counts_all_its_time() {
        let mut time = RunningTime::new(THRESHOLD);
        for tick in 1..=100 {
            assert_eq!(time.look(seconds(f64::from(tick) * 0.25)), None);
        }
        assert_eq!(time.now(), Time::from_start(seconds(25.0)));
    }

    #[test]
    fn a_stall_is_not_counted_and_what_came_meanwhile_has_time_to_be_read() {
        let mut time = RunningTime::new(THRESHOLD);
        time.look(seconds(0.5));
        assert_eq!(time.look(seconds(60.5)), Some(seconds(60.0)));
        assert_eq!(time.now(), Time::from_start(seconds(0.5)));
        time.look(seconds(61.0));
        time.look(seconds(61.5));
        assert_eq!(time.now(), Time::from_start(seconds(0.5)), "it settles");
        time.look(seconds(62.0));
        assert_eq!(time.now(), Time::from_start(seconds(1.0)));
    }

    #[test]
    fn a_clock_that_jumps_back_changes_nothing() {
        let mut time = RunningTime::new(THRESHOLD);
        time.look(seconds(0.75));
        time.look(seconds(0.5));
        time.look(seconds(1.0));
        assert_eq!(time.now(), Time::from_start(seconds(1.0)));
    }
}
