//! Agents that return: a break of the network between driver and agents, shorter than agents keep their workers, costs
//! no process and no round while the job needs no change. What is sent to a host that is out of reach reaches nobody, so
//! nothing is planned there.

use elasticrun_core::{Command, Decision};
use elasticrun_protocol::{AgentCommand, control::StopReason};

use crate::world::World;

/// Checks a job in which only the network breaks. Before the first step, a start may be lost with a connection.
pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let scripts = (world.plan.groups.as_ref()).is_some_and(|groups| !groups.attach);
    let trains = world.history.steps() > 0 || scripts && world.group_steps > 0;
    if !world.plan.only_breaks || !trains {
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
