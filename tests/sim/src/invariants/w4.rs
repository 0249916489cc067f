//! W4, as the memory of a worker shows it: a commit is sealed in its round, and not after its worker has left that. The agent
//! may have named the commits of that worker for the next round by then.

use elasticrun_protocol::{CommitId, Process};

use crate::world::World;

/// A worker is about to seal a commit.
pub(crate) fn seals(world: &mut World, host: usize, process: Process, id: CommitId) {
    let worker = world.hosts[host].workers.get(&process);
    let round = worker
        .and_then(|worker| worker.base())
        .map(|(round, _)| round);
    if round != Some(id.round) {
        let what = format!("h{host} {process:?} seals {id:?}, and is in {round:?}");
        world.violate("W4", what);
    }
}
