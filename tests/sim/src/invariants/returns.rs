//! Agents that return: a break of the network between driver and agents costs no process and no round while the job needs no
//! change. If others could go on, this holds for a break that concerns all hosts, or that is shorter than a silence. What is sent to a host that is out of reach reaches nobody, so
//! nothing is planned there.

use elasticrun_core::{Command, Decision};
use elasticrun_protocol::{AgentCommand, control::StopReason};

use crate::world::World;

/// Checks a job in which only the network breaks. Before the first step, a start may be lost with a connection.
pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let scripts = (world.plan.groups.as_ref()).is_some_and(|groups| !groups.attach);
    let trains = world.history.steps() > 0 || scripts && world.group_steps > 0;
    if !world.plan.only_breaks || !trains || !is_whole(world) {
        return;
    }
    let costs = match decision {
        Decision::WorkerFailed { .. }
        | Decision::HostFailed { .. }
        | Decision::WentEarly { .. }
        | Decision::GroupEnded { .. }
        | Decision::RoundAborted { started: true, .. } => true,
        Decision::Stopped { why, .. } => *why != StopReason::JobEnded,
        _ => false,
    };
    if costs {
        world.violate(
            "returns",
            format!("only the network broke, and {decision:?}"),
        );
    }
}

/// Whether the round or group that started last has all workers. Others may follow when a break has cost a start.
fn is_whole(world: &World) -> bool {
    let np = world.plan.settings.np as usize;
    let round = world.rounds.last_key_value();
    let group = world.groups.last_key_value();
    round.is_some_and(|(_, round)| round.seats.len() == np)
        || group.is_some_and(|(_, group)| group.members.len() == np)
}

/// Checks a command to an agent.
pub(super) fn on_command(world: &mut World, command: &Command, step: &[Command]) {
    let Command::Send { host, command } = command else {
        return;
    };
    let plans = matches!(
        command,
        AgentCommand::Plan { .. }
            | AgentCommand::Start(_)
            | AgentCommand::Hold { .. }
            | AgentCommand::Spawn(_)
    );
    let known = world.driver.job.fleet().host(host);
    let away = known.is_some_and(|state| state.away().is_some());
    // Deadlines that are due take effect before the end of a connection.
    if plans && away && !super::goes_away(step, host) {
        world.violate(
            "returns",
            format!("{host} is out of reach, and gets {command:?}"),
        );
    }
}
