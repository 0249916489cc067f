//! W5: reset callbacks of rank 0 see the base of the round, and all members begin with their changes.

use elasticrun_protocol::Process;

use crate::world::World;

/// The callbacks of rank 0 are about to read its state.
pub(crate) fn called_back(world: &mut World, host: usize, process: Process) {
    let Some(worker) = world.hosts[host].workers.get(&process) else {
        return;
    };
    let Some((number, Some(base))) = worker.base() else {
        return;
    };
    let state = &worker.state;
    let expected = world.history.state(base);
    if expected.as_ref().is_some_and(|expected| expected != state) {
        let what = format!(
            "callbacks of h{host} {process:?} see {state:?}, and {number:?} begins with {base:?}: {expected:?}"
        );
        return world.violate("W5", what);
    }
    if let Some(round) = world.rounds.get_mut(&number) {
        round.called_back = true;
    }
}
