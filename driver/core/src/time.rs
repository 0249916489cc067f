//! Time as the core knows it: handed in, never read.

use std::{fmt, ops, time::Duration};

/// A moment on the shell's monotonic clock, counted from the start of the job.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Duration);

impl Time {
    /// The start of the job.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// Later than any deadline.
    pub const NEVER: Self = Self(Duration::MAX);

    /// The moment that lies so long after the start.
    pub fn from_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after the start it lies.
    pub fn since_start(self) -> Duration {
        self.0
    }

    /// How long after `earlier` it lies; zero if it lies before.
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

/// Keeps the earliest of several deadlines.
pub(crate) fn earliest(deadlines: impl IntoIterator<Item = Option<Time>>) -> Option<Time> {
    deadlines.into_iter().flatten().min()
}
