//! Jitter for the time of the next poll.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// A random time up to `max`. Add it to [`Snapshot::next_poll`](crate::Snapshot::next_poll), so that many jobs do not poll the
/// same source at the same time. The random number is the seed of a hash map.
pub fn jitter(max: Duration) -> Duration {
    let share = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    max.mul_f64(share.min(1.0))
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
