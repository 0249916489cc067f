//! How often and how soon a driver that has died is resumed.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The pause after the first death.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A driver that has lived for so long begins with the first pause again.
const HEALTHY: Duration = Duration::from_secs(5);

/// Restarts within [`WINDOW`]. A driver that is killed every 5 s is resumed for ever.
const LIMIT: usize = 20;

/// The time in which restarts are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The restarts of a driver.
#[derive(Debug)]
pub(super) struct Restarts {
    recent: VecDeque<Instant>,
    pause: Duration,
}

impl Default for Restarts {
    fn default() -> Self {
        Self {
            recent: VecDeque::new(),
            pause: FIRST_PAUSE,
        }
    }
}

impl Restarts {
    /// The pause before the next restart of a driver that has lived for `lived`. `None` if it has died too often.
    pub(super) fn next(&mut self, now: Instant, lived: Duration) -> Option<Duration> {
        while (self.recent.front()).is_some_and(|at| now.duration_since(*at) >= WINDOW) {
            self.recent.pop_front();
        }
        if self.recent.len() >= LIMIT {
            return None;
        }
        self.recent.push_back(now);
        if lived >= HEALTHY {
            self.pause = FIRST_PAUSE;
        }
        let pause = self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_dies_at_once_waits_longer_each_time() {
        let (now, mut restarts) = (Instant::now(), Restarts::default());
        let pauses: Vec<_> = (0..8)
            .map(|_| restarts.next(now, Duration::ZERO).expect("below the limit"))
            .collect();
        assert_eq!(pauses[..3], [100, 200, 400].map(Duration::from_millis));
        assert_eq!(pauses[7], MAX_PAUSE);
    }

    #[test]
    fn a_driver_that_has_lived_is_resumed_soon() {
        let (now, mut restarts) = (Instant::now(), Restarts::default());
        for count in 0..100 {
            let now = now + Duration::from_secs(5) * count;
            let pause = restarts.next(now, Duration::from_secs(5));
            assert_eq!(pause, Some(FIRST_PAUSE), "{count}");
        }
    }

    #[test]
    fn restarts_within_a_minute_are_limited() {
        let (now, mut restarts) = (Instant::now(), Restarts::default());
        for _ in 0..LIMIT {
            assert!(restarts.next(now, Duration::ZERO).is_some());
        }
        assert_eq!(restarts.next(now, Duration::ZERO), None);
        assert!(restarts.next(now + WINDOW, Duration::ZERO).is_some());
    }
}
