//! R9: if faults stop and at least min_np usable slots stay, the job ends; if not, it ends at the elastic
//! time-out with that reason. Here: it ends within a bound after the faults stopped (the world asks), a
//! time-out is said only after so long a shortage, and no clock runs in circles. And where only workers fail
//! no recovery waits for a time-out: the next round starts as soon as the survivors are back.

use std::time::Duration;

use elasticrun_core::{
    Note, Time,
    results::Outcome,
    rounds::{Cause, Phase},
};

use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Survivors are enough and on their way back since then.
    recovers: Option<Time>,
}

/// Enough for a round are at `run()` or on their way there, survivors among them.
fn survivors_suffice(world: &World) -> bool {
    let census = world.driver.job.fleet().census();
    let there = census.returning + census.waiting;
    census.returning > 0 && there >= world.plan.settings.min_np as usize
}

/// Whether a recovery takes no longer than it must.
pub(super) fn note(world: &mut World, note: &Note) {
    match note {
        // Replacements or changes may be waited for; only what follows the last failure counts.
        Note::WorkerFailed { .. } => {
            world.invariants.r9.recovers = survivors_suffice(world).then_some(world.now);
        }
        Note::HostsChanged { .. } if !survivors_suffice(world) => {
            world.invariants.r9.recovers = None;
        }
        Note::RoundStarted {
            survivors, cause, ..
        } => {
            let recovery = *survivors > 0 && matches!(cause, Cause::WorkerFailed { .. });
            let plan = &world.plan;
            let bound = plan.step * 2 + plan.seal + plan.delay * 10 + Duration::from_millis(500);
            let since = world.invariants.r9.recovers.take();
            let took = since.map_or(Duration::ZERO, |since| world.now.since(since));
            if world.plan.gentle && recovery && took > bound {
                world.violate(
                    "R9",
                    format!("a recovery took {took:?}, more than {bound:?}"),
                );
            }
        }
        Note::Finishing => world.invariants.r9.recovers = None,
        _ => {}
    }
}

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
