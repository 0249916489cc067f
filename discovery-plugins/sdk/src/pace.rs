//! When to be asked again.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Some time up to a limit, to add to [`Snapshot::next_poll`](crate::Snapshot::next_poll) so that many jobs do not ask the
/// same source together. The seed of a hash map is random enough for it.
pub fn jitter(most: Duration) -> Duration {
    let share = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    most.mul_f64(share.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_differs_and_keeps_its_limit() {
        let times: Vec<_> = (0..20).map(|_| jitter(Duration::from_secs(1))).collect();
        assert!(times.iter().all(|time| *time <= Duration::from_secs(1)));
        assert!(times.iter().any(|time| *time != times[0]));
    }
}
