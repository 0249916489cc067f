//! R11: no two rounds of one run train at the same time. Once a round has started, no step of an older one
//! completes, also where the driver reaches no host.

use elasticrun_protocol::Round;

use super::Started;
use crate::world::World;

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    match world.history.latest() {
        Some(latest) if latest >= started.round => Err(format!("it is started after {latest:?}")),
        _ => Ok(()),
    }
}

/// All members of a round have completed a step. The step counts if one of them may pass the boundary after it. A
/// step that is under way as the lease ends cannot be stopped, and leads to no commit.
pub(crate) fn step_done(world: &mut World, round: Round) {
    if let Some(latest) = world.history.latest().filter(|latest| *latest > round)
        && world.may_pass(round)
    {
        world.violate(
            "R11",
            format!("{round:?} completes a step after {latest:?} was started"),
        );
    }
}
