//! How a group ends. A failure ends it as a whole and uses one restart, or ends the job. A loss or a removal ends
//! it and uses no restart. A growth waits for the last call and no longer (R6). The next group starts as soon as
//! it can (R9).

use std::time::Duration;

use elasticrun_core::{Command, Decision, Time, groups::UNDECIDED, rounds::Cause};
use elasticrun_protocol::{HostId, Process, Round};

use super::{Current, alive, could_be, is_auto, lead, running};
use crate::{
    invariants::{SLACK, goes_away},
    world::World,
};

pub(super) fn ended(world: &mut World, round: Round, cause: &Cause, commands: &[Command]) {
    let memory = &mut world.invariants.groups;
    if let (Some(current), Cause::WorkerFailed { .. }) = (&mut memory.current, cause) {
        (current.done).retain(|member| !memory.too_late.contains(member));
    }
    if let Err((rule, what)) = ends(world, round, cause, commands) {
        world.violate(rule, format!("group {round:?} ends for {cause:?}: {what}"));
    }
    if let Some(current) = &mut world.invariants.groups.current {
        current.over = true;
    }
}

/// The job reports that it has used a restart.
pub(super) fn restarted(world: &mut World, used: u32, allowed: u32) {
    let most = world.plan.settings.max_restarts;
    let memory = &mut world.invariants.groups;
    memory.restarts += 1;
    let failed = memory.failure.take().is_some() || memory.unknown;
    let count = memory.restarts;
    if !failed || count > most || (used, allowed) != (count, most) {
        let what = format!(
            "restart {count} of {most}, a member failed: {failed}, and the job counts {used} of {allowed}"
        );
        world.violate("rule 5", what);
    }
}

/// A failed member has ended its group, or the job, unless the job waits for a verdict. Its group may have ended with a
/// take-over that has just started the next one.
pub(super) fn failed(world: &mut World, commands: &[Command]) {
    let Some(who) = world.invariants.groups.failure.take() else {
        return;
    };
    let over = (commands.iter()).any(|command| matches!(command, Command::End(_)));
    let over = over || world.driver.ended.is_some() || world.invariants.r10.finishing;
    let goes_on = running(world).is_some_and(|current| current.members.contains(&who));
    if goes_on && !over && !verdict_waits(world, None, &[]) {
        let (host, process) = who;
        let what = format!("{host} {process:?} has failed, and its group goes on");
        world.violate("rule 5", what);
    }
}

fn ends(
    world: &World,
    round: Round,
    cause: &Cause,
    commands: &[Command],
) -> Result<(), (&'static str, &'static str)> {
    if world.invariants.groups.unknown {
        // The records name an earlier group.
        return Ok(());
    }
    let Some(current) = running(world).filter(|current| current.round == round) else {
        return Err(("R11", "it does not run"));
    };
    if !current.done.is_empty() {
        return Err(("rule 5", "a member has succeeded"));
    }
    let told = |which: fn(&Decision) -> bool| {
        let mut commands = commands.iter();
        commands.any(|command| matches!(command, Command::Announce(decision) if which(decision)))
    };
    let (added, removed) = match cause {
        Cause::WorkerFailed { .. } => {
            let counted = told(|decision| matches!(decision, Decision::GroupRestarts { .. }));
            return match counted {
                true => Ok(()),
                false => Err(("rule 5", "no restart is counted for it")),
            };
        }
        // Its host is out of reach, and the others can go on without it.
        Cause::HostFailed { host } if world.reference.away().contains(host) => return Ok(()),
        // Or the start of a member was lost with the connection.
        Cause::HostFailed { host } if goes_away(commands, host) => return Ok(()),
        Cause::HostFailed { .. } => {
            let lost = told(|decision| {
                matches!(
                    decision,
                    Decision::HostFailed { .. } | Decision::WentEarly { .. }
                )
            });
            return match lost {
                true => Ok(()),
                false => Err(("rule 3", "no host was lost")),
            };
        }
        Cause::Added => (true, false),
        Cause::Removed => (false, true),
        Cause::Mixed => (true, true),
        _ => return Err(("rule 3", "that is no change")),
    };
    let early = is_auto(world) && world.driver_now().since(current.began) < UNDECIDED;
    if added && early {
        return Err(("rule 3", "it is not known yet whether its workers attach"));
    }
    // Due deadlines take effect before an event that may undo their cause.
    let could = world.invariants.groups.grows.is_some() || could_grow(world, current);
    if added && !could && world.plan.late.is_zero() {
        return Err(("rule 3", "there is no room, or nothing to fill it"));
    }
    if removed && !has_lost(world, &current.members) && world.plan.late.is_zero() {
        return Err(("rule 3", "no member has lost its slot"));
    }
    let patient = |(host, process): &(HostId, Process)| {
        let usable = (world.reference).is_usable(world.now, host, process.local_rank);
        usable || (world.reference.drain_due(host)).is_some_and(|due| world.now < due)
    };
    let few = could_be(world) < world.plan.settings.min_np as usize;
    if removed && few && current.members.iter().all(patient) && world.plan.late.is_zero() {
        return Err(("rule 7", "too few can go on, and there is time"));
    }
    Ok(())
}

/// Whether a failure waits for its verdict: no restart is left, and other members may still attach. `besides` is
/// the process that fails just now, and `later` are the commands of the same step that follow.
pub(super) fn verdict_waits(
    world: &World,
    besides: Option<(&HostId, Process)>,
    later: &[Command],
) -> bool {
    let Some(current) = running(world).filter(|_| is_auto(world)) else {
        return false;
    };
    let left = world.invariants.groups.restarts < world.plan.settings.max_restarts;
    let out_of_reach = current.members.iter().filter(|member| {
        let ended = current.failed.contains(*member) || current.done.contains(*member);
        !ended && world.reference.away().contains(&member.0)
    });
    let ends_later = current
        .members
        .iter()
        .filter(|(host, process)| later.iter().any(|command| fails(command, host, *process)));
    let mut others = alive(world, current).chain(out_of_reach).chain(ends_later);
    let other = others.any(|(host, process)| besides != Some((host, *process)));
    !left && other && world.driver_now().since(current.began) < UNDECIDED
}

/// Whether this command reports the failure of a process.
fn fails(command: &Command, host: &HostId, process: Process) -> bool {
    matches!(
        command,
        Command::Announce(Decision::WorkerFailed { host: of, process: failed, .. })
            if of == host && *failed == process
    )
}

/// Whether one of these members has lost its slot.
fn has_lost(world: &World, members: &[(HostId, Process)]) -> bool {
    let usable = |(host, process): &(HostId, Process)| {
        (world.reference).is_usable(world.driver_now(), host, process.local_rank)
    };
    !members.iter().all(usable)
}

/// Whether a member has lost its slot for `since`. On a draining host that counts from the end of the drain time.
fn lost(world: &World, current: &Current, since: Duration) -> bool {
    alive(world, current).any(|(host, process)| {
        let usable = (world.reference).is_usable(world.driver_now(), host, process.local_rank);
        let due = world.reference.drain_due(host);
        !usable && (due.is_none_or(|due| due + since < world.driver_now()))
    })
}

fn could_grow(world: &World, current: &Current) -> bool {
    could_be(world) > current.members.len()
}

/// Updates since when a group could start, and since when a larger one could.
pub(super) fn note_clocks(world: &mut World) {
    let over = world.driver.ended.is_some() || world.invariants.r10.finishing || !lead(world);
    // During a take-over it is undecided which group goes on.
    let over = over || world.driver.is_taking_over();
    let grows = !over && running(world).is_some_and(|current| could_grow(world, current));
    let ripe = !over && running(world).is_none() && could_start(world);
    let now = world.driver_now();
    let memory = &mut world.invariants.groups;
    let since = |holds: bool, before: Option<Time>| holds.then(|| before.unwrap_or(now));
    memory.ripe = since(ripe, memory.ripe);
    memory.grows = since(grows, memory.grows);
}

fn could_start(world: &World) -> bool {
    let settings = &world.plan.settings;
    let needed = match world.invariants.groups.named {
        false => settings.np,
        true => settings.min_np,
    };
    world.driver.job.fleet().census().is_empty() && could_be(world) >= needed as usize
}

/// Periodic check of the job.
pub(crate) fn watch(world: &mut World) {
    if !lead(world) || world.invariants.r10.finishing {
        return;
    }
    let slack = SLACK + world.plan.late;
    let (memory, now) = (&world.invariants.groups, world.driver_now());
    let last_call = world.plan.settings.last_call;
    let over = |since: Option<Time>, bound: Duration, at_least: Option<Time>| {
        let due = since.map(|since| at_least.map_or(since + bound, |at| at.max(since + bound)));
        due.is_some_and(|due| due + slack < now)
    };
    if over(memory.ripe, last_call, memory.fenced) {
        let what = format!("a group could start since {:?}, and none does", memory.ripe);
        return world.violate("R9", what);
    }
    let Some(current) = running(world) else {
        return;
    };
    let round = current.round;
    let undecided = is_auto(world).then_some(current.began + UNDECIDED);
    let what = if over(memory.grows, last_call, undecided) {
        "could be larger, and the last call is over"
    } else if lost(world, current, slack) && lasts(world) {
        "has a member whose slot is gone, and goes on"
    } else if !current.failed.is_empty() && undecided.is_none_or(|until| until + slack < now) {
        "has a member that failed, and waits for its verdict"
    } else {
        return;
    };
    world.violate("R6", format!("group {round:?} {what}"));
}

/// Whether the driver notices deadlines at once, so that no due one is pending.
fn lasts(world: &World) -> bool {
    world.plan.late.is_zero()
}
