//! Mistakes that others made, or that were once here, are planted back into the core: each must be seen.
//!
//! `cargo nextest run -p elasticrun-sim --features mutants`
#![cfg(feature = "mutants")]

use std::sync::atomic::{AtomicU64, Ordering};

use elasticrun_core::mutant::Mutant;
use elasticrun_sim::{Detail, Report, run_mutant};

/// Seeds within which each must be seen: less than two minutes on one core.
const SEEDS: u64 = 400_000;

fn first_seen(mutant: Mutant) -> Option<Report> {
    let next = AtomicU64::new(0);
    let search = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS {
                return None;
            }
            let report = run_mutant(seed, Detail::Brief, Some(mutant));
            if report.violation.is_some() {
                next.store(SEEDS, Ordering::Relaxed);
                return Some(report);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(search)).collect();
        let found = threads
            .into_iter()
            .filter_map(|thread| thread.join().expect("runs catch panics"));
        found.min_by_key(|report| report.seed)
    })
}

/// Not by a panic, and not by an invariant of something else.
#[test]
fn mistakes_in_the_data_are_seen_where_they_are() {
    for mutant in [
        Mutant::LedgerOfCommitBefore,
        Mutant::RangeTwice,
        Mutant::RangeLost,
        Mutant::LaneSkipped,
    ] {
        let violation = first_seen(mutant).and_then(|report| report.violation);
        let Some(violation) = violation else {
            panic!("{mutant:?} is not seen in {SEEDS} seeds");
        };
        println!("{mutant:?}: {violation:?}");
        assert!(
            ["R7", "R8"].contains(&violation.invariant),
            "{mutant:?}: {violation:?}"
        );
    }
}

#[test]
fn every_planted_mistake_is_seen() {
    let mut unseen = Vec::new();
    for mutant in Mutant::ALL {
        match first_seen(mutant) {
            Some(report) => println!("{mutant:?}: seed {}, {:?}", report.seed, report.violation),
            None => unseen.push(mutant),
        }
    }
    assert_eq!(unseen, [], "not seen in {SEEDS} seeds");
}
