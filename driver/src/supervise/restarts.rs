//! How often and how soon a driver that has died is resumed, or another child of a node that elects its driver.

use std::time::Duration;

/// The pause after the first death.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause. Agents must find a driver within the shortest `--orphan-timeout` that is in use, which is 5 s.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// A driver that has lived for so long has taken the run over, and its death is the first one again.
const HEALTHY: Duration = Duration::from_secs(3);

/// Deaths in a row, each within [`HEALTHY`], after which the run is not resumed. Their pauses add up to half a minute.
pub(super) const LIMIT: u32 = 18;

/// The deaths of drivers that have not lived for long.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    in_a_row: u32,
}

impl Restarts {
    /// The pause before the next driver, after one that has lived for `lived`. `None` if too many in a row have died at once.
    pub(crate) fn next(&mut self, lived: Duration) -> Option<Duration> {
        if lived >= HEALTHY {
            self.in_a_row = 0;
        }
        let deaths = self.in_a_row;
        self.in_a_row += 1;
        // The exponent is bounded, so that the product is.
        (deaths < LIMIT).then(|| (FIRST_PAUSE * 2_u32.pow(deaths.min(8))).min(MAX_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_dies_at_once_waits_longer_each_time() {
        let mut restarts = Restarts::default();
        let pauses: Vec<_> = (0..8)
            .map(|_| restarts.next(Duration::ZERO).expect("below the limit"))
            .collect();
        assert_eq!(pauses[..3], [100, 200, 400].map(Duration::from_millis));
        assert_eq!(pauses[7], MAX_PAUSE);
    }

    #[test]
    fn a_driver_that_has_lived_is_resumed_soon() {
        let mut restarts = Restarts::default();
        for count in 0..100 {
            assert_eq!(restarts.next(HEALTHY), Some(FIRST_PAUSE), "{count}");
        }
    }

    #[test]
    fn drivers_that_die_at_once_are_not_resumed_for_ever() {
        for lived in [Duration::ZERO, HEALTHY / 2] {
            let mut restarts = Restarts::default();
            let pauses: Vec<_> = std::iter::from_fn(|| restarts.next(lived)).collect();
            assert_eq!(pauses.len(), LIMIT as usize);
            let all: Duration = pauses.iter().sum();
            assert!(all < Duration::from_secs(31), "{all:?}");
            assert_eq!(restarts.next(lived), None);
            assert_eq!(restarts.next(HEALTHY), Some(FIRST_PAUSE));
        }
    }
}
