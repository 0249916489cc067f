//! The ends of single processes and hosts, and their deadlines. A process that hangs at its start or falls silent
//! is ended. A process that was ordered to stop may end by itself first, and is ended then (rule 10). A host that has
//! drained is released (rule 7). A healthy agent is not given up.

use std::time::Duration;

use elasticrun_core::{Decision, Time, fleet::Life, rounds::Phase};
use elasticrun_protocol::{Process, control::StopReason};

use super::SLACK;
use crate::world::{World, host::index_of};

/// Time for a signal and the death that follows.
const DEATH: Duration = Duration::from_millis(700);

/// An agent orders a process to stop, and must not signal it at once.
pub(crate) fn told(world: &mut World, host: usize, process: Process, why: StopReason) {
    if matches!(why, StopReason::Removed | StopReason::DomainFailed) {
        let now = world.now;
        if let Some(worker) = world.hosts[host].workers.get_mut(&process) {
            worker.removed.get_or_insert(now);
        }
    }
}

/// An agent sends SIGTERM to a process.
pub(crate) fn terminated(world: &mut World, host: usize, process: Process) {
    let worker = world.hosts[host].workers.get(&process);
    let told = worker.and_then(|worker| worker.removed);
    if told.is_some_and(|told| world.now.since(told) < world.plan.grace) {
        let what = format!("h{host} {process:?} was told to stop at {told:?} and is signalled");
        world.violate("rule 10", what);
    }
}

pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let Decision::HostFailed { host, why } = decision else {
        return;
    };
    let Some(index) = index_of(host).filter(|_| why.contains("did not answer a plan")) else {
        return;
    };
    let wait = world.plan.settings.abort_timeout + Duration::from_secs(11);
    let disturbed = world.hosts[index].disturbed;
    if world.reaches(index) && world.now.since(disturbed) > wait + world.plan.late {
        world.violate("R9", format!("{host} is well and is given up: {why}"));
    }
}

pub(super) fn watch(world: &mut World) {
    let found = hung(world)
        .or_else(|| lingering(world))
        .or_else(|| undrained(world));
    if let Some((name, what)) = found {
        world.violate(name, what);
    }
}

/// A process whose start timeout is over and that is not at `run()`.
fn hung(world: &World) -> Option<(&'static str, String)> {
    let settings = &world.plan.settings;
    if !settings.elastic || world.history.rounds() == 0 {
        return None;
    }
    let bound = settings.start_timeout + world.plan.late + SLACK;
    let now = world.driver_now();
    // Before the first attach there is no bound.
    let attached = world.invariants.groups.attached;
    let begun = |since: Time| attached.map_or(since, |at| at.max(since));
    (world.driver.job.fleet().hosts())
        .flat_map(|(host, state)| state.live().map(move |live| (host, live)))
        .find(|(_, live)| matches!(live.life, Life::Starting { since } if now.since(begun(since)) > bound))
        .map(|(host, live)| {
            (
                "R9",
                format!("{host} {:?} hangs at its start", live.process),
            )
        })
}

/// A process that should be dead.
fn lingering(world: &World) -> Option<(&'static str, String)> {
    let plan = &world.plan;
    let silence = plan.heartbeat_timeout + plan.heartbeat_interval * 3 + DEATH;
    for (index, host) in world.hosts.iter().enumerate() {
        let Some(agent) = &host.agent else { continue };
        let awake = world.now.since(host.awake);
        for (process, worker) in &host.workers {
            if !worker.is_of(agent.number) || worker.is_dead() {
                continue;
            }
            let over = |since: Option<elasticrun_core::Time>, bound: Duration| {
                since.is_some_and(|since| world.now.since(since).min(awake) > bound)
            };
            if over(worker.silent_since(), silence) {
                let what = format!("h{index} {process:?} does not beat, and nobody ends it");
                return Some(("R9", what));
            }
            if over(worker.aborted_since(), plan.settings.abort_timeout + DEATH) {
                let what = format!("h{index} {process:?} does not come back, and nobody ends it");
                return Some(("R9", what));
            }
            if over(worker.removed, plan.grace * 2 + DEATH) {
                let what = format!("h{index} {process:?} was told to stop, and nobody ends it");
                return Some(("rule 10", what));
            }
        }
    }
    None
}

/// A host that drains, runs nothing and keeps nothing that is needed.
fn undrained(world: &World) -> Option<(&'static str, String)> {
    let job = &world.driver.job;
    let held = match &job.rounds().phase {
        Phase::Training(training) => training.holders > 0 && training.hold.is_none(),
        _ => false,
    };
    let held = held || super::groups::lead(world);
    // A heartbeat has no consequence before the next deadline, which may be noticed late.
    let is_due = (job.next_deadline()).is_some_and(|due| due <= world.driver_now());
    if !held || is_due || world.invariants.r10.finishing {
        return None;
    }
    let idle = (job.fleet().hosts()).find(|(host, state)| {
        let drains = world.reference.drain_due(host).is_some();
        drains && state.up().is_some() && state.live().next().is_none() && !job.has_servers(host)
    });
    idle.map(|(host, _)| {
        (
            "rule 7",
            format!("{host} has drained and is not given free"),
        )
    })
}
