//! Time as the core uses it: an argument, never read from a clock.

use std::{fmt, ops, time::Duration};

/// A moment on the shell's monotonic clock, counted from the start of the job.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Duration);

impl Time {
    /// The start of the job.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// Later than any deadline.
    pub const NEVER: Self = Self(Duration::MAX);

    /// The moment `elapsed` after the start.
    pub fn from_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The time from the start to this moment.
    pub fn since_start(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment; zero if this moment is before it.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl ops::Add<Duration> for Time {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0.as_secs_f64())
    }
}

/// The earliest of several deadlines.
pub(crate) fn earliest(deadlines: impl IntoIterator<Item = Option<Time>>) -> Option<Time> {
    deadlines.into_iter().flatten().min()
}
