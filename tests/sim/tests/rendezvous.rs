//! The simulation of the dynamic rendezvous: many seeds, the same trace for the same seed, and planted mistakes.

use elasticrun_sim::{Detail, rendezvous};

#[test]
fn five_hundred_seeds_violate_no_invariant() {
    let (sum, violated) = rendezvous::run_seeds(0..500);
    assert_eq!(violated, None);
    // The faults have an effect: nodes lose races, are removed, and form many rounds.
    assert!(
        sum.rounds > 1000 && sum.writes.1 > 1000 && sum.removals > 500 && sum.spared > 0,
        "{sum:?}"
    );
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..20 {
        let first = rendezvous::run_seed(seed, Detail::Full);
        assert_eq!(first, rendezvous::run_seed(seed, Detail::Full));
    }
}

/// Each mistake is seen by the invariant that it breaks, or by another one earlier. A panic does not count.
#[cfg(feature = "mutants")]
#[test]
fn planted_mistakes_are_seen() {
    for sighting in rendezvous::sightings(3000) {
        let violation = sighting.seen.and_then(|report| report.violation);
        let by = violation.as_ref().map(|violation| violation.invariant);
        assert!(by.is_some_and(|by| by != "panic"), "{:?}", sighting.mutant);
    }
}
