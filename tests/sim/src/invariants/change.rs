//! Rules 3, 4 and 7 of the contract, as far as the job's decisions show them. A change interrupts a round only if
//! it changes the assignment, and the decision names the change. The round ends at a common boundary. A host that
//! drains is left early only if enough other workers can go on.

use std::time::Duration;

use elasticrun_core::{
    Command, Decision, Time,
    fleet::Life,
    rounds::{Cause, Phase},
};
use elasticrun_protocol::{HostId, Round};

use super::newcomers;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The round that is interrupted, and since when.
    pub(super) interrupted: Option<(Round, Time)>,
}

/// Hosts of members of the round that trains whose slots may not be used any more.
pub(super) fn lost_hosts(world: &World) -> Vec<HostId> {
    let Phase::Training(training) = &world.driver.job.rounds().phase else {
        return Vec::new();
    };
    let lost = |host: &HostId, members: &[elasticrun_protocol::Process]| {
        (members.iter()).any(|p| {
            !world
                .reference
                .is_usable(world.driver_now(), host, p.local_rank)
        })
    };
    (training.members.iter())
        .filter(|(host, members)| lost(host, members))
        .map(|(host, _)| host.clone())
        .collect()
}

/// Whether the round that trains has room and a usable worker waits.
pub(super) fn can_grow(world: &World) -> bool {
    let job = &world.driver.job;
    let Phase::Training(training) = &job.rounds().phase else {
        return false;
    };
    let max = world.plan.settings.max_np;
    // Fewer complete no group. Those that the round has left out are on their way.
    let returns = |life| matches!(life, Life::Returning { .. });
    let returning = || there(world, returns, |host| newcomers::is_admitted(world, host));
    let unit = world.plan.settings.unit() as usize;
    max.is_none_or(|max| training.size < max)
        && waiting(world) > 0
        && (unit == 1 || waiting(world) + returning() >= unit)
}

/// Whether the round that forms has room and a usable worker waits that the plan leaves out.
pub(super) fn will_grow(world: &World) -> bool {
    let job = &world.driver.job;
    let Phase::Forming(forming) = &job.rounds().phase else {
        return false;
    };
    let size = forming.size as usize;
    let max = world.plan.settings.max_np;
    max.is_none_or(|max| forming.size < max)
        && job.fleet().census().waiting > size
        && waiting(world) >= size + world.plan.settings.unit() as usize
}

/// Waiting workers whose hosts are known to reach the round.
fn waiting(world: &World) -> usize {
    there(
        world,
        |life| life == Life::Waiting,
        |host| newcomers::is_admitted(world, host),
    )
}

/// Workers on usable slots.
pub(super) fn there(
    world: &World,
    which: impl Fn(Life) -> bool,
    host_counts: impl Fn(&HostId) -> bool,
) -> usize {
    let usable = |host: &HostId, slot| world.reference.is_usable(world.driver_now(), host, slot);
    let hosts = world.driver.job.fleet().hosts();
    hosts
        .filter(|(host, state)| state.up().is_some() && host_counts(host))
        .map(|(host, state)| {
            (state.live())
                .filter(|live| which(live.life) && usable(host, live.process.local_rank))
                .count()
        })
        .sum()
}

/// Whether the workers of this host may still train on if too few others could.
fn is_patient(world: &World, host: &HostId) -> bool {
    (world.reference.drain_due(host)).is_some_and(|due| world.driver_now() < due)
}

pub(super) fn on_decision(world: &mut World, decision: &Decision, step: &[Command]) {
    match decision {
        Decision::Interrupting { round, cause } => {
            world.invariants.change.interrupted = Some((*round, world.driver_now()));
            // A failure in the same step came after the deadline that this decision follows from.
            let away = !world.reference.away().is_empty();
            let failed = away || step.iter().any(is_failure);
            if !failed && let Err((rule, what)) = interrupts(world, cause, step) {
                world.violate(
                    rule,
                    format!("{round:?} is interrupted for {cause:?}: {what}"),
                );
            }
        }
        Decision::RoundAborted {
            round,
            started: true,
        } => {
            let interrupted = world.invariants.change.interrupted;
            if let Some((other, since)) = interrupted
                && other == *round
            {
                timed_out(world, *round, since);
            }
            let known = interrupted.is_some_and(|(other, _)| other == *round);
            let away = !world.reference.away().is_empty();
            if !known && !away && !world.driver.broken && !step.iter().any(is_failure) {
                let what = format!("{round:?} is aborted and nothing has failed");
                world.violate("rule 4", what);
            }
        }
        _ => {}
    }
}

/// A round that should have been left at a boundary is aborted. In a calm run all members have time to reach it.
fn timed_out(world: &mut World, round: Round, since: Time) {
    let (plan, now) = (&world.plan, world.driver_now());
    let timeout = plan.settings.interrupt_timeout;
    let needs = (plan.step + plan.seal) * 3 + plan.sync + plan.delay * 4;
    // An agent that was ordered to end does not answer the count.
    let calm = plan.calm && !world.invariants.r9.agent_told;
    if calm && now.since(since) >= timeout && timeout > needs + Duration::from_millis(500) {
        let what = format!("{round:?} is calm and does not reach its boundary since {since:?}");
        world.violate("rule 4", what);
    }
}

pub(super) fn is_failure(command: &Command) -> bool {
    matches!(
        command,
        Command::Disconnect { .. }
            | Command::EndLaunch { .. }
            | Command::Announce(
                Decision::WorkerFailed { .. }
                    | Decision::HostFailed { .. }
                    | Decision::WentEarly { .. }
                    | Decision::HostAway { .. }
                    | Decision::HostReturned { .. }
            )
    )
}

fn interrupts(
    world: &World,
    cause: &Cause,
    step: &[Command],
) -> Result<(), (&'static str, &'static str)> {
    if !matches!(&world.driver.job.rounds().phase, Phase::Training(training) if training.hold.is_some())
    {
        // A later decision of the same step has withdrawn the interrupt.
        return Ok(());
    }
    let (added, removed) = match cause {
        Cause::Added => (true, false),
        Cause::Removed => (false, true),
        Cause::Mixed => (true, true),
        _ => return Err(("rule 3", "that is no change")),
    };
    let lost = lost_hosts(world);
    // Due deadlines take effect before an event that may undo their cause.
    let begins =
        |command: &Command| matches!(command, Command::Announce(Decision::RoundStarted { .. }));
    let could = match step.iter().any(begins) {
        true => world.invariants.r6.would_grow(),
        false => world.invariants.r6.could_grow(),
    };
    let could = could || can_grow(world);
    if added && !could {
        return Err(("rule 3", "nobody waits for whom there is room"));
    }
    if removed && lost.is_empty() && world.plan.late.is_zero() {
        return Err(("rule 3", "no member has lost its slot"));
    }
    let comes = |life| {
        matches!(
            life,
            Life::Waiting | Life::Returning { .. } | Life::Training { .. }
        )
    };
    let enough = there(world, comes, |_| true) >= world.plan.settings.min_np as usize;
    if removed && !lost.is_empty() && !enough && lost.iter().all(|host| is_patient(world, host)) {
        return Err(("rule 7", "too few can go on, and there is time"));
    }
    Ok(())
}
