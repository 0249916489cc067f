//! R9: if faults stop and at least min_np usable slots stay, the job ends. Otherwise it ends at the elastic
//! timeout with that reason. Checked here: the job ends within a bound after the faults stopped (the world checks
//! the time). A timeout follows only a shortage of that length. No clock runs in circles. Where only workers fail,
//! no recovery waits for a timeout: the next round starts as soon as the survivors are back.

use std::time::Duration;

use elasticrun_core::{
    Decision, Time,
    fleet::Life,
    results::Outcome,
    rounds::{Cause, Phase},
};
use elasticrun_protocol::HostId;

use super::{SLACK, groups};
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Since when enough survivors are on their way back.
    recovers: Option<Time>,
    /// Since when too few workers for a round are at `run()`, on their way there, or training. The inner value is
    /// none if there are enough. Before the first step the shortage counts from the start of the job.
    few: Option<Option<Time>>,
    /// Since when there are too few slots for a round.
    few_slots: Option<Time>,
    /// Before the first round: since when there are too few slots for np, and enough workers for min_np.
    short: Option<Time>,
    enough: Option<Time>,
    /// Number of commits, and the time of the last new one.
    fruits: (usize, Time),
    /// An agent was ordered to end. It gives a worker that ignores that some time, and answers nothing meanwhile.
    pub(super) agent_told: bool,
}

/// An agent gets SIGTERM.
pub(crate) fn agent_told(world: &mut World) {
    world.invariants.r9.agent_told = true;
}

/// Whether enough workers for a round are at `run()` or on their way there, survivors among them.
fn survivors_suffice(world: &World) -> bool {
    let census = world.driver.job.fleet().census();
    let there = census.returning + census.waiting;
    census.returning > 0 && there >= world.plan.settings.min_np as usize
}

/// Checks that a recovery takes no longer than necessary.
pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    if matches!(decision, Decision::HostsChanged { slots, .. } if *slots >= world.plan.settings.min_np)
    {
        // Perhaps there are enough slots only for a moment of this step.
        world.invariants.r9.few_slots = None;
    }
    match decision {
        // The job may wait for replacements or changes, so only the time since the last failure counts.
        Decision::WorkerFailed { .. } => {
            world.invariants.r9.recovers = survivors_suffice(world).then_some(world.driver_now());
        }
        Decision::HostsChanged { .. } if !survivors_suffice(world) => {
            world.invariants.r9.recovers = None;
        }
        Decision::RoundStarted {
            survivors, cause, ..
        } => {
            let recovery = *survivors > 0 && matches!(cause, Cause::WorkerFailed { .. });
            let plan = &world.plan;
            let obeys = plan.grace * u32::from(world.invariants.r9.agent_told);
            let bound =
                plan.step * 2 + plan.seal + plan.delay * 10 + obeys + Duration::from_millis(500);
            let since = world.invariants.r9.recovers.take();
            let took = since.map_or(Duration::ZERO, |since| world.driver_now().since(since));
            if world.plan.gentle && recovery && took > bound {
                world.violate(
                    "R9",
                    format!("a recovery took {took:?}, more than {bound:?}"),
                );
            }
        }
        Decision::Finishing => world.invariants.r9.recovers = None,
        _ => {}
    }
}

/// After every step of the job.
pub(super) fn on_step(world: &mut World) {
    if world.driver.ended.is_some() {
        return;
    }
    let now = world.driver_now();
    let slots = has_enough(world);
    let (job, settings) = (&world.driver.job, &world.plan.settings);
    let census = job.fleet().census();
    let (waiting, min_np) = (census.waiting, settings.min_np as usize);
    let workers = groups::there(world);
    let there = workers.unwrap_or(waiting + census.returning + census.training) >= min_np;
    let none = workers.is_none() || world.invariants.groups.started == 0;
    let first = none && world.history.rounds() == 0 && job.fleet().done() == 0;
    // Workers of draining hosts may be among those that are there.
    let coming = waiting + census.returning;
    // With them, the others may still become enough.
    let possible = world.reference.usable(now) + staying(world);
    let short = first && possible < settings.np && coming < settings.np as usize;
    let memory = &mut world.invariants.r9;
    let since = |holds: bool, before: Option<Time>| holds.then(|| before.unwrap_or(now));
    memory.few = Some(since(!there, memory.few.unwrap_or(Some(Time::ZERO))));
    memory.few_slots = since(!slots, memory.few_slots);
    memory.short = since(short, memory.short);
    memory.enough = since(first && workers.unwrap_or(waiting) >= min_np, memory.enough);
    let steps = world.history.steps();
    if memory.fruits.0 != steps {
        memory.fruits = (steps, now);
    }
}

/// Periodic check: the job waits no longer than it may.
pub(super) fn waits(world: &World) -> Result<(), String> {
    let settings = &world.plan.settings;
    let slack = SLACK + world.plan.late;
    let memory = &world.invariants.r9;
    let over = |since: Option<Time>, bound: Duration| {
        since.is_some_and(|since| world.driver_now().since(since) > bound + slack)
    };
    let scripts = world.history.rounds() == 0 && world.driver.job.fleet().done() > 0;
    let goes_on = !has_enough(world) && !world.invariants.r10.finishing && !scripts;
    // The slot of a finished script may be one of the excluded ones. Then enough workers are there all the same.
    let few = over(memory.few.flatten(), settings.elastic_timeout);
    if goes_on && few && over(memory.few_slots, settings.elastic_timeout) {
        let since = memory.few_slots;
        return Err(format!(
            "too few slots since {since:?}, and the job goes on"
        ));
    }
    // A group starts one last call after the timeout, and both may be noticed late.
    let late = match groups::lead(world) {
        true => world.plan.late,
        false => Duration::ZERO,
    };
    let settled = settings.elastic_timeout + settings.last_call + late;
    let idle = matches!(world.driver.job.rounds().phase, Phase::Idle);
    let enough = over(memory.enough, settings.last_call);
    if idle && over(memory.short, settled) && enough && !groups::is_fenced(world, slack) {
        return Err("enough for min_np wait, np never comes, and no round is formed".into());
    }
    Ok(())
}

fn has_enough(world: &World) -> bool {
    if matches!(world.driver.job.rounds().phase, Phase::Training(_)) || groups::is_running(world) {
        return true;
    }
    let fleet = world.driver.job.fleet();
    // A script that has ended takes up its own slot.
    let is_done = |host: &HostId, slot| fleet.host(host).is_some_and(|host| host.is_done(slot));
    let usable = world.reference.usable_slots(world.driver_now());
    let usable = usable.filter(|(host, slot)| !is_done(host, *slot)).count() as u32;
    usable + staying(world) >= world.plan.settings.min_np
}

/// The number of workers of draining hosts that train on while they are needed.
fn staying(world: &World) -> u32 {
    if groups::lead(world) {
        return 0;
    }
    let now = world.driver_now();
    let stay = world.driver.job.fleet().hosts().flat_map(|(id, host)| {
        let comes = |life| {
            matches!(
                life,
                Life::Waiting | Life::Returning { .. } | Life::Training { .. }
            )
        };
        let stays = move |slot| world.reference.may_stay(now, id, slot);
        host.live()
            .filter(move |live| comes(live.life) && stays(live.process.local_rank))
    });
    stay.count() as u32
}

/// The job ends by the elastic timeout.
pub(super) fn timed_out(world: &World, outcome: &Outcome) -> Result<(), String> {
    let Outcome::TimedOut { .. } = outcome else {
        return Ok(());
    };
    let since = world.invariants.r9.few.unwrap_or(Some(Time::ZERO));
    let slots = world.invariants.r9.few_slots;
    // Rounds without a commit count as none.
    let fruitless = (world.history.rounds() > 1).then_some(world.invariants.r9.fruits.1);
    let short = (since.into_iter().chain(slots).chain(fruitless))
        .map(|since| world.driver_now().since(since));
    // A deadline takes effect before events gather, and this check follows when they are settled.
    let short = short.max().unwrap_or_default() + world.plan.gathers;
    if short < world.plan.settings.elastic_timeout {
        return Err(format!("a timeout after {short:?} of too few workers"));
    }
    Ok(())
}

/// The state of a job that does not end.
pub(crate) fn describe(world: &World) -> String {
    let job = &world.driver.job;
    format!(
        "the job does not end: usable {}, phase {:?}, census {:?}",
        world.reference.usable(world.driver_now()),
        job.rounds().phase,
        job.fleet().census()
    )
}
