//! Plants mistakes into the core: known ones of other systems, earlier ones of this code, and likely ones of
//! future changes. The simulation must detect each, and those in the data by the invariants of the data.
//!
//! `cargo nextest run -p elasticrun-sim --features mutants`; `make sim-mutants` prints how many seeds each takes.
#![cfg(feature = "mutants")]

use std::collections::BTreeMap;

use elasticrun_core::mutant::Mutant;
use elasticrun_sim::sightings;

/// Number of seeds within which each mistake must be found.
const SEEDS: u64 = 200_000;

/// A panic or another invariant does not count.
#[test]
fn mistakes_in_the_data_are_seen_where_they_are() {
    let mutants = [
        Mutant::LedgerOfCommitBefore,
        Mutant::LedgerNotRestored,
        Mutant::RangeTwice,
        Mutant::RangeLost,
        Mutant::StripeSkipped,
    ];
    for sighting in sightings(&mutants, SEEDS, 2, |_| {}) {
        let violation = sighting.seen.and_then(|report| report.violation);
        let by = violation.as_ref().map(|violation| violation.invariant);
        assert!(
            by.is_some_and(|by| ["R7", "R8"].contains(&by)),
            "{:?}: {violation:?}",
            sighting.mutant
        );
    }
}

/// A commit that is copied while training goes on is sealed too late, or with too late a state.
#[test]
fn mistakes_in_asynchronous_commits_are_seen_where_they_are() {
    let mutants = [
        Mutant::SealedBehindBarrier,
        Mutant::CopiedTooLate,
        Mutant::SealedAfterLeave,
    ];
    for sighting in sightings(&mutants, SEEDS, 2, |_| {}) {
        let violation = sighting.seen.and_then(|report| report.violation);
        let by = violation.as_ref().map(|violation| violation.invariant);
        assert!(
            by.is_some_and(|by| sighting.mutant.breaks().contains(&by)),
            "{:?}: {violation:?}",
            sighting.mutant
        );
    }
}

/// The driver dies, and the next one makes the mistake.
#[test]
fn mistakes_of_a_later_driver_are_seen() {
    let mutants = [
        Mutant::RoundReused,
        Mutant::PartialRoundAdopted,
        Mutant::BlacklistForgotten,
        Mutant::StartsBeforeAdoption,
        Mutant::OldEpochAdopted,
        Mutant::ReportsRepeated,
    ];
    for sighting in sightings(&mutants, SEEDS, 2, |_| {}) {
        let violation = sighting.seen.and_then(|report| report.violation);
        assert!(
            violation.is_some_and(|violation| violation.invariant != "panic"),
            "{:?}",
            sighting.mutant
        );
    }
}

#[test]
fn each_rule_has_three_mistakes() {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for rule in Mutant::ALL.iter().flat_map(|mutant| mutant.breaks()) {
        *counts.entry(rule).or_default() += 1;
    }
    let rules = (1..=10).map(|rule| rule.to_string());
    let invariants = (1..=15).map(|n| format!("R{n}"));
    let others = ["W1", "W2", "W4", "W5", "blame", "launches"].map(str::to_owned);
    for rule in rules.chain(invariants).chain(others) {
        let count = counts.get(rule.as_str()).copied().unwrap_or(0);
        assert!(count >= 3, "{rule} has {count}");
    }
}
