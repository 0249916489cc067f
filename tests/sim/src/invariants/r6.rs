//! R6: a change that concerns workers reaches them however late they register and however often it is sent. The
//! job asks the round that trains to end as soon as a member has lost its slot. If a worker waits and the round
//! has room, the job asks at most a last call later. The round then ends within the interrupt timeout. All workers
//! that leave by a hold leave at one boundary (checked in the model of collectives).

use std::time::Duration;

use elasticrun_core::{Time, rounds::Phase};
use elasticrun_protocol::Round;

use super::{SLACK, change};
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// A round that has room while a worker waits, and since when.
    grows: Option<(Round, Time)>,
    /// A round that is asked to end, and since when.
    held: Option<(Round, Time)>,
    /// A round forms that has room, and a worker waits.
    formed: bool,
}

impl Memory {
    /// Whether the round that trained before this step had room while a worker waited.
    pub(super) fn could_grow(&self) -> bool {
        self.grows.is_some()
    }

    /// Whether the round that formed before this step had room while a worker waited.
    pub(super) fn would_grow(&self) -> bool {
        self.formed
    }
}

/// Checks the job after each step.
pub(super) fn on_step(world: &mut World) {
    let Phase::Training(training) = &world.driver.job.rounds().phase else {
        world.invariants.r6 = Memory {
            formed: change::will_grow(world),
            ..Memory::default()
        };
        return;
    };
    let (round, held) = (training.round, training.hold.is_some());
    let over = world.driver.ended.is_some() || world.invariants.r10.finishing;
    let grows = !held && !over && world.driver.job.fleet().census().waiting > 0;
    let grows = grows && !super::waits_for_away(world) && change::can_grow(world);
    let now = world.driver_now();
    let since = |before: Option<(Round, Time)>| match before {
        Some((other, since)) if other == round => Some((round, since)),
        _ => Some((round, now)),
    };
    let memory = &mut world.invariants.r6;
    memory.grows = since(memory.grows).filter(|_| grows);
    memory.formed = false;
    memory.held = since(memory.held).filter(|_| held && !over);
}

/// Periodic check of the job.
pub(crate) fn watch(world: &mut World) {
    let over = world.driver.ended.is_some() || world.invariants.r10.finishing;
    let Phase::Training(training) = &world.driver.job.rounds().phase else {
        return;
    };
    // A round that waits for hosts which are out of reach is not interrupted.
    if over || super::waits_for_away(world) {
        return;
    }
    let (round, held) = (training.round, training.hold.is_some());
    let slack = SLACK + world.plan.late;
    let overdue = |since: Option<(Round, Time)>, bound: Duration| {
        since.is_some_and(|(_, since)| world.driver_now().since(since) > bound + slack)
    };
    let (memory, settings) = (&world.invariants.r6, &world.plan.settings);
    let what = if overdue(memory.grows, settings.last_call) {
        "has room, somebody waits, and the last call is over"
    } else if overdue(memory.held, settings.interrupt_timeout) {
        "is not left within the interrupt timeout"
    } else if !held && lost_for_long(world, slack) {
        "has a member whose slot is gone, and is not asked to end"
    } else {
        return;
    };
    world.violate("R6", format!("{round:?} {what}"));
}

fn lost_for_long(world: &World, slack: Duration) -> bool {
    // Only a draining host, whose workers may train on for a while, is not asked at once.
    (change::lost_hosts(world).iter()).any(|host| {
        (world.reference.drain_due(host)).is_none_or(|due| due + slack < world.driver_now())
    })
}
