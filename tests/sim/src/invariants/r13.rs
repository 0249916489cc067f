//! R13: a worker that trains has the state of the base of its round, whatever its state was before. Memory that
//! holds the base is not enough, nor is a state that was never synced. W2: all members begin with the same state.

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
        // No worker has committed anything, so there is no base.
        None => step == 0,
        Some(base) => world.history.state(base).is_none_or(|base| {
            let called_back = (world.rounds.get(&number)).is_some_and(|round| round.called_back);
            *state
                == if called_back {
                    base.after_callbacks(number)
                } else {
                    base
                }
        }),
    };
    if !seen {
        let what = format!(
            "h{host} {process:?} trains in {number:?} from step {step} and has not seen its base {base:?}"
        );
        return world.violate("R13", what);
    }
    let state = state.clone();
    let began =
        (world.rounds.get_mut(&number)).map(|round| round.began.get_or_insert(state.clone()));
    if let Some(began) = began
        && *began != state
    {
        let what = format!(
            "h{host} {process:?} begins {number:?} with {state:?}, another member with {began:?}"
        );
        world.violate("W2", what);
    }
}
