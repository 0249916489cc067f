//! A failed worker whose end was not known yet is said to have ended once, and how its agent reported it. No other worker
//! is said to have ended.

use std::collections::BTreeSet;

use elasticrun_core::{Decision, Event};
use elasticrun_protocol::{AgentReport, HostId, Process, control::Exit};

use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Failed workers whose end is not known.
    unexplained: BTreeSet<(HostId, Process)>,
    /// The exits that the event of this step reports.
    reported: Vec<(HostId, Process, Exit)>,
}

/// An event reaches the driver.
pub(crate) fn event(world: &mut World, event: &Event) {
    // During a take-over, failures wait for the decision which round goes on.
    if !world.driver.is_taking_over() {
        world.invariants.worker_ended.reported.clear();
    }
    heard(world, event);
}

/// A report reaches the driver, perhaps with others.
pub(crate) fn heard(world: &mut World, event: &Event) {
    if let Event::Reported {
        host,
        report: AgentReport::Exited { process, exit, .. },
        ..
    } = event
    {
        let reported = (host.clone(), *process, exit.clone());
        world.invariants.worker_ended.reported.push(reported);
    }
}

pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let memory = &mut world.invariants.worker_ended;
    match decision {
        Decision::WorkerFailed {
            host,
            process,
            exit: None,
            ..
        } => {
            memory.unexplained.insert((host.clone(), *process));
        }
        Decision::WorkerEnded {
            host,
            process,
            exit,
            ..
        } => {
            let failed = memory.unexplained.remove(&(host.clone(), *process));
            let reported = (host.clone(), *process, exit.clone());
            if !failed || !memory.reported.contains(&reported) {
                let what = format!("{host} {process:?} is said to have ended: {exit}");
                world.violate("R10", what);
            }
        }
        _ => {}
    }
}
