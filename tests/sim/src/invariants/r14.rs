//! R14: a worker of a divided state begins with all shards of one commit, of one layout, each from a holder of that shard.
//! Its shard is sealed as commit 0 of the round, and never under the id of the base. No member trains before all members
//! have sealed theirs. R13 checks that the state after the start is the one that was committed.

use elasticrun_protocol::{CommitId, Process};

use crate::world::{World, memory::Commit};

/// A worker has read these copies as the shards of a base.
pub(crate) fn loaded<'a>(
    world: &mut World,
    host: usize,
    process: Process,
    base: CommitId,
    copies: impl Iterator<Item = &'a Commit>,
) {
    let copies: Vec<_> = copies.collect();
    if let Err(what) = is_of_one_commit(world, base, &copies) {
        world.violate("R14", format!("h{host} {process:?} {what}"));
    }
}

fn is_of_one_commit(world: &World, base: CommitId, copies: &[&Commit]) -> Result<(), String> {
    let Some(first) = copies.first() else {
        return Err(format!("begins with no shard of {base:?}"));
    };
    let committed = world.history.state(base);
    for (copy, index) in copies.iter().zip(0..) {
        let (shard, expected) = (copy.shard, first.shard);
        let fits = (shard.layout, shard.of) == (expected.layout, expected.of);
        if copy.id != base || shard.index != index || !fits {
            return Err(format!(
                "begins with {:?} as shard {index} of {base:?}, beside {:?}",
                copy.key(),
                first.key()
            ));
        }
        if committed.as_ref() != Some(&copy.state) {
            return Err(format!(
                "reads {:?} as shard {index} of {base:?}, which is {committed:?}",
                copy.state
            ));
        }
    }
    match copies.len() as u32 == first.shard.of {
        true => Ok(()),
        false => Err(format!(
            "begins with {} of {} shards of {base:?}",
            copies.len(),
            first.shard.of
        )),
    }
}

/// A worker seals its shard as the first commit of its round.
pub(crate) fn first(world: &mut World, host: usize, process: Process, id: CommitId) {
    let own = world.hosts[host].workers.get(&process);
    let Some((number, base)) = own.and_then(|worker| worker.base()) else {
        return;
    };
    if (id.round, id.count) != (number, 0) {
        let what = format!(
            "h{host} {process:?} seals its first shard of {number:?}, whose base is {base:?}, as {id:?}"
        );
        world.violate("R14", what);
    }
}

/// A worker begins to train.
pub(crate) fn begins(world: &mut World, host: usize, process: Process) {
    if !world.plan.is_divided() {
        return;
    }
    let worker = world.hosts[host].workers.get(&process);
    let first = worker.and_then(|worker| worker.first_commit());
    let Some(first) = first else {
        return;
    };
    let members = (world.rounds.get(&first.round)).map_or(0, |round| round.seats.len());
    let sealed = world.history.copies(first);
    if sealed < members {
        let what = format!(
            "h{host} {process:?} trains from {first:?}, which {sealed} of {members} members have sealed"
        );
        world.violate("R14", what);
    }
}
