//! Rules 5, 9 and 10 of the contract, and the second half of R10. A job that must end does, with the outcome that
//! its events require. The named first failure is the first one. Restarts and rounds are counted. A process that
//! was ordered to stop is neither a success nor a failure.

use std::collections::BTreeSet;

use elasticrun_core::{
    Decision, Event, FailureDomain, Time, journal::Saved, registry::State, rounds::Phase,
};
use elasticrun_protocol::{
    AgentReport, HostId, Process, Round,
    control::{Exit, StopReason},
};

use super::{later_driver, r10};
use crate::world::{RoundSim, Seat, World, host::index_of};

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The first failure, and its exit once the driver knows it.
    first: Option<(HostId, Option<Process>)>,
    exit: Option<Exit>,
    /// Members of the round that started last that failed by themselves.
    failed: BTreeSet<(HostId, Process)>,
    pub(super) restarts: u32,
    /// When the first member of the last round ended well.
    succeeded: Option<Time>,
    /// When a later driver decided which round goes on.
    decided: Time,
    /// When the last round lost its first member.
    broken: Option<Time>,
    /// Processes that were ordered to stop, whose ends are no failures.
    pub(super) told: Vec<(HostId, Process)>,
    /// The round that was planned last, and its members.
    planned: (Round, Vec<(usize, Process)>),
}

/// A later driver begins with these records. Its clock begins anew.
pub(super) fn resumed(world: &mut World, saved: &Saved) {
    let memory = &mut world.invariants.ends;
    let first = saved.failures.first.as_ref();
    memory.first = first.map(|first| (first.host.clone(), first.process));
    memory.exit = first.and_then(|first| first.exit.clone());
    (memory.succeeded, memory.broken, memory.decided) = (None, None, Time::ZERO);
    let of_groups = world.invariants.groups.restarts;
    memory.restarts = saved.progress.restarts.saturating_sub(of_groups);
    let failed = (saved.members.values()).flat_map(|entry| {
        let failed = entry.members.iter().filter(|m| m.state == State::Failed);
        failed.map(|member| (entry.host.clone(), member.process))
    });
    memory.failed = failed.collect();
}

/// A later driver has decided which round goes on. It waits for exits from here, at the latest.
pub(super) fn took_over(world: &mut World) {
    world.invariants.ends.decided = world.driver_now();
}

/// Checks the first failure that the records name.
pub(super) fn is_first(
    world: &World,
    named: Option<(HostId, Option<Process>)>,
) -> Result<(), String> {
    let first = &world.invariants.ends.first;
    match *first == named {
        true => Ok(()),
        false => Err(format!("{first:?} failed first, and {named:?} is recorded")),
    }
}

/// The job plans a round.
pub(super) fn planned(world: &mut World, host: &HostId, round: Round, members: &[Process]) {
    let memory = &mut world.invariants.ends;
    if memory.planned.0 != round {
        memory.planned = (round, Vec::new());
    }
    let host = index_of(host);
    (memory.planned.1).extend(
        host.into_iter()
            .flat_map(|host| members.iter().map(move |p| (host, *p))),
    );
}

/// An event reaches the driver, before the job receives it.
pub(crate) fn event(world: &mut World, event: &Event) {
    let Event::Reported {
        host,
        instance,
        report,
        ..
    } = event
    else {
        return;
    };
    let fleet = world.driver.job.fleet();
    let up = fleet.host(host).and_then(|state| state.up());
    let current = up.is_some_and(|up| up.instance == *instance);
    if current || world.driver.ended.is_some() {
        heard(world, event, host, report);
    }
}

/// A report reaches the driver that the job applies.
pub(crate) fn heard(world: &mut World, event: &Event, host: &HostId, report: &AgentReport) {
    super::success::event(world, event);
    super::paths::event(world, event);
    if let AgentReport::Exited { process, .. } | AgentReport::WorkerLost { process, .. } = report {
        world.blame.process_ended(host, *process);
    }
    let AgentReport::Exited {
        process,
        exit,
        stopped,
        ..
    } = report
    else {
        return;
    };
    let now = world.driver_now();
    let memory = &mut world.invariants.ends;
    if *stopped {
        // The record of a former driver that has told it to stop may be lost.
        memory.told.push((host.clone(), *process));
    }
    if memory.first == Some((host.clone(), Some(*process))) {
        memory.exit.get_or_insert_with(|| exit.clone());
    }
    let told = memory.told.contains(&(host.clone(), *process));
    let last = world.rounds.last_key_value();
    let member = last.is_some_and(|(_, round)| {
        (round.seats.iter()).any(|s| Some(s.host) == index_of(host) && s.process == *process)
    });
    let member = member || super::groups::is_member(world, host, *process);
    let memory = &mut world.invariants.ends;
    if member && exit.is_success() && !told {
        memory.succeeded.get_or_insert(now);
    }
}

pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let now = world.driver_now();
    let memory = &mut world.invariants.ends;
    match decision {
        Decision::WorkerFailed {
            host,
            process,
            member,
            exit,
        } => {
            let who = (host.clone(), *process);
            if memory.first.is_none() {
                memory.first = Some((host.clone(), Some(*process)));
                memory.exit.clone_from(exit);
            }
            if memory.told.contains(&who) {
                let what = format!("{host} {process:?} was told to stop and is a failure");
                return world.violate("rule 10", what);
            }
            if member.is_some() {
                memory.failed.insert(who);
            }
            memory.broken.get_or_insert(now);
        }
        // The exit may arrive with the failure, in the reports of an agent that returns.
        Decision::WorkerEnded {
            host,
            process,
            exit,
            ..
        } if memory.first == Some((host.clone(), Some(*process))) => {
            memory.exit.get_or_insert_with(|| exit.clone());
        }
        Decision::HostFailed { host, .. } => {
            memory.first.get_or_insert((host.clone(), None));
            memory.broken.get_or_insert(now);
            let drains = world.references().all(|known| known.drains(host));
            // A standard job ends with the loss, and names it.
            if drains && world.plan.settings.elastic {
                let what = format!("{host} drains, and its loss is a failure");
                world.violate("rule 7", what);
            }
        }
        Decision::WentEarly { .. } => {
            memory.broken.get_or_insert(now);
        }
        Decision::Stopped { host, process, why } if *why != StopReason::TimedOut => {
            memory.told.push((host.clone(), *process));
        }
        Decision::Attached | Decision::GroupStarted { .. } => {
            memory.failed.clear();
            (memory.succeeded, memory.broken) = (None, None);
        }
        Decision::RoundStarted { .. } => {
            memory.failed.clear();
            (memory.succeeded, memory.broken) = (None, None);
            memory.decided = Time::ZERO;
            let most = world.plan.settings.reset_limit.map(|limit| limit + 1);
            let uncounted = world.invariants.later_driver.uncounted;
            let rounds = (world.history.rounds() as u32).saturating_sub(uncounted);
            if most.is_some_and(|most| rounds > most) {
                world.violate("rule 9", format!("{rounds} rounds have started"));
            }
        }
        Decision::Restarting { used, .. } => {
            memory.failed.clear();
            memory.restarts += 1;
            let restarts = memory.restarts + world.invariants.groups.restarts;
            let allowed = world.plan.settings.max_restarts;
            if restarts > allowed || *used != restarts {
                let what = format!("restart {restarts} of {allowed}, and the job counts {used}");
                world.violate("rule 5", what);
            } else if let Err(what) = r10::all_failed(world)
                && fails_everywhere(world).is_err()
            {
                world.violate("rule 5", format!("it restarts, and {what}"));
            }
        }
        _ => {}
    }
}

/// After a step of a job that has not ended: the reason why it must end, if there is one.
pub(super) fn must_end(world: &World) -> Result<(), &'static str> {
    if world.reference.stopped {
        return Err("its user has stopped it");
    }
    if world.reference.fatal {
        return Err("its first discovery has failed for good");
    }
    let settings = &world.plan.settings;
    let finishing = world.invariants.r10.finishing;
    if !settings.elastic && world.invariants.ends.first.is_some() {
        return Err("a worker of a standard job has failed");
    }
    super::success::must_end(world)?;
    let job = &world.driver.job;
    if !matches!(job.rounds().phase, Phase::Idle) || finishing {
        return Ok(());
    }
    let memory = &world.invariants.ends;
    let last = world.rounds.last_key_value().map(|(_, round)| &round.seats);
    let last = last.filter(|_| later_driver::knows_last(world));
    let failed = |seat: &crate::world::Seat| {
        let host = world.hosts[seat.host].id.clone();
        memory.failed.contains(&(host, seat.process))
    };
    if last.is_some_and(|seats| seats.iter().all(failed)) {
        return Err("every member of the last round has failed by itself");
    }
    let known = job.fleet().census().stopping == 0 && !settings.self_registration;
    if known && world.reference.discovered && world.reference.all_out_for_good() {
        return Err("every host is out for good");
    }
    Ok(())
}

/// The job ends for an error of the script. The condition: in at least two rounds since the last that left a
/// commit, members ended by themselves with a code. This happened on every host that the next round was planned
/// on.
pub(super) fn fails_everywhere(world: &World) -> Result<(), String> {
    let fruitless = |round: &&RoundSim, next: &RoundSim| {
        next.base <= round.base || next.base.is_none_or(|base| base.count == 0)
    };
    let mut row: Vec<&RoundSim> = Vec::new();
    for round in world.rounds.values().rev() {
        if row.last().is_some_and(|next| !fruitless(&round, next)) {
            break;
        }
        row.push(round);
    }
    let failed = |seat: &&Seat| {
        let fate = world.fate(seat.host, seat.process);
        let by_itself = !fate.obeyed && !fate.lost && !fate.signalled;
        by_itself && matches!(fate.end, Some(Exit::Code(code)) if code != 0)
    };
    let failures = |round: &&&RoundSim| round.seats.iter().any(|seat| failed(&seat));
    if row.iter().filter(failures).count() < 2 {
        return Err("members failed in one round only".into());
    }
    let by_slot = match world.plan.settings.failure_domain {
        FailureDomain::Slot => true,
        FailureDomain::Auto => world.plan.is_divided(),
        FailureDomain::Host => false,
    };
    let domain = |seat: &Seat| (seat.host, by_slot.then_some(seat.process.local_rank));
    let all = row.iter().flat_map(|round| &round.seats);
    let domains: BTreeSet<_> = all.filter(failed).map(domain).collect();
    let (_, planned) = &world.invariants.ends.planned;
    let slot = |(host, process): &(usize, Process)| (*host, by_slot.then_some(process.local_rank));
    match planned
        .iter()
        .find(|member| !domains.contains(&slot(member)))
    {
        Some((host, _)) => Err(format!("h{host} has not failed")),
        None => Ok(()),
    }
}

/// The job ends by the exit timeout.
pub(super) fn exit_timed_out(world: &World) -> Result<(), String> {
    let memory = &world.invariants.ends;
    // A later driver that knows of a success waits from its decision about the round.
    let decided = (memory.decided > Time::ZERO).then_some(memory.decided);
    let since = memory.succeeded.into_iter().chain(memory.broken);
    let Some(since) = since.chain(decided).min() else {
        return Err("no member has ended".into());
    };
    let waited = world.driver_now().since(since);
    if waited < world.plan.settings.exit_timeout {
        return Err(format!("it has waited for {waited:?}"));
    }
    let last = world.rounds.last_key_value().map(|(_, round)| &round.seats);
    let held = |seat: &&crate::world::Seat| {
        let host = &world.hosts[seat.host];
        let worker = host.workers.get(&seat.process);
        let well = world.reaches(seat.host) && world.now.since(host.disturbed) > waited;
        well && worker.is_some_and(|worker| worker.is_held())
    };
    if let Some(seat) = last.into_iter().flatten().find(held) {
        return Err(format!(
            "h{} {:?} is still held at a boundary",
            seat.host, seat.process
        ));
    }
    if world.plan.calm && memory.broken.is_none() {
        return Err("nothing has failed, so all can end".into());
    }
    Ok(())
}

/// Periodic check: after the first success, the other members end within the exit timeout.
pub(super) fn waits_for_exits(world: &World) -> Result<(), String> {
    let Some(since) = world.invariants.ends.succeeded else {
        return Ok(());
    };
    let bound = world.plan.settings.exit_timeout + world.plan.late + super::SLACK;
    let since = since.max(world.invariants.ends.decided);
    if world.driver_now().since(since) > bound {
        return Err(format!(
            "a member has succeeded at {since:?}, and the job goes on"
        ));
    }
    Ok(())
}

/// The driver exits: checks the named first failure and its exit.
pub(crate) fn named(world: &mut World) {
    let first = world.driver.job.results().first_failure();
    let named = first.map(|first| (first.host.clone(), first.process));
    let memory = &world.invariants.ends;
    let exit = first.and_then(|first| first.exit.clone());
    if named != memory.first {
        let what = format!("{:?} failed first, and {named:?} is named", memory.first);
        world.violate("R10", what);
    } else if exit != memory.exit {
        let what = format!(
            "{named:?} ended with {:?}, and {exit:?} is said",
            memory.exit
        );
        world.violate("R10", what);
    }
}
