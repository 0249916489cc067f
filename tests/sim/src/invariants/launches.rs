//! Agents are launched in batches. Few launches are without a result, apart from those that hang: these began some time
//! ago and hold up no other host ([`super::filling`]).

use std::time::Duration;

use elasticrun_core::{Command, fleet::Agent};

use crate::world::World;

/// A launch that has no result for so long most likely hangs.
const YOUNG: Duration = Duration::from_secs(10);

/// The number of launches that began a short time ago and have no result.
fn young(world: &World) -> usize {
    let now = world.driver_now();
    let young = |agent: &Agent| match agent {
        Agent::Launching { since } => now.since(*since) < YOUNG,
        _ => false,
    };
    let hosts = world.driver.job.fleet().hosts();
    hosts.filter(|(_, state)| young(&state.agent)).count()
}

/// Whether another host has to wait for its launch.
pub(super) fn are_full(world: &World) -> bool {
    young(world) >= world.plan.settings.launches_at_once
}

pub(super) fn on_commands(world: &mut World, commands: &[Command]) {
    let launches = |command: &Command| matches!(command, Command::Launch { .. });
    let (young, most) = (young(world), world.plan.settings.launches_at_once);
    if commands.iter().any(launches) && young > most {
        let what = format!("{young} agents are launched at once, and {most} may be");
        world.violate("launches", what);
    }
}
