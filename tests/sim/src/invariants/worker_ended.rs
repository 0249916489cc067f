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
    /// The exit that the event of this step reports.
    reported: Option<(HostId, Process, Exit)>,
}

/// An event reaches the driver.
pub(crate) fn event(world: &mut World, event: &Event) {
    let memory = &mut world.invariants.worker_ended;
    memory.reported = match event {
        Event::Reported {
            host,
            report: AgentReport::Exited { process, exit, .. },
            ..
        } => Some((host.clone(), *process, exit.clone())),
        _ => None,
    };
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
            let reported = Some((host.clone(), *process, exit.clone()));
            if !failed || memory.reported != reported {
                let what = format!("{host} {process:?} is said to have ended: {exit}");
                world.violate("R10", what);
            }
        }
        _ => {}
    }
}
