//! One run of a job: how long it trains, and its clock.

use std::{thread, time::Duration};

use elasticrun_process_tests::monotonic;

/// What a run is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// How long it trains, from the first steps of all workers.
    pub(crate) time: Duration,
    /// Milliseconds of a step.
    pub(crate) step_ms: u64,
    /// Whether there are faults.
    pub(crate) disturbed: bool,
}

/// The time of a run in which steps are counted, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Window {
    /// A window that begins now.
    pub(crate) fn begin(time: Duration) -> Self {
        let from = monotonic();
        Self {
            from,
            to: from + time.as_nanos() as u64,
        }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        Duration::from_nanos(self.to.saturating_sub(monotonic()))
    }

    /// Sleeps until its end.
    pub(crate) fn pass(&self) {
        thread::sleep(self.left());
    }
}
