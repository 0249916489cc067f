//! R9: if faults stop and at least min_np usable slots stay, the job ends; if not, it ends at the elastic
//! time-out with that reason. Here: it ends within a bound after the faults stopped (the world asks), a
//! time-out is said only after so long a shortage, and no clock runs in circles.

use elasticrun_core::{results::Outcome, rounds::Phase};

use crate::world::World;

/// After every step of the job.
pub(super) fn on_step(world: &mut World) {
    if world.driver.ended.is_none() && has_enough(world) {
        world.reference.last_enough = world.now;
    }
}

fn has_enough(world: &World) -> bool {
    if matches!(world.driver.job.rounds().phase, Phase::Training(_)) {
        return true;
    }
    let done = world.driver.job.fleet().done() as u32;
    world.reference.usable(world.now).saturating_sub(done) >= world.plan.settings.min_np
}

/// The job says that it waited too long.
pub(super) fn timed_out(world: &World, outcome: &Outcome) -> Result<(), String> {
    let Outcome::TimedOut { .. } = outcome else {
        return Ok(());
    };
    let short = world.now.since(world.reference.last_enough);
    if short < world.plan.settings.elastic_timeout {
        return Err(format!("a time-out after {short:?} of too few slots"));
    }
    Ok(())
}

/// What a job that does not end looks like.
pub(crate) fn describe(world: &World) -> String {
    let job = &world.driver.job;
    format!(
        "the job does not end: usable {}, phase {:?}, census {:?}",
        world.reference.usable(world.now),
        job.rounds().phase,
        job.fleet().census()
    )
}
