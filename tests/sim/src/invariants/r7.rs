//! R7: a row that is committed and not void is committed once per epoch, and all rows are by the end of the epoch.
//! R8, in a commit: model and ledger belong together. In order "deterministic", the rows of a step are those of
//! its positions.
//!
//! A model is the path that led to it: each step, with the rows that its members really took. The check follows a
//! commit back to the start of the job. The rows on that path must be exactly those that its ledger counts as
//! processed.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_ledger::{Ledger, Stripes};
use elasticrun_protocol::CommitId;

use super::Invariants;
use crate::world::{World, memory::State, reading::Taken};

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Steps by the digest of the model after them.
    steps: BTreeMap<u64, Step>,
    /// Results of reset callbacks, and the models that they changed: these are no steps.
    callbacks: BTreeMap<u64, u64>,
    seen: BTreeSet<CommitId>,
    /// Number of epochs that the newest commits have completed.
    pub(crate) epochs: u64,
}

#[derive(Debug)]
struct Step {
    before: u64,
    epoch: u64,
    rows: Vec<u64>,
}

/// The members of a round have trained on these rows.
pub(crate) fn step_done(
    invariants: &mut Invariants,
    before: u64,
    after: u64,
    taken: &[Taken],
) -> Result<(), String> {
    let epoch = taken.first().map_or(0, |taken| taken.epoch);
    if let Some(other) = taken.iter().find(|taken| taken.epoch != epoch) {
        return Err(format!(
            "in one step some are in epoch {epoch}, others in {}",
            other.epoch
        ));
    }
    let rows = taken
        .iter()
        .flat_map(|taken| taken.rows.iter().copied())
        .collect();
    let step = Step {
        before,
        epoch,
        rows,
    };
    invariants.r7.steps.insert(after, step);
    Ok(())
}

/// Reset callbacks have changed the model between two steps.
pub(crate) fn called_back(invariants: &mut Invariants, before: u64, after: u64) {
    invariants.r7.callbacks.insert(after, before);
}

/// A commit is sealed, for the first time under its id.
pub(crate) fn sealed(world: &mut World, id: CommitId, state: &State) -> Result<(), String> {
    let (total, stripes) = (world.plan.data.rows(), world.plan.data.stripes());
    let memory = &mut world.invariants.r7;
    if state.data.is_empty() || !memory.seen.insert(id) {
        return Ok(());
    }
    let ledger = Ledger::decode(&state.data).map_err(|error| error.to_string())?;
    let mut processed: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut digest = state.digest;
    loop {
        if let Some(before) = memory.callbacks.get(&digest) {
            digest = *before;
            continue;
        }
        let Some(step) = memory.steps.get(&digest) else {
            break;
        };
        let rows = processed.entry(step.epoch).or_default();
        if let Some(twice) = step.rows.iter().find(|row| !rows.insert(**row)) {
            return Err(format!(
                "row {twice} of epoch {} is committed twice by {id:?}",
                step.epoch
            ));
        }
        digest = step.before;
    }
    let left: BTreeSet<u64> = match ledger.stripes() {
        Some((stripes, at)) => (at..total).map(|position| stripes.row(position)).collect(),
        None => (ledger.shares().iter())
            .flat_map(|share| share.ranges().iter().cloned().flatten())
            .collect(),
    };
    for (epoch, rows) in processed {
        let in_order = |stripes: Stripes| {
            let first = (0..rows.len() as u64).map(|position| stripes.row(position));
            first.collect::<BTreeSet<_>>() == rows
        };
        if !stripes.is_none_or(in_order) {
            return Err(format!(
                "{id:?}: the {} rows of epoch {epoch} are not those of the first positions",
                rows.len()
            ));
        }
        let mut accounted = rows.len() as u64;
        if epoch == ledger.epoch() {
            if let Some(row) = rows.intersection(&left).next() {
                return Err(format!(
                    "row {row} of epoch {epoch} is processed by {id:?}, and its ledger has it left"
                ));
            }
            accounted += left.len() as u64;
        }
        if accounted != total {
            let epoch_of = ledger.epoch();
            return Err(format!(
                "{id:?} of epoch {epoch_of}: {accounted} of {total} rows of epoch {epoch} are processed or left"
            ));
        }
    }
    memory.epochs = memory.epochs.max(ledger.epoch());
    Ok(())
}
