//! R4: a slot has at most one live worker process, also across the death of a driver.

use elasticrun_protocol::Process;

use crate::world::World;

/// An agent starts a process.
pub(crate) fn spawned(world: &mut World, host: usize, process: Process) {
    let slot = process.local_rank;
    let others = world.hosts[host]
        .workers
        .keys()
        .filter(|other| other.local_rank == slot);
    let others: Vec<_> = others.copied().collect();
    if !others.is_empty() {
        world.violate(
            "R4",
            format!("h{host} starts {process:?} beside {others:?}"),
        );
    }
}
