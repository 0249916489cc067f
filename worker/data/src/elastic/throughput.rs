//! How many rows a second the workers of a round process, by what they tell each other at commits.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// A rate looks back so far.
const WINDOW: Duration = Duration::from_secs(10);

/// Samples in a window, about: commits may be thousands a second.
const SAMPLES: u32 = 50;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Rows of each rank since the round began.
    rows: Vec<u64>,
    /// These rows, as of some time; the latest last.
    samples: VecDeque<(Instant, Vec<u64>)>,
}

impl Pace {
    /// A round of so many workers begins, or goes on from another commit.
    pub(super) fn begin(&mut self, now: Instant, size: usize) {
        self.rows = vec![0; size];
        self.samples = VecDeque::from([(now, self.rows.clone())]);
    }

    /// Each rank has processed so many rows since the last commit.
    pub(super) fn processed(&mut self, now: Instant, taken: &[u64]) {
        for (rows, taken) in self.rows.iter_mut().zip(taken) {
            *rows += taken;
        }
        let is_due = |(last, _): &(Instant, Vec<u64>)| now - *last >= WINDOW / SAMPLES;
        if self.samples.back().is_none_or(is_due) {
            self.samples.push_back((now, self.rows.clone()));
        }
        // One that is older stays: the window is full then.
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| now - *at >= WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Rows a second by rank; none before a commit.
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
        let mut pace = Pace::default();
        assert_eq!(pace.per_second(start), [0.0; 0]);
        pace.begin(start, 2);
        assert_eq!(pace.per_second(at(5)), [0.0; 0]);
        for tenth in 1..=200 {
            pace.processed(at(tenth), &[10, 20]);
        }
        assert_eq!(pace.per_second(at(200)), [100.0, 200.0]);
        for tenth in 201..=400 {
            pace.processed(at(tenth), &[0, 5]);
        }
        assert_eq!(pace.per_second(at(400)), [0.0, 50.0]);
        // Who does nothing more becomes slower and slower.
        assert!(pace.per_second(at(1000))[1] < 10.0);
        assert!(pace.samples.len() <= SAMPLES as usize + 2);
        pace.begin(at(400), 3);
        assert_eq!(pace.per_second(at(401)), [0.0; 0]);
    }
}
