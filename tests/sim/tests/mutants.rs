//! Mistakes that others made, or that were once here, are planted back into the core: each must be seen.
//!
//! `cargo nextest run -p elasticrun-sim --features mutants`
#![cfg(feature = "mutants")]

use elasticrun_core::mutant::Mutant;
use elasticrun_sim::{Detail, run_mutant};

/// Seeds within which each must be seen.
const SEEDS: u64 = 20_000;

#[test]
fn every_planted_mistake_is_seen() {
    let mut unseen = Vec::new();
    for mutant in Mutant::ALL {
        let seen = (0..SEEDS)
            .map(|seed| run_mutant(seed, Detail::Brief, Some(mutant)))
            .find(|report| report.violation.is_some());
        match seen {
            Some(report) => println!("{mutant:?}: seed {}, {:?}", report.seed, report.violation),
            None => unseen.push(mutant),
        }
    }
    assert_eq!(unseen, [], "not seen in {SEEDS} seeds");
}
