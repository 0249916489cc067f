//! Runs seeds with mistakes planted into the core, to find out which of them the invariants detect.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use elasticrun_core::mutant::{self, Mutant};

use crate::{
    runner::{Report, run_seed, run_simplified},
    shrink::Simplification,
    trace::Detail,
};

/// The result of the search for a mistake.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The mistake.
    pub mutant: Mutant,
    /// The first seed that shows the mistake; none if no seed does.
    pub seen: Option<Report>,
}

/// Runs one seed with a mistake planted into the core, without the hardships that a simplification takes away.
pub fn run_mutant(mutant: Mutant, seed: u64, simplification: &Simplification) -> Report {
    mutant::plant(Some(mutant));
    let report = run_simplified(seed, Detail::Brief, simplification);
    mutant::plant(None);
    report
}

/// Searches for each mistake in at most `seeds` seeds. Calls `found` with each result as soon as it is known.
pub fn sightings(
    mutants: &[Mutant],
    seeds: u64,
    threads: usize,
    found: impl Fn(&Sighting) + Sync,
) -> Vec<Sighting> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let whole = Simplification::default();
                    let mut reports = (0..seeds).map(|seed| run_mutant(*mutant, seed, &whole));
                    // A seed that fails without the mistake proves nothing.
                    let well = |seed| run_seed(seed, Detail::Brief).violation.is_none();
                    let shows = |report: &Report| report.violation.is_some() && well(report.seed);
                    let seen = reports.find(shows);
                    let sighting = Sighting {
                        mutant: *mutant,
                        seen,
                    };
                    found(&sighting);
                    let mut all = all
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    all.push(sighting);
                }
            });
        }
    });
    all.into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
