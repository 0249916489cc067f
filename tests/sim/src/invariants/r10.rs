//! R10: a job ends in exactly one outcome, begins nothing after it, and the outcome is true.

use std::collections::BTreeSet;

use elasticrun_core::{
    Command, Decision,
    journal::Saved,
    results::{Outcome, Reason},
    rounds::Phase,
};
use elasticrun_protocol::{AgentCommand, CommitKey, HostId, control::Exit};

use super::{ends, groups, later_driver, r9, r12, r16, reasons, success, survival};
use crate::{
    completeness,
    reference::Reference,
    world::{World, host::index_of},
};

#[derive(Debug, Default)]
pub(super) struct Memory {
    ended: bool,
    /// A member has finished in the round that started last.
    pub(super) finishing: bool,
    failures: u32,
    /// Hosts whose agents the job has lost at some time.
    lost: BTreeSet<usize>,
}

impl Memory {
    /// A later driver begins with these records.
    pub(super) fn resumed(&mut self, saved: &Saved) {
        (self.ended, self.finishing) = (false, saved.progress.ending);
        self.failures = saved.failures.count;
    }

    /// The driver learns of a later round than the one in which a member may have finished.
    pub(super) fn goes_on(&mut self) {
        self.finishing = false;
    }
}

pub(super) fn on_decision(world: &mut World, decision: &Decision) {
    let memory = &mut world.invariants.r10;
    match decision {
        Decision::Finishing => memory.finishing = true,
        Decision::RoundPlanned { .. } | Decision::Interrupting { .. } if memory.finishing => {
            let what = format!("a member has finished and the job goes on: {decision:?}");
            world.violate("R10", what);
        }
        Decision::RoundStarted { .. } | Decision::Attached => memory.finishing = false,
        Decision::WorkerFailed { .. } => memory.failures += 1,
        Decision::HostFailed { .. } => memory.failures += 1,
        Decision::Stopped { host, process, .. } => {
            if let Some(host) = index_of(host) {
                world.told_to_stop(host, *process);
            }
        }
        _ => {}
    }
}

/// A member of the last round has finished while no driver lived.
pub(super) fn finishes(world: &mut World) {
    world.invariants.r10.finishing = true;
}

/// A host does not come back with what it had.
pub(super) fn host_lost(world: &mut World, host: &HostId) {
    world.invariants.r10.lost.extend(index_of(host));
}

/// After every step of the job.
pub(super) fn on_step(world: &mut World) {
    if world.driver.ended.is_none()
        && !world.invariants.r10.ended
        && let Err(why) = ends::must_end(world)
    {
        world.violate("R10", format!("the job goes on, and {why}"));
    }
}

pub(super) fn on_command(world: &mut World, command: &Command) {
    if world.invariants.r10.ended {
        let quiet = matches!(
            command,
            Command::Send {
                // An agent that returns may train in a round that was over before the end.
                command: AgentCommand::Abort { .. }
                    | AgentCommand::Shutdown
                    | AgentCommand::Kill
                    | AgentCommand::Heartbeat { .. },
                ..
            } | Command::Disconnect { .. }
                | Command::EndLaunch { .. }
                | Command::Admit { .. }
                | Command::Refuse { .. }
                | Command::RefuseName { .. }
                | Command::SendBack { .. }
                | Command::Exit
                | Command::TellSources { .. }
                | Command::Answer { answer: Err(_), .. }
                | Command::Reject { .. }
                | Command::Announce(_)
        );
        if !quiet {
            world.violate("R10", format!("the job has ended and commands {command:?}"));
        }
    }
    if let Command::Disconnect { host, .. } | Command::EndLaunch { host, .. } = command {
        world.invariants.r10.lost.extend(index_of(host));
    }
    if let Command::End(outcome) = command {
        world.invariants.r10.ended = true;
        let whole = match outcome {
            Outcome::Succeeded => success::all_succeeded(world),
            _ => success::not_all(world, outcome),
        };
        let checks = [
            r9::timed_out(world, outcome),
            is_true(world, outcome),
            whole,
            reasons::calm(world, outcome),
            survival::ended(world, outcome),
            r16::ended(world, outcome),
        ];
        let names = ["R9", "R10", "R10", "R10", "replicas", "R16"];
        for (check, name) in checks.into_iter().zip(names) {
            if let Err(what) = check {
                world.violate(name, format!("{outcome:?}: {what}"));
            }
        }
    }
}

fn is_true(world: &World, outcome: &Outcome) -> Result<(), String> {
    let memory = &world.invariants.r10;
    let settings = &world.plan.settings;
    let holds = match outcome {
        Outcome::Succeeded if groups::lead(world) => true,
        Outcome::Succeeded => return succeeded(world),
        Outcome::WorkerFailed(Reason::Standard) => !settings.elastic && memory.failures > 0,
        Outcome::WorkerFailed(Reason::AllFailed | Reason::FailsEverywhere)
            if world.invariants.ends.restarts + world.invariants.groups.restarts
                < settings.max_restarts =>
        {
            return Err("a restart is left".into());
        }
        Outcome::WorkerFailed(Reason::NoRestartLeft { allowed }) => {
            settings.elastic && memory.failures > *allowed
        }
        Outcome::WorkerFailed(Reason::AllFailed) => return all_failed(world),
        Outcome::WorkerFailed(Reason::FailsEverywhere) => return ends::fails_everywhere(world),
        Outcome::WorkerFailed(Reason::AllHostsOut) => {
            let all_out = |known: &Reference| world.reference.all_out_for_good_of(known);
            world.references().any(all_out)
        }
        Outcome::WorkerFailed(Reason::NotAllSucceeded) => {
            return success::divided(world, memory.finishing);
        }
        Outcome::WorkerFailed(Reason::ExitTimeout) => return ends::exit_timed_out(world),
        Outcome::TimedOut { .. } => true,
        Outcome::ResetLimit { limit } if groups::lead(world) => {
            // The records may lack the last groups.
            let started = world.invariants.groups.started;
            let counted = started.saturating_sub(world.invariants.later_driver.uncounted);
            (counted..=started).contains(&(limit + 1))
        }
        Outcome::ResetLimit { limit } => return reasons::reset_limit(world, *limit),
        Outcome::DiscoveryFailed { .. } => world.reference.fatal,
        Outcome::NoStateLeft => return no_state_left(world),
        // Jobs of the simulation begin anew.
        Outcome::NothingToResume { .. } => false,
        // Fewer servers of the simulation fail.
        Outcome::ServersFailed { .. } => false,
        Outcome::Stopped { .. } => world.reference.stopped,
    };
    if holds {
        Ok(())
    } else {
        Err("it is not so".into())
    }
}

/// All members of the last round that the driver can know of have ended with 0.
fn succeeded(world: &World) -> Result<(), String> {
    let mut rounds = world.rounds.iter().rev();
    let last = rounds.find(|(round, _)| later_driver::knows(world, **round));
    let Some((number, round)) = last else {
        // The job ran scripts that never came to run(), as far as the driver can know.
        let done = world.driver.job.fleet().done();
        return if done > 0 {
            Ok(())
        } else {
            Err("nobody has trained".into())
        };
    };
    for seat in &round.seats {
        let end = world.fate(seat.host, seat.process).end;
        if end != Some(Exit::Code(0)) {
            return Err(format!(
                "{number:?} h{} {:?}: {end:?}",
                seat.host, seat.process
            ));
        }
    }
    Ok(())
}

/// Every member of the last round ended by itself, or hung.
pub(super) fn all_failed(world: &World) -> Result<(), String> {
    let last = world.rounds.last_key_value();
    let Some((_, round)) = last.filter(|_| later_driver::knows_last(world)) else {
        return Ok(());
    };
    let failed = |end: &Exit| !end.is_success();
    for seat in &round.seats {
        let fate = world.fate(seat.host, seat.process);
        let ended = fate.end.as_ref().is_some_and(failed) && !fate.obeyed;
        let by_itself = ended && !fate.lost && !fate.signalled;
        if !by_itself && !fate.given_up {
            return Err(format!("h{} {:?}: {fate:?}", seat.host, seat.process));
        }
    }
    Ok(())
}

/// No connected agent has a commit, and there was one before.
fn no_state_left(world: &World) -> Result<(), String> {
    // Some shards of each commit are lost, in that case.
    let parts = || {
        let parts = world.hosts.iter().enumerate().flat_map(|(index, host)| {
            let known = known_parts(world, index);
            known.into_iter().map(move |key| (host, key))
        });
        parts.filter(|(_, key)| world.history.is_valid(key.commit))
    };
    let has_steps = |key: &CommitKey| {
        let state = world.history.state(key.commit);
        state.is_some_and(|state| state.step > 0)
    };
    // A host may be out of reach since its answer.
    let answers = world.hosts.iter().filter_map(|host| host.told.as_ref());
    let answers = answers.filter(|(round, _)| Some(*round) > world.history.latest());
    let mut answered = answers.flat_map(|(_, keys)| keys);
    let lacks_shards = parts().any(|(_, key)| has_steps(&key))
        || answered.any(|key| has_steps(key) && world.history.is_valid(key.commit));
    // The commits of a lost host are unknown.
    let mut seats = world.rounds.values().flat_map(|round| &round.seats);
    let lost = seats.any(|seat| world.invariants.r10.lost.contains(&seat.host));
    if !lost && !world.history.has_commits() {
        return Err("nobody ever committed anything, so nothing is lost".into());
    }
    // No step completes before all members have sealed the start. A planned member of the first round that holds
    // nothing therefore proves that no step completed, if the driver knows it as a member.
    if let Phase::Forming(forming) = &world.driver.job.rounds().phase
        && !lacks_shards
        && let Some((number, last)) = world.rounds.last_key_value()
        && world.rounds.values().all(|round| round.base.is_none())
        && (last.seats.iter()).any(|seat| {
            forming.has(&world.hosts[seat.host].id, seat.process)
                && later_driver::knows_member(world, *number, seat)
        })
    {
        return Err("a member of the first round is there, so nothing was committed".into());
    }
    if world.plan.is_divided() {
        r12::gave_up(world)?;
    }
    if let Some(commit) = r12::in_store(world) {
        return Err(format!("the durable store has {commit:?}"));
    }
    match completeness::newest(parts().map(|(_, key)| key)) {
        Some(commit) => {
            let has = parts().filter(|(_, key)| key.commit == commit);
            let hosts: BTreeSet<_> = has.map(|(host, _)| &host.id).collect();
            Err(format!("{hosts:?} still have {commit:?}"))
        }
        None => Ok(()),
    }
}

/// What a host holds, as far as the job can know.
fn known_parts(world: &World, index: usize) -> Vec<CommitKey> {
    let host = &world.hosts[index];
    let state = world.driver.job.fleet().host(&host.id);
    // An agent that is not connected for the job yet comes too late.
    let is_up = state.is_some_and(|state| state.up().is_some());
    if !is_up || !world.reaches(index) {
        return Vec::new();
    }
    // The job cannot know of commits that were sealed after the agent's answer to the last plan.
    match &host.answered {
        Some((round, keys)) if Some(*round) > world.history.latest() => keys.clone(),
        _ => host.keys(),
    }
}
