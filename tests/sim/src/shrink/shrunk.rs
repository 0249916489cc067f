//! The result of a search.

use std::{collections::BTreeSet, fmt};

use super::{Drawn, Simplification};
use crate::runner::Report;

/// A schedule that violates the same invariant as the one of its seed, with fewer hardships.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The run at the beginning of the search.
    pub before: Report,
    /// The run of the simplified schedule.
    pub after: Report,
    /// What remains of the schedule.
    pub simplification: Simplification,
    /// What the seed has drawn.
    pub drawn: Drawn,
    /// Number of runs of the search.
    pub runs: usize,
    /// No single hardship can be taken away. Otherwise the search has reached its bound of runs.
    pub is_minimal: bool,
}

/// Faults and events before and after, and the faults that remain.
impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (&self.before, &self.after);
        let remain = self.simplification.faults.as_ref();
        let planned = self.drawn.faults();
        writeln!(
            f,
            "seed {}: planned faults {planned} -> {}, faults that struck {} -> {}, events {} -> {}, after {} runs",
            before.seed,
            remain.map_or(planned, BTreeSet::len),
            before.strikes.len(),
            after.strikes.len(),
            before.events,
            after.events,
            self.runs
        )?;
        if !self.is_minimal {
            writeln!(
                f,
                "  the search has reached its bound of runs, so fewer may suffice"
            )?;
        }
        for strike in &after.strikes {
            match self.drawn.number(strike) {
                Some(number) => writeln!(f, "  {strike} (planned fault {number})")?,
                None => writeln!(f, "  {strike} (not planned)")?,
            }
        }
        let Some(violation) = &after.violation else {
            return Ok(());
        };
        write!(f, "  {} violated: {}", violation.invariant, violation.what)
    }
}
