//! R10: the reason of an outcome is true. The reset limit ends a job only when its last round is over and the next
//! one could begin, and before any member has finished. A job without faults and changes succeeds if it has the
//! slots.

use elasticrun_core::{Decision, results::Outcome};
use elasticrun_protocol::Round;

use super::success;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The round that started last is over, or is to be left.
    over: bool,
}

impl Memory {
    /// A later driver has decided which round goes on.
    pub(super) fn took_over(&mut self, round: Option<Round>) {
        self.over = round.is_none();
    }
}

pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let memory = &mut world.invariants.reasons;
    match decision {
        Decision::RoundStarted { .. } => memory.over = false,
        Decision::Interrupting { .. } | Decision::RoundAborted { started: true, .. } => {
            memory.over = true
        }
        _ => {}
    }
}

/// Checks that the next round would be one too many.
pub(super) fn reset_limit(world: &World, limit: u32) -> Result<(), String> {
    let rounds = world.history.rounds() as u32;
    let counted = rounds.saturating_sub(world.invariants.later_driver.uncounted);
    let is_reached = (counted..=rounds).contains(&(limit + 1));
    if Some(limit) != world.plan.settings.reset_limit || !is_reached {
        return Err(format!("{rounds} rounds have started"));
    }
    if !world.invariants.reasons.over {
        return Err("nothing has ended the last round".into());
    }
    if world.invariants.r10.finishing {
        return Err("a member has finished, so no round follows".into());
    }
    let workers = world.workers_there(|host, process| success::has_heard(world, host, process));
    let needed = world.plan.settings.min_np as usize;
    // A deadline that had passed when an event came takes effect before the event. What the event tells is not known then.
    let late = world.before_event.is_some();
    match workers.is_some_and(|workers| workers < needed && !late) {
        true => Err(format!(
            "of {needed} workers for a round {workers:?} are there"
        )),
        false => Ok(()),
    }
}

/// Checks that a job without faults and changes succeeds, or has too few slots.
pub(super) fn calm(world: &World, outcome: &Outcome) -> Result<(), String> {
    let struck = world.plan.faults.iter().any(|(at, _)| *at <= world.now);
    if !world.plan.calm || struck {
        return Ok(());
    }
    let usable = world.reference.usable(world.driver_now());
    match outcome {
        Outcome::Succeeded | Outcome::ResetLimit { .. } => Ok(()),
        Outcome::TimedOut { .. } if usable < world.plan.settings.min_np => Ok(()),
        _ => Err(format!(
            "nothing has happened, and {usable} slots are there"
        )),
    }
}
