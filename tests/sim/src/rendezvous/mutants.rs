//! Runs seeds with mistakes planted into the rendezvous, to find out which of them the invariants detect.

use elasticrun_core::rendezvous::mutant::{self, Mutant};

use super::{Report, run_seed};
use crate::trace::Detail;

/// The result of the search for a mistake.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The mistake.
    pub mutant: Mutant,
    /// The first seed that shows the mistake; none if no seed does.
    pub seen: Option<Report>,
}

/// Searches for each mistake in at most `seeds` seeds. A seed that fails without the mistake proves nothing.
pub fn sightings(seeds: u64) -> Vec<Sighting> {
    let sighting = |mutant: &Mutant| {
        mutant::plant(Some(*mutant));
        let mut reports = (0..seeds).map(|seed| run_seed(seed, Detail::Brief));
        let seen = reports.find(|report| report.violation.is_some());
        mutant::plant(None);
        let proves = |report: &Report| run_seed(report.seed, Detail::Brief).violation.is_none();
        Sighting {
            mutant: *mutant,
            seen: seen.filter(proves),
        }
    };
    Mutant::ALL.iter().map(sighting).collect()
}
