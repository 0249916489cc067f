//! The pace of polls.

use std::time::Duration;

/// Minimum time from a poll to the next.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum random addition, so that many jobs do not poll at the same time.
pub(crate) const JITTER: Duration = Duration::from_secs(1);
