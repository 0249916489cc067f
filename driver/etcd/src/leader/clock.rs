//! The clock of a leadership.

use std::{
    fmt,
    ops::{Add, AddAssign},
    sync::Arc,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// A time since the machine was booted, suspends included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(Duration);

impl Time {
    /// The time so long after the boot.
    pub const fn after_boot(duration: Duration) -> Self {
        Self(duration)
    }

    /// The time since an earlier one; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// A source of times. It must go on while the machine is suspended: etcd ends leases meanwhile.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Time + Send + Sync>);

impl Clock {
    /// CLOCK_BOOTTIME. The clock of `std::time::Instant` stands still during a suspend.
    pub fn boottime() -> Self {
        Self::new(|| {
            let now = clock_gettime(ClockId::Boottime);
            Time(Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32))
        })
    }

    /// Another clock, for tests.
    pub fn new(now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    pub fn now(&self) -> Time {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_what_the_machine_has_slept() {
        let boottime = || clock_gettime(ClockId::Boottime);
        let (before, now, after) = (boottime(), Clock::boottime().now(), boottime());
        let time = |at: rustix::time::Timespec| {
            Time(Duration::new(at.tv_sec.unsigned_abs(), at.tv_nsec as u32))
        };
        assert!(time(before) <= now && now <= time(after));
    }
}
