//! Rows a second of each worker of the round, as of commits.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The period over which the rate is averaged.
const WINDOW: Duration = Duration::from_secs(10);

/// Approximate number of samples in a window; there may be thousands of commits a second.
const SAMPLES: u32 = 50;

/// Measures the rows a second of each rank.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    /// Rows of each rank since the start of the round.
    rows: Vec<u64>,
    /// Earlier values of `rows`, the latest last.
    samples: VecDeque<(Instant, Vec<u64>)>,
}

impl Throughput {
    /// Starts a round of `size` workers, from a commit.
    pub(super) fn begin(&mut self, now: Instant, size: usize) {
        self.rows = vec![0; size];
        self.samples = VecDeque::from([(now, self.rows.clone())]);
    }

    /// Records the rows of each rank since the last commit.
    pub(super) fn processed(&mut self, now: Instant, taken: &[u64]) {
        for (rows, taken) in self.rows.iter_mut().zip(taken) {
            *rows += taken;
        }
        let is_due = |(last, _): &(Instant, Vec<u64>)| now - *last >= WINDOW / SAMPLES;
        if self.samples.back().is_none_or(is_due) {
            self.samples.push_back((now, self.rows.clone()));
        }
        // One older sample stays, so that the window is full.
        while self
            .samples
            .get(1)
            .is_some_and(|(time, _)| now - *time >= WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Rows a second by rank; empty before the first commit.
    pub(super) fn per_second(&self, now: Instant) -> Vec<f64> {
        let Some((began, before)) = self.samples.front() else {
            return Vec::new();
        };
        let seconds = (now - *began).as_secs_f64();
        if seconds <= 0.0 || self.rows.iter().all(|rows| *rows == 0) {
            return Vec::new();
        }
        (self.rows.iter().zip(before))
            .map(|(rows, before)| (rows - before) as f64 / seconds)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        let mut throughput = Throughput::default();
        assert_eq!(throughput.per_second(start), [0.0; 0]);
        throughput.begin(start, 2);
        assert_eq!(throughput.per_second(at(5)), [0.0; 0]);
        for tenth in 1..=200 {
            throughput.processed(at(tenth), &[10, 20]);
        }
        assert_eq!(throughput.per_second(at(200)), [100.0, 200.0]);
        for tenth in 201..=400 {
            throughput.processed(at(tenth), &[0, 5]);
        }
        assert_eq!(throughput.per_second(at(400)), [0.0, 50.0]);
        // The rate of an idle worker decreases.
        assert!(throughput.per_second(at(1000))[1] < 10.0);
        assert!(throughput.samples.len() <= SAMPLES as usize + 2);
        throughput.begin(at(400), 3);
        assert_eq!(throughput.per_second(at(401)), [0.0; 0]);
    }
}
