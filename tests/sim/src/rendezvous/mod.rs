//! Simulation of the dynamic rendezvous: nodes over one holder, with the shipped machine of `elasticrun_core::rendezvous`.
//!
//! A seed decides the settings, all delays and all faults: processes that die, stand still, or are cut off; answers and
//! reports that are lost or overtake each other; a holder that is down, refuses, loses races, or loses the heartbeats or the
//! state as well; clocks that step. Invariants are checked at each write and each command. Then the faults stop, all nodes must come to
//! rest in one round, and the rendezvous closes.
//!
//! `cargo run -p elasticrun-sim --bin elasticrun-sim-rendezvous -- --seeds 100000` searches for violations.

mod fault;
mod invariants;
#[cfg(feature = "mutants")]
mod mutants;
mod node;
mod scenario;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(feature = "mutants")]
pub use mutants::{Sighting, sightings};

use crate::{trace::Detail, world::Violation};
use world::World;

/// The result of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Hash of all events.
    pub hash: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Rounds that nodes have joined.
    pub rounds: usize,
    /// Writes, and those that lost the race.
    pub writes: (u64, u64),
    /// Nodes that others have removed.
    pub removals: u64,
    /// Removals that were refused, since their nodes had beaten.
    pub spared: u64,
    /// The invariant that did not hold.
    pub violation: Option<Violation>,
}

/// Runs one seed to its end.
pub fn run_seed(seed: u64, detail: Detail) -> Report {
    let mut world = World::new(seed, detail);
    let panic = catch_unwind(AssertUnwindSafe(|| world.run())).err();
    let mut report = world.report(seed);
    if let Some(panic) = panic {
        report.violation = Some(Violation::of_panic(&*panic));
    }
    report
}

/// Runs seeds one after the other, and gives the sums and the first report with a violation.
pub fn run_seeds(seeds: std::ops::Range<u64>) -> (Report, Option<Report>) {
    let mut sum = Report::default();
    for seed in seeds {
        let report = run_seed(seed, Detail::Brief);
        if report.violation.is_some() {
            return (sum, Some(report));
        }
        sum.hash ^= report.hash.rotate_left((seed % 63) as u32);
        sum.events += report.events;
        sum.rounds += report.rounds;
        sum.writes.0 += report.writes.0;
        sum.writes.1 += report.writes.1;
        sum.removals += report.removals;
        sum.spared += report.spared;
    }
    (sum, None)
}
