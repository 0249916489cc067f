//! R9 and R10 after the end of a job. The driver exits in time, and only when no agent is connected. An agent that
//! it gives up got the order to kill its workers before.

use std::{collections::BTreeSet, time::Duration};

use elasticrun_core::{Command, Event, Time};
use elasticrun_protocol::{AgentCommand, HostId};

use super::SLACK;
use crate::world::World;

/// Allowance for agents beyond two times the grace, and for the kill that follows.
const ENDS: Duration = Duration::from_secs(2);
const KILLS: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// When the job ended, by the driver's clock.
    ended: Option<Time>,
    /// When the user asked for the stop again.
    asked_again: Option<Time>,
    killed: BTreeSet<HostId>,
    exited: bool,
}

/// An event reaches the driver.
pub(crate) fn event(world: &mut World, event: &Event) {
    let now = world.driver_now();
    let memory = &mut world.invariants.exit;
    if memory.ended.is_some() && matches!(event, Event::StopRequested { .. }) {
        memory.asked_again.get_or_insert(now);
    }
}

/// Whether the agents have got the order to kill. The driver gives them up at its next deadline, before anything else.
pub(crate) fn gives_up(world: &World) -> bool {
    let memory = &world.invariants.exit;
    memory.ended.is_some() && !memory.killed.is_empty()
}

/// The commands of one step of the job, before they are carried out.
pub(super) fn on_commands(world: &mut World, commands: &[Command]) {
    let now = world.driver_now();
    let mut closed = BTreeSet::new();
    for command in commands {
        if world.invariants.exit.exited {
            return world.violate("R10", format!("the driver exits and commands {command:?}"));
        }
        match command {
            Command::End(_) => world.invariants.exit.ended = Some(now),
            Command::Send {
                host,
                command: AgentCommand::Kill,
            } => {
                world.invariants.exit.killed.insert(host.clone());
            }
            Command::Disconnect { host, .. } => {
                let replaced = world.driver.connects.contains(host);
                let over = world.invariants.exit.ended.is_some() && world.is_reached(host);
                let over = over && !replaced;
                if over && !world.invariants.exit.killed.contains(host) {
                    let what = format!("{host} is given up and was not told to kill");
                    world.violate("R10", what);
                }
                closed.insert(host.clone());
            }
            Command::Exit => {
                world.invariants.exit.exited = true;
                let left: Vec<_> = (world.hosts.iter().map(|host| &host.id))
                    .filter(|host| world.is_reached(host) && !closed.contains(*host))
                    .collect();
                if !left.is_empty() {
                    let what = format!("the driver exits and {left:?} are connected");
                    world.violate("R10", what);
                }
            }
            _ => {}
        }
    }
}

/// Periodic check, once the job has ended.
pub(super) fn watch(world: &World) -> Result<(), String> {
    let memory = &world.invariants.exit;
    let Some(ended) = memory.ended.filter(|_| !memory.exited) else {
        return Ok(());
    };
    let late = world.plan.late + SLACK;
    let kills = ended + world.plan.grace * 2 + ENDS + late;
    let kills = memory.asked_again.map_or(kills, |asked| kills.min(asked));
    let due = kills + KILLS + late;
    match world.driver_now() > due {
        true => Err(format!(
            "the job has ended at {ended:?}, and its driver goes on beyond {due:?}"
        )),
        false => Ok(()),
    }
}
