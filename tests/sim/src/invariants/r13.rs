//! R13: a worker that trains has seen the base of its round: its state is that of the base, whatever it was before. Memory
//! that holds the base is not enough, nor is a state that was never synced.

use elasticrun_protocol::Process;

use crate::world::World;

/// A worker is synced and begins to train.
pub(crate) fn begins(world: &mut World, host: usize, process: Process) {
    let Some(worker) = world.hosts[host].workers.get(&process) else {
        return;
    };
    let Some((number, base)) = worker.base() else {
        return;
    };
    let (step, state) = (worker.state.step, &worker.state);
    let seen = match base {
        // Nothing was committed by anybody, so there is nothing to see.
        None => step == 0,
        Some(base) => (world.history.state(base)).is_none_or(|expected| *state == expected),
    };
    if !seen {
        let what = format!(
            "h{host} {process:?} trains in {number:?} from step {step} and has not seen its base {base:?}"
        );
        world.violate("R13", what);
    }
}
