//! R8: model state and ledger that a worker resumes from come from the same copy of the same commit. R13 checks
//! the model. This file checks that the round hands out the rows that the ledger of the base has left.

use std::collections::BTreeSet;

use elasticrun_ledger::Ledger;
use elasticrun_protocol::Process;

use crate::world::World;

/// A worker begins to train.
pub(crate) fn begins(world: &mut World, host: usize, process: Process) {
    if let Err(what) = is_of_base(world, host, process) {
        world.violate("R8", format!("h{host} {process:?} {what}"));
    }
}

fn is_of_base(world: &World, host: usize, process: Process) -> Result<(), String> {
    let Some(worker) = world.hosts[host].workers.get(&process) else {
        return Ok(());
    };
    let (Some((number, Some(base))), Some(position)) = (worker.base(), &worker.position) else {
        return Ok(());
    };
    let Some(committed) = world.history.state(base) else {
        return Ok(());
    };
    let expected = match committed.data.is_empty() {
        true => world.plan.data.start().ledger().clone(),
        false => Ledger::decode(&committed.data).map_err(|error| error.to_string())?,
    };
    let resumed = position.ledger();
    if (resumed.epoch(), left(resumed)) != (expected.epoch(), left(&expected)) {
        return Err(format!(
            "begins {number:?} in epoch {} with {} rows left, and its base {base:?} is in epoch {} with {}",
            resumed.epoch(),
            resumed.left(),
            expected.epoch(),
            expected.left()
        ));
    }
    Ok(())
}

/// The position of the stripes, or the rows that are left in all shares.
fn left(ledger: &Ledger) -> (Option<u64>, BTreeSet<u64>) {
    let stripes = ledger.stripes().map(|(_, at)| at);
    let shares = ledger.shares().iter();
    let rows = shares.flat_map(|share| share.ranges().iter().cloned().flatten());
    (stripes, rows.collect())
}
