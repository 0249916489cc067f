//! The clock of leases: it counts while the machine sleeps, and all processes of a machine read the same.

use std::time::Duration;

/// Time since the machine was booted, its sleep included. Some 30 ns, no system call.
pub fn boottime() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live timespec that the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    debug_assert_eq!(result, 0, "every Linux has this clock");
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
