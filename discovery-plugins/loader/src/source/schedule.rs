//! The time of the next poll. Pure: the caller passes random numbers.

use std::time::Duration;

use elasticrun_plugin_sdk::Snapshot;

use super::Settings;
use crate::Failure;

/// The minimum pause from an answer to the next poll.
pub(super) const MIN_PAUSE: Duration = Duration::from_millis(10);

/// The pause after failures: a random time up to a limit, which doubles with each consecutive failure (full jitter). So
/// many jobs that lost the same source do not return to it at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The limit after the first failure.
    pub first: Duration,
    /// The maximum of the limit.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            max: Duration::from_secs(60),
        }
    }
}

impl Backoff {
    /// The pause after a number of consecutive failures.
    fn time(self, failures: u32, random: u64) -> Duration {
        let doubled = 1u32
            .checked_shl(failures.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let limit = self.first.saturating_mul(doubled).min(self.max);
        let share = random as f64 / u64::MAX as f64;
        limit.mul_f64(share.min(1.0))
    }
}

/// Computes the time of the next poll.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    backoff: Backoff,
    failures: u32,
}

impl Schedule {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            interval: settings.interval,
            backoff: settings.backoff,
            failures: 0,
        }
    }

    /// The time from this result to the next poll. A failing source is polled no more often than a healthy one. There is
    /// always a pause.
    pub(super) fn after(
        &mut self,
        result: &Result<Snapshot, Failure>,
        random: impl FnOnce() -> u64,
    ) -> Duration {
        let time = match result {
            Ok(snapshot) => {
                self.failures = 0;
                snapshot.next_poll.unwrap_or(self.interval)
            }
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                let time = self
                    .backoff
                    .time(self.failures, random())
                    .max(self.interval);
                time.max(failure.retry_after.unwrap_or_default())
            }
        };
        time.max(MIN_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule() -> Schedule {
        Schedule::new(&Settings {
            interval: Duration::from_millis(100),
            ..Settings::default()
        })
    }

    fn failed() -> Result<Snapshot, Failure> {
        Err(Failure::new(FailureKind::Retryable, ""))
    }

    #[test]
    fn a_good_answer_says_when_it_wants_to_be_asked_again() {
        let mut schedule = schedule();
        let mut snapshot = Snapshot::new(vec![]);
        assert_eq!(schedule.after(&Ok(snapshot.clone()), || 0), SECOND / 10);
        snapshot.next_poll = Some(5 * SECOND);
        assert_eq!(schedule.after(&Ok(snapshot.clone()), || 0), 5 * SECOND);
        snapshot.next_poll = Some(Duration::ZERO);
        assert_eq!(schedule.after(&Ok(snapshot), || 0), SECOND / 100);
    }

    #[test]
    fn the_limit_doubles_up_to_a_minute_and_falls_back() {
        let mut schedule = schedule();
        let mut limits = || schedule.after(&failed(), || u64::MAX).as_secs();
        let seen: Vec<_> = (0..8).map(|_| limits()).collect();
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 60, 60]);
        schedule.after(&Ok(Snapshot::new(vec![])), || 0);
        assert_eq!(schedule.after(&failed(), || u64::MAX / 2).as_millis(), 500);
        assert_eq!(schedule.after(&failed(), || 0), SECOND / 10);
    }

    #[test]
    fn the_source_may_ask_for_more_time() {
        let failure = Failure {
            retry_after: Some(90 * SECOND),
            ..Failure::new(FailureKind::Throttled, "")
        };
        assert_eq!(schedule().after(&Err(failure), || 0), 90 * SECOND);
    }

    proptest! {
        #[test]
        fn a_wait_is_within_its_limits(failures in 1u32..100, random: u64) {
            let time = Backoff::default().time(failures, random);
            prop_assert!(time <= Backoff::default().max);
            prop_assert!(failures > 1 || time <= SECOND);
        }
    }
}
