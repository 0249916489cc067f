//! The search for a simpler schedule: one or two of the faults, else delta debugging over them, then each amount, until
//! nothing more can go.

use std::collections::BTreeSet;

use super::{Amount, Drawn, Shrunk, Simplification};
use crate::{runner::Report, world::Violation};

#[cfg(test)]
mod tests;

/// A search ends after so many runs.
const MOST_RUNS: usize = 3_000;

/// All pairs of so many faults are tried at most.
const MOST_PAIRED: usize = 32;

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs so far.
    pub runs: usize,
    /// Planned faults that remain.
    pub faults: usize,
    /// Events of the simplest run that violates the invariant.
    pub events: u64,
}

/// Searches for a simpler schedule that violates the same invariant as `start`. None if `start` violates none.
///
/// `run` runs a simplification of the seed that has drawn `drawn`. The same simplification must give the same report.
/// `progress` is called after each run.
pub fn shrink(
    drawn: &Drawn,
    start: &Simplification,
    run: impl FnMut(&Simplification) -> Report,
    progress: impl FnMut(Progress),
) -> Option<Shrunk> {
    shrink_within(MOST_RUNS, drawn, start, run, progress)
}

fn shrink_within(
    most: usize,
    drawn: &Drawn,
    start: &Simplification,
    mut run: impl FnMut(&Simplification) -> Report,
    progress: impl FnMut(Progress),
) -> Option<Shrunk> {
    let before = run(start);
    let violation = before.violation.clone()?;
    let mut search = Search {
        drawn,
        violation,
        found: start.clone(),
        report: before.clone(),
        holds: BTreeSet::new(),
        runs: 1,
        most,
        run,
        progress,
    };
    search.keep_two();
    let mut last = None;
    while last.as_ref() != Some(&search.found) {
        last = Some(search.found.clone());
        search.remove_faults();
        for amount in Amount::ALL {
            search.lessen(amount);
        }
    }
    Some(Shrunk {
        before,
        after: search.report,
        simplification: search.found,
        drawn: drawn.clone(),
        runs: search.runs,
        is_minimal: search.runs < most,
    })
}

struct Search<'a, R, P> {
    drawn: &'a Drawn,
    violation: Violation,
    /// The simplest schedule so far that violates the invariant, and its report.
    found: Simplification,
    report: Report,
    /// Simplifications that do not violate the invariant.
    holds: BTreeSet<Simplification>,
    runs: usize,
    most: usize,
    run: R,
    progress: P,
}

impl<R, P> Search<'_, R, P>
where
    R: FnMut(&Simplification) -> Report,
    P: FnMut(Progress),
{
    /// Keeps a simplification if it violates the invariant.
    fn keep(&mut self, simpler: Simplification) -> bool {
        if self.runs >= self.most || self.holds.contains(&simpler) {
            return false;
        }
        let report = (self.run)(&simpler);
        self.runs += 1;
        let violation = report.violation.as_ref();
        let is_same = violation.is_some_and(|violation| is_same(violation, &self.violation));
        if is_same {
            (self.found, self.report) = (simpler, report);
        } else {
            self.holds.insert(simpler);
        }
        let faults = self.faults().len();
        (self.progress)(Progress {
            runs: self.runs,
            faults,
            events: self.report.events,
        });
        is_same
    }

    fn faults(&self) -> Vec<usize> {
        match &self.found.faults {
            Some(faults) => faults.iter().copied().collect(),
            None => (0..self.drawn.faults()).collect(),
        }
    }

    /// Keeps no fault but one or two that suffice, if there are any. The removal of one fault after the other misses them if
    /// each fault that goes changes what the next ones meet.
    fn keep_two(&mut self) {
        let faults = self.faults();
        if !(3..=MOST_PAIRED).contains(&faults.len()) {
            return;
        }
        let few = |one: usize, other: usize| Simplification {
            faults: Some([one, other].into()),
            ..self.found.clone()
        };
        let singles = faults.iter().map(|one| few(*one, *one));
        let pairs = (faults.iter().enumerate())
            .flat_map(|(at, one)| faults[..at].iter().map(move |other| (*one, *other)))
            .map(|(one, other)| few(one, other));
        let none = Simplification {
            faults: Some(BTreeSet::new()),
            ..self.found.clone()
        };
        let tried: Vec<_> = (std::iter::once(none).chain(singles).chain(pairs)).collect();
        tried.into_iter().any(|few| self.keep(few));
    }

    /// Removes all faults, then halves of them, and so on, then one by one until each is needed.
    fn remove_faults(&mut self) {
        let mut size = self.faults().len();
        while size > 0 {
            let mut is_smaller = false;
            // Late faults are the most likely ones to have no effect.
            for chunk in self.faults().rchunks(size) {
                let remain = self.faults().into_iter();
                let faults = remain.filter(|fault| !chunk.contains(fault)).collect();
                is_smaller |= self.keep(Simplification {
                    faults: Some(faults),
                    ..self.found.clone()
                });
            }
            if size > 1 {
                size = size.div_ceil(2);
            } else if !is_smaller {
                return;
            }
        }
    }

    /// Lessens an amount to its least value, or by halves, or by one unit.
    fn lessen(&mut self, amount: Amount) {
        let Some(&(least, drawn)) = self.drawn.amounts().get(&amount) else {
            return;
        };
        let value = |found: &Simplification| found.amounts.get(&amount).copied().unwrap_or(drawn);
        loop {
            let now = value(&self.found);
            let Some(most) = now.checked_sub(amount.unit().unwrap_or(now)) else {
                return;
            };
            let less = [least, least.midpoint(now), most];
            let sensible = |less: &u64| *less == least || (least..=most).contains(less);
            let kept = less.into_iter().filter(sensible).any(|less| {
                let mut simpler = self.found.clone();
                less < now
                    && simpler.amounts.insert(amount, less) != Some(less)
                    && self.keep(simpler)
            });
            if !kept {
                return;
            }
        }
    }
}

/// Whether two violations are of the same invariant. All panics have the same name, so their texts must agree, except for
/// numbers.
fn is_same(one: &Violation, other: &Violation) -> bool {
    let without_numbers = |violation: &Violation| -> String {
        let mut text = violation.what.clone();
        text.retain(|c| !c.is_ascii_digit());
        text
    };
    one.invariant == other.invariant
        && (one.invariant != "panic" || without_numbers(one) == without_numbers(other))
}
