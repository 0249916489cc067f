//! R7: a row that is committed and not void is committed once per epoch; at the end of the epoch all are. R8: model and
//! ledger of a commit belong together.
//!
//! The model is the way that led to it: each step and the rows that its members really took. So a commit is followed
//! back to the start of the job, and the rows on that way must be just those that its ledger calls processed.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_core::data::Ledger;
use elasticrun_protocol::CommitId;

use super::Invariants;
use crate::world::{World, memory::State, reading::Taken};

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Steps by the digest of the model behind them.
    steps: BTreeMap<u64, Step>,
    seen: BTreeSet<CommitId>,
    /// Epochs that some commit has behind it.
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

/// A commit is sealed, the first of its id.
pub(crate) fn sealed(world: &mut World, id: CommitId, state: &State) -> Result<(), String> {
    let total: u64 = world.plan.data.groups.iter().copied().map(u64::from).sum();
    let memory = &mut world.invariants.r7;
    if state.data.is_empty() || !memory.seen.insert(id) {
        return Ok(());
    }
    let ledger = Ledger::decode(&state.data).map_err(|error| error.to_string())?;
    let mut processed: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut digest = state.digest;
    while let Some(step) = memory.steps.get(&digest) {
        let rows = processed.entry(step.epoch).or_default();
        if let Some(twice) = step.rows.iter().find(|row| !rows.insert(**row)) {
            return Err(format!(
                "row {twice} of epoch {} is committed twice by {id:?}",
                step.epoch
            ));
        }
        digest = step.before;
    }
    let left: Vec<u64> = (ledger.shares().iter())
        .flat_map(|share| share.ranges().iter().cloned().flatten())
        .collect();
    for (epoch, mut rows) in processed {
        if epoch == ledger.epoch() {
            // A row that is processed and left as well is counted once, and then one is missing.
            rows.extend(&left);
        }
        if rows.len() as u64 != total {
            let (rows, epoch_of) = (rows.len(), ledger.epoch());
            return Err(format!(
                "{id:?} of epoch {epoch_of}: {rows} of {total} rows of epoch {epoch} are processed or left"
            ));
        }
    }
    memory.epochs = memory.epochs.max(ledger.epoch());
    Ok(())
}
