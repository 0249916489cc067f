//! R15: no worker writes over a shard of the newest complete commit, nor drops it. So a complete commit is left whenever
//! workers die, also while they read the base of their round.

use elasticrun_protocol::{CommitKey, Process};

use crate::{completeness, world::World};

/// A worker has given up these commits.
pub(crate) fn gave_up(world: &mut World, host: usize, process: Process, lost: &[CommitKey]) {
    if lost.is_empty() || !world.plan.is_divided() {
        return;
    }
    let is_valid = |key: &CommitKey| world.history.is_valid(key.commit);
    let left: Vec<_> = (world.hosts.iter())
        .flat_map(|state| state.keys())
        .filter(is_valid)
        .collect();
    let lost = lost.iter().copied().filter(is_valid);
    let before = completeness::newest(left.iter().copied().chain(lost.clone()));
    let after = completeness::newest(left);
    if after < before {
        let lost: Vec<_> = lost.collect();
        let what = format!(
            "h{host} {process:?} gives up {lost:?}: the newest complete commit was {before:?}, and {after:?} is left"
        );
        world.violate("R15", what);
    }
}
