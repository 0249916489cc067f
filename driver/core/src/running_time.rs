//! The driver's time, which counts only while the driver runs.
//!
//! A suspended driver (Ctrl-Z, a paused virtual machine, a debugger, a machine that swaps) reads nothing. If its clock
//! ran on, every deadline would have passed when the driver resumes, before it has read its sockets. Healthy hosts
//! would be blamed for the absence of the driver.
//!
//! Invariants: the time never goes back, and never runs faster than the monotonic clock. So a fence (R11) that is
//! measured with it is never too short.

use std::time::Duration;

use crate::Time;

/// A clock that does not count stalls. The shell looks at it often: a long gap between two looks is a stall.
#[derive(Clone, Debug)]
pub struct RunningTime {
    /// A gap between two looks that is longer than this is a stall.
    threshold: Duration,
    /// The last look, on the shell's monotonic clock.
    last: Duration,
    now: Time,
    /// The rest of the time after a stall that is not counted: the driver first reads what has arrived meanwhile.
    settling: Duration,
}

impl RunningTime {
    /// A clock at zero with the given threshold for a stall.
    pub fn new(threshold: Duration) -> Self {
        Self {
            threshold,
            last: Duration::ZERO,
            now: Time::ZERO,
            settling: Duration::ZERO,
        }
    }

    /// The threshold for a heartbeat timeout. It is so short that an unseen stall has no effect, and longer than a busy
    /// machine delays the driver.
    pub fn threshold(heartbeat_timeout: Duration) -> Duration {
        (heartbeat_timeout / 5).clamp(Duration::from_millis(200), Duration::from_secs(1))
    }

    /// The longest allowed interval between two looks.
    pub fn interval(&self) -> Duration {
        self.threshold / 4
    }

    /// Looks at the clock, `elapsed` after the start on the monotonic clock. Gives the length of a stall that has just
    /// ended.
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
