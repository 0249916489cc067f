//! No new beginning: a job whose state is divided does not begin anew while any host in reach holds a part of a commit to
//! which steps have led. It ends with the error that no state is left.

use elasticrun_protocol::CommitId;

use super::{Started, r12};
use crate::world::World;

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    if started.base.is_some() || !world.plan.is_divided() {
        return Ok(());
    }
    let has_steps = |id: &CommitId| {
        let state = world.history.state(*id);
        state.is_some_and(|state| state.step > 0) && world.history.is_valid(*id)
    };
    let parts = r12::answers(world, started.round);
    let mut parts = parts.map(|(host, key)| (host, key.commit));
    match parts.find(|(_, id)| has_steps(id)) {
        Some((host, id)) => Err(format!("it begins anew, and h{host} has a part of {id:?}")),
        None => Ok(()),
    }
}
