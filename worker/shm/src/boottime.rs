//! The clock of leases. It counts while the machine sleeps, and all processes of a machine read the same value.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine was booted, suspends included. A call takes about 30 ns and makes no system call.
pub fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
