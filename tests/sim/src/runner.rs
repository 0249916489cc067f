//! Runs one seed, or many.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    fault::Strike,
    shrink::Simplification,
    trace::Detail,
    world::{Violation, World},
};

/// The result of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Hash of all events.
    pub hash: u64,
    /// Events of the simulation.
    pub events: u64,
    /// How long the job took, in simulated time.
    pub took: Duration,
    /// Rounds that were started.
    pub rounds: usize,
    /// Drivers that the job had, one after the other.
    pub drivers: u64,
    /// Epochs of the data that commits have completed.
    pub epochs: u64,
    /// The outcome of the job, as text; none if it did not end.
    pub outcome: Option<String>,
    /// Faults that have struck, in this order.
    pub strikes: Vec<Strike>,
    /// The invariant that did not hold.
    pub violation: Option<Violation>,
}

impl Report {
    fn new(seed: u64, world: Option<World>) -> Self {
        let Some(world) = world else {
            return Self {
                seed,
                ..Self::default()
            };
        };
        let ended = world.driver.ended.as_ref();
        Self {
            seed,
            hash: world.trace.hash(),
            events: world.trace.events(),
            took: world.now.since_start(),
            rounds: world.history.rounds(),
            drivers: world.driver.epoch.0,
            epochs: world.invariants.r7.epochs,
            outcome: ended.map(|(_, outcome)| format!("{outcome:?}")),
            strikes: world.strikes,
            violation: world.violation,
        }
    }
}

/// Runs one seed to its end.
pub fn run_seed(seed: u64, detail: Detail) -> Report {
    run_simplified(seed, detail, &Simplification::default())
}

/// Runs one seed without some of its hardships. The simplification fits the seed:
/// [`Drawn::check`](crate::shrink::Drawn::check).
pub fn run_simplified(seed: u64, detail: Detail, simplification: &Simplification) -> Report {
    let mut world = None;
    let run = || {
        let world = world.insert(World::new(seed, detail, simplification));
        world.run();
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).err();
    let mut report = Report::new(seed, world);
    if let Some(panic) = panic {
        report.violation = Some(Violation::of_panic(&*panic));
    }
    report
}

/// The results of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of seeds.
    pub seeds: u64,
    /// Reports of seeds with a violation, at most a hundred.
    pub violations: Vec<Report>,
    /// Events of all seeds.
    pub events: u64,
    /// Rounds of all seeds.
    pub rounds: u64,
    /// Epochs of all seeds.
    pub epochs: u64,
    /// Exclusive or of the rotated hashes: two runs of the same seeds agree on it.
    pub hash: u64,
    /// How long all seeds took, in real time.
    pub took: Duration,
    /// How often each outcome came.
    pub outcomes: std::collections::BTreeMap<String, u64>,
}

/// Runs `count` seeds from `first` on `threads` threads. Calls `progress` with the number of finished seeds and the
/// violations so far, one call at a time.
pub fn run_seeds(
    first: u64,
    count: u64,
    threads: usize,
    progress: impl Fn(u64, &[Report]) + Sync,
) -> Summary {
    const MOST: usize = 100;
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let report = run_seed(first + index, Detail::Brief);
                    // A panic outside of a run ends the whole program, so a poisoned lock is no concern.
                    let mut all = summary
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    all.add(report, MOST);
                    progress(all.seeds, &all.violations);
                }
            });
        }
    });
    let mut summary = summary
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    summary.violations.sort_by_key(|report| report.seed);
    summary.took = began.elapsed();
    summary
}

impl Summary {
    fn add(&mut self, report: Report, most: usize) {
        self.seeds += 1;
        self.events += report.events;
        self.rounds += report.rounds as u64;
        self.epochs += report.epochs;
        self.hash ^= report.hash.rotate_left((report.seed % 63) as u32);
        let kind = report.outcome.as_deref().unwrap_or("none");
        let kind = kind.split([' ', '{']).next().unwrap_or(kind).to_owned();
        *self.outcomes.entry(kind).or_default() += 1;
        if report.violation.is_some() && self.violations.len() < most {
            self.violations.push(report);
        }
    }
}
