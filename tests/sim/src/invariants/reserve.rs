//! Rule 7: the workers of a host that goes away train on while fewer than min_np others can, until the time of the host
//! is almost over. That holds in every phase. No process is started on such a host.

use elasticrun_core::{Command, Decision, fleet::Life};
use elasticrun_protocol::{AgentCommand, HostId, LocalRank, Process, control::StopReason};

use super::{change, groups, newcomers};
use crate::{
    reference::Reference,
    world::{World, host::index_of},
};

/// Whether enough workers for a round are there on slots of hosts that do not drain.
pub(super) fn enough_stay(world: &World, host_counts: impl Fn(&HostId) -> bool) -> bool {
    let comes = |life| {
        matches!(
            life,
            Life::Waiting | Life::Returning { .. } | Life::Training { .. }
        )
    };
    change::there(world, comes, host_counts) >= world.plan.settings.min_np as usize
}

/// Whether a worker of the next round may be on this slot, since its host has time left and too few others are there.
pub(super) fn is_needed(
    world: &World,
    reference: &Reference,
    host: &HostId,
    slot: LocalRank,
) -> bool {
    reference.may_stay(world.driver_now(), host, slot)
        && !enough_stay(world, |host| newcomers::is_admitted(world, host))
}

pub(super) fn on_decision(world: &mut World, decision: &Decision, step: &[Command]) {
    if let Decision::Stopped {
        host,
        process,
        why: StopReason::Removed,
    } = decision
        && !step.iter().any(change::is_failure)
        && is_stopped_early(world, host, *process)
    {
        let what = format!("{host} {process:?} is stopped, too few can go on, and there is time");
        world.violate("rule 7", what);
    }
}

fn is_stopped_early(world: &World, host: &HostId, process: Process) -> bool {
    let over = world.driver.ended.is_some() || world.invariants.r10.finishing;
    // A deadline that has passed takes effect before the event that comes with it.
    if over || world.before_event.is_some() || !world.plan.settings.elastic {
        return false;
    }
    let last = world.rounds.values().next_back();
    let seats = last.into_iter().flat_map(|round| &round.seats);
    let mut seats = seats.filter(|seat| Some(seat.host) == index_of(host));
    let (now, slot) = (world.driver_now(), process.local_rank);
    seats.any(|seat| seat.process == process)
        && world.reference.may_stay(now, host, slot)
        && !enough_stay(world, |_| true)
}

pub(super) fn on_command(world: &mut World, command: &Command) {
    if let Command::Send {
        host,
        command: AgentCommand::Spawn(spawn),
    } = command
        && !groups::lead(world)
        && world.before_event.is_none()
        && world.reference.drains(host)
    {
        let what = format!("{:?} is started on {host}, which drains", spawn.process);
        world.violate("rule 7", what);
    }
}
