//! The time of the next poll. Pure: the caller passes random numbers.

use std::time::Duration;

use elasticrun_plugin_sdk::Snapshot;

use super::Settings;
use crate::Failure;

/// The minimum pause from an answer to the next poll.
pub(super) const MIN_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause that a source may request, by an answer or by a failure. A wrong value does not stop discovery.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// The time that is added to the pause after failures: a random time up to a limit, which doubles with each consecutive
/// failure (full jitter). So many jobs that lost the same source do not return to it at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The limit after the first failure. If the pause after a good answer is longer, that is the limit.
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
    /// The limit after a number of consecutive failures of a source with this pause after good answers.
    fn limit(self, failures: u32, pace: Duration) -> Duration {
        let doubled = 1u32
            .checked_shl(failures.saturating_sub(1))
            .unwrap_or(u32::MAX);
        self.first.max(pace).saturating_mul(doubled).min(self.max)
    }
}

/// Computes the time of the next poll.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    backoff: Backoff,
    failures: u32,
    /// The pause after the last good answer.
    pace: Duration,
}

impl Schedule {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            interval: settings.interval,
            backoff: settings.backoff,
            failures: 0,
            pace: settings.interval,
        }
    }

    /// The time from this result to the next poll. A failing source is polled no more often than a healthy one, and not in
    /// step with other jobs. There is always a pause.
    pub(super) fn after(
        &mut self,
        result: &Result<Snapshot, Failure>,
        random: impl FnOnce() -> u64,
    ) -> Duration {
        let time = match result {
            Ok(snapshot) => {
                self.failures = 0;
                let requested = snapshot.next_poll.map(|pause| pause.min(MAX_PAUSE));
                self.pace = requested.unwrap_or(self.interval);
                self.pace
            }
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                let share = (random() as f64 / u64::MAX as f64).min(1.0);
                let limit = self.backoff.limit(self.failures, self.pace);
                let time = self.pace + limit.mul_f64(share);
                match failure.retry_after {
                    None => time,
                    Some(pause) => time.max(pause.min(MAX_PAUSE) + self.pace.mul_f64(share)),
                }
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
        assert_eq!(schedule.after(&failed(), || u64::MAX / 2).as_millis(), 600);
        assert_eq!(schedule.after(&failed(), || 0), SECOND / 10);
    }

    #[test]
    fn a_failing_source_is_asked_no_more_often_than_a_good_one() {
        let mut schedule = schedule();
        let slow = Snapshot {
            next_poll: Some(5 * SECOND),
            ..Snapshot::new(vec![])
        };
        schedule.after(&Ok(slow.clone()), || 0);
        for _ in 0..10 {
            assert_eq!(schedule.after(&failed(), || 0), 5 * SECOND);
        }
        schedule.after(&Ok(slow), || 0);
        let grown: Vec<_> = (0..5)
            .map(|_| schedule.after(&failed(), || u64::MAX).as_secs())
            .collect();
        assert_eq!(grown, [10, 15, 25, 45, 65]);
    }

    #[test]
    fn a_throttled_source_is_not_asked_in_step() {
        let throttled = |random| {
            let failure = Failure {
                retry_after: Some(5 * SECOND),
                ..Failure::new(FailureKind::Throttled, "")
            };
            let mut schedule = Schedule::new(&Settings::default());
            schedule.after(&Err(failure), || random)
        };
        assert_eq!(throttled(0), 5 * SECOND);
        assert_eq!(throttled(u64::MAX), 6 * SECOND);
    }

    #[test]
    fn no_pause_is_longer_than_ten_minutes() {
        let mut schedule = schedule();
        let late = Snapshot {
            next_poll: Some(Duration::MAX),
            ..Snapshot::new(vec![])
        };
        assert_eq!(schedule.after(&Ok(late), || 0), 600 * SECOND);
        let failure = Failure {
            retry_after: Some(Duration::MAX),
            ..Failure::new(FailureKind::Throttled, "")
        };
        let mut schedule = Schedule::new(&Settings::default());
        assert_eq!(schedule.after(&Err(failure), || 0), 600 * SECOND);
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
        fn a_pause_is_within_its_limits(failures in 1u32..100, random: u64) {
            let mut schedule = schedule();
            let mut pauses = (0..failures).map(|_| schedule.after(&failed(), || random));
            let first = pauses.next().expect("there is one");
            prop_assert!(first >= SECOND / 10 && first <= SECOND / 10 + SECOND);
            prop_assert!(pauses.all(|pause| pause <= SECOND / 10 + Backoff::default().max));
        }
    }
}
